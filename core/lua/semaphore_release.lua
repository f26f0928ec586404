-- with _counter.lua
-- Release permits and wake as many waiters.
-- KEYS[1] semaphore   ARGV[1] how many   ARGV[2] channel
-- Reply: 1 + number of receivers of the message; -1 if that was refused.
local value = counter(redis.call('get', KEYS[1]))
if not value then
    return redis.error_reply('WRONGTYPE the string is not a semaphore')
end
if value + tonumber(ARGV[1]) > 2147483647 then
    return redis.error_reply('ERR the number of permits would leave the range of 32 bits')
end
-- This write changes nothing and is never refused; after it, a server out of memory accepts INCRBY too.
redis.pcall('hdel', KEYS[1], '')
value = redis.call('incrby', KEYS[1], ARGV[1])
local receivers = value > 0 and redis.pcall('publish', ARGV[2], whole(value)) or 0
return type(receivers) == 'number' and 1 + receivers or -1
