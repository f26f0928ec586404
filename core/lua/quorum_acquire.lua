-- Acquire the mutex for a quorum, if this node may vote.
-- KEYS[1] lock   KEYS[2] epoch   ARGV[1] owner   ARGV[2] lease in ms   ARGV[3] run id of this server, ? unknown
-- ARGV[4] quarantine in ms, 0 none
-- Reply: nil granted; otherwise the remaining ms of the other holder's lease, or of the quarantine.
-- The epoch says since when this server's memory is complete: "<run id> <ms since the epoch>".  If it is missing,
-- or another run of the server wrote it, locks may have been forgotten: no vote until the longest has ended.  A
-- client that does not know the run id trusts the epoch: otherwise clients that know it would reset it every time.
-- An epoch that is still to come was written before the server's clock was set back: it begins anew.
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if tonumber(ARGV[4]) > 0 then
    local run, since = string.match(redis.call('get', KEYS[2]) or '', '^(%S+) (%d+)$')
    local known = run and (run == ARGV[3] or ARGV[3] == '?')
    if not known or tonumber(since) > now then
        since = now
        redis.call('set', KEYS[2], (known and run or ARGV[3]) .. ' ' .. string.format('%d', now))
    end
    local wait = tonumber(since) + tonumber(ARGV[4]) - now
    if wait > 0 then
        return wait
    end
end
local left = redis.call('pttl', KEYS[1])
if left ~= -2 and redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
    return left
end
local longer = left < tonumber(ARGV[2]) -- a late copy shortens no extended lease: see mutex_acquire
local added = redis.call('hset', KEYS[1], ARGV[1], 1)
local set = longer and redis.pcall('pexpire', KEYS[1], ARGV[2]) or 1
if set ~= 1 then
    if added == 1 then
        redis.call('hdel', KEYS[1], ARGV[1])
    end
    return redis.error_reply(type(set) == 'table' and set.err or 'ERR the lease was refused')
end
return nil
