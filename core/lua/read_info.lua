-- The readers of a read/write lock.
-- KEYS[1] lock   ARGV[1] channel
-- Reply: remaining ms (-2 no readers, -1 no TTL), one of the readers, how many there are, subscribed
-- processes (-1 unknown), no token.
local readers, one = 0, ''
local mode = redis.call('hget', KEYS[1], 'mode')
if mode ~= 'read' and mode ~= 'write' and redis.call('exists', KEYS[1]) == 1 then
    return redis.error_reply('WRONGTYPE the hash is not a read/write lock')
end
local fields = mode and redis.call('hkeys', KEYS[1]) or {}
for i = 1, #fields do
    if fields[i] ~= 'mode' and not string.find(fields[i], ':write', 1, true) then
        readers, one = readers + 1, fields[i]
    end
end
local left = readers > 0 and redis.call('pttl', KEYS[1]) or -2
local subscribed = redis.pcall('pubsub', 'numsub', ARGV[1])
return { left, string.sub(one, 1, 127), readers, subscribed[2] or -1, '' }
