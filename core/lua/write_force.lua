-- Delete the writer with its own reads, and wake the waiters.
-- KEYS[1] lock   ARGV[1] channel
-- Reply: 1 deleted, 0 there is no writer.  Anything that is not a read/write lock is left alone.
local mode = redis.call('hget', KEYS[1], 'mode')
if mode == 'read' then
    return redis.call('hdel', KEYS[1], '') -- 0; a replica refuses it, which may be behind
elseif redis.call('exists', KEYS[1]) == 0 then
    return redis.call('del', KEYS[1]) -- see mutex_force
end
local fields = redis.call('hkeys', KEYS[1])
local lock = mode == 'write' and #fields > 1
for i = 1, #fields do
    lock = lock and (fields[i] == 'mode' or string.find(fields[i], '^%x+%-%x+%-%x+%-%x+%-%x+:'))
end
if not lock then
    return redis.error_reply('WRONGTYPE the hash is not a read/write lock')
end
redis.call('del', KEYS[1])
-- Message 1 wakes all waiters of a process at once, but of Redisson's only those already asleep; 0 is kept
-- for one that is about to sleep.
redis.pcall('publish', ARGV[1], '1')
redis.pcall('publish', ARGV[1], '0')
return 1
