/* pairs.c - which faults have met.  It only looks on: no world depends on what is recorded here. */
#include "pairs.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static struct {
    snib__time window;
    snib__time recent_until[PAIRS_FAULTS]; /* 0: it has not happened in this world */
    uint64_t met[PAIRS_FAULTS];            /* in this world: for each fault, the set of others */
} world;
static bool watching;
static uint64_t worlds[PAIRS_FAULTS][PAIRS_FAULTS]; /* in which two met; the lower number first */

void pairs_watch(void)
{
    watching = true;
}

void pairs_begin(snib__time window)
{
    memset(&world, 0, sizeof world);
    world.window = window;
}

void pairs_happens(int fault, snib__time now)
{
    uint64_t met = 0;
    if (!watching) {
        return;
    }
    for (int other = 0; other < PAIRS_FAULTS; other++) {
        met |= (uint64_t)(world.recent_until[other] >= now) << other;
    }
    world.met[fault] |= met;
    if (world.recent_until[fault] < now + world.window) {
        world.recent_until[fault] = now + world.window;
    }
}

void pairs_lasts(int fault)
{
    pairs_happens(fault, 1);
    world.recent_until[fault] = SNIB__NEVER;
}

void pairs_end(void)
{
    for (int a = 0; watching && a < PAIRS_FAULTS; a++) {
        for (int b = a + 1; b < PAIRS_FAULTS; b++) {
            worlds[a][b] += (world.met[a] >> b & 1) | (world.met[b] >> a & 1);
        }
    }
}

void pairs_print(const char *const *names, int faults)
{
    for (int a = 0; a < faults; a++) {
        for (int b = a + 1; b < faults; b++) {
            printf("pair %s %s %llu\n", names[a], names[b], (unsigned long long)worlds[a][b]);
        }
    }
}

void pairs_choose(uint64_t seed, int faults, int *out_a, int *out_b)
{
    int pair = (int)(seed % (uint64_t)(faults * (faults - 1) / 2));
    int a = 0;
    for (; pair >= faults - 1 - a; a++) {
        pair -= faults - 1 - a;
    }
    *out_a = a;
    *out_b = a + 1 + pair;
}
