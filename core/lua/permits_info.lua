-- with _counter.lua
-- How many permits are free and when the next lease ends; see permits_acquire for the keys.
-- KEYS[1] free permits   KEYS[2] taken ones   ARGV[1] channel
-- Reply: ms until the next lease ends (-2 none is taken, -1 none ends); no owner; free permits, including
-- expired ones; subscribed processes (-1 unknown); no token.
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local value = counter(redis.call('get', KEYS[1]))
if not value then
    return redis.error_reply('WRONGTYPE the string is no number of permits')
end
local expired = redis.call('zcount', KEYS[2], '-inf', now)
local first = redis.call('zrange', KEYS[2], expired, expired, 'withscores')
local left = -2
if first[2] then
    local ends = tonumber(first[2])
    left = ends < 922337203685477 and ends - now or -1
end
local subscribed = redis.pcall('pubsub', 'numsub', ARGV[1])
return { left, '', value + expired, subscribed[2] or -1, '' }
