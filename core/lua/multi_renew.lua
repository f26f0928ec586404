-- Renew holds of multi locks, each only if its owner still holds all of its members.
-- KEYS two for each member of each hold: its lock; a reader's own lease, otherwise the lock again
-- ARGV[1] lease in ms, 0 to check only   then for each hold its owner and a letter for each member, as in
-- multi_acquire
-- Reply: an array with two integers for every hold that is gone: the index from 1 and 1 (the first member
-- that is missing has another owner, or is no longer a lock) or 0 (it is gone).  Empty: all renewed.
local lease, exact = math.abs(tonumber(ARGV[1])), tonumber(ARGV[1]) < 0 -- see mutex_renew
local at = 0

-- 1 held, 0 not held, or an error reply.
local function check(kind, lock, owner)
    local field = kind == 'w' and owner .. ':write' or owner
    local held = redis.pcall('hexists', lock, field)
    if held == 0 then
        -- A replica's "not held" proves nothing.  This write changes nothing on a master, and a replica refuses it.
        redis.call('hdel', lock, field)
    elseif held ~= 1 and string.find(held.err, 'WRONGTYPE', 1, true) then
        return 0
    end
    return held
end

-- Other holds of a read/write lock may have longer leases.
local function renew(kind, lock, own)
    if (exact and redis.call('hlen', lock) <= 2) or redis.call('pttl', lock) < lease then
        redis.call('pexpire', lock, lease)
    end
    if kind == 'r' and (exact or redis.call('pttl', own) < lease) and redis.call('pexpire', own, lease) == 0 then
        redis.call('set', own, 1, 'px', lease)
    end
end

local lost = {}
for i = 2, #ARGV, 2 do
    local owner, kinds = ARGV[i], ARGV[i + 1]
    local missing = nil
    for m = 1, #kinds do
        local held = check(string.sub(kinds, m, m), KEYS[at + 2 * m - 1], owner)
        if type(held) == 'table' then
            return held
        elseif held == 0 then
            missing = missing or KEYS[at + 2 * m - 1]
        end
    end
    if missing then
        lost[#lost + 1] = i / 2
        lost[#lost + 1] = redis.call('exists', missing)
    elseif lease > 0 then
        for m = 1, #kinds do
            renew(string.sub(kinds, m, m), KEYS[at + 2 * m - 1], KEYS[at + 2 * m])
        end
    end
    at = at + 2 * #kinds
end
return lost
