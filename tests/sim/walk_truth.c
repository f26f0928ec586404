/* walk_truth.c - exclusive locks in walks whose servers are honest about them: who has each in truth, and until when.
 *
 * One server stands behind all replies about such a lock, and carries each request out at some moment between its sending
 * and its reply, or, if that is lost with the connection, perhaps.  So a hold that is valid is known there for as long as
 * it is: two grants at once, or a deadline after the end of the lease, are violations.  Only a hold that the server was
 * made to forget (another server, a forced release) may be valid without it, and no longer than before.
 */
#include "walk.h"

#include <string.h>

bool truth_is_told(int kind)
{
    return walk.honest && !walk.calm &&
           (kind == SNIB_MUTEX || kind == SNIB_FENCED || kind == SNIB_SPIN || kind == SNIB_PLAIN);
}

/* NULL: the servers say anything about this lock. */
static struct walk_truth *truth_of(const struct snib__gate *gate)
{
    for (uint32_t i = 0; i < walk.gate_count && truth_is_told(gate->kind->kind); i++) {
        const struct walk_gate *at = &walk.gates[i];
        if (at->kind == gate->kind->kind && at->length == (size_t)gate->name_len &&
            memcmp(at->name, gate->name, at->length) == 0) {
            return &walk.gates[i].truth;
        }
    }
    return NULL;
}

/* When the server has carried a request out: after what it did before. */
static snib__time executed_at(struct walk_truth *truth, snib__time sent_at)
{
    snib__time from = sent_at > truth->changed ? sent_at : truth->changed;
    truth->changed = from < walk.now ? walk_between(from, walk.now) : walk.now;
    return truth->changed;
}

static bool has(const struct walk_truth *truth, uint64_t number, snib__time at)
{
    return truth->number == number && number != 0 && at < truth->until;
}

static void keep(struct walk_truth *truth, snib__time at, snib__time lease)
{
    truth->until = at + lease > truth->until ? at + lease : truth->until;
}

bool truth_acquire(const struct snib__hold *hold, snib__time sent_at)
{
    struct walk_truth *truth = truth_of(hold->gate);
    snib__time at = executed_at(truth, sent_at);
    bool own = has(truth, hold->number, at), taken = !own && at < truth->until;
    if (taken || (!own && !walk_chance(walk.yields))) {
        return false;
    }
    truth->until = own ? truth->until : 0;
    truth->number = hold->number;
    keep(truth, at, snib__hold_lease(walk.engine, hold));
    return true;
}

bool truth_release(const struct snib__hold *hold, snib__time sent_at)
{
    struct walk_truth *truth = truth_of(hold->gate);
    bool found = has(truth, hold->number, executed_at(truth, sent_at));
    truth->until = found ? 0 : truth->until;
    return found;
}

bool truth_transfer(const struct snib__hold *from, const struct snib__hold *to, snib__time sent_at)
{
    struct walk_truth *truth = truth_of(from->gate);
    snib__time at = executed_at(truth, sent_at);
    if (!has(truth, from->number, at)) {
        return false;
    }
    truth->number = to->number;
    truth->until = 0;
    keep(truth, at, snib__hold_lease(walk.engine, to));
    return true;
}

/* A lease of 0 is a question.  The client may have forgotten the hold meanwhile. */
bool truth_renew(int kind, uint64_t number, snib__time lease, bool exact, snib__time sent_at)
{
    for (uint32_t i = 0; i < walk.gate_count; i++) {
        struct walk_truth *truth = &walk.gates[i].truth;
        if (walk.gates[i].kind != kind || truth->number != number) {
            continue;
        }
        snib__time at = executed_at(truth, sent_at);
        bool found = has(truth, number, at);
        truth->until = found && exact && lease > 0 ? 0 : truth->until;
        if (found && lease > 0) {
            keep(truth, at, lease);
        }
        return found;
    }
    return false;
}

/* What nobody but the walk knows: the server has lost a lock, or all. */
void truth_forget(const struct snib__gate *one)
{
    const struct walk_truth *its = one ? truth_of(one) : NULL;
    for (uint32_t i = 0; i < walk.gate_count; i++) {
        struct walk_truth *truth = &walk.gates[i].truth;
        if (one && truth != its) {
            continue;
        }
        if (walk.now < truth->until) {
            walk_happens(WALK_FORGOT);
            unsigned next = truth->forgotten_n++ % WALK_FORGOTTEN;
            truth->forgotten[next].number = truth->number;
            truth->forgotten[next].until = truth->until;
        }
        truth->until = 0;
    }
}

/* Whether the server had a hold for as long as it is valid, and was made to forget it: nothing makes it valid for longer. */
static bool is_forgotten(const struct walk_truth *truth, const struct snib__hold *hold)
{
    for (int i = 0; i < WALK_FORGOTTEN; i++) {
        if (truth->forgotten[i].number == hold->number &&
            snib__hold_end(hold) <= truth->forgotten[i].until) {
            return true;
        }
    }
    return false;
}

void truth_check(void)
{
    for (uint32_t i = 0; i < walk.gate_count; i++) {
        const struct walk_gate *at = &walk.gates[i];
        const struct snib__gate *gate =
            snib__gate_find(walk.engine, at->kind, at->name, at->length);
        const struct walk_truth *truth = gate ? truth_of(gate) : NULL;
        const struct snib__hold *hold = truth ? snib__gate_first(gate) : NULL;
        for (; hold; hold = snib__gate_next(gate, hold)) {
            bool safe = snib__hold_left(hold, walk.now) > 0;
            bool known = truth->number == hold->number && truth->until >= snib__hold_end(hold);
            if (safe && !known && !is_forgotten(truth, hold)) {
                walk_fail("%llu of %s is valid for %.3f s, and the server has %llu for %.3f s",
                          (unsigned long long)hold->number, at->name,
                          (double)snib__hold_left(hold, walk.now) / 1e9,
                          (unsigned long long)truth->number,
                          ((double)truth->until - (double)walk.now) / 1e9);
            }
            if (safe && known) {
                walk_happens(WALK_KNOWN);
            }
        }
    }
}
