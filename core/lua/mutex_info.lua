-- Who holds the mutex.
-- KEYS[1] lock   ARGV[1] channel
-- Reply: remaining ms (-2 free, -1 no TTL), owner, count, subscribed processes (-1 unknown).
local left = redis.call('pttl', KEYS[1])
local field = left == -2 and {} or redis.call('hgetall', KEYS[1])
local subscribed = redis.pcall('pubsub', 'numsub', ARGV[1])
return { left, field[1] or '', tonumber(field[2] or 0) or 0, subscribed[2] or -1 }
