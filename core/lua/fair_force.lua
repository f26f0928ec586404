-- with _fair.lua
-- Delete the fair lock regardless of its holder, and grant it to the next waiter; the queue stays.
-- ARGV[1] channel prefix
-- Reply: 1 deleted, 0 it did not exist.  Anything that does not look like a lock is left alone.
local fields = redis.call('hkeys', KEYS[1])
if #fields == 0 then
    return redis.call('del', KEYS[1]) -- 0; a replica refuses it, whose "not there" would prove nothing
end
for i = 1, #fields do
    if not string.find(fields[i], '^%x+%-%x+%-%x+%-%x+%-%x+:') then
        return redis.error_reply('WRONGTYPE the hash is not a lock')
    end
end
redis.call('del', KEYS[1])
pcall(grant, ARGV[1]) -- the lock is deleted, whatever a grant is refused
return 1
