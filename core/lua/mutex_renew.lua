-- Renew many mutexes, each only if its owner still holds it.
-- KEYS[i] lock   ARGV[1] lease in ms, 0 to check only   ARGV[i + 1] owner of KEYS[i]
-- A lease is never shortened, because requests may come in any order; one below 0 is set exactly, negated, for
-- members of a multi lock until they are extended.  What several holds keep alive is not shortened by one of them.
-- Reply: an array with two integers for every lock that its owner does not hold: the index i and
-- 1 (another owner holds it, or it is no longer a lock) or 0 (it is gone).  Empty: all renewed.
local lease = tonumber(ARGV[1])
local lost = {}
for i = 1, #KEYS do
    local held = redis.pcall('hexists', KEYS[i], ARGV[i + 1])
    if held == 1 then
        if lease < 0 or (lease > 0 and redis.call('pttl', KEYS[i]) < lease) then
            redis.call('pexpire', KEYS[i], math.abs(lease))
        end
    elseif held == 0 then
        -- A replica's "not held" proves nothing.  This write changes nothing on a master, and a replica refuses it.
        redis.call('hdel', KEYS[i], ARGV[i + 1])
        lost[#lost + 1] = i
        lost[#lost + 1] = redis.call('exists', KEYS[i])
    elseif string.find(held.err, 'WRONGTYPE', 1, true) then
        lost[#lost + 1] = i
        lost[#lost + 1] = 1
    else
        return held
    end
end
return lost
