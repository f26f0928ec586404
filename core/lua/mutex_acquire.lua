-- Acquire the mutex, Redisson's plain lock: a hash with one field per owner and a TTL.
-- KEYS[1] lock   ARGV[1] owner   ARGV[2] lease in ms
-- Reply: nil granted; otherwise the remaining ms of the other holder's lease (-1: it has none).
-- The count stays 1, so a repeated request is harmless: "my field is there" means that an earlier
-- try of the same attempt worked.  A copy of the request may even come after the lease has been extended,
-- so no request shortens the lease of its own owner.
local left = redis.call('pttl', KEYS[1])
if left ~= -2 and redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
    return left
end
local longer = left < tonumber(ARGV[2])
local added = redis.call('hset', KEYS[1], ARGV[1], 1)
-- Never leave a lock without a TTL, for whatever reason PEXPIRE is refused.  A late copy takes nothing away.
local set = longer and redis.pcall('pexpire', KEYS[1], ARGV[2]) or 1
if set ~= 1 then
    if added == 1 then
        redis.call('hdel', KEYS[1], ARGV[1])
    end
    return redis.error_reply(type(set) == 'table' and set.err or 'ERR the lease was refused')
end
return nil
