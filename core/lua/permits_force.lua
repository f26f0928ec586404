-- with _counter.lua
-- Delete permits, free and taken ones.  No waiter needs to be woken.
-- KEYS[1] free permits   KEYS[2] taken ones
-- Reply: 1 deleted, 0 it did not exist.  Keys of other types are left alone.
local text = redis.call('get', KEYS[1])
redis.call('zcard', KEYS[2])
if not counter(text) then
    return redis.error_reply('WRONGTYPE the string is no number of permits')
end
return math.min(redis.call('del', KEYS[1], KEYS[2]), 1)
