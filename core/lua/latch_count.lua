-- with _counter.lua
-- Get or change the count of a latch, which exists only while it is shut.
-- KEYS[1] latch   ARGV[1] what, as in enum snib_count   ARGV[2] n   ARGV[3] channel
-- Reply: get: the count; init: 1 done, 0 it was set before; down: the remaining count.
-- Messages: 1 shut, 0 open.
local get, init = '1', '2'
local text = redis.call('get', KEYS[1])
local value = counter(text)
if not value then
    return redis.error_reply('WRONGTYPE the string is not a latch')
end
if ARGV[1] == get then
    return value
end

-- A reply without a write: a replica's count may be old.  This write changes nothing on a master, and a replica refuses it.
local function sure(reply)
    local proof = redis.pcall('hdel', KEYS[1], '')
    return type(proof) == 'table' and string.find(proof.err, 'READONLY', 1, true) and proof or reply
end

if ARGV[1] == init then
    if text then
        return sure(0)
    end
    redis.call('set', KEYS[1], ARGV[2])
    redis.pcall('publish', ARGV[3], '1')
    return 1
end
if not text then
    return sure(0)
end
if value > 1 then
    -- This write changes nothing and is never refused; after it, a server out of memory accepts DECR too.
    redis.pcall('hdel', KEYS[1], '')
    return redis.call('decr', KEYS[1])
end
redis.call('del', KEYS[1])
redis.pcall('publish', ARGV[3], '0')
return 0
