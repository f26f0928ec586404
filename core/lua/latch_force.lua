-- with _counter.lua
-- Delete a latch, which opens it.
-- KEYS[1] latch   ARGV[1] channel
-- Reply: 1 deleted, 0 it did not exist.  A value that is not a number is left alone.
-- Redisson publishes 1 when it deletes a latch; only the 0 after it releases its waiters.
if not counter(redis.call('get', KEYS[1])) then
    return redis.error_reply('WRONGTYPE the string is not a latch')
end
if redis.call('del', KEYS[1]) == 0 then
    return 0
end
redis.pcall('publish', ARGV[1], '1')
redis.pcall('publish', ARGV[1], '0')
return 1
