if not fence_passes(KEYS[1], ARGV[1], ARGV[2]) then
    return 0
end
if KEYS[2] then
    redis.call('set', KEYS[2], ARGV[3])
end
return 1
