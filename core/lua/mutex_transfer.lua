-- Hand the mutex from one owner of this client to the next, without a message.
-- KEYS[1] lock   ARGV[1] old owner   ARGV[2] new owner   ARGV[3] lease in ms
-- Reply: 1 the new owner holds it (also when an earlier try of this request did it); 0 the old owner
-- did not hold it.
local first = redis.call('hexists', KEYS[1], ARGV[1]) == 1
if not first and redis.call('hexists', KEYS[1], ARGV[2]) == 0 then
    redis.call('hdel', KEYS[1], ARGV[1]) -- a replica refuses it, whose "not held" would prove nothing
    return 0
elseif not first and redis.call('pttl', KEYS[1]) >= tonumber(ARGV[3]) then
    return 1 -- the lease has been extended since: see mutex_acquire
end
-- PEXPIRE is not refused when the server is out of memory; after it, nor is HSET.  The old owner leaves last: a hash
-- without fields is gone, and a slot that is being moved away takes no key that is not there.
redis.call('pexpire', KEYS[1], ARGV[3])
redis.call('hset', KEYS[1], ARGV[2], 1)
redis.call('hdel', KEYS[1], ARGV[1])
return 1
