/* sim_queue.c - the fair lock's queue at the server: which waiters join, leave, and are granted the
 * lock.
 *
 * Waiters are granted the lock in the order in which the server queued them, except those that are
 * dead or whose process cannot hear of it.  A place ends by a grant, by its owner's leaving, or
 * because its client was silent for too long.
 */
#include "sim.h"

#include "snib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE 4000 /* those behind a place of Snib's move forward by this when it goes, in ms */
#define SILENCE (2450 * SNIB__MS) /* after so long without a request a client may lose its places */

static model_text field_at(const char *key, size_t index, bool value)
{
    model_text out[2] = {{NULL, 0}, {NULL, 0}};
    model_field_at(sim.model, sim.database, key, strlen(key), index, &out[0], &out[1]);
    return out[value];
}

static double to_score(model_text text)
{
    char room[40];
    size_t n = text.n < sizeof room ? text.n : sizeof room - 1;
    memcpy(room, text.p == NULL ? "" : text.p, n);
    room[n] = '\0';
    return strtod(room, NULL);
}

static size_t count_of(const char *key)
{
    model_key found;
    return model_key_find(sim.model, sim.database, key, strlen(key), &found) ? found.fields : 0;
}

/* The queue at the server, in order; every waiter has one place and one score, or it is torn. */
static int read_queue(struct sim_name *name, struct sim_place *out)
{
    size_t n = count_of(name->queue), scores = count_of(name->places);
    if (n > SIM_PLACES) {
        sim_fail("%s: %zu wait", name->text, n);
    }
    bool whole = n == scores;
    for (size_t i = 0; i < n; i++) {
        model_text owner = field_at(name->queue, i, true);
        out[i] = (struct sim_place){.score = -1};
        out[i].process = truth_owner(owner, &out[i].number);
        if (out[i].process == NULL) {
            sim_fail("%s: the unknown owner %.*s waits", name->text, (int)owner.n, owner.p);
        }
        for (size_t j = 0; j < scores; j++) {
            model_text member = field_at(name->places, j, false);
            if (member.n == owner.n && memcmp(member.p, owner.p, owner.n) == 0) {
                out[i].score = to_score(field_at(name->places, j, true));
            }
        }
        whole &= out[i].score >= 0;
    }
    if (!whole && !name->queue_torn) {
        sim_fail("%s: %zu wait and %zu have a score", name->text, n, scores);
    }
    if (n == 0 && scores == 0) {
        name->queue_torn = false;
    }
    return (int)n;
}

static int place_of(const struct sim_place *places, int n, const struct sim_process *process,
                    uint64_t number)
{
    int i = 0;
    while (i < n && (places[i].process != process || places[i].number != number)) {
        i++;
    }
    return i;
}

static bool may_be_dropped(const struct sim_name *name, const struct sim_place *place)
{
    if (name->queue_skewed) {
        return true;
    }
    if (place->process->foreign) {
        return (place->score - PATIENCE) * 1e6 <= (double)sim_server_ns(sim.now) + 1e6;
    }
    snib__time asked_at = place->process->asked_at[name - sim.names];
    /* Each Redisson waiter that takes the lock subtracts its time from the scores behind it: where several do so in one
     * second, a place may look over before its client asks again, and Redisson drops it. */
    if (sim.acting != NULL && sim.acting->foreign &&
        place->score * 1e6 <= (double)sim_server_ns(sim.now)) {
        return true;
    }
    return sim.set_at >= asked_at || sim.now > asked_at + SILENCE;
}

static bool can_hear(const struct sim_name *name, const struct sim_place *place)
{
    char channel[128];
    int n = snprintf(channel, sizeof channel, "redisson_lock__channel:%s:%s", name->tag,
                     place->process->uuid);
    return !(sim.server_faults & (MODEL_NO_CHANNELS | MODEL_NO_PUBLISH)) &&
           model_subscribers(sim.model, channel, (size_t)n) > 0;
}

static bool acts(const struct sim_place *place)
{
    return sim.acting == place->process && sim.acting_number == place->number;
}

/* Its owner's release gives it back. */
static bool leaves(const struct sim_place *place)
{
    return acts(place) && !sim.asking;
}

/* A request for its client's first waiter gives up places with lower numbers: a stale data set has
 * brought them back, or the request that gave them back was lost. */
static bool is_given_up(const struct sim_place *place)
{
    return sim.acting == place->process && place->number < sim.first_waiter;
}

static bool is_task(const struct sim_place *place)
{
    for (int i = 0; i < SIM_TASKS && !place->process->foreign; i++) {
        const struct sim_task *task = &place->process->tasks[i];
        if (task->doing == DOING_WAIT && task->number == place->number) {
            return true;
        }
    }
    return false;
}

/* The lock was granted: was it this waiter's turn? */
static void check_turn(const struct sim_name *name, const struct sim_claim *came)
{
    for (int i = 0; i < name->queued_count; i++) {
        const struct sim_place *ahead = &name->queued[i];
        if (ahead->process == came->process && ahead->number == came->number) {
            return;
        }
        if (leaves(ahead) || is_given_up(ahead)) {
            continue;
        }
        bool ready = ahead->process->foreign || can_hear(name, ahead);
        if (!may_be_dropped(name, ahead) && ready) {
            sim_fail("%s: %u:%llu has it before %u:%llu, which was next", name->text,
                     came->process->id, (unsigned long long)came->number, ahead->process->id,
                     (unsigned long long)ahead->number);
        }
    }
}

static void check_departure(const struct sim_name *name, const struct sim_place *place,
                            const struct sim_claim *came)
{
    bool granted = came != NULL && came->process == place->process && came->number == place->number;
    if (is_given_up(place) && is_task(place)) {
        sim_fail("%s: %u:%llu waits, but its own client has given up its place", name->text,
                 place->process->id, (unsigned long long)place->number);
    }
    if (granted || leaves(place) || is_given_up(place)) {
        return;
    }
    if (!may_be_dropped(name, place)) {
        sim_fail("%s: %u:%llu has lost its place, %llu ms after it asked", name->text,
                 place->process->id, (unsigned long long)place->number,
                 (unsigned long long)((sim.now - place->process->asked_at[name - sim.names]) /
                                      SNIB__MS));
    }
    if (sim.enabled == 0 && is_task(place)) {
        sim_fail("%s: %u:%llu waits and was taken for dead", name->text, place->process->id,
                 (unsigned long long)place->number);
    }
}

/* Whether the server has recorded the request: it may have been refused. */
static bool beats_now(const struct sim_name *name, const struct sim_process *process)
{
    for (size_t i = 0; i < count_of(name->beats); i++) {
        model_text client = field_at(name->beats, i, false);
        if (client.n == 36 && memcmp(client.p, process->uuid, 36) == 0) {
            return to_score(field_at(name->beats, i, true)) * 1e6 + 2e6 >
                   (double)sim_server_ns(sim.now);
        }
    }
    return false;
}

static void trace_queue(const struct sim_name *name, const struct sim_place *places, int n)
{
    char text[400];
    size_t at = 0;
    if (!sim.trace || n == name->queued_count) {
        return;
    }
    for (int i = 0; i < n && at + 40 < sizeof text; i++) {
        at += (size_t)snprintf(text + at, sizeof text - at, " %u:%llu", places[i].process->id,
                               (unsigned long long)places[i].number);
    }
    sim_trace("%s: %d wait:%.*s", name->text, n, (int)at, text);
}

void queue_check(struct sim_name *name, const struct sim_claim *came, int cause)
{
    struct sim_place now[SIM_PLACES];
    bool torn = name->queue_torn;
    int n = read_queue(name, now), at = 0;
    if (!torn && cause != CAUSE_MEMORY) {
        if (came != NULL) {
            check_turn(name, came);
        }
        for (int i = 0; i < name->queued_count; i++) {
            const struct sim_place *place = &name->queued[i];
            int there = place_of(now, n, place->process, place->number);
            bool queues_again = acts(place) && may_be_dropped(name, place);
            if (there == n) {
                check_departure(name, place, came);
            } else if (there != at && !queues_again) {
                sim_fail("%s: %u:%llu has changed its place", name->text, place->process->id,
                         (unsigned long long)place->number);
            }
            at += there == at;
        }
    }
    if (sim.asking && sim.acting != NULL && beats_now(name, sim.acting) &&
        place_of(now, n, sim.acting, sim.acting_number) < n) {
        sim.acting->asked_at[name - sim.names] = sim.now;
    }
    trace_queue(name, now, n);
    memcpy(name->queued, now, (size_t)n * sizeof *now);
    name->queued_count = n;
    name->queue_skewed &= n > 0;
}
