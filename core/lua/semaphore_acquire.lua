-- Take permits of a semaphore, a plain number.
-- KEYS[1] semaphore   ARGV[1] how many
-- Reply: nil taken; -1 there are too few.
-- Taken permits have no owner, so the request is sent only once.
local text = redis.call('get', KEYS[1]) or '0'
local value = string.find(text, '^%-?%d+$') and tonumber(text)
if not value then
    return redis.error_reply('WRONGTYPE the string is not a semaphore')
end
if value < tonumber(ARGV[1]) then
    return -1
end
redis.call('decrby', KEYS[1], ARGV[1])
return nil
