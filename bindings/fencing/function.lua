-- Whether a request with this token of this owner may pass; if so, the hash notes it.  Lua's
-- numbers are exact to 2^53 only, so tokens are compared as decimal digits: the longer is the greater.
local function fence_passes(fence, token, owner)
    if not string.match(token, '^[1-9][0-9]*$') then
        error('a token must be a whole number greater than 0', 0)
    end
    local seen = redis.call('hmget', fence, 'token', 'owner')
    local last = seen[1] or '0'
    if #token < #last or (#token == #last and token < last) then
        return false
    end
    if token == last and owner ~= seen[2] then
        return false
    end
    redis.call('hset', fence, 'token', token, 'owner', owner)
    return true
end
