-- Who holds the plain lock.
-- KEYS[1] lock   ARGV[1] channel
-- Reply: remaining ms (-2 free, -1 no TTL), owner, count, subscribed processes (-1 unknown), no token.
-- The owner may be any secret bytes: those that are not printable ASCII are shown as question marks.
-- A number without a TTL is taken for a latch, or a count of permits.  Of other data nothing tells a lock.
local owner = redis.call('get', KEYS[1])
local left = redis.call('pttl', KEYS[1])
if owner and left == -1 and string.find(owner, '^%-?%d+$') then
    return redis.error_reply('WRONGTYPE the string is a number without a TTL, so it is not a lock')
end
local subscribed = redis.pcall('pubsub', 'numsub', ARGV[1])
local shown = string.gsub(string.sub(owner or '', 1, 127), '[^ -~]', '?')
return { left, shown, owner and 1 or 0, subscribed[2] or -1, '' }
