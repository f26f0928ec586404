-- with _counter.lua
-- The count of a latch.
-- KEYS[1] latch   ARGV[1] channel
-- Reply: -2 open, -1 shut; no owner; the count; subscribed processes (-1 unknown); no token.
local value = counter(redis.call('get', KEYS[1]))
if not value then
    return redis.error_reply('WRONGTYPE the string is not a latch')
end
local subscribed = redis.pcall('pubsub', 'numsub', ARGV[1])
return { value > 0 and -1 or -2, '', value, subscribed[2] or -1, '' }
