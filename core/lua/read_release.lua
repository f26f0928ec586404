-- Release the read side; the last reader wakes all waiters.
-- KEYS[1] lock   KEYS[2] this reader's lease   ARGV[1] owner   ARGV[2] channel
-- Reply: 0 not held by this owner; 1 + number of receivers of the message otherwise; -1 if that
-- was refused.
-- The message is 1, which wakes all waiters of a process: they may be readers, if a Redisson writer
-- has become a reader without a message.
local own = redis.call('pttl', KEYS[2])
local found = redis.call('hdel', KEYS[1], ARGV[1])
redis.call('del', KEYS[2])
if found == 0 then
    return 0
end

-- The remaining ms of a reader's lease, by the longest of its holds.  `mode` has no such keys.
local tag = string.find(KEYS[1], '{', 1, true) and KEYS[1] or '{' .. KEYS[1] .. '}'
local function rest(left, field, count)
    local holds = tonumber(count) or 0
    if holds > 1000 then
        return left
    end
    local longest = -2
    for i = 1, holds do
        local key = tag .. ':' .. field .. ':rwlock_timeout:' .. i
        longest = math.max(longest, redis.call('pttl', key))
    end
    return longest
end

-- The same; a Snib reader whose lease has ended goes: while others always read, the lock does not end, and would keep it.
local function look(left, field, count)
    local ms = rest(left, field, count)
    if ms == -2 and string.find(field, '^%x+%-%x+%-8') then
        redis.call('hdel', KEYS[1], field)
    end
    return ms
end

-- Whether the lock is still held.  Its TTL should be that of the longest lease, but checking a crowd of
-- readers at every release would cost too much: if this reader's lease was no more than half of the TTL,
-- or one of five others has at least that half, the TTL stays and is at most twice too long.
local function held()
    local fields = redis.call('hlen', KEYS[1])
    if fields <= 1 then
        return false
    end
    if redis.call('hget', KEYS[1], 'mode') ~= 'read' then
        return true
    end
    local left = redis.call('pttl', KEYS[1])
    if fields > 9 and left > 0 then
        if own < left / 2 then
            return true
        end
        local some = redis.pcall('hrandfield', KEYS[1], 5, 'withvalues')
        for i = 1, #some, 2 do
            if look(left, some[i], some[i + 1]) >= left / 2 then
                return true
            end
        end
    end
    local longest = 0
    local all = redis.call('hgetall', KEYS[1])
    for i = 1, #all, 2 do
        longest = math.max(longest, look(left, all[i], all[i + 1]))
    end
    if longest > 0 then
        redis.call('pexpire', KEYS[1], string.format('%d', longest)) -- see _counter.lua
    end
    return longest > 0
end

if held() then
    return 1
end
redis.call('del', KEYS[1])
-- Message 1 wakes all waiters of a process at once, but of Redisson's only those already asleep; 0 is kept
-- for one that is about to sleep.
local receivers = redis.pcall('publish', ARGV[2], '1')
redis.pcall('publish', ARGV[2], '0')
return type(receivers) == 'number' and 1 + receivers or -1
