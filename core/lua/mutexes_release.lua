-- As multi_release, for members that are all mutexes: the steps of mutex_release for each of them.
-- KEYS the locks   ARGV[1] owner   ARGV[2...] the channel of each
-- Reply: as multi_release.
local call, pcall = redis.call, redis.pcall
local owner, released = ARGV[1], 0
for i = 1, #KEYS do
    if call('hdel', KEYS[i], owner) == 1 then
        released = released + 1
        pcall('publish', ARGV[i + 1], '0')
    end
end
return released == 0 and 0 or released == #KEYS and 1 or 2
