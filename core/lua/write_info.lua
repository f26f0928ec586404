-- The writer of a read/write lock.
-- KEYS[1] lock   KEYS[2] counter of tokens   ARGV[1] channel
-- Reply: remaining ms (-2 no writer, -1 no TTL), owner, count, subscribed processes (-1 unknown),
-- last token.
local left, owner, count = -2, '', 0
local mode = redis.call('hget', KEYS[1], 'mode')
if mode ~= 'read' and mode ~= 'write' and redis.call('exists', KEYS[1]) == 1 then
    return redis.error_reply('WRONGTYPE the hash is not a read/write lock')
elseif mode == 'write' then
    local fields = redis.call('hgetall', KEYS[1])
    for i = 1, #fields, 2 do
        if string.find(fields[i], ':write', 1, true) then
            left, count = redis.call('pttl', KEYS[1]), tonumber(fields[i + 1]) or 0
            owner = string.sub(string.gsub(fields[i], ':write', '', 1), 1, 127)
        end
    end
end
local subscribed = redis.pcall('pubsub', 'numsub', ARGV[1])
return { left, owner, count, subscribed[2] or -1, redis.call('get', KEYS[2]) or '' }
