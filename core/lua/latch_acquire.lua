-- with _counter.lua
-- Whether a latch is open.
-- KEYS[1] latch
-- Reply: nil open; -1 shut.
local value = counter(redis.call('get', KEYS[1]))
if not value then
    return redis.error_reply('WRONGTYPE the string is not a latch')
end
if value > 0 then
    return -1
end
-- A replica may not know yet that it is shut.  This write changes nothing on a master, and a replica refuses it.
local proof = redis.pcall('hdel', KEYS[1], '')
if type(proof) == 'table' and string.find(proof.err, 'READONLY', 1, true) then
    return proof
end
return nil
