-- Like multi_release, for members that are all mutexes: the steps of mutex_release for each of them.
-- KEYS the locks   ARGV[1] owner   ARGV[2...] the channel of each
-- Reply: as multi_release.
local pcall = redis.pcall
local owner, released, sign, refused = ARGV[1], 0, 1, nil
for i = 1, #KEYS do
    local done = pcall('hdel', KEYS[i], owner)
    if done == 1 then
        released = released + 1
        sign = type(pcall('publish', ARGV[i + 1], '0')) == 'number' and sign or -1
    elseif type(done) == 'table' and not string.find(done.err, 'WRONGTYPE', 1, true) then
        refused = refused or done.err
    end
end
if refused then
    return redis.error_reply(refused)
end
return released == 0 and 0 or released == #KEYS and sign or 2 * sign
