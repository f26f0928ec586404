-- Release the spin lock: the mutex without a message.
-- KEYS[1] lock   ARGV[1] owner
-- Reply: 0 not held by this owner; 1 released.
return redis.call('hdel', KEYS[1], ARGV[1])
