/* sim_check.c - what must be true at every step, judged with perfect knowledge of the server and of time.
 *
 * Requests are read as they leave an engine and again as the server has executed them, so every change of
 * a lock has a cause.  A hold whose field was taken away by force or by lost memory is excused from
 * exclusion, for nobody can promise it, but its holder's deadline must not move any more.
 */
#include "sim.h"

#include "snib.h"
#include "snib_scripts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARGUMENTS_MAX 256
/* In a stable world nothing takes longer than a few round trips, or the short sleeps of a waiter that was
 * refused a subscription. */
#define PROMPT (400 * SNIB__MS)

/* ---- Owners ------------------------------------------------------------------------------------- */

struct sim_owner *check_owner(struct sim_process *process, uint64_t number)
{
    uint64_t index = number - SIM_FIRST_NUMBER;
    if (index > 1000000) {
        sim_fail("%u: owner number %llu", process->id, (unsigned long long)number);
    }
    if (index >= process->owner_cap) {
        uint32_t cap = (uint32_t)index * 2 + 64;
        process->owners = realloc(process->owners, cap * sizeof *process->owners);
        if (process->owners == NULL) {
            abort();
        }
        memset(process->owners + process->owner_cap, 0,
               (cap - process->owner_cap) * sizeof *process->owners);
        process->owner_cap = cap;
    }
    return &process->owners[index];
}

static uint64_t to_number(model_text text)
{
    uint64_t number = 0;
    for (size_t i = 0; i < text.n && text.p[i] >= '0' && text.p[i] <= '9'; i++) {
        number = number * 10 + (uint64_t)(text.p[i] - '0');
    }
    return number;
}

/* "<uuid>:<number>" of one of our processes. */
static struct sim_process *parse_owner(model_text text, uint64_t *out_number)
{
    unsigned id = text.n > 37 && text.n < 64 ? (unsigned)strtoul(text.p, NULL, 16) : SIM_PROCESSES;
    if (id >= sim.process_count || memcmp(sim.processes[id]->uuid, text.p, 36) != 0) {
        sim_fail("an owner that nobody is: %.*s", (int)text.n, text.p);
    }
    *out_number = to_number((model_text){text.p + 37, text.n - 37});
    return sim.processes[id];
}

static struct sim_owner *owner_of(model_text text)
{
    uint64_t number;
    struct sim_process *process = parse_owner(text, &number);
    return check_owner(process, number);
}

/* ---- Requests as they leave --------------------------------------------------------------------- */

static size_t parse_request(const char *p, size_t n, model_text *argv, size_t *argc)
{
    const char *at = p;
    char *next;
    size_t count = strtoul(at + 1, &next, 10);
    if (*at != '*' || count > ARGUMENTS_MAX) {
        sim_fail("bytes that are no request were sent");
    }
    at = next + 2;
    for (size_t i = 0; i < count; i++) {
        size_t length = strtoul(at + 1, &next, 10);
        argv[i] = (model_text){next + 2, length};
        at = next + 2 + length + 2;
    }
    *argc = count;
    if ((size_t)(at - p) > n) {
        sim_fail("half a request was sent");
    }
    return (size_t)(at - p);
}

static int script_of(const model_text *argv, size_t argc)
{
    if (argc < 3 || argv[0].n != 7 || memcmp(argv[0].p, "EVALSHA", 7) != 0) {
        return -1;
    }
    int script = 0;
    while (script < SNIB__SCRIPT_COUNT &&
           memcmp(snib__script_texts[script].sha1, argv[1].p, 40) != 0) {
        script++;
    }
    return script;
}

static void attempt(struct sim_process *process, model_text key, model_text owner_text,
                    model_text lease)
{
    struct sim_owner *owner = owner_of(owner_text);
    if (owner->releases > 0) {
        sim_fail("%.*s is acquired after its release was sent", (int)owner_text.n, owner_text.p);
    }
    if (owner->attempts++ == 0) {
        owner->first_sent = sim.now;
        owner->lease = to_number(lease) * SNIB__MS;
        owner->connects_before = process->connects;
        while (sim.names[owner->name].n != key.n ||
               memcmp(sim.names[owner->name].text, key.p, key.n) != 0) {
            owner->name++;
        }
        owner->messages_before = sim.names[owner->name].messages;
    }
}

static void renewal(struct sim_process *process, model_text owner_text)
{
    uint64_t number;
    struct sim_owner *owner = owner_of(owner_text);
    bool is_held = false;
    parse_owner(owner_text, &number);
    for (int i = 0; i < SIM_HOLDS; i++) {
        const struct sim_hold *hold = &process->holds[i];
        is_held |= hold->users > 0 && hold->number == number && !hold->told && !hold->released;
    }
    owner->renewals++;
    if (owner->releases > 0) {
        sim_fail("%.*s is renewed after its release was sent", (int)owner_text.n, owner_text.p);
    }
    if (!is_held) {
        sim_fail("%.*s is renewed and nobody holds it", (int)owner_text.n, owner_text.p);
    }
}

void check_sent(struct sim_process *process, const char *bytes, size_t n)
{
    model_text argv[ARGUMENTS_MAX];
    size_t argc;
    while (n > 0) {
        size_t used = parse_request(bytes, n, argv, &argc);
        int script = script_of(argv, argc);
        size_t keys = script >= 0 ? to_number(argv[2]) : 0;
        if (sim.trace && script >= 0 && script < SNIB__SCRIPT_COUNT) {
            sim_trace("%u sends %s %.*s", process->id, snib__script_texts[script].name,
                      (int)argv[argc > 4 ? 4 : argc - 1].n, argv[argc > 4 ? 4 : argc - 1].p);
        }
        if (script == SNIB__SCRIPT_MUTEX_ACQUIRE) {
            attempt(process, argv[3], argv[4], argv[5]);
        } else if (script == SNIB__SCRIPT_MUTEX_RELEASE) {
            owner_of(argv[4])->releases++;
        } else if (script == SNIB__SCRIPT_MUTEX_TRANSFER) {
            owner_of(argv[4])->releases++;
            attempt(process, argv[3], argv[5], argv[6]);
        } else if (script == SNIB__SCRIPT_MUTEX_RENEW && to_number(argv[3 + keys]) != 0) {
            for (size_t i = 0; i < keys; i++) {
                renewal(process, argv[4 + keys + i]);
            }
        }
        bytes += used;
        n -= used;
    }
}

/* ---- The truth ---------------------------------------------------------------------------------- */

static void owner_left(struct sim_name *name, int cause)
{
    struct sim_owner *owner = check_owner(name->process, name->number);
    sim_trace("%s: %u:%llu has left the server, cause %d", name->text, name->process->id,
              (unsigned long long)name->number, cause);
    if (cause == CAUSE_OTHER) {
        sim_fail("%s: a command that is no release has ended %u:%llu", name->text,
                 name->process->id, (unsigned long long)name->number);
    }
    owner->at_server = false;
    owner->ended = cause;
    owner->since = sim.now;
    name->messages += cause == CAUSE_RELEASED || cause == CAUSE_FORCED;
    totals.handed_over += cause == CAUSE_TRANSFERRED;
}

static void owner_came(struct sim_name *name)
{
    struct sim_owner *owner = check_owner(name->process, name->number);
    sim_trace("%s: %u:%llu is at the server", name->text, name->process->id,
              (unsigned long long)name->number);
    if (owner->ended == CAUSE_RELEASED || owner->ended == CAUSE_TRANSFERRED) {
        sim_fail("%s: %u:%llu has come back after its release", name->text, name->process->id,
                 (unsigned long long)name->number);
    }
    owner->at_server = true;
    owner->ended = CAUSE_NONE;
    owner->since = sim.now;
}

/* The lock's owner at the server, which must be well-formed; NULL if there is none. */
static struct sim_process *look_up(const struct sim_name *name, uint64_t *out_number,
                                   bool *out_exists)
{
    model_key key;
    model_text field, value;
    *out_number = 0;
    *out_exists = model_key_find(sim.model, sim.database, name->text, name->n, &key);
    if (!*out_exists || key.type != MODEL_HASH) {
        return NULL;
    }
    model_field_at(sim.model, sim.database, name->text, name->n, 0, &field, &value);
    if (key.fields != 1 || value.n != 1 || value.p[0] != '1') {
        sim_fail("%s has %zu owners and a count of %.*s", name->text, key.fields, (int)value.n,
                 value.p);
    }
    struct sim_process *process = parse_owner(field, out_number);
    snib__time lease = check_owner(process, *out_number)->lease;
    if (key.expires_ns == UINT64_MAX ||
        key.expires_ns > sim_server_ns(sim.now) + lease + 2 * SNIB__MS) {
        sim_fail("%s has no TTL, or a longer one than its lease", name->text);
    }
    return process;
}

void check_truth(int cause)
{
    size_t keys = 0;
    for (int i = 0; i < sim.name_count; i++) {
        struct sim_name *name = &sim.names[i];
        uint64_t number;
        bool exists;
        struct sim_process *process = look_up(name, &number, &exists);
        keys += exists;
        if (process == name->process && number == name->number) {
            continue;
        }
        if (name->process != NULL) {
            owner_left(name, cause);
        }
        name->process = process;
        name->number = number;
        name->since = sim.now;
        name->cause = cause;
        if (process != NULL) {
            owner_came(name);
        }
    }
    if (model_key_count(sim.model) != keys) {
        sim_fail("there is a key that is no lock's, or in another database");
    }
}

void check_executed(void *context, uint64_t connection, const model_text *argv, size_t argc)
{
    (void)context;
    (void)connection;
    int script = script_of(argv, argc);
    check_truth(script == SNIB__SCRIPT_MUTEX_RELEASE    ? CAUSE_RELEASED
                : script == SNIB__SCRIPT_MUTEX_TRANSFER ? CAUSE_TRANSFERRED
                : script == SNIB__SCRIPT_MUTEX_FORCE    ? CAUSE_FORCED
                                                        : CAUSE_OTHER);
}

/* ---- Results ------------------------------------------------------------------------------------ */

static snib__time latest(snib__time a, snib__time b)
{
    return a > b ? a : b;
}

static bool was_struck(const struct sim_owner *owner)
{
    return owner->ended == CAUSE_FORCED || owner->ended == CAUSE_MEMORY;
}

static void check_attempts(struct sim_process *process, uint64_t number)
{
    struct sim_owner *owner = check_owner(process, number);
    uint64_t most = 20 + 20 * ((sim.now - owner->first_sent) / (1000 * SNIB__MS)) +
                    sim.names[owner->name].messages - owner->messages_before +
                    2 * (process->connects - owner->connects_before);
    if (owner->attempts > most) {
        sim_fail("%u:%llu has asked %u times in %llu ms", process->id, (unsigned long long)number,
                 owner->attempts, (unsigned long long)((sim.now - owner->first_sent) / SNIB__MS));
    }
}

void check_granted(struct sim_process *process, struct sim_task *task, const struct sim_hold *hold)
{
    if (task->cancelled) {
        sim_fail("%u: a cancelled operation has got the lock", process->id);
    }
    check_attempts(process, hold->number);
    for (int i = 0; i < SIM_TASKS; i++) {
        const struct sim_task *other = &process->tasks[i];
        if (hold->users == 1 && other->doing == DOING_WAIT && other->name == task->name &&
            other->order < task->order && !other->op->done) {
            sim_fail("%u: task %d was overtaken by a later one", process->id, i);
        }
    }
}

void check_not_granted(struct sim_process *process, const struct sim_task *task, int32_t code)
{
    bool honest = code == SNIB_BUSY        ? task->once
                  : code == SNIB_TIMEDOUT  ? sim.now >= task->wait_ends
                  : code == SNIB_CANCELLED ? task->cancelled
                  : code == SNIB_ECLOSED   ? process->gone_at != SNIB__NEVER
                                           : code < 0 && sim.enabled != 0;
    if (!honest) {
        sim_fail("%u: an acquire ended with %s", process->id, snib_code_name(code));
    }
    if (task->number == 0) {
        return;
    }
    struct sim_owner *owner = check_owner(process, task->number);
    if (code == SNIB_BUSY && owner->at_server) {
        sim_fail("%u:%llu is told BUSY and has the lock", process->id,
                 (unsigned long long)task->number);
    }
    owner->abandoned = true;
    owner->abandoned_at = sim.now;
    check_attempts(process, task->number);
}

void check_released(struct sim_process *process, const struct sim_hold *hold, int32_t code)
{
    struct sim_owner *owner = check_owner(process, hold->number);
    bool given_back = owner->ended == CAUSE_RELEASED || owner->ended == CAUSE_TRANSFERRED;
    /* After a lost answer the second try cannot know what the first has found. */
    bool honest = code == SNIB_OK     ? given_back || (!owner->at_server && owner->releases > 1)
                  : code == SNIB_LOST ? !owner->at_server && (!given_back || owner->releases > 1)
                                      : code < 0 && sim.enabled != 0;
    if (!honest) {
        sim_fail("%u:%llu: release ended with %s, cause %d", process->id,
                 (unsigned long long)hold->number, snib_code_name(code), owner->ended);
    }
}

/* Since when nothing stands between a process and the server; SNIB__NEVER / 2: something does. */
static snib__time clear_since(const struct sim_process *process, int link)
{
    const struct sim_endpoint *end = &process->links[link];
    if (process->engine == NULL || end->pipe == NULL) {
        return SNIB__NEVER / 2;
    }
    return latest(latest(sim.disturbed_until, end->connected_at), process->frozen_until);
}

void check_lost(struct sim_process *process, const struct sim_hold *hold)
{
    const struct snib__hold *lost = hold->hold;
    const struct sim_owner *owner = check_owner(process, hold->number);
    bool honest = false;
    switch (lost->reason) {
    case SNIB_REASON_EXPIRED:
        honest = lost->lease_ms != 0 && sim.now >= lost->deadline;
        break;
    case SNIB_REASON_UNREACHABLE:
        honest =
            sim.now >= lost->deadline && sim.now < clear_since(process, SNIB__COMMAND) + PROMPT;
        break;
    case SNIB_REASON_TAKEN:
    case SNIB_REASON_DELETED:
        honest = !owner->at_server && (was_struck(owner) || owner->ended == CAUSE_EXPIRED);
        break;
    case SNIB_REASON_MAX_HOLD:
        honest =
            lost->max_hold_ms != 0 && sim.now >= lost->acquired_at + lost->max_hold_ms * SNIB__MS;
        break;
    case SNIB_REASON_CLOSED:
        honest = process->gone_at != SNIB__NEVER;
        break;
    default:
        break;
    }
    if (hold->told || hold->released || !honest ||
        snib__hold_state(process->engine, lost, sim.now) != SNIB_HOLD_LOST) {
        sim_fail("%u:%llu is told lost (%s)%s%s", process->id, (unsigned long long)hold->number,
                 snib_reason_text(lost->reason), hold->told ? " again" : "",
                 hold->released ? " after its release" : "");
    }
}

/* ---- Every step --------------------------------------------------------------------------------- */

/* A hold that calls itself safe. */
static void check_valid(struct sim_process *process, const struct sim_hold *hold)
{
    const struct sim_name *name = &sim.names[hold->name];
    const struct sim_owner *owner = check_owner(process, hold->number);
    model_key key;
    if (owner->at_server) {
        model_key_find(sim.model, sim.database, name->text, name->n, &key);
        if (sim_server_ns(hold->hold->deadline) > key.expires_ns) {
            sim_fail("%u:%llu trusts its hold %llu us longer than the server keeps it", process->id,
                     (unsigned long long)hold->number,
                     (unsigned long long)(sim_server_ns(hold->hold->deadline) - key.expires_ns) /
                         1000);
        }
        return;
    }
    if (!was_struck(owner)) {
        sim_fail("%u:%llu is valid and not at the server, cause %d", process->id,
                 (unsigned long long)hold->number, owner->ended);
    }
    if (hold->hold->deadline > owner->since + owner->lease) {
        sim_fail("%u:%llu was taken away and its deadline still moves", process->id,
                 (unsigned long long)hold->number);
    }
    if (hold->hold->lease_ms == 0 &&
        sim.now > latest(latest(owner->since, sim.stable_at), process->frozen_until) +
                      sim.lease / 2 + PROMPT) {
        sim_fail("%u:%llu was taken away and nobody notices", process->id,
                 (unsigned long long)hold->number);
    }
}

static void check_holds(struct sim_process *process)
{
    for (int i = 0; i < SIM_HOLDS; i++) {
        const struct sim_hold *hold = &process->holds[i];
        if (hold->users == 0) {
            continue;
        }
        int state = snib__hold_state(process->engine, hold->hold, sim.now);
        if (state == SNIB_HOLD_VALID || state == SNIB_HOLD_AT_RISK) {
            check_valid(process, hold);
        } else if (state == SNIB_HOLD_LOST && !hold->told &&
                   sim.now > latest(hold->hold->deadline, process->frozen_until)) {
            sim_fail("%u:%llu is over and its holder is not told", process->id,
                     (unsigned long long)hold->number);
        }
    }
}

/* Since when the process waits for a lock that it does not hold itself; SNIB__NEVER: it does not. */
static snib__time waits_since(const struct sim_process *process, int name)
{
    snib__time since = SNIB__NEVER;
    for (int i = 0; i < SIM_HOLDS; i++) {
        const struct sim_hold *hold = &process->holds[i];
        if (hold->users > 0 && hold->name == name &&
            snib__hold_state(process->engine, hold->hold, sim.now) != SNIB_HOLD_LOST) {
            return SNIB__NEVER;
        }
    }
    for (int i = 0; i < SIM_TASKS; i++) {
        const struct sim_task *task = &process->tasks[i];
        if (task->doing == DOING_WAIT && task->name == name && task->submitted < since) {
            since = task->submitted;
        }
    }
    return since == SNIB__NEVER ? since : latest(since, process->free_at[name]);
}

/* Since when a message about the lock reaches a process at once. */
static snib__time hears_since(const struct sim_process *process)
{
    snib__time clear =
        latest(clear_since(process, SNIB__COMMAND), clear_since(process, SNIB__PUBSUB));
    return clear < sim.stable_at ? clear : sim.stable_at;
}

/* A free lock is soon taken by whoever waits and hears of it.  An end without a message is found by a
 * timer, of the re-check if the waiter was told of a longer lease that has been handed over since. */
static void check_waiters(int index)
{
    const struct sim_name *name = &sim.names[index];
    if (name->number != 0 || sim.now < name->since + sim.prompt) {
        return;
    }
    for (int i = 0; i < sim.slot_count; i++) {
        const struct sim_process *process = sim.slots[i];
        snib__time waits = process->engine == NULL ? SNIB__NEVER : waits_since(process, index);
        if (waits == SNIB__NEVER) {
            continue;
        }
        snib__time hears = hears_since(process);
        bool is_told = name->since > hears && name->cause == CAUSE_RELEASED;
        snib__time limit = is_told ? sim.prompt : PROMPT + sim.recheck;
        if (sim.now > latest(latest(waits, name->since), hears) + limit) {
            sim_fail("%s is free and %u waits for it", name->text, process->id);
        }
    }
}

/* What nobody wants is soon given back, even if only the server knew that it was granted. */
static void check_unwanted(const struct sim_name *name)
{
    if (name->number == 0) {
        return;
    }
    const struct sim_owner *owner = check_owner(name->process, name->number);
    snib__time since = latest(latest(owner->abandoned_at, owner->since),
                              clear_since(name->process, SNIB__COMMAND));
    if (owner->abandoned && sim.now > since + PROMPT) {
        sim_fail("%s is kept by %u:%llu, which nobody wants", name->text, name->process->id,
                 (unsigned long long)name->number);
    }
}

void check_step(void)
{
    for (int i = 0; i < sim.slot_count; i++) {
        struct sim_process *process = sim.slots[i];
        if (process->engine == NULL) {
            continue;
        }
        check_holds(process);
        for (int j = 0; j < SIM_TASKS; j++) {
            const struct sim_task *task = &process->tasks[j];
            if (task->doing == DOING_WAIT && task->wait_ends != SNIB__NEVER &&
                sim.now > latest(task->wait_ends, process->frozen_until)) {
                sim_fail("%u: task %d waits longer than it wanted", process->id, j);
            }
        }
    }
    for (int i = 0; i < sim.name_count; i++) {
        check_waiters(i);
        check_unwanted(&sim.names[i]);
    }
}

/* A client that has closed in order has given back what it held. */
void check_closed(struct sim_process *process)
{
    for (int i = 0; i < sim.name_count && snib__engine_quiet(process->engine); i++) {
        const struct sim_name *name = &sim.names[i];
        if (name->process == process && check_owner(process, name->number)->closed) {
            sim_fail("%u is closed and keeps %s", process->id, name->text);
        }
    }
}

/* Everything is released and every lease is over. */
void check_end(void)
{
    if (model_key_count(sim.model) != 0 || model_channel_count(sim.model) != 0) {
        sim_fail("at the end there are %zu keys and %zu channels", model_key_count(sim.model),
                 model_channel_count(sim.model));
    }
    for (int i = 0; i < sim.slot_count; i++) {
        snib_client_stats_data stats = {.size = sizeof stats};
        if (sim.slots[i]->engine == NULL) {
            continue;
        }
        snib__engine_stats(sim.slots[i]->engine, &stats);
        if (stats.held != 0 || stats.waiting != 0 || !snib__engine_quiet(sim.slots[i]->engine)) {
            sim_fail("at the end %u holds %llu, waits for %llu", sim.slots[i]->id,
                     (unsigned long long)stats.held, (unsigned long long)stats.waiting);
        }
    }
}
