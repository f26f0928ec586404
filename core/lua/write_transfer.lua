-- Hand the write side from one owner of this client to the next, without a message.
-- KEYS[1] lock   KEYS[2] counter of tokens, if one is wanted
-- ARGV[1] old owner   ARGV[2] new owner   ARGV[3] lease in ms   ARGV[4] channel
-- Reply: 1, or an array with the new token as text: handed over (also when an earlier try of this request
-- did it); 0 the old owner did not hold it; 2 released, but not handed over: the old owner still reads,
-- or there is no token for the new one.
local field = ARGV[2] .. ':write'
if redis.call('hdel', KEYS[1], ARGV[1] .. ':write') == 0 then
    if redis.call('hexists', KEYS[1], field) == 0 then
        return 0
    end
    -- The engine counts the lease from this request; a longer TTL belongs to a read hold.
    if redis.call('pttl', KEYS[1]) < tonumber(ARGV[3]) then
        redis.call('pexpire', KEYS[1], ARGV[3])
    end
    -- A counter deleted in the meantime starts again.
    return KEYS[2] and { redis.call('get', KEYS[2]) or tostring(redis.call('incr', KEYS[2])) } or 1
end
local reads = redis.call('hlen', KEYS[1]) > 1
local counted = not reads and KEYS[2] and redis.pcall('incr', KEYS[2]) or 1
if reads or type(counted) ~= 'number' or counted < 1 then
    if reads then
        redis.call('hset', KEYS[1], 'mode', 'read')
    else
        redis.call('del', KEYS[1])
    end
    redis.pcall('publish', ARGV[4], '1')
    redis.pcall('publish', ARGV[4], '0')
    return 2
end
if KEYS[2] then
    redis.pcall('persist', KEYS[2]) -- see fenced_acquire
end
redis.call('hset', KEYS[1], 'mode', 'write', field, 1)
local set = redis.pcall('pexpire', KEYS[1], ARGV[3])
if set ~= 1 then
    redis.call('hdel', KEYS[1], 'mode', field)
    return redis.error_reply(type(set) == 'table' and set.err or 'ERR the lease was refused')
end
return KEYS[2] and { redis.call('get', KEYS[2]) } or 1
