-- Release the members of a multi lock, each with the steps and the message of its own release script.
-- KEYS two for each member: its lock; a reader's own lease, otherwise the lock again
-- ARGV[1] owner   ARGV[2] a letter for each member, as in multi_acquire   ARGV[3...] the channel of each
-- Reply: 0 the owner held none of them; 1 it held all; 2 it held some; negative if a message was refused.
-- A member whose name now has other data is not held; any other error of a member is the reply, after the others
-- have been released.
local owner, kinds = ARGV[1], ARGV[2]

-- Whether readers remain.  The lock's TTL becomes that of the longest lease; with many readers it stays.
local function read(lock)
    local fields = redis.call('hlen', lock)
    if fields <= 1 or fields > 9 or redis.call('hget', lock, 'mode') ~= 'read' then
        return fields > 1
    end
    local tag = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
    local longest = 0
    local all = redis.call('hgetall', lock)
    for i = 1, #all, 2 do
        for hold = 1, math.min(tonumber(all[i + 1]) or 0, 1000) do
            local key = tag .. ':' .. all[i] .. ':rwlock_timeout:' .. hold
            longest = math.max(longest, redis.call('pttl', key))
        end
    end
    if longest > 0 then
        redis.call('pexpire', lock, string.format('%d', longest)) -- see _counter.lua
    end
    return longest > 0
end

-- Release one member; returns the message to publish, or nil, and whether it was held.
local function release(kind, lock, own)
    if kind == 'r' then
        redis.call('del', own)
    end
    local held = redis.call('hdel', lock, kind == 'w' and owner .. ':write' or owner) == 1
    if not held or kind == 's' then
        return nil, held
    elseif kind == 'm' or kind == 'f' then
        return '0', true
    elseif kind == 'r' and read(lock) then
        return nil, true
    elseif kind == 'w' and redis.call('hlen', lock) > 1 then
        redis.call('hset', lock, 'mode', 'read')
    else
        redis.call('del', lock)
    end
    return '1', true
end

local messages, held, refused = {}, 0, nil
for i = 1, #kinds do
    local done, message, was = pcall(release, string.sub(kinds, i, i), KEYS[2 * i - 1], KEYS[2 * i])
    if done then
        messages[i] = message
        held = held + (was and 1 or 0)
    else
        local text = type(message) == 'table' and message.err or tostring(message)
        refused = refused or (not string.find(text, 'WRONGTYPE', 1, true) and text) or nil
    end
end
local sign = 1
for i = 1, #kinds do
    if messages[i] then
        sign = type(redis.pcall('publish', ARGV[i + 2], messages[i])) == 'number' and sign or -1
        -- Like the releases of the read and the write side.
        if messages[i] == '1' then
            redis.pcall('publish', ARGV[i + 2], '0')
        end
    end
end
if refused then
    return redis.error_reply(refused)
end
return held == 0 and 0 or held == #kinds and sign or 2 * sign
