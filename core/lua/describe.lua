-- with _counter.lua
-- Everything that the server knows about one name, for any kind of lock.
-- KEYS[1] name   KEYS[2] the fair lock's queue, redisson_lock_queue   KEYS[3] its places' ends,
-- redisson_lock_timeout   KEYS[4] counter of tokens, redisson_lock_token   KEYS[5] taken permits,
-- {name}:timeout
-- ARGV the channels whose subscribers are counted
-- Reply: texts, see snib_client_describe(): the kind first; then at most 500 holders, readers, permits and
-- waiters within 60,000 bytes, and how many more there are.
local entries_max, room = 500, 60000
local kind, entries, more = 'other', {}, 0
local facts = {}

local function entry(...)
    local text = table.concat({ ... }, ' ')
    room = room - #text - 1
    if #entries < entries_max and room >= 0 then
        entries[#entries + 1] = text
    else
        more = more + 1
    end
end

local function fact(word, number)
    facts[#facts + 1] = word .. ' ' .. number
end

-- Other programs may have written any bytes, which must not break a text of words.
local function plain(owner)
    return owner == '' and '?' or (string.gsub(string.sub(owner, 1, 90), '[^!-~]', '?'))
end

-- A whole number of 64 bits as it is.
local function number(text)
    local digits = string.match(text, '^%-?(%d+)$')
    local fits = digits and (#digits < 19 or (#digits == 19 and digits <= '9223372036854775807'))
    return fits and text or '0'
end

local function remaining(key)
    return whole(math.max(redis.call('pttl', key), -1))
end

local function reader(field, count)
    local tag = string.find(KEYS[1], '{', 1, true) and KEYS[1] or '{' .. KEYS[1] .. '}'
    local longest = 0
    for i = 1, math.min(tonumber(count) or 0, 10) do
        longest = math.max(longest, redis.call('pttl', tag .. ':' .. field .. ':rwlock_timeout:' .. i))
    end
    entry('reader', plain(field), whole(longest), number(count))
end

local function hash()
    local mode = redis.call('hget', KEYS[1], 'mode')
    local owners, steps = 0, 0
    local cursor = '0'
    if mode and mode ~= 'read' and mode ~= 'write' then
        return
    end
    -- Limit the time spent on a large hash that may not be a lock.
    repeat
        steps = steps + 1
        local step = redis.call('hscan', KEYS[1], cursor, 'count', entries_max)
        cursor = step[1]
        local fields = step[2]
        for i = 1, #fields, 2 do
            local field, count = fields[i], fields[i + 1]
            if string.find(field, '^%x+%-%x+%-%x+%-%x+%-%x+:') then
                owners = owners + 1
                local writer, writes = string.gsub(field, ':write', '', 1)
                if mode and writes == 0 then
                    reader(field, count)
                else
                    entry('holder', plain(mode and writer or field), remaining(KEYS[1]), number(count))
                end
            end
        end
    until cursor == '0' or #entries + more >= entries_max or steps == 20
    if cursor ~= '0' and owners > 0 then
        more = redis.call('hlen', KEYS[1]) - (mode and 1 or 0) - #entries
    end
    if owners > 0 then
        kind = mode or 'mutex'
    end
end

local function permits(value, time)
    kind = 'permits'
    local all = redis.call('zcard', KEYS[5])
    local expired = redis.call('zcount', KEYS[5], '-inf', time)
    local ids = redis.call('zrange', KEYS[5], expired, expired + entries_max - 1, 'withscores')
    for i = 1, #ids, 2 do
        local hex = string.gsub(ids[i], '.', function(byte)
            return string.format('%02x', string.byte(byte))
        end)
        local ends = tonumber(ids[i + 1])
        entry('permit', string.sub(hex, 1, 32), whole(ends < 922337203685477 and ends - time or -1))
    end
    more = all - expired - #entries
    fact('available', whole(value + expired))
    fact('total', whole(value + all))
end

local time = redis.call('time')
time = time[1] * 1000 + math.floor(time[2] / 1000)
local what = redis.call('type', KEYS[1]).ok
if what == 'none' then
    kind = 'free'
elseif what == 'hash' then
    hash()
elseif what == 'string' then
    local text = redis.call('getrange', KEYS[1], 0, 127)
    if counter(text) and redis.call('type', KEYS[5]).ok == 'zset' then
        permits(counter(text), time)
    elseif counter(text) then
        kind = 'counter'
        fact('count', text)
    elseif redis.call('pttl', KEYS[1]) >= 0 then
        kind = 'plain'
        entry('holder', plain(text), remaining(KEYS[1]), 1)
    end
end
-- A fair lock without waiters looks like a mutex.  Its waiters subscribe to channels of their own, so they are
-- counted by the processes in the queue.
local queued, processes = 0, {}
if (kind == 'free' or kind == 'mutex') and redis.call('type', KEYS[2]).ok == 'list' then
    kind = 'fair'
    for _, owner in ipairs(redis.call('lrange', KEYS[2], 0, entries_max - 1)) do
        local ends = redis.pcall('zscore', KEYS[3], owner)
        entry('waiter', plain(owner), whole(math.max((tonumber(ends) or time) - time, 0)))
        local process = string.match(owner, '^(.*):') or owner
        queued = queued + (processes[process] and 0 or 1)
        processes[process] = true
    end
    more = more + math.max(redis.call('llen', KEYS[2]) - entries_max, 0)
end
local token = redis.pcall('get', KEYS[4])
if type(token) == 'string' then
    fact('token', number(token))
end
local subscribed = redis.pcall('pubsub', 'numsub', unpack(ARGV))
local waiting = subscribed.err and -1 or 0
for i = 2, #subscribed, 2 do
    waiting = waiting + subscribed[i]
end
fact('waiting', queued > 0 and math.max(waiting, queued) or waiting)
if more > 0 then
    fact('more', whole(more))
end
local texts = { 'kind ' .. kind }
for _, text in ipairs(entries) do
    texts[#texts + 1] = text
end
for _, text in ipairs(facts) do
    texts[#texts + 1] = text
end
return texts
