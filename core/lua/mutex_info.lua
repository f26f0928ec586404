-- Who holds the mutex.
-- KEYS[1] lock   KEYS[2] counter of tokens, if the lock has one   ARGV[1] channel
-- Reply: remaining ms (-2 free, -1 no TTL), owner, count, subscribed processes (-1 unknown), last token.
local left = redis.call('pttl', KEYS[1])
local field = left == -2 and {} or redis.call('hgetall', KEYS[1])
for i = 1, #field, 2 do
    if field[i] == 'mode' and (field[i + 1] == 'read' or field[i + 1] == 'write') then
        return redis.error_reply('WRONGTYPE the hash is a read/write lock')
    end
end
local subscribed = redis.pcall('pubsub', 'numsub', ARGV[1])
local token = KEYS[2] and redis.call('get', KEYS[2]) or ''
return { left, string.sub(field[1] or '', 1, 127), tonumber(field[2] or 0) or 0, subscribed[2] or -1, token }
