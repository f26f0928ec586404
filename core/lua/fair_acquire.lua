-- with _fair.lua
-- Acquire the fair lock, or take a place in its queue, or keep it.
-- ARGV[1] owner   ARGV[2] lease in ms   ARGV[3] 1 queue, 0 one try   ARGV[4] 1 with a token
-- ARGV[5] channel prefix   ARGV[6] 1 if the client cannot subscribe and asks often instead
-- ARGV[7] the lowest number with which the client waits; 0: not given
-- Reply: a text: granted, the token or 0.  Otherwise integers: the remaining ms of the holder's lease, negative
-- if there is none to wait for; 1 if a Redisson client holds the lock or is ahead; the server's ms.
local FORGET, FORGET_MOST = 1000, 500
local owner, lease = ARGV[1], ARGV[2]

-- Or an error reply.
local function token(fresh)
    if ARGV[4] ~= '1' then
        return '0'
    end
    if fresh then
        redis.call('incr', KEYS[5])
        redis.pcall('persist', KEYS[5]) -- see fenced_acquire
    end
    local last = redis.call('get', KEYS[5]) or '0'
    if tonumber(last) < 1 then
        return redis.error_reply('ERR the counter of fencing tokens is below 1')
    end
    return last
end

-- left: the ms of the lock's lease.  An extended one is not shortened, see mutex_acquire.
local function take(left)
    local longer = left < tonumber(lease)
    local added = redis.call('hset', KEYS[1], owner, 1)
    local set = longer and redis.pcall('pexpire', KEYS[1], lease) or 1
    if set ~= 1 then
        if added == 1 then
            redis.call('hdel', KEYS[1], owner)
        end
        return redis.error_reply(type(set) == 'table' and set.err or 'ERR the lease was refused')
    end
end

-- Clients and their waiters come and go while the queue may never end: forget those that are dead or have no place.  Once a
-- second, by whoever keeps or takes a place then, and not more at a time than costs the others little.
local function forget()
    local looked = redis.call('hget', KEYS[4], 'forget')
    local last = tonumber(looked or now)
    if looked and last <= now and now - last < FORGET then
        return
    end
    redis.call('hset', KEYS[4], 'forget', now)
    if not looked then
        return
    end
    local placed, most = {}, FORGET_MOST
    for _, member in ipairs(redis.call('lrange', KEYS[2], 0, -1)) do
        placed[client(member)], placed[member] = true, true
    end
    local beats = redis.call('hgetall', KEYS[4])
    for i = 1, #beats, 2 do
        local one, beat = beats[i], tonumber(beats[i + 1])
        local skipped = string.match(one, '^skipped (.*)')
        if skipped and not placed[skipped] then
            most = most - redis.call('hdel', KEYS[4], one)
        elseif #one == 36 and not placed[one] and now - beat > DEAD then
            most = most - redis.call('hdel', KEYS[4], one, 'polls ' .. one)
        end
        if most <= 0 then
            return
        end
    end
end

-- Keep the client's places, and push them if it is the first Snib client.  All the waiters of a process may ask at once, as
-- after a reconnect: one of them, the first, looks at the queue for all.
local function keep()
    if ARGV[7] == '0' then
        expire()
        return
    end
    local members, foreign = redis.call('lrange', KEYS[2], 0, -1), false
    for _, member in ipairs(members) do
        foreign = foreign or not ours(member)
    end
    expire(foreign)
    for i, member in ipairs(members) do
        if ours(member) then
            if client(member) == client(owner) then
                local known = redis.call('hget', KEYS[4], 'push')
                local last = tonumber(known or now)
                if known and last <= now and now - last < 100 then
                    return
                end
                push(members, i, math.min(now - last, DEAD))
                redis.call('hset', KEYS[4], 'push', now)
                forget()
                return
            elseif silence(member) <= DEAD then
                return
            end
        end
    end
end

-- A place at the tail.  Returns its score.
local function join()
    local tail = redis.call('lindex', KEYS[2], -1)
    local score = tail and tonumber(redis.call('zscore', KEYS[3], tail) or now)
    if tail and (not ours(tail) or chained(score)) then
        score = math.max(math.floor(score), now) + PATIENCE + 0.5
    else
        score = now + PATIENCE
    end
    redis.call('hset', KEYS[4], client(owner), now)
    redis.call(tail and 'hsetnx' or 'hset', KEYS[4], 'push', now)
    forget()
    redis.call('zadd', KEYS[3], string.format('%.1f', score), owner)
    redis.call('rpush', KEYS[2], owner)
    expire()
    return score
end

-- One of these commands was refused: no key may be left without a TTL, and no place for which nobody waits.
local function unjoin(refused)
    redis.pcall('zrem', KEYS[3], owner)
    redis.pcall('lrem', KEYS[2], 0, owner)
    if redis.pcall('pttl', KEYS[4]) == -1 then
        redis.pcall('del', KEYS[4])
    end
    return redis.error_reply(type(refused) == 'table' and refused.err or tostring(refused))
end

local left = redis.call('pttl', KEYS[1])
if left ~= -2 and redis.call('hexists', KEYS[1], owner) == 1 then
    -- An earlier try worked, or a release has granted the lock; confirm it with the full lease.
    -- A counter deleted in the meantime starts again.  The first write changes nothing and is never refused; after it, a
    -- server out of memory accepts the others.
    redis.pcall('hdel', KEYS[1], '')
    local uncounted = (redis.call('get', KEYS[5]) or '0') == '0'
    local refused = take(left)
    if not refused then
        raise(tonumber(lease) - left)
    end
    return refused or token(uncounted)
end
local queued = redis.call('zscore', KEYS[3], owner)
if queued then
    -- This write changes nothing and is never refused; after it, a server out of memory accepts what keeps the place.
    redis.pcall('hdel', KEYS[4], '')
end
-- Lower numbers of the client are stale places: a replica that became the master has brought them back.
for _, member in ipairs(queued and ARGV[7] ~= '0' and redis.call('lrange', KEYS[2], 0, -1) or {}) do
    if client(member) == client(owner) then
        if tonumber(string.sub(member, 38)) >= tonumber(ARGV[7]) then
            break
        end
        leave(member)
    end
end
-- A client that asks is alive: after a pause it still has the places that nobody has dropped meanwhile.
if ARGV[3] == '1' and (queued or redis.call('hexists', KEYS[4], client(owner)) == 1) then
    redis.call('hset', KEYS[4], client(owner), now)
    redis.call('pexpire', KEYS[4], BEATS)
end
local head = purge()
if left == -2 and (not head or head == owner) then
    -- The token comes first, because it may be refused.
    local fenced = token(true)
    local refused = type(fenced) == 'table' and fenced or take(left)
    if refused then
        return refused
    end
    if head then
        leave(owner)
    else
        redis.call('del', KEYS[3], KEYS[4])
    end
    return fenced
end
if ARGV[3] == '1' then
    mend()
    -- This waiter's place may have been dropped.
    queued = queued and redis.call('zscore', KEYS[3], owner)
    if queued then
        keep()
    else
        local joined, score = pcall(join)
        if not joined then
            return unjoin(score)
        end
        queued = score
    end
    if ARGV[6] == '1' then
        redis.call('hset', KEYS[4], 'polls ' .. client(owner), 1)
    end
    -- The release that grants the lock takes a token if the counter exists.
    if ARGV[4] == '1' then
        redis.call('setnx', KEYS[5], 0)
    end
end
if left == -2 then
    grant(ARGV[5])
    if redis.call('hexists', KEYS[1], owner) == 1 then
        return take(left) or token(false)
    end
end
local holder = redis.call('hkeys', KEYS[1])[1]
local foreign = holder and not ours(holder) or chained(queued)
return { redis.call('pttl', KEYS[1]), foreign and 1 or 0, now }
