-- Release the plain lock and wake one waiter of every process.
-- KEYS[1] lock   ARGV[1] owner   ARGV[2] channel
-- Reply: 0 not held by this owner; 1 + number of receivers of the message otherwise; -1 if that
-- was refused.
if redis.call('get', KEYS[1]) ~= ARGV[1] then
    local proof = redis.pcall('hdel', KEYS[1], '') -- see plain_renew
    return type(proof) == 'table' and not string.find(proof.err, 'WRONGTYPE', 1, true) and proof or 0
end
redis.call('del', KEYS[1])
local receivers = redis.pcall('publish', ARGV[2], '0')
return type(receivers) == 'number' and 1 + receivers or -1
