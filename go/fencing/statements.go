package fencing

// For PostgreSQL and SQLite. Accept in the transaction that makes the change, before the change, and roll
// back unless exactly one row was affected: the row is locked until then, so no older hold can slip in.
const (
	// SQLTable makes the table of fences, one row a resource.
	SQLTable = `CREATE TABLE IF NOT EXISTS fences (
    resource VARCHAR(512) PRIMARY KEY,
    token BIGINT NOT NULL,
    owner VARCHAR(128) NOT NULL
)`
	// SQLAccept takes resource, token and owner. It affects one row if the token is accepted, none if it is
	// stale.
	SQLAccept = `INSERT INTO fences (resource, token, owner) VALUES ($1, $2, $3)
ON CONFLICT (resource) DO UPDATE SET token = excluded.token, owner = excluded.owner
WHERE fences.token < excluded.token
   OR (fences.token = excluded.token AND fences.owner = excluded.owner)`
)

// RedisAccept is a script for EVAL: KEYS[1] is the fence, ARGV[1] the token, ARGV[2] the owner. It returns 1 if
// the token is accepted and 0 if it is stale. With KEYS[2] and ARGV[3] it also sets that key to that value, in
// the same step: a change made after the script could be overtaken.
//
// Lua's numbers are exact to 2^53 only, so tokens are compared as decimal digits.
const RedisAccept = `local token, owner = ARGV[1], ARGV[2]
if not string.match(token, '^[1-9][0-9]*$') then
    return redis.error_reply('ERR a token must be greater than 0')
end
local seen = redis.call('hmget', KEYS[1], 'token', 'owner')
if seen[1] then
    local length, before = #token - #seen[1], token < seen[1]
    if length < 0 or (length == 0 and before) or (token == seen[1] and owner ~= seen[2]) then
        return 0
    end
end
redis.call('hset', KEYS[1], 'token', token, 'owner', owner)
if KEYS[2] then
    redis.call('set', KEYS[2], ARGV[3])
end
return 1`
