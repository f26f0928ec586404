-- Acquire several locks for one owner, or none.  Each member's steps are those of its own acquire script.
-- KEYS three for each member: its lock; a reader's own lease, a fenced lock's counter of tokens, otherwise the
-- lock again; for a reader the mark of waiting writers, otherwise the lock again
-- ARGV[1] owner   ARGV[2] lease in ms   ARGV[3] a letter for each member: m mutex, s spin, f fenced,
-- r read, w write
-- Reply: nil granted; otherwise the index from 0 of a member that another owner holds, and the ms to wait
-- for it (-1: unknown).
local owner, lease, kinds = ARGV[1], ARGV[2], ARGV[3]
local wanted = lease + 0 -- what is no number fails here, before anything is held

local function field(kind)
    return kind == 'w' and owner .. ':write' or owner
end

-- The ms that the readers of a lock have left, or nil if all their leases have ended.
local function readers(lock, left)
    local tag = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
    if redis.call('hlen', lock) > 9 then
        return left
    end
    local longest = nil
    for _, reader in ipairs(redis.call('hkeys', lock)) do
        local ms = left
        if string.find(reader, '^%x+%-%x+%-8') then
            ms = redis.call('pttl', tag .. ':' .. reader .. ':rwlock_timeout:1')
        end
        if reader ~= 'mode' and ms ~= -2 then
            longest = math.max(longest or ms, ms)
        end
    end
    return longest
end

-- The ms to wait for a member, or nil if it can be taken.
local function busy(kind, lock, mark)
    local left = redis.call('pttl', lock)
    if left == -2 and kind == 'r' then -- and a writer waits: see read_acquire
        local wait = redis.call('pttl', mark)
        if wait > 20 then
            redis.call('pexpire', mark, 20)
        end
        return wait > 0 and math.min(wait, 20) or nil
    elseif left == -2 or redis.call('hexists', lock, field(kind)) == 1 then
        return nil
    end
    local mode = left ~= -1 and redis.call('hget', lock, 'mode') -- other data has no TTL
    if kind == 'w' and mode == 'read' then
        return readers(lock, left)
    elseif kind == 'r' and mode == 'read' then
        local wait = redis.call('pttl', mark)
        return wait > 0 and wait or nil
    elseif kind == 'r' and mode == 'write' and redis.call('hexists', lock, owner .. ':write') == 1 then
        return nil
    end
    return left
end

-- The error of a refused step, or nil.  Counters come first: if one is refused, nothing is held.
local function count(kind, lock, counter)
    if kind ~= 'f' or redis.call('hexists', lock, owner) == 1 then
        return nil
    end
    local token = redis.pcall('incr', counter)
    if type(token) == 'table' then
        return token
    end
    redis.pcall('persist', counter) -- see fenced_acquire
    return nil
end

local added = {} -- members that were not held before, by an earlier try or by the one of which this is a late copy

local function take(kind, lock, own, i)
    local left = redis.call('pttl', lock)
    if kind == 'r' then
        local mode = redis.call('hget', lock, 'mode') or 'read'
        if redis.call('pttl', own) < wanted then
            redis.call('set', own, 1, 'px', lease)
        end
        added[i] = redis.call('hset', lock, 'mode', mode, owner, 1) > 0
    elseif kind == 'w' then
        if redis.call('hget', lock, 'mode') == 'read' and redis.call('hexists', lock, owner) == 0 then
            redis.call('del', lock)
            left = -2
        end
        added[i] = redis.call('hset', lock, 'mode', 'write', owner .. ':write', 1) > 0
    else
        added[i] = redis.call('hset', lock, owner, 1) > 0
    end
    local set = left < wanted and redis.pcall('pexpire', lock, lease) or 1
    return set ~= 1 and set or nil
end

local function each(step)
    for i = 1, #kinds do
        local refused = step(string.sub(kinds, i, i), KEYS[3 * i - 2], KEYS[3 * i - 1], i)
        if refused then
            return refused
        end
    end
end

local blocked = each(function(kind, lock, _, i)
    local ms = busy(kind, lock, KEYS[3 * i])
    return ms and { i - 1, ms }
end)
if blocked then
    return blocked
end
local done, refused = pcall(each, count)
if done and not refused then
    done, refused = pcall(each, take)
end
if refused then
    each(function(kind, lock, _, i)
        if not added[i] then
            return
        end
        redis.call('hdel', lock, field(kind))
        if redis.call('hlen', lock) == 1 then
            redis.call('hdel', lock, 'mode')
        end
    end)
    local text = type(refused) == 'table' and refused.err or not done and tostring(refused)
    return redis.error_reply(text or 'ERR the lease was refused')
end
return nil
