-- What the fair lock's scripts share: the queue and how it moves.
--
-- KEYS[1] lock      a hash with the holder's field and a TTL, like the mutex
-- KEYS[2] queue     a list of owners, the head is next
-- KEYS[3] places    a sorted set: owner -> when its place ends, ms since the epoch
-- KEYS[4] beats     a hash of Snib's own: client id -> when it last asked; "push" -> last push; "forget" -> when it was
--                   last rid of clients that have gone; "polls <client id>";
--                   "skipped <owner>" -> when a release first could not notify that waiter
-- KEYS[5] token     the counter of the fenced lock; used if it exists
--
-- Redisson drops a waiter at the head whose place has ended.  A Redisson waiter adds its wait to the place of
-- the tail when it queues, or to the end of the holder's lease, and subtracts it from all places when it gets the
-- lock.  So a Snib place behind a Redisson waiter is chained in the same way, and marked by half a millisecond in
-- its score; all other Snib places end 4 s from now.  The first Snib waiter pushes the places from its own on by the
-- time that passes, so that live waiters keep theirs and a dead one costs seconds; when it leaves, the places of the
-- Redisson waiters right behind it are based on the holder's lease instead.  Among Snib waiters beats decide: a
-- client silent for 2.5 s is dead.
local PATIENCE, DEAD, FIRST, BEATS = 4000, 2500, 3000, 10000
local ABANDONED = 600000 -- more than the place of a Redisson waiter that joins after Snib's last command
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- Ids of Snib clients are UUIDs of version 8.
local function ours(owner)
    return string.sub(owner, 15, 15) == '8'
end

local function client(owner)
    return string.sub(owner, 1, 36)
end

local function chained(score)
    return score and tonumber(score) % 1 ~= 0
end

-- An abandoned queue of Snib waiters must expire.  Redisson's have no TTL, and its waiters rely on that.  `foreign`:
-- whether there are any; if not given, the tail tells, because Snib places behind them are chained.
local function expire(foreign)
    local tail = redis.call('lindex', KEYS[2], -1)
    local last = tail and redis.call('zscore', KEYS[3], tail) or now
    if foreign == nil and tail then
        foreign = not ours(tail) or chained(last)
    end
    local left = string.format('%d', math.max(tonumber(last) - now, 0) + ABANDONED)
    for _, key in ipairs({ KEYS[2], KEYS[3] }) do
        if foreign then
            redis.call('persist', key)
        else
            redis.call('pexpire', key, left)
        end
    end
    redis.call('pexpire', KEYS[4], BEATS)
end

-- The lock's lease is this much longer than the Redisson waiters at the head could know.
local function raise(ms)
    local at, member = 0, ms > 0 and redis.call('lindex', KEYS[2], 0)
    while member and not ours(member) do
        if redis.call('zscore', KEYS[3], member) then
            redis.call('zincrby', KEYS[3], ms, member)
        end
        at = at + 1
        member = redis.call('lindex', KEYS[2], at)
    end
end

-- ms is negative if the clock was set back; waiters that came since keep their places.  A waiter without a place
-- gets none, because a set created here would have no TTL.
local function push(members, from, ms)
    for i = from, #members do
        local score = redis.call('zscore', KEYS[3], members[i])
        if score and (ms > 0 or tonumber(score) + ms >= now) then
            redis.call('zincrby', KEYS[3], ms, members[i])
        end
    end
end

-- For how many ms a waiter's client has not asked.  If a beat is still to come, the clock was set back, or another server
-- took it whose clock was ahead: then the time counts from now on.
local function silence(waiter)
    local beat = tonumber(redis.call('hget', KEYS[4], client(waiter)) or 0)
    if beat > now then
        redis.pcall('hset', KEYS[4], client(waiter), now)
    end
    return math.max(now - beat, 0)
end

-- Drop dead waiters at the head.  Returns the first live one, or false.
local function purge()
    while true do
        local head = redis.call('lindex', KEYS[2], 0)
        if not head then
            return false
        end
        local score = redis.call('zscore', KEYS[3], head)
        if score then
            local dead = tonumber(score) <= now
            if ours(head) then
                dead = silence(head) > DEAD
            end
            if not dead then
                return head
            end
        end
        redis.call('zrem', KEYS[3], head)
        redis.call('lpop', KEYS[2])
    end
end

-- A slot's move that was given up, or an eviction, may have left the places without their queue.  A waiter that has a
-- place and is not in the queue would never be the next, so such places are dropped.
local function mend()
    if redis.call('llen', KEYS[2]) == redis.call('zcard', KEYS[3]) then
        return
    end
    local queued = {}
    for _, member in ipairs(redis.call('lrange', KEYS[2], 0, -1)) do
        queued[member] = true
    end
    for _, member in ipairs(redis.call('zrange', KEYS[3], 0, -1)) do
        if not queued[member] then
            redis.call('zrem', KEYS[3], member)
        end
    end
end

-- Remove an owner from the queue, and subtract what its place had added from those behind it: the part of the
-- patience between its end and that of the place before it, or now.  Behind the head, they are based on the lease.
local function leave(owner)
    local score, added = redis.call('zscore', KEYS[3], owner), false
    local was_head = score and redis.call('lindex', KEYS[2], 0) == owner
    if chained(score) then
        local before = now
        for _, member in ipairs(redis.call('lrange', KEYS[2], 0, -1)) do
            if added then
                redis.call('zincrby', KEYS[3], -added, member)
            elseif member == owner then
                added = math.max(0, math.min(PATIENCE, math.floor(tonumber(score) - before)))
            else
                before = math.max(now, tonumber(redis.call('zscore', KEYS[3], member) or now))
            end
        end
    end
    redis.call('zrem', KEYS[3], owner)
    local left = redis.call('lrem', KEYS[2], 0, owner)
    if was_head then
        raise(math.floor(now + math.max(redis.call('pttl', KEYS[1]), 0) - (tonumber(score) - (added or 0))))
    end
    expire()
    return left
end

local refused_message = false

-- Publish to the subscribers on this node; returns their number.  Without any, publish nothing: a replica, or
-- another node of a cluster, would pass the grant on to its own subscribers, although it is about to be undone.
local function tell(channel, text)
    local listeners = redis.pcall('pubsub', 'numsub', channel)
    if listeners[2] == 0 then
        return 0
    end
    local heard = redis.pcall('publish', channel, text)
    if type(heard) == 'number' then
        return heard
    end
    refused_message = true
    return 0
end

-- Whether a waiter that was not notified will soon ask.  One whose client has asked since it was skipped is alive, and cannot
-- be notified for whatever reason: its subscription never comes about, or it listens on another kind of channel.  Skipped at
-- each release, it would never have its turn.  If it died since it asked, that costs the others one first lease, after which
-- its client has been silent for too long.  fair_acquire forgets what is said of those that have left.
local function asks(waiter)
    if redis.call('hexists', KEYS[4], 'polls ' .. client(waiter)) == 1 then
        return true
    end
    local silent, field = silence(waiter), 'skipped ' .. waiter
    local skipped = tonumber(redis.call('hget', KEYS[4], field) or now + 1)
    if skipped > now and silent <= DEAD then
        redis.pcall('hset', KEYS[4], field, now)
    end
    return skipped < now - silent and silent < FIRST / 2
end

-- The client that was granted the lock may be on a machine that has vanished, with a connection that is still open.
-- Other Snib clients that wait find out, because they ask every second.  A Redisson waiter behind its waiters would
-- sleep until the lease that it saw has ended, perhaps for hours: told now, it sees the first lease, and asks again
-- at its end.
local function warn(channel, granted)
    local at, member = 0, redis.call('lindex', KEYS[2], 0)
    while member and client(member) == granted and at < 4 do
        at = at + 1
        member = redis.call('lindex', KEYS[2], at)
    end
    if member and not ours(member) then
        redis.pcall('publish', channel .. ':' .. member, '0')
    end
end

-- The lock is free: grant it to the first Snib waiter that can be notified, or will soon ask.  A Redisson waiter is only
-- notified and takes the lock itself.  A winner of the client `mine` is returned, not notified: number, token.
-- The message is "<number>:<token>:<first lease>:<now>".
local function grant(channel, mine)
    local at, waiter = 0, purge()
    while waiter and ours(waiter) do
        local token = '0'
        if redis.call('exists', KEYS[5]) == 1 then
            -- A refused counter must not fail the release of another owner; the waiter gets the error when it asks.
            local counted = redis.pcall('incr', KEYS[5])
            if type(counted) ~= 'number' or counted < 1 then
                return
            end
            redis.pcall('persist', KEYS[5]) -- see fenced_acquire
            token = redis.call('get', KEYS[5])
        end
        redis.call('hset', KEYS[1], waiter, 1)
        -- Never leave a lock without a TTL, for whatever reason PEXPIRE is refused; the waiter keeps its place.
        if redis.pcall('pexpire', KEYS[1], FIRST) ~= 1 then
            redis.call('hdel', KEYS[1], waiter)
            return
        end
        local number = string.sub(waiter, 38)
        local own = client(waiter) == mine
        local heard = own and 0 or tell(channel .. ':' .. client(waiter),
            table.concat({ number, token, FIRST, string.format('%d', now) }, ':'))
        if own or heard > 0 or asks(waiter) then
            leave(waiter)
            if own then
                return number, token
            end
            warn(channel, client(waiter))
            return
        end
        -- Its process is not subscribed: it is dead or will ask again.  It keeps its place.
        redis.call('hdel', KEYS[1], waiter)
        at = at + 1
        waiter = redis.call('lindex', KEYS[2], at)
    end
    if waiter then
        -- Behind Snib waiters that are dead it is notified too, and then asks until their places end.
        mend()
        redis.call('persist', KEYS[2])
        redis.call('persist', KEYS[3])
        redis.pcall('publish', channel .. ':' .. waiter, '0')
    elseif redis.call('exists', KEYS[2]) == 0 then
        redis.call('del', KEYS[4])
    end
end
