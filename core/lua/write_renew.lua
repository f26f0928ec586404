-- Renew many write holds, each only if its owner still holds it.
-- KEYS[i] lock   ARGV[1] lease in ms, 0 to check only   ARGV[i + 1] owner of KEYS[i]
-- Reply: an array with two integers for every lock that its owner does not hold: the index i and
-- 1 (the lock or other data under its name exists) or 0 (it is gone).  Empty: all renewed.
local lease, exact = math.abs(tonumber(ARGV[1])), tonumber(ARGV[1]) < 0 -- see mutex_renew
local lost = {}
for i = 1, #KEYS do
    local field = ARGV[i + 1] .. ':write'
    local held = redis.pcall('hexists', KEYS[i], field)
    if held == 1 then
        -- A read hold of the same owner may have a longer lease.
        if lease > 0 and ((exact and redis.call('hlen', KEYS[i]) <= 2) or redis.call('pttl', KEYS[i]) < lease) then
            redis.call('pexpire', KEYS[i], lease)
        end
    elseif held == 0 then
        -- A replica's "not held" proves nothing.  This write changes nothing on a master, and a replica refuses it.
        redis.call('hdel', KEYS[i], field)
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
