-- with _counter.lua
-- Take permits, each with an id and a lease: a number of free ones, and a sorted set of the taken ids by
-- the end of their lease, in ms of the server's clock.
-- KEYS[1] free permits   KEYS[2] taken ones
-- ARGV[1] lease in ms   ARGV[2] channel   ARGV[3...] an id of 16 bytes for each permit
-- Reply: nil taken; -3 fewer exist in total; otherwise the ms until the next lease ends, or -1.
-- A repeated request finds its ids taken, all of them, and is granted again.
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local text = redis.call('get', KEYS[1])
local value = counter(text)
if not value then
    return redis.error_reply('WRONGTYPE the string is no number of permits')
end

-- Expired permits are free again.
local more = false
repeat
    local over = redis.call('zrangebyscore', KEYS[2], '-inf', now, 'limit', 0, 1000)
    if #over > 0 then
        value = free(KEYS[1], KEYS[2], over)
        more = true
    end
until #over < 1000

local function done(reply)
    if more and value > 0 then
        redis.pcall('publish', ARGV[2], whole(value))
    end
    return reply
end

local n = #ARGV - 2
local there, ends_of = {}, {}
for i = 3, #ARGV do
    ends_of[i] = redis.call('zscore', KEYS[2], ARGV[i])
    there[#there + 1] = ends_of[i] and ARGV[i] or nil
end
local mine = #there == n
-- Redisson takes back no more than it needs of what has ended by its own clock: then the others begin again, too, or
-- the total would change.
if #there > 0 and not mine then
    value = free(KEYS[1], KEYS[2], there)
    more = true
end
if not mine and value < n then
    if text and n > value + redis.call('zcard', KEYS[2]) then
        -- A replica's number may be old.  This write changes nothing on a master, and a replica refuses it.
        local proof = redis.pcall('zrem', KEYS[2], '')
        return type(proof) == 'table' and string.find(proof.err, 'READONLY', 1, true) and proof or done(-3)
    end
    local first = redis.call('zrange', KEYS[2], 0, 0, 'withscores')
    local ends = tonumber(first[2] or 922337203685477)
    return done(ends < 922337203685477 and ends - now or -1)
end
local taken = {}
for i = 3, #ARGV do
    taken[#taken + 1] = math.max(now + ARGV[1], tonumber(mine and ends_of[i] or 0))
    taken[#taken + 1] = ARGV[i]
end
if mine then
    -- It may change nothing, but WAIT answers only for what its own connection has written.  The ids stay: a set
    -- without members is gone, and a slot that is being moved away takes no key that is not there.
    redis.call('zrem', KEYS[2], '') -- never refused; after it, a server out of memory accepts ZADD
    redis.call('zadd', KEYS[2], now, '')
    redis.call('zrem', KEYS[2], '')
end
local life = redis.call('pttl', KEYS[1])
-- The number comes first: who may take from it may give back.  Ids beside a number that does not lack them would become
-- permits when their leases end.
if not mine then
    value = redis.call('decrby', KEYS[1], n)
end
local put = redis.pcall('zadd', KEYS[2], unpack(taken))
if type(put) == 'table' then
    if not mine then
        redis.call('decrby', KEYS[1], -n)
    end
    return put
end
-- Both keys end together, or neither does: Redisson's addPermits() takes away the number's TTL alone.  A user who may not
-- do the same here has the permits all the same.
local set = life > 0 and redis.pcall('pexpire', KEYS[2], whole(life))
if type(set) == 'table' and not mine then
    redis.call('zrem', KEYS[2], unpack(ARGV, 3))
    redis.call('decrby', KEYS[1], -n)
end
if type(set) == 'table' then
    return set
elseif life == -1 and redis.call('pttl', KEYS[2]) > 0 then
    redis.pcall('persist', KEYS[2])
end
return done(nil)
