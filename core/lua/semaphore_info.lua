-- with _counter.lua
-- How many permits a semaphore has.
-- KEYS[1] semaphore   ARGV[1] channel
-- Reply: -2 some are free, -1 none is; no owner; their number; subscribed processes (-1 unknown);
-- no token.
local text = redis.call('get', KEYS[1])
local value = counter(text)
if not value then
    return redis.error_reply('WRONGTYPE the string is not a semaphore')
end
local subscribed = redis.pcall('pubsub', 'numsub', ARGV[1])
return { text and value < 1 and -1 or -2, '', value, subscribed[2] or -1, '' }
