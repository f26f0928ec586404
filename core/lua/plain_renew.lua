-- Renew many plain locks, each only if its owner still holds it.
-- KEYS[i] lock   ARGV[1] lease in ms, as in mutex_renew   ARGV[i + 1] owner of KEYS[i]
-- Reply: an array with two integers for every lock that its owner does not hold: the index i and
-- 1 (another owner holds it, or it is no longer a lock) or 0 (it is gone).  Empty: all renewed.
local lease = tonumber(ARGV[1])
local lost = {}
for i = 1, #KEYS do
    local owner = redis.pcall('get', KEYS[i])
    if type(owner) == 'table' and not string.find(owner.err, 'WRONGTYPE', 1, true) then
        return owner
    end
    if owner == ARGV[i + 1] then
        if lease < 0 or (lease > 0 and redis.call('pttl', KEYS[i]) < lease) then
            redis.call('pexpire', KEYS[i], math.abs(lease))
        end
    else
        -- A replica's "not held" proves nothing.  This write changes nothing on a master, and a replica refuses it.
        local proof = redis.pcall('hdel', KEYS[i], '')
        if type(proof) == 'table' and not string.find(proof.err, 'WRONGTYPE', 1, true) then
            return proof
        end
        lost[#lost + 1] = i
        lost[#lost + 1] = redis.call('exists', KEYS[i])
    end
end
return lost
