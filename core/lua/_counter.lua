-- What the scripts of counters share.

-- For commands that take no other form: Redis 7.2.0 to 7.2.4 pass on the number 100000000 as 1e+8.
local function whole(number)
    return string.format('%.0f', number)
end

-- Ids of permits that are there are removed, and the permits are free again: both, or neither if a command is refused.
-- The first write changes nothing and is never refused for want of memory; after it, the others are not.
local function free(number, taken, ids)
    redis.call('zrem', taken, '')
    local value = redis.call('incrby', number, #ids)
    redis.call('zrem', taken, unpack(ids))
    return value
end

-- The number of a semaphore, of permits or of a latch, where nothing is 0; nil: other data.  tonumber() takes more
-- texts for numbers than those with which Redis counts, Lua has a number -0 that is written as such, and its numbers
-- are exact only below 2^53.
local function counter(text)
    local number = tonumber(text or 0)
    local exact = number and math.abs(number) < 2 ^ 53
    return exact and text ~= '-0' and whole(number) == (text or '0') and number or nil
end
