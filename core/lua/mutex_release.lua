-- Release the mutex and wake one waiter of every process.
-- KEYS[1] lock   ARGV[1] owner   ARGV[2] channel
-- Reply: 0 not held by this owner; 1 + number of receivers of the message otherwise; -1 if that
-- was refused.
-- HDEL of the only field deletes the key; it is not refused when the server is out of memory, and a
-- missing permission to publish must not undo the release.
if redis.call('hdel', KEYS[1], ARGV[1]) == 0 then
    return 0
end
local receivers = redis.pcall('publish', ARGV[2], '0')
return type(receivers) == 'number' and 1 + receivers or -1
