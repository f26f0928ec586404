-- with _counter.lua
-- Get or change the number of a semaphore.
-- KEYS[1] semaphore   ARGV[1] what, as in enum snib_count   ARGV[2] n   ARGV[3] channel
-- Reply: get, add, release: the number now; init: 1 done, 0 it was set before; drain: how many there were.
-- INCRBY and DECRBY keep the semaphore's TTL, if it has one.  A message is never less than 1.
local get, init, add, release, drain = '1', '2', '3', '6', '7'
local what, n = ARGV[1], tonumber(ARGV[2])
local text = redis.call('get', KEYS[1])
local value = counter(text)
if not value then
    return redis.error_reply('WRONGTYPE the string is not a semaphore')
end
if what == get then
    return value
end
if what == drain and value > 0 then
    redis.call('decrby', KEYS[1], text)
    return value
end
if what == drain or what == init and text then
    -- A replica's number may be old.  This write changes nothing on a master, and a replica refuses it.
    local proof = redis.pcall('hdel', KEYS[1], '')
    return type(proof) == 'table' and string.find(proof.err, 'READONLY', 1, true) and proof or 0
end
if value + n > 2147483647 or value + n < -2147483648 then
    return redis.error_reply('ERR the number of permits would leave the range of 32 bits')
end
if what == release then
    -- This write changes nothing and is never refused; after it, a server out of memory accepts INCRBY.
    redis.pcall('hdel', KEYS[1], '')
end
value = redis.call('incrby', KEYS[1], ARGV[2])
if n > 0 and value > 0 then
    redis.pcall('publish', ARGV[3], whole(value))
end
return what == init and 1 or value
