/* sim_truth.c - what the server has, read from its keys, and why it changed.
 *
 * Every kind of lock is reduced to claims: which owner has a share of a name, how much, until when.
 * Claims are compared before and after every command and at every moment; a claim that goes has a
 * cause.  Numbers without owners are compared as numbers.
 */
#include "sim.h"

#include "locks/kind.h"
#include "snib.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NO_NUMBER INT64_MIN

/* ---- Names -------------------------------------------------------------------------------------- */

static bool find(const char *text, model_key *out)
{
    return model_key_find(sim.model, sim.database, text, strlen(text), out);
}

static model_text value_of(const char *text)
{
    model_text field, value = {NULL, 0};
    model_field_at(sim.model, sim.database, text, strlen(text), 0, &field, &value);
    return value;
}

/* The number at the beginning of a text. */
static int64_t to_integer(model_text text)
{
    bool negative = text.n > 0 && text.p[0] == '-';
    uint64_t number = 0;
    for (size_t i = negative; i < text.n && text.p[i] >= '0' && text.p[i] <= '9'; i++) {
        number = number * 10 + (uint64_t)(text.p[i] - '0');
    }
    return (int64_t)(negative ? 0 - number : number);
}

/* The number that 8 hexadecimal digits write; SIM_PROCESSES: it is higher, or they are none. */
static uint32_t of_process(const char *digits)
{
    uint32_t number = 0;
    for (int i = 0; i < 8; i++) {
        char x = digits[i];
        bool decimal = x >= '0' && x <= '9';
        if (number >= SIM_PROCESSES || (!decimal && (x < 'a' || x > 'f'))) {
            return SIM_PROCESSES;
        }
        number = number << 4 | (uint32_t)(decimal ? x - '0' : x - 'a' + 10);
    }
    return number < SIM_PROCESSES ? number : SIM_PROCESSES;
}

/* Parses "<uuid>:<number>", perhaps with ":write", or a permit's id, of a process in this world. */
struct sim_process *truth_owner(model_text text, uint64_t *out_number)
{
    struct sim_process *process;
    if (text.n == 16) {
        unsigned char id[16];
        memcpy(id, text.p, 16);
        uint32_t at = (uint32_t)id[0] << 24 | (uint32_t)id[1] << 16 | (uint32_t)id[2] << 8 | id[3];
        if (at >= sim.process_count) {
            return NULL;
        }
        /* The UUID's second half is 8000 and the seed. */
        uint64_t low = 0x8000000000000000U | (sim.seed & 0xffffffffffff);
        *out_number = 0;
        for (int i = 8; i < 16; i++) {
            *out_number = *out_number << 8 | id[i];
        }
        *out_number ^= low;
        return sim.processes[at];
    }
    bool shaped = text.n > 37 && text.n < 64 && text.p[8] == '-' && text.p[36] == ':';
    uint32_t at = shaped ? of_process(text.p) : SIM_PROCESSES;
    if (at >= sim.process_count) {
        return NULL;
    }
    process = sim.processes[at];
    if (memcmp(process->uuid, text.p, 36) != 0) {
        return NULL;
    }
    *out_number = (uint64_t)to_integer((model_text){text.p + 37, text.n - 37});
    return process;
}

const struct sim_claim *truth_claim(const struct sim_name *name, const struct sim_process *process,
                                    uint64_t number, int side)
{
    for (int i = 0; i < name->claim_count; i++) {
        const struct sim_claim *claim = &name->claims[i];
        if (claim->process == process && claim->number == number && claim->side == side) {
            return claim;
        }
    }
    return NULL;
}

/* A multi lock has one owner, whatever its members are. */
struct sim_owner *truth_owner_of(const struct sim_claim *claim)
{
    struct sim_owner *owner = check_owner(claim->process, claim->number, 0);
    return owner->use.kind == SNIB__MULTI ? owner
                                          : check_owner(claim->process, claim->number, claim->side);
}

/* ---- Reading ------------------------------------------------------------------------------------ */

struct reading {
    struct sim_claim claims[SIM_CLAIMS];
    int n;
    int64_t total;
};

static struct sim_claim *claim(struct reading *r, const struct sim_name *name, model_text owner,
                               int side, uint64_t expires_ns)
{
    uint64_t number;
    struct sim_process *process = truth_owner(owner, &number);
    if (process == NULL || r->n == SIM_CLAIMS) {
        sim_fail("%s: an unknown owner: %.*s", name->text, (int)owner.n, owner.p);
    }
    if (process->foreign != (process->uuid[14] == '4')) {
        sim_fail("%s: the owner of another kind of client", name->text);
    }
    struct sim_claim made = {process, number, side, 1, expires_ns, sim.step_ns};
    snib__time life = truth_owner_of(&made)->lease;
    if (side == 1) {
        life = sim_longest(); /* a read of its own may have a longer one */
    } else if (name->family == FAMILY_FAIR && life < SIM_FIRST) {
        life = SIM_FIRST;
    }
    if (expires_ns == UINT64_MAX ||
        expires_ns > sim_server_ns(sim.now) + (uint64_t)clock_lag() + life + 2 * SNIB__MS) {
        sim_fail("%s: %u:%llu has no TTL, or a longer one than its lease", name->text, process->id,
                 (unsigned long long)number);
    }
    r->claims[r->n] = made;
    return &r->claims[r->n++];
}

static void check_value(const struct sim_name *name, model_text owner, model_text value)
{
    uint64_t number;
    struct sim_process *process = truth_owner(owner, &number);
    if (process != NULL && !process->foreign && (value.n != 1 || value.p[0] != '1')) {
        sim_fail("%s: %.*s has a count of %.*s", name->text, (int)owner.n, owner.p, (int)value.n,
                 value.p);
    }
}

/* One field: the owner. */
static void read_mutex(const struct sim_name *name, struct reading *r)
{
    model_key key;
    model_text field, value;
    if (!find(name->text, &key) || key.type != MODEL_HASH) {
        return;
    }
    if (key.fields != 1) {
        sim_fail("%s has %zu owners", name->text, key.fields);
    }
    model_field_at(sim.model, sim.database, name->text, name->n, 0, &field, &value);
    check_value(name, field, value);
    claim(r, name, field, 0, key.expires_ns);
}

static void read_plain(const struct sim_name *name, struct reading *r)
{
    model_key key;
    uint64_t number;
    if (find(name->text, &key) && key.type == MODEL_STRING &&
        truth_owner(value_of(name->text), &number) != NULL) {
        claim(r, name, value_of(name->text), 0, key.expires_ns);
    }
}

static bool ends_with(model_text text, const char *end)
{
    size_t n = strlen(end);
    return text.n >= n && memcmp(text.p + text.n - n, end, n) == 0;
}

/* A reader counts for as long as its own lease, the key beside the lock. */
static void read_reader(const struct sim_name *name, struct reading *r, const model_key *lock,
                        model_text owner, int64_t count)
{
    uint64_t latest = 0;
    for (int64_t i = 1; i <= count; i++) {
        char text[160];
        model_key own;
        snprintf(text, sizeof text, "%s:%.*s:rwlock_timeout:%lld", name->tag, (int)owner.n, owner.p,
                 (long long)i);
        if (find(text, &own)) { /* always with a TTL */
            latest = own.expires_ns > latest ? own.expires_ns : latest;
        }
    }
    latest -= latest > 0 ? 1000000 : 0;    /* in its last millisecond no time is left */
    if (latest > sim_server_ns(sim.now)) { /* not longer than its lease, if the lock lives longer */
        struct sim_claim *made = claim(r, name, owner, 0, latest);
        made->expires_ns = lock->expires_ns < latest ? lock->expires_ns : latest;
    }
}

/* Whether the writer's owner has the other claim, too.  Redisson's readers have the number of their owner's write hold. */
static bool is_let_in(const struct sim_claim *writer, const struct sim_claim *other)
{
    bool is_same = writer->number == other->number;
    if (other->side == 0 && !other->process->foreign) {
        is_same = check_owner(other->process, other->number, 0)->writer == writer->number;
    }
    return writer->process == other->process && is_same;
}

static void read_rw(const struct sim_name *name, struct reading *r)
{
    model_key key;
    model_text field, value, mode = {"", 0};
    int writers = 0;
    if (!find(name->text, &key) || key.type != MODEL_HASH) {
        return;
    }
    for (size_t i = 0; i < key.fields; i++) {
        model_field_at(sim.model, sim.database, name->text, name->n, i, &field, &value);
        if (field.n == 4 && memcmp(field.p, "mode", 4) == 0) {
            mode = value;
            continue;
        }
        check_value(name, field, value);
        if (ends_with(field, ":write")) {
            claim(r, name, field, 1, key.expires_ns);
            writers++;
        } else {
            read_reader(name, r, &key, field, to_integer(value));
        }
    }
    bool writes = mode.n == 5 && memcmp(mode.p, "write", 5) == 0;
    if (key.fields < 2 || writers != writes || (!writes && mode.n != 4)) {
        sim_fail("%s has %d writers in mode %.*s and %zu fields", name->text, writers, (int)mode.n,
                 mode.p, key.fields);
    }
    for (int i = 0; writers > 0 && i < r->n; i++) {
        for (int j = 0; j < r->n; j++) {
            if (r->claims[i].side == 1 && !is_let_in(&r->claims[i], &r->claims[j])) {
                sim_fail("%s is read by %u:%llu while %u writes", name->text,
                         r->claims[j].process->id, (unsigned long long)r->claims[j].number,
                         r->claims[i].process->id);
            }
        }
    }
}

int64_t truth_number(const struct sim_name *name)
{
    model_key key;
    bool exists = find(name->text, &key) && key.type == MODEL_STRING;
    return exists ? to_integer(value_of(name->text)) : NO_NUMBER;
}

int64_t truth_number_or_none(const struct sim_name *name)
{
    int64_t number = truth_number(name);
    return number == NO_NUMBER ? 0 : number;
}

/* The ids of one hold are consecutive; together they are one claim. */
static void read_permits(const struct sim_name *name, struct reading *r)
{
    model_key key;
    model_text id, score;
    r->total = truth_number_or_none(name);
    if (!find(name->taken, &key) || key.type != MODEL_ZSET) {
        return;
    }
    r->total += (int64_t)key.fields;
    for (size_t i = 0; i < key.fields; i++) {
        uint64_t number;
        model_field_at(sim.model, sim.database, name->taken, strlen(name->taken), i, &id, &score);
        uint64_t ends = (uint64_t)to_integer(score) * 1000000;
        struct sim_process *process = truth_owner(id, &number);
        if (process == NULL) {
            sim_fail("%s: a permit of an unknown owner", name->text);
        }
        if (ends <= sim_server_ns(sim.now)) {
            continue;
        }
        const struct sim_owner *owner = check_owner(process, number, 0);
        while (!process->foreign && owner->use.permits == 0 && number > SIM_FIRST_NUMBER) {
            owner = check_owner(process, --number, 0);
        }
        int at = 0;
        while (at < r->n && (r->claims[at].process != process || r->claims[at].number != number)) {
            at++;
        }
        if (at == r->n) {
            char text[64];
            int n =
                snprintf(text, sizeof text, "%s:%llu", process->uuid, (unsigned long long)number);
            claim(r, name, (model_text){text, (size_t)n}, 0, ends)->permits = 0;
        }
        r->claims[at].permits++;
        r->claims[at].expires_ns =
            ends < r->claims[at].expires_ns ? ends : r->claims[at].expires_ns;
    }
}

static void read_name(const struct sim_name *name, struct reading *r)
{
    r->n = 0;
    r->total = 0;
    switch (name->family) {
    case FAMILY_RW:
        read_rw(name, r);
        break;
    case FAMILY_PLAIN:
        read_plain(name, r);
        break;
    case FAMILY_PERMITS:
        read_permits(name, r);
        break;
    case FAMILY_SEMAPHORE:
        r->total = truth_number_or_none(name);
        break;
    case FAMILY_LATCH:
        break;
    default:
        read_mutex(name, r);
    }
}

/* ---- What has changed --------------------------------------------------------------------------- */

static void claim_left(struct sim_name *name, const struct sim_claim *claim, int cause)
{
    struct sim_owner *owner = truth_owner_of(claim);
    sim_trace("%s: %u:%llu has left the server, cause %d", name->text, claim->process->id,
              (unsigned long long)claim->number, cause);
    if (cause == CAUSE_OTHER || cause == CAUSE_COUNT) {
        sim_fail("%s: a command other than a release has ended %u:%llu", name->text,
                 claim->process->id, (unsigned long long)claim->number);
    }
    bool given = cause == CAUSE_RELEASED || cause == CAUSE_TRANSFERRED;
    if (given && (claim->process != sim.acting || claim->number != sim.acting_number)) {
        sim_fail("%s: %u:%llu was ended by another's release", name->text, claim->process->id,
                 (unsigned long long)claim->number);
    }
    owner->present &= ~(1U << (name - sim.names));
    bool early = cause == CAUSE_EXPIRED && clock_unset(claim, sim.now) < claim->expires_ns;
    owner->ended = early ? CAUSE_STEP : cause;
    owner->since = sim.now;
    owner->left_step_ns = claim->step_ns;
    totals.handed_over += cause == CAUSE_TRANSFERRED;
}

/* Check the token, if this kind of lock takes one with every hold. */
static void take_token(struct sim_name *name, struct sim_owner *owner)
{
    bool counts = name->family == FAMILY_FENCED || (name->tokens && owner->use.side == 1) ||
                  (name->tokens && name->family == FAMILY_FAIR);
    if (!counts) {
        return;
    }
    model_key key;
    int64_t token = find(name->token, &key) ? to_integer(value_of(name->token)) : 0;
    if (token <= name->last_token) {
        sim_fail("%s: the token %lld is not above %lld", name->text, (long long)token,
                 (long long)name->last_token);
    }
    name->last_token = token;
    owner->token = owner->use.kind == SNIB__MULTI ? 0 : token;
}

static void claim_came(struct sim_name *name, const struct sim_claim *claim, int cause)
{
    struct sim_owner *owner = truth_owner_of(claim);
    owner->stray |= cause == CAUSE_MEMORY; /* given back before; a stale data set has it again */
    owner->aged |= cause == CAUSE_MEMORY;
    sim_trace("%s: %u:%llu%s is at the server", name->text, claim->process->id,
              (unsigned long long)claim->number, claim->side ? " as the writer" : "");
    if (!claim->process->foreign) {
        if ((owner->use.names >> (name - sim.names) & 1) == 0) {
            sim_fail("%s: %u:%llu did not ask for this lock", name->text, claim->process->id,
                     (unsigned long long)claim->number);
        }
        if (!owner->stray &&
            (owner->ended == CAUSE_RELEASED || owner->ended == CAUSE_TRANSFERRED)) {
            sim_fail("%s: %u:%llu has come back after its release", name->text, claim->process->id,
                     (unsigned long long)claim->number);
        }
        if (owner->denied && !owner->stray) {
            sim_fail(
                "%s: %u:%llu comes late, and its operation ended as if nothing had been applied",
                name->text, claim->process->id, (unsigned long long)claim->number);
        }
        /* Set back, the clock revives those expired permits that nobody has cleared away, whether
         * they expired in time or because it had been set forward. */
        bool expired = owner->ended == CAUSE_STEP || owner->ended == CAUSE_EXPIRED;
        bool revived = expired && clock_lag() > 0;
        bool partly = name->family == FAMILY_PERMITS && claim->permits != owner->use.permits;
        owner->partly = partly && revived;
        if (partly && !revived) {
            sim_fail("%s: %u:%llu has %u permits and wanted %u", name->text, claim->process->id,
                     (unsigned long long)claim->number, claim->permits, owner->use.permits);
        }
    }
    totals.by_redisson += claim->process->foreign;
    take_token(name, owner);
    owner->present |= 1U << (name - sim.names);
    owner->ended = CAUSE_NONE;
    owner->since = sim.now;
}

static const struct sim_claim *find_in(const struct sim_claim *claims, int n,
                                       const struct sim_claim *one)
{
    for (int i = 0; i < n; i++) {
        if (claims[i].process == one->process && claims[i].number == one->number &&
            claims[i].side == one->side) {
            return &claims[i];
        }
    }
    return NULL;
}

/* Its end may stay the same although it was renewed after the clock was set back; or the renewal
 * was refused. */
void truth_renewed(const struct sim_process *process, uint64_t number, int side)
{
    for (int i = 0; i < sim.name_count; i++) {
        for (int j = 0; j < sim.names[i].claim_count; j++) {
            struct sim_claim *claim = &sim.names[i].claims[j];
            bool is_it = claim->process == process && claim->number == number;
            if (is_it && (claim->side == side || truth_owner_of(claim)->use.kind == SNIB__MULTI)) {
                claim->step_ns = sim.step_ns < claim->step_ns ? sim.step_ns : claim->step_ns;
            }
        }
    }
}

/* A latch is set while it is open, and counted down by one. */
static void check_latch(struct sim_name *name, int cause)
{
    int64_t before = name->number, after = truth_number_or_none(name);
    if (cause == CAUSE_COUNT && !sim.winding_down && before > 0 && after != before &&
        after != before - 1) {
        sim_fail("%s: one count less than %lld is %lld", name->text, (long long)before,
                 (long long)after);
    }
    if (cause == CAUSE_OTHER && before != after) {
        sim_fail("%s: a query has changed the count", name->text);
    }
    name->number = after;
}

static void check_number(struct sim_name *name, const struct reading *r, int cause)
{
    bool may_change = cause == CAUSE_COUNT || cause == CAUSE_MEMORY || cause == CAUSE_FORCED ||
                      fault_is_overwritten(name);
    if (name->family == FAMILY_PERMITS && r->total != name->total && !may_change) {
        sim_fail("%s: there were %lld permits and are %lld, cause %d", name->text,
                 (long long)name->total, (long long)r->total, cause);
    }
    if (name->family == FAMILY_LATCH) {
        check_latch(name, cause);
    } else if (name->family == FAMILY_PERMITS) {
        name->total = r->total;
    } else if (name->family == FAMILY_SEMAPHORE && may_change && r->total != name->number) {
        name->total += r->total - name->number;
    }
    if (name->family == FAMILY_SEMAPHORE) {
        name->number = r->total; /* as last seen */
        if (r->total < 0 || r->total + truth_outstanding((int)(name - sim.names)) > name->total) {
            sim_fail("%s: %lld are free and %lld taken of %lld", name->text, (long long)r->total,
                     (long long)truth_outstanding((int)(name - sim.names)), (long long)name->total);
        }
    }
}

int64_t truth_outstanding(int name)
{
    int64_t sum = 0;
    for (int i = 0; i < sim.slot_count; i++) {
        for (int j = 0; j < SIM_HOLDS; j++) {
            const struct sim_hold *hold = &sim.slots[i]->holds[j];
            sum += hold->users > 0 && hold->use.name == name && !hold->released ? hold->use.permits
                                                                                : 0;
        }
    }
    return sum;
}

/* ---- Open or not -------------------------------------------------------------------------------- */

/* What must be open for this use: a side, or a number of permits. */
int truth_level(const struct sim_use *use)
{
    bool counts = use->kind == SNIB_PERMITS || use->kind == SNIB_SEMAPHORE;
    return counts ? (int)use->permits - 1 : use->side;
}

static bool is_open(const struct sim_name *name, int level)
{
    model_key key;
    int64_t taken = 0;
    for (int i = 0; i < name->claim_count; i++) {
        taken += name->claims[i].permits;
        if (name->family == FAMILY_RW && level == 0 && name->claims[i].side == 1) {
            return false;
        }
    }
    switch (name->family) {
    case FAMILY_RW:
        return level == 0 ? !find(name->mark, &key) : taken == 0;
    case FAMILY_PERMITS:
        return truth_number(name) != NO_NUMBER && name->total - taken > level;
    case FAMILY_SEMAPHORE:
        return truth_number(name) > level;
    case FAMILY_LATCH:
        return truth_number(name) <= 0;
    case FAMILY_PLAIN:
        return !find(name->text, &key); /* by any client */
    default:
        return taken == 0;
    }
}

static void look_whether_open(struct sim_name *name, int cause)
{
    int levels = name->family == FAMILY_RW                                            ? 2
                 : name->family == FAMILY_PERMITS || name->family == FAMILY_SEMAPHORE ? SIM_PERMITS
                                                                                      : 1;
    for (int i = 0; i < levels; i++) {
        bool open = is_open(name, i);
        if (open != (name->open_since[i] != SNIB__NEVER)) {
            name->open_since[i] = open ? sim.now : SNIB__NEVER;
            name->open_cause[i] = cause;
            name->shut_at = sim.now;
        }
    }
}

static void look_at(struct sim_name *name, int cause)
{
    static struct reading r;
    const struct sim_claim *came = NULL;
    read_name(name, &r);
    for (int i = 0; i < name->claim_count; i++) {
        if (find_in(r.claims, r.n, &name->claims[i]) == NULL) {
            claim_left(name, &name->claims[i], cause);
        }
    }
    for (int i = 0; i < r.n; i++) {
        const struct sim_claim *before = find_in(name->claims, name->claim_count, &r.claims[i]);
        if (before == NULL) {
            claim_came(name, &r.claims[i], cause);
            if (cause == CAUSE_EXPIRED) { /* a permit is back with the time of its lease */
                r.claims[i].step_ns = truth_owner_of(&r.claims[i])->left_step_ns;
            }
            came = &r.claims[i];
        } else if (before->expires_ns == r.claims[i].expires_ns) {
            r.claims[i].step_ns = before->step_ns;
        } else {
            truth_owner_of(&r.claims[i])->aged =
                cause == CAUSE_MEMORY && r.claims[i].expires_ns < before->expires_ns;
        }
    }
    bool is_exclusive = name->family < FAMILY_RW;
    if (is_exclusive && r.n > 1) {
        sim_fail("%s has two owners", name->text);
    }
    if (name->family == FAMILY_FAIR) {
        queue_check(name, came, cause);
    }
    if (sim.crowded && came != NULL) {
        crowd_turn(name, came, cause);
    }
    check_number(name, &r, cause);
    memcpy(name->claims, r.claims, (size_t)r.n * sizeof *r.claims);
    name->claim_count = r.n;
    look_whether_open(name, cause);
}

/* When time alone will next change something. */
static void plan_expiry(void)
{
    model_key key;
    sim.next_expiry_ns = UINT64_MAX;
    for (size_t i = 0; model_key_at(sim.model, i, &key); i++) {
        sim.next_expiry_ns =
            key.expires_ns < sim.next_expiry_ns ? key.expires_ns : sim.next_expiry_ns;
    }
    for (int i = 0; i < sim.name_count; i++) {
        for (int j = 0; j < sim.names[i].claim_count; j++) {
            uint64_t ends = sim.names[i].claims[j].expires_ns;
            sim.next_expiry_ns = ends < sim.next_expiry_ns ? ends : sim.next_expiry_ns;
        }
    }
}

/* What is read of these kinds may be new although their keys are the same: requests count for places
 * in a queue, and holds for the permits that are missing. */
static bool needs_look(const struct sim_name *name)
{
    return name->family == FAMILY_FAIR || name->family == FAMILY_SEMAPHORE ||
           name->family == FAMILY_PERMITS;
}

/* Whether what was read last would be read again. */
static __attribute__((unused)) bool is_unchanged(const struct sim_name *name)
{
    static struct reading r;
    read_name(name, &r);
    bool same = r.n == name->claim_count;
    for (int i = 0; i < r.n && same; i++) {
        const struct sim_claim *before = find_in(name->claims, name->claim_count, &r.claims[i]);
        same = before != NULL && before->expires_ns == r.claims[i].expires_ns;
    }
    return same;
}

/* Keys are read again only after they were written or time has ended something: most requests do
 * neither. */
void check_truth(int cause)
{
    bool expired = sim_server_ns(sim.now) >= sim.next_expiry_ns;
    if (cause == CAUSE_EXPIRED && !expired) {
        return;
    }
    bool same = !expired && cause != CAUSE_MEMORY && model_writes(sim.model) == sim.writes_seen;
    sim.writes_seen = model_writes(sim.model);
    for (int i = 0; i < sim.name_count; i++) {
        if (!same || needs_look(&sim.names[i])) {
            look_at(&sim.names[i], cause);
        }
        assert(is_unchanged(&sim.names[i]));
    }
    if (model_key_count(sim.model) != sim.key_count || model_requests(sim.model) % 16 == 0) {
        sim.key_count = model_key_count(sim.model);
        keys_check();
    }
    if (!same) {
        plan_expiry();
    }
}
