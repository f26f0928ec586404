-- Hand the plain lock from one owner of this client to the next, without a message.
-- KEYS[1] lock   ARGV[1] old owner   ARGV[2] new owner   ARGV[3] lease in ms
-- Reply: 1 the new owner holds it (also when an earlier try of this request did it); 0 the old owner
-- did not hold it.
local owner = redis.call('get', KEYS[1])
if owner == ARGV[2] then
    -- The engine counts the lease from this request, unless it has been extended since: see mutex_acquire.
    return redis.call('pttl', KEYS[1]) < tonumber(ARGV[3]) and redis.call('pexpire', KEYS[1], ARGV[3]) or 1
elseif owner ~= ARGV[1] then
    local proof = redis.pcall('hdel', KEYS[1], '') -- see plain_renew
    return type(proof) == 'table' and not string.find(proof.err, 'WRONGTYPE', 1, true) and proof or 0
end
-- A server out of memory does not refuse PEXPIRE, and after it, it does not refuse SET either.
redis.call('pexpire', KEYS[1], ARGV[3])
redis.call('set', KEYS[1], ARGV[2], 'px', ARGV[3])
return 1
