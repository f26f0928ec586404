-- As multi_release, for members that are all mutexes: the steps of mutex_release for each of them.
-- KEYS the locks   ARGV[1] owner   ARGV[2...] the channel of each
-- Reply: as multi_release.
local call, pcall = redis.call, redis.pcall
local channels = {}
for i, lock in ipairs(KEYS) do
    if call('hdel', lock, ARGV[1]) == 1 then
        channels[#channels + 1] = ARGV[i + 1]
    end
end
for _, channel in ipairs(channels) do
    pcall('publish', channel, '0')
end
return #channels == 0 and 0 or #channels == #KEYS and 1 or 2
