-- with _counter.lua
-- One step of a search for locks.
-- ARGV[1] cursor   ARGV[2] pattern   ARGV[3] how many keys to examine
-- Reply: the next cursor, then the names.  A lock is a hash with a field that is an owner, a string that is
-- a Snib owner, or a number next to a sorted set of permits.  A number alone could be anything.
-- Names too long for a lock are skipped.
local function owned(key)
    if redis.call('hlen', key) > 1000 then
        return redis.call('hexists', key, 'mode') == 1
    end
    for _, field in ipairs(redis.call('hkeys', key)) do
        if string.find(field, '^%x+%-%x+%-%x+%-%x+%-%x+:') then
            return true
        end
    end
    return false
end

local function taken(key)
    local tag = string.find(key, '{', 1, true) and key or '{' .. key .. '}'
    local first = redis.pcall('zrange', tag .. ':timeout', 0, 0)
    return first[1] ~= nil and #first[1] == 16
end

local function lock(key)
    local what = redis.pcall('type', key).ok -- nil: this user may not see it
    if what == 'hash' then
        return owned(key)
    elseif what ~= 'string' then
        return false
    end
    local text = redis.call('getrange', key, 0, 63)
    if counter(text) then
        return taken(key)
    end
    return string.find(text, '^%x+%-%x+%-8%x+%-%x+%-%x+:%-?%d+$') ~= nil
end

local step = redis.call('scan', ARGV[1], 'match', ARGV[2], 'count', ARGV[3])
local found = { step[1] }
for _, key in ipairs(step[2]) do
    if #key <= 512 and lock(key) then
        found[#found + 1] = key
    end
end
return found
