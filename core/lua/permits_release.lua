-- with _counter.lua
-- Release permits and wake as many waiters.
-- KEYS[1] free permits   KEYS[2] taken ones   ARGV[1] channel   ARGV[2...] the ids
-- Reply: 0 none of them was there; -2 one of them was no longer held, the others are free; otherwise 1 + number of
-- receivers of the message, or -1 if that was refused.
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local held, there = true, {}
for i = 2, #ARGV do
    local ends = redis.call('zscore', KEYS[2], ARGV[i])
    held = held and ends and tonumber(ends) > now
    there[#there + 1] = ends and ARGV[i] or nil
end
local back, receivers = #there, 0
if back > 0 then
    local value = free(KEYS[1], KEYS[2], there)
    receivers = value > 0 and redis.pcall('publish', ARGV[1], whole(value)) or 0
end
if not held then
    return back > 0 and -2 or 0
end
return type(receivers) == 'number' and 1 + receivers or -1
