-- One step of a search for locks.
-- ARGV[1] cursor   ARGV[2] pattern   ARGV[3] how many keys to look at
-- Reply: the next cursor, then the names.  A lock is a hash whose first field is an owner.
local step = redis.call('scan', ARGV[1], 'match', ARGV[2], 'count', ARGV[3])
local found = { step[1] }
for _, key in ipairs(step[2]) do
    if redis.call('type', key).ok == 'hash' and redis.call('hlen', key) <= 1000 then
        for _, field in ipairs(redis.call('hkeys', key)) do
            if string.find(field, '^%x+%-%x+%-%x+%-%x+%-%x+:') then
                found[#found + 1] = key
                break
            end
        end
    end
end
return found
