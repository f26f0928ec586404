-- Renew many read holds, each only if its owner still holds it.
-- KEYS[2 i - 1] lock   KEYS[2 i] the reader's lease
-- ARGV[1] lease in ms, 0 to check only   ARGV[i + 1] owner
-- Reply: an array with two integers for every hold that is gone: the index i and 1 (the lock
-- or other data under its name exists) or 0 (the lock is gone).  Empty: all renewed.
local lease, exact = math.abs(tonumber(ARGV[1])), tonumber(ARGV[1]) < 0 -- see mutex_renew
local lost = {}
for i = 1, #KEYS / 2 do
    local lock, own = KEYS[2 * i - 1], KEYS[2 * i]
    local held = redis.pcall('hexists', lock, ARGV[i + 1])
    if held == 1 then
        -- Other readers may have longer leases.  A server out of memory does not refuse PEXPIRE, and after
        -- it, it does not refuse SET either.
        if lease > 0 and ((exact and redis.call('hlen', lock) <= 2) or redis.call('pttl', lock) < lease) then
            redis.call('pexpire', lock, lease)
        end
        if lease > 0 and (exact or redis.call('pttl', own) < lease) and redis.call('pexpire', own, lease) == 0 then
            redis.call('set', own, 1, 'px', lease)
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
