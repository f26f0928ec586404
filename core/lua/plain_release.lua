-- Release the plain lock and wake one waiter of every process.
-- KEYS[1] lock   ARGV[1] owner   ARGV[2] channel
-- Reply: 0 not held by this owner; 1 + number of receivers of the message otherwise; -1 if that
-- was refused.
if redis.call('get', KEYS[1]) ~= ARGV[1] then
    return 0
end
redis.call('del', KEYS[1])
local receivers = redis.pcall('publish', ARGV[2], '0')
return type(receivers) == 'number' and 1 + receivers or -1
