-- Delete permits, free and taken ones.  There is nothing to wake anybody for.
-- KEYS[1] free permits   KEYS[2] taken ones
-- Reply: 1 deleted, 0 there was nothing.  What is no number, or no sorted set, is left alone.
local text = redis.call('get', KEYS[1])
redis.call('zcard', KEYS[2])
if text and not tonumber(text) then
    return redis.error_reply('WRONGTYPE the string is no number of permits')
end
return math.min(redis.call('del', KEYS[1], KEYS[2]), 1)
