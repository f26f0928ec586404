-- Whether a latch is open.
-- KEYS[1] latch
-- Reply: nil open; -1 shut.
local text = redis.call('get', KEYS[1]) or '0'
local value = string.find(text, '^%-?%d+$') and tonumber(text)
if not value then
    return redis.error_reply('WRONGTYPE the string is not a latch')
end
if value > 0 then
    return -1
end
return nil
