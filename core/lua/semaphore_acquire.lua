-- with _counter.lua
-- Take permits of a semaphore, a plain number.
-- KEYS[1] semaphore   ARGV[1] how many
-- Reply: nil taken; -1 there are too few.
-- Taken permits have no owner, so the request is sent only once.
local value = counter(redis.call('get', KEYS[1]))
if not value then
    return redis.error_reply('WRONGTYPE the string is not a semaphore')
end
if value < tonumber(ARGV[1]) then
    return -1
end
redis.call('decrby', KEYS[1], ARGV[1])
return nil
