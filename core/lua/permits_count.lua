-- with _counter.lua
-- Get or change the number of permits with a lease each; see permits_acquire for the keys.
-- KEYS[1] free permits   KEYS[2] taken ones
-- ARGV[1] what, as in enum snib_count   ARGV[2] n   ARGV[3] channel
-- Reply: get, add, set: free permits now; init: 1 done, 0 it was set before; total: free and taken ones.
-- A message is never less than 1.
local get, init, set, total = '1', '2', '4', '5'
local what, n = ARGV[1], tonumber(ARGV[2])
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local text = redis.call('get', KEYS[1])
local value = counter(text)
if not value then
    return redis.error_reply('WRONGTYPE the string is no number of permits')
end

-- Expired permits are free again.
local taken = redis.call('zcard', KEYS[2])
local more = false
repeat
    local over = redis.call('zrangebyscore', KEYS[2], '-inf', now, 'limit', 0, 1000)
    if #over > 0 then
        value = free(KEYS[1], KEYS[2], over)
        taken = taken - #over
        more = true
    end
until #over < 1000

local function done(reply)
    if more and value > 0 then
        redis.pcall('publish', ARGV[3], whole(value))
    end
    return reply
end

if what == init and text then
    -- A replica's number may be old.  This write changes nothing on a master, and a replica refuses it.
    local proof = redis.pcall('zrem', KEYS[2], '')
    if type(proof) == 'table' and string.find(proof.err, 'READONLY', 1, true) then
        return proof
    end
end
if what == get or what == init and (text or more) then
    return done(what == get and value or 0)
end
local all = (text or more) and value + taken or 0
if what == total then
    return done(all)
end
local change = what == set and n - all or n
if value + change > 2147483647 or value + change < -2147483648 then
    return redis.error_reply('ERR the number of permits would leave the range of 32 bits')
end
value = redis.call('incrby', KEYS[1], whole(change))
more = more or change > 0
return done(what == init and 1 or value)
