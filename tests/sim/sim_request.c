/* sim_request.c - reads requests as they leave an engine and again once the server has executed
 * them, so that every change of a lock has a cause.  A script's purpose follows from its name. */
#include "sim.h"

#include "engine/internal.h"
#include "snib_scripts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARGUMENTS_MAX 256
#define ANSWERS_MAX 64 /* of a connection's requests in flight, so many are tracked */

/* ---- Owners ------------------------------------------------------------------------------------- */

struct sim_owner *check_owner(struct sim_process *process, uint64_t number, int side)
{
    uint64_t index = number - SIM_FIRST_NUMBER;
    uint32_t *cap = &process->owner_cap[side];
    if (index > 1000000) {
        sim_fail("%u: owner number %llu", process->id, (unsigned long long)number);
    }
    if (index >= *cap) {
        uint32_t wanted = (uint32_t)index * 2 + 64;
        process->owners[side] =
            realloc(process->owners[side], wanted * sizeof *process->owners[side]);
        if (process->owners[side] == NULL) {
            abort();
        }
        memset(process->owners[side] + *cap, 0, (wanted - *cap) * sizeof *process->owners[side]);
        *cap = wanted;
    }
    return &process->owners[side][index];
}

static uint64_t to_number(model_text text)
{
    uint64_t number = 0;
    for (size_t i = 0; i < text.n && text.p[i] >= '0' && text.p[i] <= '9'; i++) {
        number = number * 10 + (uint64_t)(text.p[i] - '0');
    }
    return number;
}

/* ---- Requests as they leave --------------------------------------------------------------------- */

/* The number of a line "<kind><number>\r\n"; *at moves behind it. */
static size_t read_head(const char **at, char kind)
{
    const char *digit = *at + 1;
    size_t number = 0;
    for (; *digit >= '0' && *digit <= '9'; digit++) {
        number = number * 10 + (size_t)(*digit - '0');
    }
    if (**at != kind || digit == *at + 1) {
        sim_fail("bytes that are not a request were sent");
    }
    *at = digit + 2;
    return number;
}

static size_t parse_request(const char *p, size_t n, model_text *argv, size_t *argc)
{
    const char *at = p;
    size_t count = read_head(&at, '*');
    if (count > ARGUMENTS_MAX) {
        sim_fail("bytes that are not a request were sent");
    }
    for (size_t i = 0; i < count; i++) {
        size_t length = read_head(&at, '$');
        argv[i] = (model_text){at, length};
        at += length + 2;
    }
    *argc = count;
    if ((size_t)(at - p) > n) {
        sim_fail("half a request was sent");
    }
    return (size_t)(at - p);
}

static bool begins(const model_text *argv, const char *word)
{
    return argv[0].n == strlen(word) && memcmp(argv[0].p, word, argv[0].n) == 0;
}

/* A command that newer servers have does the work of a script. */
static int script_of(const model_text *argv, size_t argc)
{
    if (begins(argv, "DELIFEQ") || begins(argv, "DELEX")) {
        return SNIB__SCRIPT_PLAIN_RELEASE;
    }
    if (argc < 3 || !begins(argv, "EVALSHA")) {
        return -1;
    }
    int script = 0;
    while (script < SNIB__SCRIPT_COUNT &&
           memcmp(snib__script_texts[script].sha1, argv[1].p, 40) != 0) {
        script++;
    }
    return script < SNIB__SCRIPT_COUNT ? script : -1;
}

/* A script's purpose, as the word after its kind says in its name. */
static const char *purpose_of(int script)
{
    const char *at = script < 0 ? NULL : strchr(snib__script_texts[script].name, '_');
    return at == NULL ? "" : at + 1;
}

static bool is(const char *purpose, const char *word)
{
    return strcmp(purpose, word) == 0;
}

/* Whether a renewal's script sets a lease: one of 0 only asks, and one below 0 is set exactly. */
static bool sets_lease(const model_text *argv)
{
    const model_text *lease = &argv[3 + to_number(argv[2])];
    return lease->n != 1 || lease->p[0] != '0';
}

static int side_of(int script)
{
    return strncmp(snib__script_texts[script].name, "write_", 6) == 0;
}

/* The write hold that lets a read in is not an owner of what is asked for: its place among the arguments; 0: there is none. */
static size_t writer_at(const model_text *argv, size_t argc)
{
    return script_of(argv, argc) == SNIB__SCRIPT_READ_ACQUIRE && argc == 9 ? 8 : 0;
}

/* The owners among the arguments, in order.  A permits hold is known by its first id. */
static size_t find_owners(const model_text *argv, size_t argc, uint64_t *numbers, size_t cap,
                          struct sim_process **out_process)
{
    size_t n = 0;
    *out_process = NULL;
    const size_t end = writer_at(argv, argc) ? writer_at(argv, argc) : argc;
    for (size_t i = begins(argv, "EVALSHA") ? 3 : 1; i < end && n < cap; i++) {
        struct sim_process *process = truth_owner(argv[i], &numbers[n]);
        if (process != NULL) {
            *out_process = process;
            n++;
        }
    }
    return n;
}

/* A task whose earlier attempt may have been granted by a server that was replaced since has another number.  So has
 * one whose operation ends in this very step; a hold that was used for another attempt since has a number that is known. */
static void follow(struct sim_process *process, uint64_t number, int side)
{
    for (int i = 0; i < SIM_TASKS; i++) {
        struct sim_task *task = &process->tasks[i];
        if (task->doing != DOING_WAIT || task->op == NULL || task->attempt == NULL ||
            task->attempt->number != number || task->number == number || task->number == 0) {
            continue;
        }
        struct sim_owner *left = check_owner(process, task->number, side);
        struct sim_owner *known = check_owner(process, number, side);
        if (known->use.permits != 0) {
            continue;
        }
        left->abandoned = true;
        left->abandoned_at = sim.now;
        const struct sim_owner before = *left;
        *check_owner(process, number, side) =
            (struct sim_owner){.use = before.use,
                               .lease = before.lease,
                               .answered = before.answered,
                               .tried_at = before.tried_at,
                               .answered_at = before.answered_at,
                               .attempts = before.attempts,
                               .first_sent = before.first_sent,
                               .connects_before = before.connects_before,
                               .messages_before = before.messages_before};
        task->number = number;
    }
}

static void attempt(struct sim_process *process, uint64_t number, int side)
{
    follow(process, number, side);
    struct sim_owner *owner = check_owner(process, number, side);
    if (owner->releases > 0) {
        sim_fail("%u:%llu is acquired after its release was sent", process->id,
                 (unsigned long long)number);
    }
    if (owner->unanswered_since == 0) {
        owner->unanswered_since = sim.now;
    }
    if (owner->attempts++ == 0) {
        owner->first_sent = sim.now;
        owner->connects_before = process->connects;
        owner->messages_before = 0;
        for (int i = 0; i < sim.name_count; i++) {
            owner->messages_before += sim.names[i].messages;
        }
    }
}

/* Whether the acquisition has ended, of which its task is told at the end of this step. */
static bool is_untold(const struct sim_process *process, uint64_t number)
{
    for (int i = 0; i < sim.task_count; i++) {
        const struct sim_task *task = &process->tasks[i];
        bool is_it =
            task->op != NULL && (task->number == number ||
                                 (task->op->hold != NULL && task->op->hold->number == number));
        if (is_it && task->op->done) {
            return true;
        }
    }
    return false;
}

static void renewal(struct sim_process *process, uint64_t number, int side)
{
    struct sim_owner *owner = check_owner(process, number, side);
    bool is_held = false;
    if (owner->use.permits == 0) {
        return; /* a further permit of one hold */
    }
    for (int i = 0; i < SIM_HOLDS; i++) {
        const struct sim_hold *hold = &process->holds[i];
        bool is_it = hold->users > 0 && hold->number == number && hold->use.side == side &&
                     !hold->told && !hold->released;
        process->renews = is_it ? sim_true(process, hold->hold->deadline) : process->renews;
        is_held |= is_it;
    }
    owner->renewals++;
    if (owner->releases > 0) {
        sim_fail("%u:%llu is renewed after its release was sent", process->id,
                 (unsigned long long)number);
    }
    if (!is_held && !is_untold(process, number)) {
        sim_fail("%u:%llu is renewed and has no holder", process->id, (unsigned long long)number);
    }
}

static void trace_sent(const struct sim_process *process, int script, const uint64_t *numbers,
                       size_t n)
{
    if (sim.trace && script >= 0) {
        sim_trace("%u sends %s %llu", process->id, snib__script_texts[script].name,
                  (unsigned long long)(n > 0 ? numbers[0] : 0));
    }
}

void check_sent(struct sim_process *process, const char *bytes, size_t n)
{
    model_text argv[ARGUMENTS_MAX];
    uint64_t numbers[ARGUMENTS_MAX];
    struct sim_process *owner;
    size_t argc;
    while (n > 0) {
        size_t used = parse_request(bytes, n, argv, &argc);
        int script = script_of(argv, argc);
        const char *purpose = purpose_of(script);
        size_t count = script < 0 ? 0 : find_owners(argv, argc, numbers, ARGUMENTS_MAX, &owner);
        trace_sent(process, script, numbers, count);
        if (count > 0 && owner != process) {
            sim_fail("%u sends a command for an owner of %u", process->id, owner->id);
        }
        if (count > 0 && is(purpose, "acquire")) {
            attempt(process, numbers[0], side_of(script));
            if (writer_at(argv, argc)) {
                truth_owner(argv[writer_at(argv, argc)],
                            &check_owner(process, numbers[0], 0)->writer);
            }
        } else if (count > 0 && is(purpose, "release")) {
            check_owner(process, numbers[0], side_of(script))->releases++;
        } else if (count > 1 && is(purpose, "transfer")) {
            check_owner(process, numbers[0], side_of(script))->releases++;
            attempt(process, numbers[1], side_of(script));
        } else if (is(purpose, "renew") && sets_lease(argv)) {
            for (size_t i = 0; i < count; i++) {
                renewal(process, numbers[i], side_of(script));
            }
        }
        bytes += used;
        n -= used;
    }
}

/* ---- Answers ------------------------------------------------------------------------------------- */

/* The attempt that an unanswered request makes: its owner's number, 0 if it makes none. */
static uint64_t attempt_of(const struct snib__request *request, int *side)
{
    if (request->kind != SNIB__REQ_ACQUIRE && request->kind != SNIB__REQ_TRANSFER) {
        return 0;
    }
    *side = side_of(request->script);
    if (request->kind == SNIB__REQ_ACQUIRE) {
        return request->number;
    }
    const struct snib__hold *giver = request->subject;
    return giver->gate->waitq->incoming->number;
}

void check_input(struct sim_process *process, struct snib__link *link, const char *bytes, size_t n)
{
    const struct snib__conn *conn = &link->conn;
    struct {
        uint64_t number;
        int side;
        snib__time sent_at;
    } awaited[ANSWERS_MAX];
    uint32_t count = conn->ring_count < ANSWERS_MAX ? conn->ring_count : ANSWERS_MAX;
    uint64_t before = conn->appended - conn->ring_count;
    for (uint32_t i = 0; i < count; i++) {
        const struct snib__request *request =
            &conn->ring[(conn->ring_head + i) & (conn->ring_cap - 1)];
        awaited[i].number = attempt_of(request, &awaited[i].side);
        awaited[i].sent_at = sim_true(process, request->sent_at);
    }
    if (snib__link_kind(link) == SNIB__COMMAND) {
        process->heard_at = sim.now;
    }
    snib__engine_input(process->engine, link, bytes, n, sim_clock(process));
    uint64_t answered = conn->appended - conn->ring_count - before;
    for (uint32_t i = 0; i < count && i < answered; i++) {
        if (awaited[i].number != 0) {
            struct sim_owner *owner = check_owner(process, awaited[i].number, awaited[i].side);
            owner->tried_at = owner->unanswered_since < awaited[i].sent_at
                                  ? owner->unanswered_since
                                  : awaited[i].sent_at; /* by the process, or from it */
            owner->answered_at = sim.now;
            owner->unanswered_since = 0;
            owner->answered = true;
            if (owner->present == 0) { /* refused */
                process_knows(process, &owner->use);
            }
        }
    }
}

/* ---- Requests as they are executed -------------------------------------------------------------- */

static void count_message(const model_text *argv, size_t argc)
{
    for (int i = 0; i < sim.name_count; i++) {
        struct sim_name *name = &sim.names[i];
        for (size_t j = 1; j < argc; j++) {
            if (argv[j].n == name->n && memcmp(argv[j].p, name->text, name->n) == 0) {
                name->messages++;
                break;
            }
        }
    }
}

/* The request comes from a connection that was given up and could not be killed, so it may arrive
 * after later requests: these owners may stand in a queue, or hold the lock, with no operation
 * behind them. */
static void mark_stray(const model_text *argv, size_t argc, int side)
{
    uint64_t numbers[ARGUMENTS_MAX];
    struct sim_process *process;
    size_t n = find_owners(argv, argc, numbers, ARGUMENTS_MAX, &process);
    for (size_t i = 0; i < n; i++) {
        check_owner(process, numbers[i], side)->stray = true;
    }
}

static bool can_be_looked_at(const struct sim_use *use)
{
    for (int i = 0; i < sim.name_count; i++) {
        if ((use->names >> i & 1) != 0 && fault_is_overwritten(&sim.names[i])) {
            return false;
        }
    }
    return use->permits > 0; /* else a further permit of one hold */
}

/* A renewal was executed: called before the truth is read, and after. */
static void renewed(const model_text *argv, size_t argc, int side, bool before)
{
    uint64_t numbers[ARGUMENTS_MAX];
    struct sim_process *process;
    size_t n = find_owners(argv, argc, numbers, ARGUMENTS_MAX, &process);
    for (size_t i = 0; i < n; i++) {
        struct sim_owner *owner = check_owner(process, numbers[i], side);
        if (before) {
            truth_renewed(process, numbers[i], side);
        } else if (owner->present == owner->use.names || !can_be_looked_at(&owner->use)) {
            owner->missed_at = 0;
        } else if (owner->missed_at == 0) {
            owner->missed_at = sim.now;
        }
    }
}

/* A question was executed. */
static void asked(const model_text *argv, size_t argc, int side)
{
    uint64_t numbers[ARGUMENTS_MAX];
    struct sim_process *process;
    size_t n = find_owners(argv, argc, numbers, ARGUMENTS_MAX, &process);
    for (size_t i = 0; i < n && !model_refused(sim.model); i++) {
        struct sim_owner *owner = check_owner(process, numbers[i], side);
        owner->asked_at = sim.now;
        owner->there = owner->present == owner->use.names;
        if (owner->there) {
            owner->missed_at = 0;
        } else if (owner->missed_at == 0 && can_be_looked_at(&owner->use)) {
            owner->missed_at = sim.now;
        }
    }
}

/* A release was executed; `had` is what the server had of the owner. */
static void released(struct sim_owner *owner, unsigned had)
{
    owner->found |= had == owner->use.names && owner->present == 0;
    owner->missed |= had != owner->use.names && !model_refused(sim.model);
}

/* What a command may have changed of a name without owners. */
static int64_t number_of(const struct sim_name *name)
{
    return name->family == FAMILY_PERMITS ? name->total : name->number;
}

static struct sim_name *name_of(int script, const model_text *argv)
{
    for (int i = 0; script >= 0 && begins(argv, "EVALSHA") && i < sim.name_count; i++) {
        struct sim_name *name = &sim.names[i];
        if (argv[3].n == name->n && memcmp(argv[3].p, name->text, name->n) == 0) {
            return name;
        }
    }
    return NULL;
}

/* A request without an owner cannot tell its own first try from another client's, so no operation's is carried out twice:
 * permits are taken and given back, and a number is changed, at most as often as was asked for. */
static void count_once(struct sim_process *process, int script, const struct sim_name *name,
                       const model_text *argv, int64_t before)
{
    int64_t more = number_of(name) - before;
    ptrdiff_t i = name - sim.names;
    const char *twice = NULL;
    if (script == SNIB__SCRIPT_SEMAPHORE_ACQUIRE && more < 0) {
        process->permits[i] -= more;
        twice = ++process->taken[i] > process->takes[i] ? "taken" : NULL;
    } else if (script == SNIB__SCRIPT_SEMAPHORE_RELEASE && more > 0) {
        process->permits[i] -= more;
        twice = process->permits[i] < 0 ? "given back" : NULL;
    } else if (is(purpose_of(script), "count")) {
        uint64_t what = to_number(argv[3 + to_number(argv[2])]);
        bool changes = what != SNIB_COUNT_GET && what != SNIB_COUNT_TOTAL;
        process->counted[i] += changes && (more != 0 || !model_refused(sim.model));
        twice = process->counted[i] > process->counts[i] ? "changed" : NULL;
    }
    if (twice != NULL) {
        sim_fail("%s: it was %s more often than %u has asked for, from %lld to %lld", name->text,
                 twice, process->id, (long long)before, (long long)number_of(name));
    }
}

void check_executed(void *context, uint64_t connection, const model_text *argv, size_t argc)
{
    (void)context;
    uint64_t number = 0;
    int script = script_of(argv, argc);
    const char *purpose = purpose_of(script);
    int cause = is(purpose, "release")    ? CAUSE_RELEASED
                : is(purpose, "transfer") ? CAUSE_TRANSFERRED
                : is(purpose, "force")    ? CAUSE_FORCED
                : is(purpose, "count")    ? CAUSE_COUNT
                                          : CAUSE_OTHER;
    if (sim.peer_cause != CAUSE_NONE) {
        cause = sim.peer_cause;
    } else if (script >= 0) {
        find_owners(argv, argc, &number, 1, &sim.acting);
        sim.acting_number = number;
    }
    sim.asking = is(purpose, "acquire");
    sim.first_waiter = script == SNIB__SCRIPT_FAIR_ACQUIRE ? to_number(argv[argc - 1]) : 0;
    if (script >= 0 && net_is_stray(connection)) {
        mark_stray(argv, argc, side_of(script));
    }
    if (cause != CAUSE_OTHER) {
        count_message(argv, argc);
    }
    bool ours = sim.peer_cause == CAUSE_NONE && sim.acting != NULL;
    bool gives_back = ours && (cause == CAUSE_RELEASED || cause == CAUSE_TRANSFERRED);
    unsigned had = gives_back ? check_owner(sim.acting, number, side_of(script))->present : 0;
    bool renews = sim.peer_cause == CAUSE_NONE && is(purpose, "renew") && sets_lease(argv);
    const struct sim_name *name = name_of(script, argv);
    struct sim_process *client = sim.peer_cause == CAUSE_NONE ? net_client(connection) : NULL;
    int64_t before = name == NULL ? 0 : number_of(name);
    if (renews) {
        renewed(argv, argc, side_of(script), true);
    } else if (sim.asking && ours) { /* a repeated request may find nothing to extend */
        truth_renewed(sim.acting, number, side_of(script));
    } else if (ours &&
               cause == CAUSE_TRANSFERRED) { /* nor may it for the one that it is handed to */
        uint64_t numbers[2];
        if (find_owners(argv, argc, numbers, 2, &sim.acting) == 2) {
            truth_renewed(sim.acting, numbers[1], side_of(script));
        }
    } else if (argc == 1 && begins(argv, "TIME")) {
        clock_asked(connection);
    }
    check_truth(cause);
    if (name != NULL && client != NULL) {
        count_once(client, script, name, argv, before);
    }
    if (renews) {
        renewed(argv, argc, side_of(script), false);
    } else if (is(purpose, "renew") && sim.peer_cause == CAUSE_NONE) {
        asked(argv, argc, side_of(script));
    } else if (gives_back) {
        released(check_owner(sim.acting, number, side_of(script)), had);
    }
    sim.acting = NULL;
}
