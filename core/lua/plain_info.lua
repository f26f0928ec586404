-- Who holds the plain lock.
-- KEYS[1] lock   ARGV[1] channel
-- Reply: remaining ms (-2 free, -1 no TTL), owner, count, subscribed processes (-1 unknown), no token.
-- The owner may be any secret bytes: those that are not printable ASCII are shown as question marks.
local owner = redis.call('get', KEYS[1])
local subscribed = redis.pcall('pubsub', 'numsub', ARGV[1])
local shown = string.gsub(string.sub(owner or '', 1, 127), '[^ -~]', '?')
return { redis.call('pttl', KEYS[1]), shown, owner and 1 or 0, subscribed[2] or -1, '' }
