-- Delete the spin lock regardless of its holder: the mutex without a message.
-- KEYS[1] lock
-- Reply: 1 deleted, 0 it did not exist.  Anything that does not look like a lock is left alone.
local fields = redis.call('hkeys', KEYS[1])
for i = 1, #fields do
    if not string.find(fields[i], '^%x+%-%x+%-%x+%-%x+%-%x+:') then
        return redis.error_reply('WRONGTYPE the hash is not a lock')
    end
end
return redis.call('del', KEYS[1])
