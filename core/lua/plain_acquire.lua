-- Acquire the plain lock: a string with the owner's text and a TTL.
-- KEYS[1] lock   ARGV[1] owner   ARGV[2] lease in ms
-- Reply: nil granted; otherwise the remaining ms of the other holder's lease (-1: it has none), and
-- 1 if the holder is not a Snib client, so that its release sends no message, or 0.
local owner = redis.call('get', KEYS[1])
if owner and owner ~= ARGV[1] then
    local ours = string.find(owner, '^%x+%-%x+%-8%x+%-%x+%-%x+:%-?%d+$')
    return { redis.call('pttl', KEYS[1]), ours and 0 or 1 }
end
-- An earlier try may have worked, and the lease may have been extended since: see mutex_acquire.  It is written all the
-- same, because WAIT answers only for what its own connection has written.
local left = owner and redis.call('pttl', KEYS[1]) or 0
redis.call('set', KEYS[1], ARGV[1], 'px', math.max(left, ARGV[2]))
return nil
