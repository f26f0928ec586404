/* walk_call.c - what callers do: every call of the engine's that a program can lead to, at any time, and what becomes of
 * their operations. */
#include "engine/ask.h"
#include "walk.h"

#include <stdio.h>

static const char *const kind_names[] = {
    [SNIB_MUTEX] = "mutex", [SNIB_FAIR] = "fair",           [SNIB_READ] = "read",
    [SNIB_WRITE] = "write", [SNIB_FENCED] = "fenced",       [SNIB_SPIN] = "spin",
    [SNIB_PLAIN] = "plain", [SNIB_SEMAPHORE] = "semaphore", [SNIB_PERMITS] = "permits",
    [SNIB_LATCH] = "latch", [SNIB__MULTI] = "multi",        [SNIB__OUTER] = "several",
};

/* ---- Starting ----------------------------------------------------------------------------------- */

static void note(struct snib__op *op, int32_t code, const char *what, const struct snib__gate *gate)
{
    walk_trace("%s of %s %.*s: %s", what, kind_names[gate->kind->kind], gate->name_len, gate->name,
               op ? "begins" : snib_code_name(code));
    if (op) {
        walk.ops[walk.op_count++] = op;
    } else if (code == SNIB_ELIMIT) {
        walk_happens(WALK_LIMIT);
    }
}

static void acquire(struct snib__gate *gate)
{
    int32_t code = SNIB_OK;
    struct snib__acquire how = {.owner = walk_draw(4)};
    how.permits = 1 + (uint32_t)walk_draw(3);
    how.wait = walk_chance(4) ? 0 : walk_chance(2) ? SNIB__NEVER : walk_draw(3 * WALK_SECOND);
    how.lease = walk_chance(4) ? walk_between(100 * SNIB__MS, 5 * WALK_SECOND) : 0;
    how.max_hold = walk_chance(6) ? walk_between(10 * SNIB__MS, 3 * WALK_SECOND) : 0;
    how.patient = walk_chance(2);
    how.options = gate->kind->traits & SNIB__TOKENS && walk_chance(2) ? SNIB_LOCK_FENCED : 0;
    if (gate->kind->kind == SNIB_WRITE && walk_chance(2)) {
        how.options |= SNIB_LOCK_PREFER_WRITER;
    }
    if (gate->kind->kind == SNIB_MUTEX && walk_chance(4)) { /* as a member of a quorum */
        how.vote_ms = 30000;
    }
    if (gate->kind->kind == SNIB__OUTER) {
        how.wait = SNIB__NEVER; /* the carrier ends it */
        how.outer = outer_new();
        if (!how.outer) {
            return;
        }
    }
    struct snib__op *op = snib__engine_acquire(walk.engine, gate, &how, walk.now, &code);
    if (how.outer) {
        outer_unused(how.outer);
    }
    note(op, code,
         how.wait == 0             ? "a try"
         : how.wait == SNIB__NEVER ? "a wait"
                                   : "a short wait",
         gate);
}

/* Questions about no lock of the program's: the answers are texts. */
static struct snib__op *ask_widely(int32_t *out_code)
{
    enum { BYTES = 65536 };
    switch (walk_draw(5)) {
    case 0: /* as a program goes on that has asked before, perhaps of other servers */
        return snib__engine_list(walk.engine, walk_chance(2) ? walk.cursor : 0, "*", 1, BYTES,
                                 walk.now, out_code);
    case 1:
        return snib__engine_describe(walk.engine, "a", 1, BYTES, walk.now, out_code);
    case 2:
        return snib__engine_server(walk.engine, (int32_t)walk_draw(SNIB_SERVER_LOAD + 1), BYTES,
                                   walk.now, out_code);
    case 3:
        return snib__engine_identity(walk.engine, "00000000-0000-8000-8000-000000000002", 36, BYTES,
                                     walk.now, out_code);
    default:
        return snib__engine_load(walk.engine, (int32_t)walk_draw(3), 0, BYTES, walk.now, out_code);
    }
}

void sim_free(void *object);

/* What clients leave for each other is asked for without an operation. */
static void leave_note(void)
{
    size_t n;
    sim_free(snib__engine_board_read(walk.engine, &n));
    if (snib__engine_board_ready(walk.engine, walk.now)) {
        snib__engine_board(walk.engine, "w text\n", 7, walk.now);
    }
}

static void ask(struct snib__gate *gate)
{
    int32_t code = SNIB_OK;
    struct snib__op *op;
    switch (walk_draw(gate->kind->count ? 5 : 4)) {
    case 3:
        op = ask_widely(&code);
        break;
    case 0:
        op = snib__engine_info(walk.engine, gate, walk.now, &code);
        break;
    case 1:
        op = snib__engine_force(walk.engine, gate, walk.now, &code);
        break;
    case 2:
        op = snib__engine_ping(walk.engine, walk_draw(WALK_SECOND), walk.now, &code);
        break;
    default:
        op = snib__engine_count(walk.engine, gate, SNIB_COUNT_GET, 0, walk.now, &code);
    }
    note(op, code, "a question", gate);
}

static void start(void)
{
    const struct walk_gate *drawn = &walk.gates[walk_draw(walk.gate_count)];
    struct snib__gate *gate = snib__gate_get(walk.engine, drawn->kind, drawn->name, drawn->length);
    if (gate == NULL) {
        return;
    }
    snib__engine_call(walk.engine, walk_chance(2));
    if (walk_chance(12) && drawn->length == 1) {
        ask(gate);
    } else {
        acquire(gate);
    }
    snib__engine_call(walk.engine, false);
    snib__gate_put(walk.engine, gate);
}

/* ---- Holds -------------------------------------------------------------------------------------- */

/* One of a hold's users is done with it. */
static void leave(struct walk_hold *at)
{
    struct snib__hold *hold = at->hold;
    hold->users--;
    at->users--;
    if (at->users > 0) {
        return;
    }
    at->hold = NULL;
    if (!walk.calm && walk_chance(5)) {
        walk_trace("%llu is abandoned", (unsigned long long)hold->number);
        walk_happens(WALK_ABANDON);
        snib__hold_abandon(walk.engine, hold, walk.now);
    }
    snib__hold_drop(walk.engine, hold, walk.now);
}

static void release(struct walk_hold *at)
{
    int32_t code = SNIB_OK;
    struct snib__gate *gate = at->hold->gate;
    snib__gate_ref(gate);
    snib__engine_call(walk.engine, walk_chance(2));
    struct snib__op *op = snib__engine_release(walk.engine, at->hold, walk.now, &code);
    snib__engine_call(walk.engine, false);
    note(op, code, "a release", gate);
    snib__gate_put(walk.engine, gate);
    if (op) {
        op->token = (uint64_t)(at - walk.holds) + 1;
        at->leaving++;
    } else {
        leave(at);
    }
}

static void extend(struct walk_hold *at)
{
    int32_t code = SNIB_OK;
    struct snib__gate *gate = at->hold->gate;
    snib__time lease = walk_chance(2) ? 0 : walk_between(100 * SNIB__MS, 60 * WALK_SECOND);
    snib__gate_ref(gate);
    struct snib__op *op = snib__engine_extend(walk.engine, at->hold, lease, walk.now, &code);
    note(op, code, "an extension", gate);
    snib__gate_put(walk.engine, gate);
}

/* As for a member of a lock of several clients, which comes before any extension. */
static void fix(struct walk_hold *at)
{
    const struct snib__lock_kind *kind = at->hold->gate->kind;
    if (!kind->renew || at->hold->lease_ms > 0 || at->hold->extended) {
        return;
    }
    walk_trace("%llu gets a fixed lease", (unsigned long long)at->hold->number);
    snib__hold_fix(walk.engine, at->hold, walk_between(100 * SNIB__MS, 60 * WALK_SECOND), walk.now);
}

static struct walk_hold *some_hold(void)
{
    struct walk_hold *at = NULL;
    uint32_t n = 0;
    for (uint32_t i = 0; i < WALK_HOLDS; i++) {
        bool free = walk.holds[i].hold && walk.holds[i].leaving < walk.holds[i].users;
        if (free && walk_draw(++n) == 0) {
            at = &walk.holds[i];
        }
    }
    return at;
}

/* Whether the owner of a hold waits for the same lock, or for its other side. */
static bool wants_more(const struct snib__hold *hold)
{
    const struct snib__gate *gate = hold->gate;
    int kind = gate->kind->kind;
    int other = kind == SNIB_READ ? SNIB_WRITE : kind == SNIB_WRITE ? SNIB_READ : kind;
    for (uint32_t i = 0; i < walk.op_count; i++) {
        const struct snib__op *op = walk.ops[i];
        bool waits = op->kind == SNIB__OP_ACQUIRE && op->owner != 0 && op->owner == hold->owner;
        if (waits && (op->gate == gate || (op->gate->kind->kind == other && other != kind &&
                                           op->gate->name[0] == gate->name[0]))) {
            return true;
        }
    }
    return false;
}

/* Everything that is held, unless its owner waits for more of it first. */
void call_give_back(void)
{
    for (uint32_t i = 0; i < WALK_HOLDS; i++) {
        struct walk_hold *at = &walk.holds[i];
        while (at->hold && !wants_more(at->hold) && at->leaving < at->users &&
               walk.op_count < WALK_OPS) {
            release(at);
        }
    }
}

/* ---- Anything ----------------------------------------------------------------------------------- */

static void cancel(struct snib__op *op)
{
    walk_trace("it is cancelled:");
    snib__engine_cancel(walk.engine, op, walk.now);
}

void call_something(void)
{
    struct walk_hold *at = some_hold();
    bool room = walk.op_count < WALK_OPS;
    switch (walk_draw(11)) {
    case 10: /* what threads of the program's do besides */
        if (walk.engine->config.asks && walk_chance(8)) {
            walk_trace("the login is renewed");
            snib__engine_relogin(walk.engine, "u", walk_chance(8) ? NULL : "secret", walk.now);
            walk_happens(WALK_RELOGIN);
        } else if (walk_chance(8)) {
            leave_note();
        }
        snib__engine_take_refusal(walk.engine);
        break;
    case 0:
    case 1:
    case 2:
        if (room && at) {
            release(at);
        }
        break;
    case 3:
        if (at) {
            leave(at);
        }
        break;
    case 4:
        if (room && at && walk_chance(3)) {
            extend(at);
        } else if (at && walk_chance(4)) {
            fix(at);
        }
        break;
    case 5:
        if (walk.op_count > 0) {
            cancel(walk.ops[walk_draw(walk.op_count)]);
        }
        break;
    default:
        if (walk.op_count < WALK_OPS / 2) { /* leaves room for releases */
            start();
        }
    }
}

/* ---- Results ------------------------------------------------------------------------------------ */

static void take_hold(struct snib__hold *hold)
{
    struct walk_hold *at = NULL;
    for (uint32_t i = 0; i < WALK_HOLDS && (!at || at->hold != hold); i++) {
        if (walk.holds[i].hold == hold || (!at && !walk.holds[i].hold)) {
            at = &walk.holds[i];
        }
    }
    if (!at) {
        walk_fail("too many holds");
    }
    if (at->hold != hold) {
        *at = (struct walk_hold){.hold = hold};
    }
    at->users++;
    hold->tell = walk_draw(2) & 1U;
    if (walk.engine->config.durability && hold->replicas == 0) {
        walk_happens(WALK_TOLD);
    }
    if (walk.calm) {
        walk_happens(WALK_SERVED);
    }
}

static void count_result(const struct snib__op *op)
{
    if (op->code == SNIB_EREPLICAS) {
        walk_happens(WALK_UNDO);
    } else if (op->code < 0) {
        walk_happens(WALK_FAILURE);
    } else if (op->code == SNIB_CANCELLED) {
        walk_happens(WALK_CANCEL);
    } else if (op->code == SNIB_BUSY) {
        walk_happens(WALK_BUSY);
    } else if (op->code == SNIB_TIMEDOUT) {
        walk_happens(WALK_TIMEOUT);
    } else if (op->code == SNIB_OK && op->kind == SNIB__OP_RELEASE) {
        walk_happens(WALK_RELEASE);
    } else if (op->code == SNIB_OK && op->kind == SNIB__OP_EXTEND) {
        walk_happens(WALK_EXTENSION);
    }
}

static void take_result(struct snib__op *op)
{
    static const char *const names[] = {
        [SNIB__OP_ACQUIRE] = "an acquisition", [SNIB__OP_RELEASE] = "a release",
        [SNIB__OP_INFO] = "a question",        [SNIB__OP_FORCE] = "a question",
        [SNIB__OP_PING] = "a question",        [SNIB__OP_COUNT] = "a question",
        [SNIB__OP_EXTEND] = "an extension",    [SNIB__OP_LIST] = "a list",
        [SNIB__OP_DESCRIBE] = "a question",    [SNIB__OP_SERVER] = "a question",
        [SNIB__OP_IDENTITY] = "a question",    [SNIB__OP_LOAD] = "a question",
    };
    uint32_t i = 0;
    while (i < walk.op_count && walk.ops[i] != op) {
        i++;
    }
    if (i == walk.op_count) {
        walk_fail("an operation ends that nobody has");
    }
    walk.ops[i] = walk.ops[--walk.op_count];
    walk_trace("%s of %s %.*s ends: %s", names[op->kind],
               op->gate ? kind_names[op->gate->kind->kind] : "nothing",
               op->gate ? op->gate->name_len : 0, op->gate ? op->gate->name : "",
               snib_code_name(op->code));
    count_result(op);
    if (op->kind == SNIB__OP_LIST && op->code == SNIB_OK) {
        walk.cursor = op->asked->texts->cursor;
    }
    if (op->kind == SNIB__OP_ACQUIRE && op->code == SNIB_OK && op->hold) {
        take_hold(op->hold);
    }
    if (op->kind == SNIB__OP_RELEASE) {
        struct walk_hold *at = &walk.holds[op->token - 1];
        at->leaving--;
        leave(at);
    }
    snib__op_free(walk.engine, op);
}

void call_results(void)
{
    struct snib__op *op;
    struct snib__hold *hold;
    int32_t level;
    const char *text;
    while ((op = snib__engine_take_done(walk.engine)) != NULL) {
        take_result(op);
    }
    while ((hold = snib__engine_take_lost(walk.engine)) != NULL) {
        walk_trace("%llu is lost", (unsigned long long)hold->number);
        walk_happens(WALK_LOSS);
    }
    while ((text = snib__engine_take_log(walk.engine, &level)) != NULL) {
        walk_trace("record: %s", text);
    }
}
