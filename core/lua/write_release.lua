-- Release the write side and wake all waiters; an owner that also reads continues as a reader.
-- KEYS[1] lock   ARGV[1] owner   ARGV[2] channel
-- Reply: 0 not held by this owner; 1 + number of receivers of the message otherwise; -1 if that
-- was refused.
-- The messages are 1, which wakes all waiters of a process, and 0: see below.
if redis.call('hdel', KEYS[1], ARGV[1] .. ':write') == 0 then
    return 0
end
if redis.call('hlen', KEYS[1]) <= 1 then
    redis.call('del', KEYS[1])
else
    redis.call('hset', KEYS[1], 'mode', 'read')
end
-- Message 1 wakes all waiters of a process at once, but of Redisson's only those already asleep; 0 is kept
-- for one that is about to sleep.
local receivers = redis.pcall('publish', ARGV[2], '1')
redis.pcall('publish', ARGV[2], '0')
return type(receivers) == 'number' and 1 + receivers or -1
