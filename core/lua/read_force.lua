-- Delete the readers, and wake the waiters.
-- KEYS[1] lock   ARGV[1] channel
-- Reply: 1 deleted, 0 nobody but perhaps a writer is there.  What is no read/write lock is left alone.
-- The readers' own leases stay behind without a meaning and end by themselves.
local mode = redis.call('hget', KEYS[1], 'mode')
if mode == 'write' or redis.call('exists', KEYS[1]) == 0 then
    return 0
end
if mode ~= 'read' then
    return redis.error_reply('WRONGTYPE the hash is not a read/write lock')
end
redis.call('del', KEYS[1])
-- 1 wakes all waiters of a process at once, but of Redisson's only those who sleep already; 0 is kept for
-- one who is about to.
redis.pcall('publish', ARGV[1], '1')
redis.pcall('publish', ARGV[1], '0')
return 1
