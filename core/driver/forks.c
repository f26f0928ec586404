#include "driver/forks.h"

#include "driver/park.h"
#include "driver/sys.h"

#include <errno.h>
#include <stdlib.h>

/* For so long, from its begin, a fork waits for a call; for a lookup, less. */
#define FORKS_CALL (2000 * SNIB__MS)
#define FORKS_LOOKUP (100 * SNIB__MS)
/* So long a call waits for a fork: the thread that forks may have been stopped. */
#define FORKS_PATIENCE (500 * SNIB__MS)

#define FORKS_CLOSED 0x80000000u

/* How many threads are inside; FORKS_CLOSED: a thread forks. */
static _Atomic uint32_t forks_word, forks_lookups;
static _Atomic snib__time forks_entered, forks_looked; /* when the last one began */
static _Thread_local uint32_t forks_depth, forks_looks;

/* ---- Calls that are not cut in two ---- */

void snib__forks_enter(void)
{
    if (forks_depth++ > 0)
        return;
    snib__time until = 0;
    uint32_t word = atomic_load(&forks_word);
    do {
        while ((word & FORKS_CLOSED) && (until == 0 || snib__now() < until)) {
            until = until ? until : snib__now() + FORKS_PATIENCE;
            snib__park(&forks_word, word, until);
            word = atomic_load(&forks_word);
        }
        atomic_store(&forks_entered, snib__now());
    } while (!atomic_compare_exchange_weak(&forks_word, &word, word + 1));
}

void snib__forks_leave(void)
{
    if (--forks_depth == 0 && atomic_fetch_sub(&forks_word, 1) & FORKS_CLOSED)
        snib__unpark_all(&forks_word);
}

void snib__forks_lookup(bool begins)
{
    if (begins)
        atomic_store(&forks_looked, snib__now());
    atomic_fetch_add(&forks_lookups, begins ? 1 : -1u);
    forks_looks = begins;
}

/* The forking thread may be inside itself: in a handler of a signal, or in a module of the resolver. */
static uint32_t forks_mine(void)
{
    return forks_depth > 0;
}

/* Until when a fork waits for those that are inside; 0: there are none. */
static snib__time forks_until(uint32_t word, snib__time latest)
{
    uint32_t n = (word & ~FORKS_CLOSED) - forks_mine();
    if (n == 0)
        return 0;
    snib__time until = n > atomic_load(&forks_lookups) ? atomic_load(&forks_entered) + FORKS_CALL
                                                       : atomic_load(&forks_looked) + FORKS_LOOKUP;
    return until < latest ? until : latest;
}

void snib__forks_prepare(void)
{
    uint32_t word = atomic_fetch_or(&forks_word, FORKS_CLOSED) | FORKS_CLOSED;
    const snib__time latest = snib__now() + FORKS_CALL; /* also if others lose their patience */
    for (snib__time until; snib__now() < (until = forks_until(word, latest));) {
        snib__park(&forks_word, word, until);
        word = atomic_load(&forks_word);
    }
}

void snib__forks_parent(void)
{
    atomic_fetch_and(&forks_word, ~FORKS_CLOSED);
    snib__unpark_all(&forks_word);
}

/* ---- Descriptors that the child does not keep ---- */

/* One bit for each number, in chunks; the first has FORKS_BITS, each next one twice as many.  A chunk is
 * never freed. */
#define FORKS_SHIFT 10
#define FORKS_BITS (1u << FORKS_SHIFT)
#define FORKS_WORD 64u
#define FORKS_CHUNKS (32 - FORKS_SHIFT)

static _Atomic uint64_t forks_first[FORKS_BITS / FORKS_WORD];
static _Atomic(_Atomic uint64_t *) forks_chunks[FORKS_CHUNKS] = {forks_first};

static uint32_t forks_words(uint32_t chunk)
{
    return (FORKS_BITS << chunk) / FORKS_WORD;
}

static _Atomic uint64_t *forks_grow(uint32_t chunk)
{
    _Atomic uint64_t *made = calloc(forks_words(chunk), sizeof *made), *other = NULL;
    if (made && !atomic_compare_exchange_strong(&forks_chunks[chunk], &other, made))
        free(made);
    return other ? other : made;
}

/* The word that has the descriptor's bit; NULL: there is none (yet), or no memory for it. */
static _Atomic uint64_t *forks_find(int fd, bool grow, uint64_t *out_bit)
{
    uint32_t n = (uint32_t)fd + FORKS_BITS;
    uint32_t chunk = 31u - (uint32_t)__builtin_clz(n) - FORKS_SHIFT;
    uint32_t at = n - (FORKS_BITS << chunk);
    _Atomic uint64_t *words = atomic_load(&forks_chunks[chunk]);
    if (!words && grow)
        words = forks_grow(chunk);
    *out_bit = (uint64_t)1 << at % FORKS_WORD;
    return words ? words + at / FORKS_WORD : NULL;
}

int snib__forks_keep(int fd)
{
    uint64_t bit;
    if (fd < 0)
        return fd;
    _Atomic uint64_t *word = forks_find(fd, true, &bit);
    if (word) {
        atomic_fetch_or(word, bit);
        return fd;
    }
    snib__sys_close(fd);
    errno = ENOMEM;
    return -1;
}

void snib__forks_drop(int fd)
{
    uint64_t bit;
    _Atomic uint64_t *word = forks_find(fd, false, &bit);
    if (word)
        atomic_fetch_and(word, ~bit);
}

static void forks_close(_Atomic uint64_t *words, uint32_t chunk)
{
    const uint32_t first = (FORKS_BITS << chunk) - FORKS_BITS;
    for (uint32_t i = 0; i < forks_words(chunk); i++)
        for (uint64_t bits = atomic_exchange(&words[i], 0); bits; bits &= bits - 1)
            snib__sys_close((int)(first + i * FORKS_WORD + (uint32_t)__builtin_ctzll(bits)));
}

void snib__forks_child(void)
{
    atomic_store(&forks_word, forks_mine());
    atomic_store(&forks_lookups, forks_looks);
    for (uint32_t chunk = 0; chunk < FORKS_CHUNKS; chunk++) {
        _Atomic uint64_t *words = atomic_load(&forks_chunks[chunk]);
        if (words)
            forks_close(words, chunk);
    }
}
