"""Planted bugs: the server-side scripts."""

from . import Mutant

MUTANTS = [
    Mutant(
        "a mutex whose message is refused is said to be lost",
        "locks/kind.c",
        "verdict->yes = verdict->unheard || (counts && reply->integer > 0);",
        "verdict->yes = counts && reply->integer > 0;",
        "unit_forbidden",
    ),
    Mutant(
        "a multi lock's refused message is not told",
        "lua/multi_release.lua",
        "messages[i])) == 'number' and sign or -1",
        "messages[i])) == 'number' and sign or 1",
        "live/forbidden",
    ),
    Mutant(
        "refused messages are told at each release",
        "engine/release.c",
        "e->told_unheard = true;",
        "",
        "unit_forbidden",
    ),
    Mutant(
        "a multi lock's undo skips the member that was refused",
        "lua/mutexes_acquire.lua",
        "for taken = 1, i do",
        "for taken = 1, i - 1 do",
        "live/multi refused_lease",
    ),
    Mutant(
        "renewal does not look at the owner",
        "lua/mutex_renew.lua",
        "redis.pcall('hexists', KEYS[i], ARGV[i + 1])",
        "redis.pcall('exists', KEYS[i])",
    ),
    Mutant(
        "a place is pushed by more than the time that has passed",
        "lua/fair_acquire.lua",
        "                redis.call('hset', KEYS[4], 'push', now)\n",
        "",
    ),
    Mutant(
        "a writer after dead readers has no TTL",
        "lua/write_acquire.lua",
        "if not mine or left < tonumber(ARGV[2]) then",
        "if left < tonumber(ARGV[2]) then",
    ),
    Mutant(
        "the count is raised, not set",
        "lua/mutex_acquire.lua",
        "redis.call('hset', KEYS[1], ARGV[1], 1)",
        "redis.call('hincrby', KEYS[1], ARGV[1], 1)",
    ),
    Mutant(
        "acquire leaves no TTL",
        "lua/mutex_acquire.lua",
        "longer and redis.pcall('pexpire', KEYS[1], ARGV[2]) or 1",
        "1",
    ),
    Mutant(
        "acquire does not look at the owner",
        "lua/mutex_acquire.lua",
        "redis.call('hexists', KEYS[1], ARGV[1]) == 0",
        "redis.call('hlen', KEYS[1]) == 0",
    ),
    Mutant(
        "release deletes blindly",
        "lua/mutex_release.lua",
        "redis.call('hdel', KEYS[1], ARGV[1])",
        "redis.call('del', KEYS[1])",
    ),
    Mutant(
        "release tells nobody",
        "lua/mutex_release.lua",
        "redis.pcall('publish', ARGV[2], '0')",
        "0",
    ),
    Mutant(
        "hand-over does not look at the owner",
        "lua/mutex_transfer.lua",
        "local first = redis.call('hdel', KEYS[1], ARGV[1]) == 1",
        "local first = redis.call('del', KEYS[1]) == 1",
    ),
    Mutant(
        "a downgrade wakes nobody",
        "lua/write_release.lua",
        "    redis.call('hset', KEYS[1], 'mode', 'read')\n"
        "end",
        "    redis.call('hset', KEYS[1], 'mode', 'read')\n"
        "    return 1\n"
        "end",
    ),
    Mutant(
        "the last reader tells nobody",
        "lua/read_release.lua",
        "local receivers = redis.pcall('publish', ARGV[2], '1') redis.pcall('publish', ARGV[2], '0')",
        "local receivers = 0",
    ),
    Mutant(
        "a reader's own lease has slack",
        "lua/read_acquire.lua",
        "redis.call('set', KEYS[2], 1, 'px', ARGV[2])",
        "redis.call('set', KEYS[2], 1, 'px', ARGV[2] + 60000)",
    ),
    Mutant(
        "a reader's own lease is not renewed",
        "lua/read_renew.lua",
        "if lease > 0 and (exact or redis.call('pttl', own) < lease) and redis.call('pexpire', own, lease) == 0 then",
        "if false then",
    ),
    Mutant(
        "a writer comes in beside readers",
        "lua/write_acquire.lua",
        "busy = readers()",
        "busy = nil",
    ),
    Mutant(
        "a reader comes in beside a writer",
        "lua/read_acquire.lua",
        "elseif mode ~= 'write' or redis.call('hexists', KEYS[1], ARGV[1] .. ':write') == 0 then",
        "elseif mode ~= 'write' then",
    ),
    Mutant(
        "a reader's release takes the last other reader with it",
        "lua/read_release.lua",
        "if fields <= 1 then",
        "if fields <= 2 then",
    ),
    Mutant(
        "readers do not wait behind a preferred writer",
        "lua/read_acquire.lua",
        "        if mark > 0 then\n"
        "            return mark",
        "        if false then\n"
        "            return mark",
    ),
    Mutant(
        "a hand-over takes no token",
        "lua/fenced_transfer.lua",
        "redis.pcall('incr', KEYS[2])",
        "1",
    ),
    Mutant(
        "a grant by a release takes no token",
        "lua/_fair.lua",
        "local counted = redis.pcall('incr', KEYS[5])",
        "local counted = 1",
    ),
    Mutant(
        "a fair lock's release gives a token below 1",
        "lua/_fair.lua",
        "if type(counted) ~= 'number' or counted < 1 then",
        "if type(counted) ~= 'number' then",
        "traces/test_fair.py tokens_below_1",
    ),
    Mutant(
        "a fair lock has a token below 1",
        "lua/fair_acquire.lua",
        "if tonumber(last) < 1 then",
        "if false then",
        "traces/test_fair.py tokens_below_1",
    ),
    Mutant(
        "a repeated request takes another token",
        "lua/fenced_acquire.lua",
        "local token = mine and redis.call('get', KEYS[2])",
        "local token = false",
    ),
    Mutant(
        "the newest waiter is granted",
        "lua/_fair.lua",
        "local waiter, at = purge(), 0",
        "local waiter, at = purge() and redis.call('lindex', KEYS[2], -1), 0",
    ),
    Mutant(
        "whoever asks takes a free lock",
        "lua/fair_acquire.lua",
        "if left == -2 and (not head or head == owner) then",
        "if left == -2 then",
    ),
    Mutant(
        "leaving forgets the score",
        "lua/_fair.lua",
        "    redis.call('zrem', KEYS[3], owner)\n"
        "    local left",
        "    local left",
    ),
    Mutant(
        "leaving keeps the place",
        "lua/_fair.lua",
        "local left = redis.call('lrem', KEYS[2], 0, owner)",
        "local left = 1",
    ),
    Mutant(
        "a place without an entry in the queue counts",
        "lua/_fair.lua",
        "if redis.call('llen', KEYS[2]) == redis.call('zcard', KEYS[3]) then",
        "if true then",
        "traces/test_fair.py a_queue_that_is_gone",
    ),
    Mutant(
        "a place without an entry in the queue stays for ever",
        "lua/_fair.lua",
        "        mend()\n"
        "        redis.call('persist', KEYS[2])",
        "        redis.call('persist', KEYS[2])",
        "traces/test_fair.py a_queue_that_is_gone",
    ),
    Mutant(
        "after a pause a waiter drops its own client's places",
        "lua/fair_acquire.lua",
        "if ARGV[3] == '1' and (queued or redis.call('hexists', KEYS[4], client(owner)) == 1) then",
        "if false then",
        "sim_stories",
    ),
    Mutant(
        "after a pause a new waiter drops its client's places",
        "lua/fair_acquire.lua",
        "if ARGV[3] == '1' and (queued or redis.call('hexists', KEYS[4], client(owner)) == 1) then",
        "if ARGV[3] == '1' and queued then",
        "sim_stories",
    ),
    Mutant(
        "places stay when there is no queue",
        "lua/fair_acquire.lua",
        "redis.call('del', KEYS[3], KEYS[4])",
        "redis.call('del', KEYS[4])",
        "traces/test_fair.py a_queue_that_is_gone",
    ),
    Mutant(
        "a stranger behind dead waiters of ours is not told of the release",
        "lua/_fair.lua",
        "    if waiter then\n        -- Behind",
        "    if waiter and at == 0 then\n        -- Behind",
        "traces/test_fair.py a_stranger_behind_the_dead",
    ),
    Mutant(
        "the dead are waited for",
        "lua/_fair.lua",
        "local PATIENCE, DEAD, FIRST, BEATS = 4000, 2500,",
        "local PATIENCE, DEAD, FIRST, BEATS = 4000, 250000,",
    ),
    Mutant(
        "a beat is not noted",
        "lua/fair_acquire.lua",
        "    redis.call('hset', KEYS[4], client(owner), now)\n    redis.call('pexpire', KEYS[4], BEATS)",
        "    redis.call('pexpire', KEYS[4], BEATS)",
    ),
    Mutant(
        "a queue with strangers ends",
        "lua/_fair.lua",
        "foreign = not ours(tail) or chained(last)",
        "foreign = false",
        "traces/test_fair.py a_queue_with_strangers_does_not",
    ),
    Mutant(
        "nobody moves a stranger's place behind a head that has left",
        "lua/_fair.lua",
        "    if was_head then",
        "    if was_head and added then",
        "traces/test_fair.py a_stranger_behind_a_head_of_ours",
    ),
    Mutant(
        "a granted lease that is confirmed is not told to the strangers behind",
        "lua/fair_acquire.lua",
        "raise(tonumber(lease) - left)",
        "raise(0 * left)",
        "traces/test_fair.py a_stranger_behind_a_head_of_ours",
    ),
    Mutant(
        "a queue has no end",
        "lua/_fair.lua",
        "redis.call('pexpire', key, left)",
        "redis.call('persist', key)",
    ),
    Mutant(
        "a release grants nobody",
        "lua/fair_release.lua",
        "number, token = grant(ARGV[2], client(ARGV[1]))",
        "number, token = false, '0'",
    ),
    Mutant(
        "expired permits come back twice",
        "lua/permits_acquire.lua",
        "redis.call('incrby', KEYS[1], #over)",
        "redis.call('incrby', KEYS[1], 2 * #over)",
    ),
    Mutant(
        "permits come back that were not there",
        "lua/permits_release.lua",
        "local back = redis.call('zrem', KEYS[2], unpack(ARGV, 2))",
        "redis.call('zrem', KEYS[2], unpack(ARGV, 2))\n"
        "local back = #ARGV - 1",
    ),
    Mutant(
        "more permits than there are",
        "lua/permits_acquire.lua",
        "if not mine and value < n then",
        "if not mine and value < 1 then",
    ),
    Mutant(
        "a repeated request takes more permits",
        "lua/permits_acquire.lua",
        "if not mine then\n"
        "    local left",
        "if true then\n"
        "    local left",
    ),
    Mutant(
        "permits tell nobody",
        "lua/permits_release.lua",
        "value > 0 and redis.pcall('publish', ARGV[1], value)",
        "0",
    ),
    Mutant(
        "a semaphore tells nobody",
        "lua/semaphore_release.lua",
        "value > 0 and redis.pcall('publish', ARGV[2], value)",
        "0",
    ),
    Mutant(
        "a latch opens one count early",
        "lua/latch_count.lua",
        "if value > 1 then",
        "if value > 2 then",
    ),
    Mutant(
        "a latch takes another program's fraction for its count",
        "lua/latch_count.lua",
        "string.find(text or '0', '^%-?%d+$') and tonumber(text or 0)",
        "tonumber(text or 0)",
        "traces/test_counters.py counters_refuse_other_data",
    ),
    Mutant(
        "a semaphore deletes another program's fraction",
        "lua/semaphore_force.lua",
        "not string.find(text, '^%-?%d+$')",
        "not tonumber(text)",
        "traces/test_counters.py counters_refuse_other_data",
    ),
    Mutant(
        "a latch lets go at the last count",
        "lua/latch_acquire.lua",
        "if value > 0 then",
        "if value > 1 then",
    ),
    Mutant(
        "a latch opens in silence",
        "lua/latch_count.lua",
        "redis.pcall('publish', ARGV[3], '0')",
        "local _ = 0",
    ),
    Mutant(
        "a multi lock's reader is ahead of a waiting writer when the lock is just free",
        "lua/multi_acquire.lua",
        "return wait > 0 and math.min(wait, 20) or nil",
        "return nil",
        "traces/test_multi.py test_multi_gives_a_waiting_writer_its_moment",
    ),
    Mutant(
        "a multi lock takes what it gets",
        "lua/multi_acquire.lua",
        "if blocked then",
        "if blocked and blocked[1] == 0 then",
    ),
    Mutant(
        "a multi lock forgets its last member",
        "lua/multi_release.lua",
        "for i = 1, #kinds do\n"
        "    local done, message, was",
        "for i = 1, #kinds - 1 do\n"
        "    local done, message, was",
    ),
    Mutant(
        "a multi lock renews its first member",
        "lua/multi_renew.lua",
        "        for m = 1, #kinds do\n"
        "            renew",
        "        for m = 1, 1 do\n"
        "            renew",
    ),
    Mutant(
        "a plain lock is deleted blindly",
        "lua/plain_release.lua",
        "if redis.call('get', KEYS[1]) ~= ARGV[1] then",
        "if redis.call('exists', KEYS[1]) == 0 then",
    ),
    Mutant(
        "a repeated hand-over keeps the old lease",
        "lua/write_transfer.lua",
        "        redis.call('pexpire', KEYS[1], ARGV[3])\n",
        "",
        "traces/test_read_write.py",
    ),
    Mutant(
        "of those who wait behind the last reader one is told",
        "lua/read_release.lua",
        "redis.pcall('publish', ARGV[2], '1')",
        "redis.pcall('publish', ARGV[2], '0')",
        "traces/test_read_write.py",
    ),
    Mutant(
        "permits of one request have one id",
        "locks/permits.c",
        "uint64_t number = hold->number + i;",
        "uint64_t number = hold->number + 0 * i;",
    ),
]
