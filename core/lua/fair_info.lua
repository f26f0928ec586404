-- Who holds the fair lock and how many wait.
-- KEYS[1] lock   KEYS[2] queue   KEYS[3] token
-- Reply: remaining ms (-2 free, -1 no TTL), owner, count, waiters, last token as text.
local left = redis.call('pttl', KEYS[1])
local field = left == -2 and {} or redis.call('hgetall', KEYS[1])
for i = 1, #field, 2 do
    if field[i] == 'mode' and (field[i + 1] == 'read' or field[i + 1] == 'write') then
        return redis.error_reply('WRONGTYPE the hash is a read/write lock')
    end
end
return {
    left,
    string.sub(field[1] or '', 1, 127),
    tonumber(field[2] or 0) or 0,
    redis.call('llen', KEYS[2]),
    redis.call('get', KEYS[3]) or '0',
}
