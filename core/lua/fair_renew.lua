-- Renew many fair locks, each only if its owner still holds it.
-- KEYS[3i-2] lock   KEYS[3i-1] queue   KEYS[3i] places   ARGV[1] lease in ms, as in mutex_renew
-- ARGV[i + 1] owner of lock i
-- Reply: as mutex_renew.lua.
-- Waiters ahead of the first Snib waiter rely on the lease they saw: an extension is added to their places.
-- The first Snib waiter pushes its own place and all behind it.
local lease = tonumber(ARGV[1])
local lost = {}
for i = 1, #KEYS / 3 do
    local lock, queue, places = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]
    local held = redis.pcall('hexists', lock, ARGV[i + 1])
    if held == 1 then
        local left = redis.call('pttl', lock)
        local longer = math.abs(lease) - left
        if lease < 0 or (lease > 0 and longer > 0) then
            redis.call('pexpire', lock, math.abs(lease))
        end
        if lease ~= 0 and longer > 0 and redis.call('exists', queue) == 1 then
            -- Other data under the queue's name must not fail the other holds of the batch.
            for _, member in ipairs(redis.pcall('lrange', queue, 0, -1)) do
                if string.sub(member, 15, 15) == '8' then
                    break
                end
                if type(redis.pcall('zscore', places, member)) == 'string' then
                    redis.call('zincrby', places, longer, member)
                end
            end
        end
    elseif held == 0 then
        -- A replica's "not held" proves nothing.  This write changes nothing on a master, and a replica refuses it.
        redis.call('hdel', lock, ARGV[i + 1])
        lost[#lost + 1] = i
        lost[#lost + 1] = redis.call('exists', lock)
    elseif string.find(held.err, 'WRONGTYPE', 1, true) then
        lost[#lost + 1] = i
        lost[#lost + 1] = 1
    else
        return held
    end
end
return lost
