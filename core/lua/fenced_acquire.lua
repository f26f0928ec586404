-- Acquire the fenced lock: the mutex's hash, and a counter that rises with every hold.
-- KEYS[1] lock   KEYS[2] counter of tokens   ARGV[1] owner   ARGV[2] lease in ms
-- Reply: an array with the token as text (numbers in Lua are exact up to 2^53): granted; otherwise the remaining
-- ms of the other holder's lease (-1: it has none).
-- A repeated request finds its own field and returns the same token again.
local left = redis.call('pttl', KEYS[1])
local mine = left ~= -2 and redis.call('hexists', KEYS[1], ARGV[1]) == 1
if left ~= -2 and not mine then
    return left
end
local longer = left < tonumber(ARGV[2])
-- The counter comes first: if it is refused, nothing is held.
local token = mine and redis.call('get', KEYS[2])
if not token then
    redis.call('incr', KEYS[2])
    redis.pcall('persist', KEYS[2]) -- Redisson's multi lock with a lease has it end, and tokens would begin again
    token = redis.call('get', KEYS[2])
end
if tonumber(token) < 1 then
    return redis.error_reply('ERR the counter of fencing tokens is below 1')
end
local added = redis.call('hset', KEYS[1], ARGV[1], 1)
local set = longer and redis.pcall('pexpire', KEYS[1], ARGV[2]) or 1
if set ~= 1 then
    if added == 1 then
        redis.call('hdel', KEYS[1], ARGV[1])
    end
    return redis.error_reply(type(set) == 'table' and set.err or 'ERR the lease was refused')
end
return { token }
