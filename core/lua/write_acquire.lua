-- Acquire the write side of a read/write lock; see read_acquire for its keys.
-- KEYS[1] lock   KEYS[2] the mark of waiting writers   KEYS[3] counter of tokens, if one is wanted
-- ARGV[1] owner   ARGV[2] lease in ms   ARGV[3] ms for which new readers wait behind this writer, or 0
-- Reply: nil, or an array with the token as text: granted; otherwise the remaining ms to wait for (-1:
-- unknown).  A repeated request finds its own field and returns the same token again.
local field = ARGV[1] .. ':write'
local left = redis.call('pttl', KEYS[1])

-- The remaining ms of a reader's lease; -2: it is over.  Redisson can extend the lock alone, without the
-- lease of each reader, so its readers count for as long as the lock lives.
local tag = string.find(KEYS[1], '{', 1, true) and KEYS[1] or '{' .. KEYS[1] .. '}'
local function rest(reader)
    if reader == 'mode' then
        return -2
    elseif not string.find(reader, '^%x+%-%x+%-8') then
        return left
    end
    return redis.call('pttl', tag .. ':' .. reader .. ':rwlock_timeout:1')
end

-- The ms that readers have left, or nil if all their leases have ended.  In a crowd one live reader suffices.
local function readers()
    local crowd = redis.call('hlen', KEYS[1]) > 9
    local some = crowd and redis.pcall('hrandfield', KEYS[1], 5) or {}
    for i = 1, #some do
        if rest(some[i]) ~= -2 then
            return left
        end
    end
    local longest = nil
    for _, reader in ipairs(redis.call('hkeys', KEYS[1])) do
        local ms = rest(reader)
        if ms ~= -2 and crowd then
            return left
        elseif ms ~= -2 then
            longest = math.max(longest or ms, ms)
        end
    end
    return longest
end

local mine = left ~= -2 and redis.call('hexists', KEYS[1], field) == 1
if left ~= -2 and not mine then
    local busy = left
    if left ~= -1 and redis.call('hget', KEYS[1], 'mode') == 'read' then -- otherwise it is other data
        busy = readers()
    end
    if busy then
        if ARGV[3] ~= '0' then
            redis.pcall('set', KEYS[2], 1, 'px', ARGV[3])
        end
        return busy
    end
    redis.call('del', KEYS[1])
end

-- The counter comes first: if it is refused, nothing is held.
local token = KEYS[3] and mine and redis.call('get', KEYS[3])
if KEYS[3] and not token then
    redis.call('incr', KEYS[3])
    redis.pcall('persist', KEYS[3]) -- see fenced_acquire
    token = redis.call('get', KEYS[3])
end
if token and tonumber(token) < 1 then
    return redis.error_reply('ERR the counter of fencing tokens is below 1')
end
redis.call('hset', KEYS[1], 'mode', 'write', field, 1)
if not mine or left < tonumber(ARGV[2]) then
    local set = redis.pcall('pexpire', KEYS[1], ARGV[2])
    if set ~= 1 then
        if not mine then
            redis.call('hdel', KEYS[1], field, 'mode')
        end
        return redis.error_reply(type(set) == 'table' and set.err or 'ERR the lease was refused')
    end
end
if ARGV[3] ~= '0' then
    redis.pcall('del', KEYS[2])
end
return token and { token } or nil
