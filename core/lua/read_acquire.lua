-- Acquire the read side of a read/write lock: a hash with `mode`, a field for every reader and perhaps
-- "<owner>:write", and for every reader a key that lives as long as its own lease.
-- KEYS[1] lock   KEYS[2] this reader's lease   KEYS[3] the mark of waiting writers
-- ARGV[1] owner   ARGV[2] lease in ms   ARGV[3] its write hold, whose reads have owners of their own, or nothing
-- Reply: nil granted; otherwise the remaining ms to wait for (-1: unknown).
-- Readers join readers, and those of a write hold join that.  The count stays 1: see mutex_acquire.
-- A lock without a TTL is other data, which is waited for.
local left = redis.call('pttl', KEYS[1])
local mode = left ~= -2 and redis.call('hget', KEYS[1], 'mode')
if left ~= -2 and redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
    if mode == 'read' and left ~= -1 then
        local mark = redis.call('pttl', KEYS[3])
        if mark > 0 then
            return mark
        end
    elseif mode ~= 'write' or not ARGV[3] or redis.call('hexists', KEYS[1], ARGV[3] .. ':write') == 0 then
        return left
    end
elseif left == -2 then
    -- Just free, and a writer waits: give it this moment, after which the mark ends, in case it has given up.
    local mark = redis.call('pttl', KEYS[3])
    if mark > 0 then
        if mark > 20 then
            redis.call('pexpire', KEYS[3], 20)
        end
        return math.min(mark, 20)
    end
end
if redis.call('pttl', KEYS[2]) < tonumber(ARGV[2]) then
    redis.call('set', KEYS[2], 1, 'px', ARGV[2])
end
local added = redis.call('hset', KEYS[1], 'mode', mode or 'read', ARGV[1], 1)
-- The lock lives as long as the longest of its holds; never leave it without a TTL.
if left < tonumber(ARGV[2]) then
    local set = redis.pcall('pexpire', KEYS[1], ARGV[2])
    if set ~= 1 then
        if added > 0 then
            redis.call('hdel', KEYS[1], ARGV[1], left == -2 and 'mode' or ARGV[1])
        end
        return redis.error_reply(type(set) == 'table' and set.err or 'ERR the lease was refused')
    end
end
return nil
