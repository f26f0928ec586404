/* engine.c - the engine as a whole: creation, time, close, statistics. */
#include "engine/engine.h"

#include "engine/ask.h"
#include "engine/internal.h"
#include "net/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t snib__engine_random(struct snib__engine *e, uint64_t below)
{
    /* xorshift64*: jitter only; secrets and ids come from elsewhere */
    e->random ^= e->random >> 12;
    e->random ^= e->random << 25;
    e->random ^= e->random >> 27;
    return below ? (e->random * 2685821657736338717ull >> 11) % below : 0;
}

uint32_t snib__hash(const char *bytes, size_t n)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ (uint8_t)bytes[i]) * 16777619u;
    return hash ^ hash >> 15;
}

struct snib__engine *snib__engine_new(const struct snib__config *config)
{
    struct snib__engine *e = calloc(1, sizeof *e);
    if (!e)
        return NULL;
    e->config = *config;
    if (config->durability) /* a hand-over is on the master only */
        e->config.handover_max = 0;
    else
        e->config.durability_timeout = 0;
    e->random = config->seed ? config->seed : 1;
    e->next_number = config->first_number;
    e->memory = sizeof *e;
    if (snib__route_begin(e) < 0) {
        snib__engine_free(e);
        return NULL;
    }
    return e;
}

void snib__engine_free(struct snib__engine *e)
{
    if (!e)
        return;
    snib__given_end(e);
    for (uint32_t i = 0; i < e->chans_cap; i++)
        for (struct snib__chan *chan = e->chans[i], *next; chan; chan = next) {
            next = chan->next;
            free(chan);
        }
    for (uint32_t i = 0; i < e->gates_cap; i++)
        for (struct snib__gate *gate = e->gates[i], *next; gate; gate = next) {
            next = gate->next;
            free(gate->waitq);
            snib__gate_free(e, gate);
        }
    for (struct snib__op *op = e->live; op; op = op->live_next)
        snib__op_empty(op);
    for (struct snib__op *op = e->done_head; op; op = op->next)
        snib__op_empty(op);
    snib__board_end(e);
    snib__route_end(e);
    while (e->nodes)
        snib__node_free(e, e->nodes);
    free(e->gates);
    free(e->paused);
    free(e->chans);
    free(e->heap);
    snib__slabs_free(e);
    free(e);
}

const struct snib__resp *snib__engine_resp(const struct snib__engine *e)
{
    return e->resp;
}

void snib__engine_call(struct snib__engine *e, bool calling)
{
    e->calling = calling;
}

bool snib__engine_busy(const struct snib__engine *e)
{
    return e->live || e->releasing || e->stats.held;
}

const char *snib__engine_where(const struct snib__engine *e)
{
    return e->config.where ? e->config.where : "the server";
}

const char *snib__engine_why(int32_t code, int os_error)
{
    if (code == SNIB_ERESOLVE && os_error == ETIMEDOUT)
        return "the lookup of the host name had no answer in time; check the name service";
    if (code == SNIB_ERESOLVE && os_error)
        return "the lookup of the host name failed; check the name service";
    return os_error ? strerror(os_error) : snib_code_text(code);
}

void snib__engine_tick(struct snib__engine *e, snib__time now)
{
    while (e->heap_n > 0 && e->heap[1].when <= now) {
        struct snib__timer timer = e->heap[1];
        void *subject = snib__timer_subject(timer);
        snib__timer_cancel(e, snib__timer_at(timer));
        if (snib__timer_what(timer) == SNIB__TIMER_OP)
            snib__op_expired(e, subject, now);
        else if (snib__timer_what(timer) == SNIB__TIMER_HOLD)
            snib__hold_expired(e, subject, now);
        else
            snib__waitq_expired(e, subject, now);
    }
    snib__watchdog_tick(e, now);
    snib__pause_tick(e, now);
    snib__clock_tick(e, now);
    snib__identity_tick(e, now);
    snib__waitq_tick(e, now);
    snib__route_tick(e, now);
    snib__link_tick(e, now);
}

snib__time snib__engine_deadline(const struct snib__engine *e)
{
    snib__time next = e->heap_n ? e->heap[1].when : SNIB__NEVER;
    next = snib__earlier(next, snib__watchdog_deadline(e));
    next = snib__earlier(next, snib__pause_deadline(e));
    next = snib__earlier(next, snib__clock_deadline(e));
    next = snib__earlier(next, snib__identity_deadline(e));
    next = snib__earlier(next, snib__waitq_deadline(e));
    next = snib__earlier(next, snib__route_deadline(e));
    return snib__earlier(next, snib__link_deadline(e));
}

/* The caller's hold is lost; a second hold with its number releases what the server has. */
static void engine_close_hold(struct snib__engine *e, struct snib__hold *hold, snib__time now)
{
    struct snib__hold *rest = snib__outer_is(hold->gate) ? NULL : snib__hold_again(e, hold);
    if (rest) {
        if (now >= snib__hold_end(hold))
            rest->acquired_at = 0; /* the rest of a loss, which is reported once */
        snib__gate_release(e, rest, now);
        hold->count = 0; /* without memory this is retried when the hold is freed */
    }
    if (!snib__hold_over(e, hold, now))
        snib__hold_lose(e, hold, SNIB_REASON_CLOSED, now);
}

void snib__engine_close(struct snib__engine *e, snib__time now)
{
    if (e->closed)
        return;
    e->closed = true;
    for (struct snib__op *op = e->live, *next; op; op = next) {
        next = op->live_next;
        if (op->kind == SNIB__OP_RELEASE)
            continue;
        snib__gate_leave(e, op, now);
        next = op->live_next; /* leaving lets other operations try, and that may end them */
        snib__op_done(e, op, SNIB_ECLOSED);
    }
    for (uint32_t i = 0; i < e->gates_cap; i++)
        for (struct snib__gate *gate = e->gates[i], *next; gate; gate = next) {
            next = gate->next;
            snib__gate_ref(gate);
            for (struct snib__hold *hold = snib__gate_first(gate), *other; hold; hold = other) {
                other = snib__gate_next(gate, hold);
                if (hold->phase == SNIB__HELD)
                    engine_close_hold(e, hold, now);
            }
            snib__gate_put(e, gate);
        }
    snib__identity_end(e, now);
}

void snib__engine_stop(struct snib__engine *e, snib__time now)
{
    for (const struct snib__node *node = e->nodes; node; node = node->next)
        snib__node_fail_ops(e, node, now);
    snib__outer_fail_ops(e, now);
}

bool snib__engine_quiet(const struct snib__engine *e)
{
    if (e->releasing > 0)
        return false;
    for (uint32_t i = 0; i < e->gates_cap; i++)
        for (const struct snib__gate *gate = e->gates[i]; gate; gate = gate->next)
            if (snib__gate_active(gate) || gate->trying)
                return false;
    return true;
}

bool snib__engine_news(const struct snib__engine *e)
{
    return e->done_head || e->lost_head || e->outers || e->log_n > 0;
}

uint64_t snib__engine_moves(const struct snib__engine *e)
{
    return e->moves;
}

void snib__engine_stats(const struct snib__engine *e, snib_client_stats_data *out)
{
    uint32_t size = out->size;
    *out = e->stats;
    out->size = size;
    out->waiting = 0;
    for (const struct snib__op *op = e->live; op; op = op->live_next)
        out->waiting += op->kind == SNIB__OP_ACQUIRE && op->waited && !op->within;
    out->memory = e->memory;
    for (const struct snib__link *link = e->links; link; link = link->next)
        out->memory += link->conn.out.cap + link->conn.ring_cap * sizeof *link->conn.ring;
}

void snib__histogram_add(uint64_t *buckets, snib__time duration)
{
    uint64_t us = duration / 1000;
    int bucket = us == 0 ? 0 : 63 - __builtin_clzll(us);
    buckets[bucket < SNIB_HISTOGRAM_BUCKETS ? bucket : SNIB_HISTOGRAM_BUCKETS - 1]++;
}

void snib__engine_log_level(struct snib__engine *e, int32_t level)
{
    e->log_level = level;
}

void snib__engine_log(struct snib__engine *e, int32_t level, const char *format, ...)
{
    va_list arguments;
    if (level > e->log_level)
        return;
    if (e->log_n == SNIB__RECORDS_MAX) { /* all holds of a client may be lost in one step */
        e->log_head = (e->log_head + 1U) % SNIB__RECORDS_MAX;
        e->log_n--;
        e->log_dropped++;
    }
    struct snib__record *record = &e->log[(e->log_head + e->log_n++) % SNIB__RECORDS_MAX];
    record->level = level;
    va_start(arguments, format);
    snib__text_say(record->text, sizeof record->text, format, arguments);
    va_end(arguments);
}

const char *snib__engine_take_log(struct snib__engine *e, int32_t *out_level)
{
    if (e->log_n == 0)
        return NULL;
    const struct snib__record *record = &e->log[e->log_head];
    e->log_head = (e->log_head + 1U) % SNIB__RECORDS_MAX;
    e->log_n--;
    *out_level = record->level;
    return record->text;
}

uint32_t snib__engine_log_dropped(struct snib__engine *e)
{
    uint32_t dropped = e->log_dropped;
    e->log_dropped = 0;
    return dropped;
}

struct snib__op *snib__engine_live(const struct snib__engine *e)
{
    return e->live;
}

static void engine_forget_sink(struct snib__hold *hold, const void *sink)
{
    if (hold->sink != sink)
        return;
    hold->sink = NULL;
    hold->tell = 0;
}

void snib__engine_forget_sink(struct snib__engine *e, const void *sink)
{
    for (uint32_t i = 0; i < e->gates_cap; i++)
        for (struct snib__gate *gate = e->gates[i]; gate; gate = gate->next) {
            for (struct snib__hold *hold = snib__gate_first(gate); hold;
                 hold = snib__gate_next(gate, hold))
                engine_forget_sink(hold, sink);
        }
}
