-- Like multi_acquire, for members that are all mutexes: the steps of mutex_acquire for each of them.
-- KEYS the locks   ARGV[1] owner   ARGV[2] lease in ms
-- Reply: as multi_acquire.
local call, pcall = redis.call, redis.pcall
local owner, lease = ARGV[1], ARGV[2]
local held = {} -- the ms that are left of this owner's leases

-- Usually all of them are free: one command instead of many.
if call('exists', unpack(KEYS)) > 0 then
    for i = 1, #KEYS do
        local left = call('pttl', KEYS[i])
        if left ~= -2 and call('hexists', KEYS[i], owner) == 0 then
            return { i - 1, left }
        end
        held[i] = left
    end
end
for i = 1, #KEYS do
    local longer = (held[i] or -2) < tonumber(lease)
    call('hset', KEYS[i], owner, 1)
    local set = longer and pcall('pexpire', KEYS[i], lease) or 1
    if set ~= 1 then
        for taken = 1, i do
            if (held[taken] or -2) == -2 then -- a late copy takes nothing away
                call('hdel', KEYS[taken], owner)
            end
        end
        return redis.error_reply(type(set) == 'table' and set.err or 'ERR the lease was refused')
    end
end
return nil
