-- The count of a latch.
-- KEYS[1] latch   ARGV[1] channel
-- Reply: -2 open, -1 shut; no owner; the count; subscribed processes (-1 unknown); no token.
local text = redis.call('get', KEYS[1]) or '0'
local value = string.find(text, '^%-?%d+$') and tonumber(text)
if not value then
    return redis.error_reply('WRONGTYPE the string is not a latch')
end
local subscribed = redis.pcall('pubsub', 'numsub', ARGV[1])
return { value > 0 and -1 or -2, '', value, subscribed[2] or -1, '' }
