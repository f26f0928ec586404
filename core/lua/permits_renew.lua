-- Renew holds of permits, each only if all of its permits are still held.
-- KEYS[i] taken permits   ARGV[1] lease in ms, 0 to check only   then for each hold the number of its ids
-- and the ids
-- Reply: an array with two integers for every hold that is gone: the index i and 1 (permits are taken by other
-- holds, or the key has other data) or 0 (none are).  Empty: all renewed.
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local lease, exact = math.abs(tonumber(ARGV[1])), tonumber(ARGV[1]) < 0 -- see mutex_renew

-- Renew the ids from ARGV[first] to ARGV[last]; false: one is gone or expired.
local function renew(key, first, last)
    local longer = {}
    for i = first, last do
        local ends = tonumber(redis.call('zscore', key, ARGV[i]) or 0)
        if ends <= now then
            return false
        elseif exact or (lease > 0 and ends < now + lease) then
            longer[#longer + 1] = now + lease
            longer[#longer + 1] = ARGV[i]
        end
    end
    if #longer > 0 then
        redis.call('zadd', key, unpack(longer))
    end
    return true
end

local lost = {}
local at = 2
for i = 1, #KEYS do
    local first, last = at + 1, at + ARGV[at]
    at = last + 1
    -- This write changes nothing.  A replica refuses it, whose "not held" would prove nothing; and after
    -- it, a server out of memory accepts ZADD.
    local proof = redis.pcall('zrem', KEYS[i], '')
    if proof ~= 0 and not string.find(proof.err, 'WRONGTYPE', 1, true) then
        return proof
    elseif proof ~= 0 or not renew(KEYS[i], first, last) then
        lost[#lost + 1] = i
        lost[#lost + 1] = redis.call('exists', KEYS[i])
    end
end
return lost
