/* sim_redisson.c - clients other than Snib's: they follow the steps of Redisson's own scripts.
 *
 * A peer has a separate owner for each thread, hears messages, sleeps as long as it was told,
 * renews or lets its lease end, re-enters, gives up.  Its commands reach the server at once: it is
 * there to interfere, not to be tested.
 */
#include "sim.h"

#include "snib.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum peer_state { PEER_RESTS, PEER_WAITS, PEER_HOLDS, PEER_LEAVES };

struct peer_thread {
    int state;
    int name, side;
    uint64_t number;
    int count; /* re-entry count */
    bool renews;
    snib__time wake, lease, wait, wait_ends, hold_ends, renew_at;
    snib__time asked_at; /* the last attempt to acquire */
    snib__time first_at; /* it is the first of a fair lock's queue since; 0: it is not */
};

struct sim_peer {
    struct sim_process *process;
    uint64_t link, ears; /* connections */
    uint64_t next_permit;
    snib__time tried_at; /* the last attempt to subscribe */
    snib__time hears_since;
    bool gone;
    int last_woken;
    struct peer_thread threads[PEER_THREADS];
};

/* ---- Scripts ------------------------------------------------------------------------------------ */

/* KEYS lock   ARGV lease, owner */
static const char acquire_text[] =
    "if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then "
    "redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return nil "
    "end return redis.call('pttl', KEYS[1])";

/* KEYS lock   ARGV lease, owner, channel */
static const char release_text[] =
    "if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end "
    "if redis.call('hincrby', KEYS[1], ARGV[2], -1) > 0 then "
    "redis.call('pexpire', KEYS[1], ARGV[1]) return 0 end "
    "redis.call('del', KEYS[1]) redis.call('publish', ARGV[3], '0') return 1";

/* KEYS lock   ARGV lease, owner */
static const char renew_text[] = "if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then "
                                 "return redis.call('pexpire', KEYS[1], ARGV[1]) end return 0";

#define PURGE                                                                                      \
    "while true do local h = redis.call('lindex', KEYS[2], 0) if not h then break end "            \
    "local s = redis.call('zscore', KEYS[3], h) "                                                  \
    "if s and tonumber(s) <= tonumber(ARGV[4]) then redis.call('zrem', KEYS[3], h) "               \
    "redis.call('lpop', KEYS[2]) else break end end "

/* KEYS lock, queue, places   ARGV lease, owner, wait, now */
static const char fair_acquire_text[] = PURGE
    "if redis.call('exists', KEYS[1]) == 0 and (redis.call('exists', KEYS[2]) == 0 or "
    "redis.call('lindex', KEYS[2], 0) == ARGV[2]) then "
    "redis.call('lpop', KEYS[2]) redis.call('zrem', KEYS[3], ARGV[2]) "
    "for _, m in ipairs(redis.call('zrange', KEYS[3], 0, -1)) do "
    "redis.call('zincrby', KEYS[3], -tonumber(ARGV[3]), m) end "
    "redis.call('hset', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return nil "
    "end "
    "if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then "
    "redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return nil "
    "end "
    "if redis.call('zscore', KEYS[3], ARGV[2]) then "
    "return math.max(0, redis.call('pttl', KEYS[1])) end "
    "local last, t = redis.call('lindex', KEYS[2], -1), redis.call('pttl', KEYS[1]) "
    "local s = last and last ~= ARGV[2] and redis.call('zscore', KEYS[3], last) "
    "if s then t = tonumber(s) - tonumber(ARGV[4]) end "
    "if redis.call('zadd', KEYS[3], t + tonumber(ARGV[3]) + tonumber(ARGV[4]), ARGV[2]) == 1 then "
    "redis.call('rpush', KEYS[2], ARGV[2]) end return t";

/* KEYS lock, queue, places   ARGV lease, owner, channel, now */
static const char fair_release_text[] = PURGE
    "local h = redis.call('lindex', KEYS[2], 0) "
    "if redis.call('exists', KEYS[1]) == 0 then "
    "if h then redis.call('publish', ARGV[3] .. ':' .. h, '0') end return 1 end "
    "if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end "
    "if redis.call('hincrby', KEYS[1], ARGV[2], -1) > 0 then "
    "redis.call('pexpire', KEYS[1], ARGV[1]) return 0 end "
    "redis.call('del', KEYS[1]) if h then redis.call('publish', ARGV[3] .. ':' .. h, '0') end "
    "return 1";

/* KEYS lock, queue, places   ARGV lease, owner, wait */
static const char fair_leave_text[] =
    "local behind = false for _, m in ipairs(redis.call('lrange', KEYS[2], 0, -1)) do "
    "if behind then redis.call('zincrby', KEYS[3], -tonumber(ARGV[3]), m) end "
    "if m == ARGV[2] then behind = true end end "
    "redis.call('zrem', KEYS[3], ARGV[2]) redis.call('lrem', KEYS[2], 0, ARGV[2]) return nil";

/* KEYS lock, prefix of the leases   ARGV lease, owner */
static const char read_acquire_text[] =
    "local mode = redis.call('hget', KEYS[1], 'mode') "
    "if not mode then redis.call('hset', KEYS[1], 'mode', 'read', ARGV[2], 1) "
    "redis.call('set', KEYS[2] .. ':1', 1, 'px', ARGV[1]) "
    "redis.call('pexpire', KEYS[1], ARGV[1]) return nil end "
    "if mode == 'read' or redis.call('hexists', KEYS[1], ARGV[2] .. ':write') == 1 then "
    "local n = redis.call('hincrby', KEYS[1], ARGV[2], 1) "
    "redis.call('set', KEYS[2] .. ':' .. n, 1, 'px', ARGV[1]) "
    "redis.call('pexpire', KEYS[1], math.max(redis.call('pttl', KEYS[1]), ARGV[1])) return nil end "
    "return redis.call('pttl', KEYS[1])";

/* KEYS lock, prefix of the leases, tag   ARGV lease, owner, channel */
static const char read_release_text[] =
    "local mode = redis.call('hget', KEYS[1], 'mode') "
    "if not mode then redis.call('publish', ARGV[3], '0') return nil end "
    "if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end "
    "local n = redis.call('hincrby', KEYS[1], ARGV[2], -1) "
    "if n == 0 then redis.call('hdel', KEYS[1], ARGV[2]) end "
    "redis.call('del', KEYS[2] .. ':' .. (n + 1)) "
    "if redis.call('hlen', KEYS[1]) > 1 then local longest = -3 "
    "for _, f in ipairs(redis.call('hkeys', KEYS[1])) do "
    "for i = 1, tonumber(redis.call('hget', KEYS[1], f)) or 0 do longest = math.max(longest, "
    "redis.call('pttl', KEYS[3] .. ':' .. f .. ':rwlock_timeout:' .. i)) end end "
    "if longest > 0 then redis.call('pexpire', KEYS[1], longest) return 0 end "
    "if mode == 'write' then return 0 end end "
    "redis.call('del', KEYS[1]) redis.call('publish', ARGV[3], '0') return 1";

/* KEYS lock, prefix of the leases   ARGV lease, owner */
static const char read_renew_text[] =
    "local n = tonumber(redis.call('hget', KEYS[1], ARGV[2]) or 0) "
    "for i = n, 1, -1 do redis.call('pexpire', KEYS[2] .. ':' .. i, ARGV[1]) end "
    "return n > 0 and redis.call('pexpire', KEYS[1], ARGV[1]) or 0";

/* KEYS lock   ARGV lease, owner:write */
static const char write_acquire_text[] = "if redis.call('exists', KEYS[1]) == 0 then "
                                         "redis.call('hset', KEYS[1], 'mode', 'write', ARGV[2], 1) "
                                         "redis.call('pexpire', KEYS[1], ARGV[1]) return nil end "
                                         "return redis.call('pttl', KEYS[1])";

/* KEYS lock   ARGV lease, owner:write, channel */
static const char write_release_text[] =
    "if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end "
    "redis.call('hdel', KEYS[1], ARGV[2]) "
    "if redis.call('hlen', KEYS[1]) == 1 then redis.call('del', KEYS[1]) "
    "redis.call('publish', ARGV[3], '1') else redis.call('hset', KEYS[1], 'mode', 'read') end "
    "return 1";

#define RECLAIM                                                                                    \
    "local over = redis.call('zrangebyscore', KEYS[2], 0, ARGV[2], 'limit', 0, 1) "                \
    "if #over > 0 then redis.call('zrem', KEYS[2], unpack(over)) "                                 \
    "local v = redis.call('incrby', KEYS[1], #over) "                                              \
    "if v > 0 then redis.call('publish', ARGV[3], v) end end "

/* KEYS free, taken   ARGV deadline, now, channel, id */
static const char permit_acquire_text[] = RECLAIM
    "if tonumber(redis.call('get', KEYS[1]) or 0) >= 1 then redis.call('decrby', KEYS[1], 1) "
    "redis.call('zadd', KEYS[2], ARGV[1], ARGV[4]) return nil end "
    "local first = redis.call('zrange', KEYS[2], 0, 0, 'withscores') "
    "return first[2] and math.max(0, tonumber(first[2]) - tonumber(ARGV[2])) or -1";

/* KEYS free, taken   ARGV -, -, channel, id */
static const char permit_release_text[] =
    "if redis.call('zrem', KEYS[2], ARGV[4]) == 0 then return nil end "
    "redis.call('publish', ARGV[3], redis.call('incrby', KEYS[1], 1)) return 1";

/* ---- Asking ------------------------------------------------------------------------------------- */

enum { REPLY_NIL = -1000001, REPLY_ERROR = -1000002 };

static void open_link(uint64_t *link)
{
    char bytes[256], database[16];
    int n = 0;
    snprintf(database, sizeof database, "%d", sim.database);
    *link = model_connect(sim.model);
    if (sim.password != NULL) {
        n = snprintf(bytes, sizeof bytes, "*2\r\n$4\r\nauth\r\n$%zu\r\n%s\r\n",
                     strlen(sim.password), sim.password);
    }
    n += snprintf(bytes + n, sizeof bytes - (size_t)n, "*2\r\n$6\r\nselect\r\n$%zu\r\n%s\r\n",
                  strlen(database), database);
    model_input(sim.model, *link, bytes, (size_t)n);
    const char *reply;
    size_t answered = model_output(sim.model, *link, &reply);
    if (memchr(reply, '-', answered) != NULL) { /* refused; another attempt follows */
        model_close(sim.model, *link);
        *link = 0;
    }
}

/* "<kind><number>\r\n".  In many worlds half of the requests are Redisson's, and printf is slow. */
static size_t add_head(char *out, size_t at, char kind, size_t number)
{
    size_t unit = 1;
    while (number / unit >= 10) {
        unit *= 10;
    }
    out[at++] = kind;
    for (; unit > 0; unit /= 10) {
        out[at++] = (char)('0' + number / unit % 10);
    }
    out[at++] = '\r';
    out[at++] = '\n';
    return at;
}

static size_t add_word(char *out, size_t at, model_text word)
{
    at = add_head(out, at, '$', word.n);
    memcpy(out + at, word.p, word.n);
    memcpy(out + at + word.n, "\r\n", 2);
    return at + word.n + 2;
}

static model_text word_of(const char *text)
{
    return (model_text){text, strlen(text)};
}

/* The script's reply, if it is an integer. */
static int64_t ask(struct sim_peer *peer, uint64_t number_of_actor, int cause, const char *script,
                   const model_text *keys, size_t key_count, const model_text *arguments,
                   size_t count)
{
    static char bytes[8192];
    char number[8];
    const char *reply = "";
    if (peer->link == 0 || !model_is_open(sim.model, peer->link)) {
        open_link(&peer->link);
    }
    size_t at = add_head(bytes, 0, '*', 3 + key_count + count);
    at = add_word(bytes, at, word_of("eval"));
    at = add_word(bytes, at, word_of(script));
    snprintf(number, sizeof number, "%zu", key_count);
    at = add_word(bytes, at, word_of(number));
    for (size_t i = 0; i < key_count; i++) {
        at = add_word(bytes, at, keys[i]);
    }
    for (size_t i = 0; i < count; i++) {
        at = add_word(bytes, at, arguments[i]);
    }
    sim.peer_cause = cause;
    sim.acting = peer->process;
    sim.acting_number = number_of_actor;
    model_input(sim.model, peer->link, bytes, at);
    sim.peer_cause = CAUSE_NONE;
    size_t n = model_output(sim.model, peer->link, &reply);
    if (n > 7 && (memcmp(reply, "-NOAUTH", 7) == 0 || memcmp(reply, "-WRONGPA", 8) == 0)) {
        model_close(sim.model, peer->link); /* it logs in again */
        peer->link = 0;
    }
    return n == 0 || reply[0] == '-' ? REPLY_ERROR
           : reply[0] == ':'         ? strtoll(reply + 1, NULL, 10)
                                     : REPLY_NIL;
}

enum peer_step { STEP_ACQUIRE, STEP_RELEASE, STEP_RENEW, STEP_LEAVE };

static const char *script_for(int family, int side, int step)
{
    static const char *const texts[5][4] = {
        {acquire_text, release_text, renew_text, NULL},
        {fair_acquire_text, fair_release_text, renew_text, fair_leave_text},
        {read_acquire_text, read_release_text, read_renew_text, NULL},
        {write_acquire_text, write_release_text, renew_text, NULL},
        {permit_acquire_text, permit_release_text, NULL, NULL}};
    return texts[family == FAMILY_FAIR      ? 1
                 : family == FAMILY_RW      ? 2 + side
                 : family == FAMILY_PERMITS ? 4
                                            : 0][step];
}

static void permit_id(const struct sim_process *process, uint64_t number, char id[16])
{
    uint64_t low = (0x8000000000000000U | (sim.seed & 0xffffffffffff)) ^ number;
    memset(id, 0, 16);
    id[3] = (char)process->id;
    for (int i = 0; i < 8; i++) {
        id[15 - i] = (char)(low >> 8 * i);
    }
}

/* One step of a thread at its lock. */
static int64_t take_step(struct sim_peer *peer, const struct peer_thread *t, int step)
{
    const struct sim_name *name = &sim.names[t->name];
    char owner[64], prefix[128], channel[96], lease[24], now[24], wait[24], id[16];
    uint64_t now_ms = sim_server_ns(sim.now) / 1000000;
    bool permits = name->family == FAMILY_PERMITS;
    snprintf(owner, sizeof owner, "%s:%llu%s", peer->process->uuid, (unsigned long long)t->number,
             t->side ? ":write" : "");
    snprintf(prefix, sizeof prefix, "%s:%s:rwlock_timeout", name->tag, owner);
    snprintf(channel, sizeof channel, "%s:%s",
             permits                     ? "redisson_sc"
             : name->family == FAMILY_RW ? "redisson_rwlock"
                                         : "redisson_lock__channel",
             name->tag);
    snprintf(lease, sizeof lease, "%llu",
             (unsigned long long)(t->lease / SNIB__MS + (permits ? now_ms : 0)));
    snprintf(now, sizeof now, "%llu", (unsigned long long)now_ms);
    snprintf(wait, sizeof wait, "%llu", (unsigned long long)(t->wait / SNIB__MS));
    permit_id(peer->process, t->number, id);
    bool is_rw = name->family == FAMILY_RW;
    model_text keys[3] = {word_of(name->text),
                          word_of(is_rw     ? prefix
                                  : permits ? name->taken
                                            : name->queue),
                          word_of(is_rw ? name->tag : name->places)};
    model_text arguments[4] = {word_of(lease), word_of(permits ? now : owner),
                               word_of(step == STEP_RELEASE || permits ? channel : wait),
                               permits ? (model_text){id, 16} : word_of(now)};
    int64_t reply =
        ask(peer, t->number, step == STEP_RELEASE ? CAUSE_RELEASED : CAUSE_OTHER,
            script_for(name->family, t->side, step), keys, permits ? 2 : 3, arguments, 4);
    sim_trace("%u:%llu (Redisson) step %d at %s: %lld", peer->process->id,
              (unsigned long long)t->number, step, name->text, (long long)reply);
    return reply;
}

/* ---- A thread's life ---------------------------------------------------------------------------- */

static void rest(struct peer_thread *t)
{
    *t = (struct peer_thread){.wake = sim.winding_down ? SNIB__NEVER
                                                       : sim.now + sim_draw(2 * sim.think)};
    if (sim.crowded && !sim.winding_down) {
        t->wake += 4 * sim.delay; /* the replies to its commands were too quick */
    }
}

static void begin(struct sim_peer *peer, struct peer_thread *t)
{
    int name = (int)sim_draw((uint64_t)sim.name_count);
    if (sim.winding_down || sim.listeners || !sim.names[name].alien) {
        rest(t);
        return;
    }
    bool permits = sim.names[name].family == FAMILY_PERMITS;
    *t = (struct peer_thread){
        .state = PEER_WAITS,
        .name = name,
        .side = sim.names[name].family == FAMILY_RW && sim_chance(3),
        .number = SIM_FIRST_NUMBER +
                  (permits ? 100 + peer->next_permit++ : (uint64_t)(t - peer->threads)),
        .renews =
            !permits && sim_chance(2) && (!sim.long_leases || sim.names[name].family != FAMILY_RW),
        .lease = sim.lease,
        .wait = sim_between(SNIB__MS, 3 * sim.lease),
        .wake = sim.now,
    };
    t->wait_ends = sim.now + t->wait;
    struct sim_owner *owner = check_owner(peer->process, t->number, t->side);
    owner->use = (struct sim_use){.name = name, .names = 1U << name, .side = t->side, .permits = 1};
    owner->lease = t->lease;
}

static void hold(struct peer_thread *t)
{
    t->state = PEER_HOLDS;
    t->count++;
    t->hold_ends = sim.now + task_hold_for();
    t->renew_at = sim.now + t->lease / 3;
    t->wake = t->renews && t->renew_at < t->hold_ends ? t->renew_at : t->hold_ends;
}

/* Give a place in a queue back, however long it takes. */
static void leave(struct sim_peer *peer, struct peer_thread *t)
{
    bool queued = sim.names[t->name].family == FAMILY_FAIR;
    if (queued && take_step(peer, t, STEP_LEAVE) == REPLY_ERROR) {
        t->state = PEER_LEAVES;
        t->wake = sim.now + 200 * SNIB__MS;
        return;
    }
    rest(t);
}

static void try(struct sim_peer *peer, struct peer_thread *t)
{
    bool last = sim.now >= t->wait_ends;
    int64_t told = take_step(peer, t, STEP_ACQUIRE);
    t->asked_at = sim.now;
    if (told == REPLY_NIL) {
        hold(t);
    } else if (last || told == REPLY_ERROR) {
        leave(peer, t);
    } else {
        /* A real one, told to wait 0 ms, asks again without a pause. */
        snib__time sleep = told < 0 ? 1000 : told < 20 ? 20 : (snib__time)told;
        t->wake = sim.now + sleep * SNIB__MS;
        t->wake = t->wake < t->wait_ends ? t->wake : t->wait_ends;
    }
}

static void go_on(struct sim_peer *peer, struct peer_thread *t)
{
    if (sim.now < t->hold_ends) {
        int64_t renewed = take_step(peer, t, STEP_RENEW);
        t->renews = renewed != 0;
        t->renew_at = sim.now + t->lease / 3;
        t->wake = t->renews && t->renew_at < t->hold_ends ? t->renew_at : t->hold_ends;
        return;
    }
    bool again = sim.names[t->name].family == FAMILY_MUTEX && t->count == 1 && sim_chance(8);
    if (again && take_step(peer, t, STEP_ACQUIRE) == REPLY_NIL) {
        hold(t);
        return;
    }
    int64_t released = take_step(peer, t, STEP_RELEASE);
    if (released == REPLY_ERROR) {
        t->wake = sim.now + 200 * SNIB__MS;
    } else if (released == 0 && --t->count > 0) {
        t->wake = sim.now + sim_draw(5 * SNIB__MS);
    } else {
        rest(t);
    }
}

/* ---- The peer ----------------------------------------------------------------------------------- */

void peer_new(int slot)
{
    struct sim_peer *peer = calloc(1, sizeof *peer);
    if (peer == NULL) {
        abort();
    }
    peer->process = process_record(true);
    for (int i = 0; i < PEER_THREADS; i++) {
        peer->threads[i].wake = sim.now + sim_draw(sim.think);
    }
    sim.peers[slot] = peer;
}

void peer_free(struct sim_peer *peer)
{
    free(peer);
}

bool peer_is_idle(const struct sim_peer *peer)
{
    for (int i = 0; i < PEER_THREADS; i++) {
        if (peer->threads[i].state != PEER_RESTS) {
            return false;
        }
    }
    return true;
}

void peer_leave(struct sim_peer *peer)
{
    model_close(sim.model, peer->link);
    model_close(sim.model, peer->ears);
    peer->link = peer->ears = 0;
    peer->gone = true;
    for (int i = 0; i < PEER_THREADS; i++) {
        peer->threads[i].wake = SNIB__NEVER;
    }
}

/* Where a thread hears of a lock. */
static int channel_of(const struct sim_peer *peer, const struct sim_name *name, int thread,
                      char out[160])
{
    int n = snprintf(out, 160, "%s:%s",
                     name->family == FAMILY_RW        ? "redisson_rwlock"
                     : name->family == FAMILY_PERMITS ? "redisson_sc"
                                                      : "redisson_lock__channel",
                     name->tag);
    if (name->family == FAMILY_FAIR) {
        n += snprintf(out + n, 160 - (size_t)n, ":%s:%llu", peer->process->uuid,
                      SIM_FIRST_NUMBER + (unsigned long long)thread);
    }
    return n;
}

static void subscribe(struct sim_peer *peer)
{
    open_link(&peer->ears);
    for (int i = 0; i < sim.name_count; i++) {
        for (int t = 0; t < PEER_THREADS; t++) {
            char bytes[512], channel[160];
            const struct sim_name *name = &sim.names[i];
            int n = channel_of(peer, name, t, channel);
            int length =
                snprintf(bytes, sizeof bytes, "*2\r\n$9\r\nsubscribe\r\n$%d\r\n%s\r\n", n, channel);
            if (name->alien) {
                model_input(sim.model, peer->ears, bytes, (size_t)length);
            }
        }
    }
    const char *reply;
    size_t n = model_output(sim.model, peer->ears, &reply);
    if (n == 0 || *reply == '-') { /* retry later */
        model_close(sim.model, peer->ears);
        peer->ears = 0;
    }
    peer->tried_at = peer->hears_since = sim.now;
}

/* Whether a message is among what the server has sent. */
static bool is_told(const struct sim_peer *peer, int thread, const char *bytes, size_t n)
{
    char channel[160];
    const struct sim_name *name = &sim.names[peer->threads[thread].name];
    int length = channel_of(peer, name, thread, channel);
    memcpy(channel + length, "\r\n", 2);
    return memmem(bytes, n, channel, (size_t)length + 2) != NULL;
}

static void note_first(const struct sim_peer *peer, struct peer_thread *t)
{
    const struct sim_name *name = &sim.names[t->name];
    bool first = t->state == PEER_WAITS && name->queued_count > 0 &&
                 name->queued[0].process == peer->process && name->queued[0].number == t->number;
    t->first_at = !first ? 0 : t->first_at > 0 ? t->first_at : sim.now;
}

/* Once all is well, a thread that waits hears soon that a lock was released; of a fair one, if it was the first then. */
void peer_check(struct sim_peer *peer)
{
    for (int i = 0; i < PEER_THREADS && sim.now >= sim.stable_at; i++) {
        struct peer_thread *t = &peer->threads[i];
        const struct sim_name *name = &sim.names[t->name];
        int at = name->family == FAMILY_RW;
        snib__time since = name->open_since[at];
        note_first(peer, t);
        if (name->family == FAMILY_FAIR && (t->first_at == 0 || t->first_at > since)) {
            continue;
        }
        if (t->state != PEER_WAITS || since == SNIB__NEVER || since < sim.stable_at ||
            name->open_cause[at] != CAUSE_RELEASED || peer->ears == 0 || t->wake <= sim.now) {
            continue;
        }
        since = since > t->asked_at ? since : t->asked_at;
        since = since > peer->hears_since ? since : peer->hears_since;
        if (sim.now > since + sim.prompt) {
            sim_fail("%s was released and %u:%llu (Redisson) waits for it", name->text,
                     peer->process->id, (unsigned long long)t->number);
        }
    }
}

void peer_listen(struct sim_peer *peer)
{
    const char *bytes;
    size_t n;
    if (!peer->gone && sim.now > peer->tried_at + 100 * SNIB__MS &&
        (peer->ears == 0 || !model_is_open(sim.model, peer->ears))) {
        subscribe(peer);
    }
    if (peer->ears == 0 || (n = model_output(sim.model, peer->ears, &bytes)) == 0) {
        return;
    }
    for (int i = 0; i < PEER_THREADS; i++) {
        struct peer_thread *t = &peer->threads[(i + peer->last_woken + 1) % PEER_THREADS];
        snib__time wakes = sim.now;
        if (t->state != PEER_WAITS || !is_told(peer, (int)(t - peer->threads), bytes, n)) {
            continue;
        }
        if (sim.crowded) { /* a real one is slow to wake, and wakes one of its threads */
            wakes += sim_between(SNIB__MS / 5, 2 * SNIB__MS);
            if (t->wake > wakes) {
                t->wake = wakes;
                peer->last_woken = (int)(t - peer->threads);
                return;
            }
            continue;
        }
        t->wake = wakes;
    }
}

bool peer_waits(const struct sim_process *process)
{
    for (int i = 0; i < sim.peer_count; i++) {
        const struct sim_peer *peer = sim.peers[i];
        for (int t = 0; t < PEER_THREADS && peer->process == process; t++) {
            if (peer->threads[t].state == PEER_WAITS) {
                return true;
            }
        }
    }
    return false;
}

snib__time peer_next(const struct sim_peer *peer)
{
    snib__time next = SNIB__NEVER;
    for (int i = 0; i < PEER_THREADS; i++) {
        next = peer->threads[i].wake < next ? peer->threads[i].wake : next;
    }
    return next > sim.server_paused_until || next == SNIB__NEVER ? next : sim.server_paused_until;
}

void peer_run(struct sim_peer *peer)
{
    for (int i = 0; i < PEER_THREADS; i++) {
        struct peer_thread *t = &peer->threads[i];
        if (t->wake > sim.now) {
            continue;
        }
        if (t->state == PEER_RESTS) {
            begin(peer, t);
        } else if (t->state == PEER_WAITS) {
            try(peer, t);
        } else if (t->state == PEER_LEAVES) {
            leave(peer, t);
        } else {
            go_on(peer, t);
        }
        return;
    }
}
