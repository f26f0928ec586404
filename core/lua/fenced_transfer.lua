-- Hand the fenced lock from one owner of this client to the next, with a token of its own.
-- KEYS[1] lock   KEYS[2] counter of tokens
-- ARGV[1] old owner   ARGV[2] new owner   ARGV[3] lease in ms   ARGV[4] channel
-- Reply: an array with the new token as text: handed over (also when an earlier try of this request did
-- it); 0 the old owner did not hold it; 2 released, but there is no token for the new one.
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
    if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then
        redis.call('hdel', KEYS[1], ARGV[1]) -- see mutex_transfer
        return 0
    end
    -- The engine counts the lease from this request, unless it has been extended since: see mutex_acquire.
    if redis.call('pttl', KEYS[1]) < tonumber(ARGV[3]) then
        redis.call('pexpire', KEYS[1], ARGV[3])
    end
    -- A counter deleted in the meantime starts again.
    return { redis.call('get', KEYS[2]) or tostring(redis.call('incr', KEYS[2])) }
end
-- In this order: see mutex_transfer.
redis.call('pexpire', KEYS[1], ARGV[3])
local counted = redis.pcall('incr', KEYS[2])
if type(counted) ~= 'number' or counted < 1 then
    redis.call('hdel', KEYS[1], ARGV[1])
    redis.pcall('publish', ARGV[4], '0')
    return 2
end
redis.pcall('persist', KEYS[2]) -- see fenced_acquire
redis.call('hset', KEYS[1], ARGV[2], 1)
redis.call('hdel', KEYS[1], ARGV[1])
return { redis.call('get', KEYS[2]) }
