/* calls.h - steps of a program that are the same for every target: what the user of a client calls. */
#ifndef SNIB_TESTS_FUZZ_CALLS_H
#define SNIB_TESTS_FUZZ_CALLS_H

#include "party.h"

#define CALLS 10 /* step codes below this are calls */

/* The locks of a target, at the gates of a party. */
struct call_lock {
    int32_t kind;
    const char *name;
    size_t n;
};

void calls_gates(struct party *p, const struct call_lock *locks, unsigned n);

/* A step whose first byte, modulo 32, is below CALLS.  Returns whether it may change data at the server
 * that others hold: a forced release, a counter. */
bool calls_step(struct party *p, unsigned gates, const uint8_t step[STEP]);

/* One of the spans in which the engine's clocks think, by number. */
snib__time calls_span(unsigned which);

/* A target's server: what may happen at a pipe now does; false: nothing could. */
typedef bool calls_serve(struct party *p, struct pipe *pipe);

/* Everything that can happen now does; then as time passes, up to a number of moments. */
void calls_settle(struct party *p, calls_serve *serve);
void calls_run(struct party *p, calls_serve *serve, snib__time span, unsigned moments);

/* Cancel and drop everything. */
void calls_leave_all(struct party *p);

/* Nobody wants anything, some time after that: nothing is left but recent releases (given.c), which keep
 * their gates. */
void calls_check_rest(const struct party *p);

#endif
