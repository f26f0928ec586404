-- What the scripts of counters share.

-- For commands that take no other form: Redis 7.2.0 to 7.2.4 pass on the number 100000000 as 1e+8.
local function whole(number)
    return string.format('%.0f', number)
end

-- The number of a semaphore, of permits or of a latch, where nothing is 0; nil: other data.  tonumber() takes more
-- texts for numbers than those with which Redis counts, Lua has a number -0 that is written as such, and its numbers
-- are exact only below 2^53.
local function counter(text)
    local number = tonumber(text or 0)
    local exact = number and math.abs(number) < 2 ^ 53
    return exact and text ~= '-0' and whole(number) == (text or '0') and number or nil
end
