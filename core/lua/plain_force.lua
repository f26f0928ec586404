-- Delete the plain lock regardless of its holder, and wake the waiters.
-- KEYS[1] lock   ARGV[1] channel
-- Reply: 1 deleted, 0 it did not exist.  A string without a TTL is other data, not a lock.
if not redis.call('get', KEYS[1]) then
    return redis.call('del', KEYS[1]) -- see mutex_force
end
if redis.call('pttl', KEYS[1]) < 0 then
    return redis.error_reply('WRONGTYPE the string has no TTL, so it is not a lock')
end
redis.call('del', KEYS[1])
redis.pcall('publish', ARGV[1], '0')
return 1
