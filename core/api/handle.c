/* handle.c - see handle.h.
 *
 * One atomic word per slot decides everything:
 *
 *     63..32 generation | 31 ended | 30..27 kind | 26..0 references
 *
 *     state     word            left by
 *     free      (g, 1, 0)       new:   object stored, then (g, 0, 1)
 *     live      (g, 0, n > 0)   get:   n + 1;  put: n - 1;  take: (g, 1, n)
 *     ended     (g, 1, n > 0)   put:   n - 1;  at 0 destroy, then free with g + 1
 *
 * A live slot has n >= 1 because the handle owns a reference, so only an ended one can reach 0, and
 * it does so once.  A slot whose generations are used up is not used again (16 bytes in 2^32
 * handles).
 *
 * Free slots are linked through their object fields; the list and the table's growth are guarded by
 * handle_mutex.  It is not held over a fork, in which handlers of the program may take their time:
 * whoever makes a handle may have a client's mutex, under which leases are renewed.  So a fork may
 * cut any change in two.  The stores of each are ordered such that at every point what is on the
 * list is free, and in the table; the child may lose the slot, or the new chunk, that was about to
 * be put there.  References of threads that do not exist in the child are never put there: their
 * objects stay, unused.
 */
#include "api/handle.h"

#include <assert.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>

_Static_assert(sizeof(void *) == 8, "a handle needs 64 bits");

#define HANDLE_ENDED 0x80000000U
#define HANDLE_KIND_SHIFT 27
#define HANDLE_REFERENCES ((1U << HANDLE_KIND_SHIFT) - 1)
#define HANDLE_KINDS 16
#define HANDLE_CHUNK_BITS 8 /* the first chunk has 256 slots, each next one twice as many */
#define HANDLE_CHUNKS (28 - HANDLE_CHUNK_BITS)
#define HANDLE_NO_SLOT UINT32_MAX

struct handle_slot {
    _Atomic uint64_t word;
    union {
        _Atomic(void *) object;     /* live and ended: constant */
        _Atomic uint32_t next_free; /* free: guarded by handle_mutex */
    };
};

_Static_assert(sizeof(struct handle_slot) == 16, "16 bytes a slot");

_Atomic uint32_t snib__fork_generation;

static pthread_mutex_t handle_mutex = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(struct handle_slot *) handle_chunks[HANDLE_CHUNKS];
/* Guarded by handle_mutex; atomic because of forks. */
static _Atomic uint32_t handle_chunks_used, handle_first_free = HANDLE_NO_SLOT;
static _Atomic(void (*)(void *)) handle_destroy[HANDLE_KINDS];

static pthread_once_t handle_fork_once = PTHREAD_ONCE_INIT;
static int handle_fork_result;
static _Atomic bool handle_fork_known; /* a fork has met the handlers: they are registered */

/* The forking thread is between the handlers of this file, the last of Snib's before a fork and the first after it: what
 * runs there are handlers that the program registered before Snib's.  The list of clients is locked, and to the child all
 * that it inherits still looks like its own. */
static _Atomic uint32_t handle_forking;  /* so many threads are there */
static _Thread_local bool handle_within; /* this one is */

/* ---- Fork ------------------------------------------------------------------------------------ */

static void handle_fork_prepare(void)
{
    handle_fork_known = true;
    handle_within = true;
    atomic_fetch_add_explicit(&handle_forking, 1, memory_order_relaxed);
}

static void handle_fork_parent(void)
{
    handle_within = false;
    atomic_fetch_sub_explicit(&handle_forking, 1, memory_order_relaxed);
}

/* A thread that is not in the child may have had the mutex. */
static void handle_fork_child(void)
{
    pthread_mutex_init(&handle_mutex, NULL);
    atomic_fetch_add_explicit(&snib__fork_generation, 1, memory_order_relaxed);
    handle_within = false;
    atomic_store_explicit(&handle_forking, 0, memory_order_relaxed);
}

static void handle_fork_register(void)
{
    if (!handle_fork_known)
        handle_fork_result =
            pthread_atfork(handle_fork_prepare, handle_fork_parent, handle_fork_child);
}

int snib__fork_init(void)
{
    pthread_once(&handle_fork_once, handle_fork_register);
    return handle_fork_result;
}

bool snib__fork_within(void)
{
    return atomic_load_explicit(&handle_forking, memory_order_relaxed) && handle_within;
}

/* ---- Slots ----------------------------------------------------------------------------------- */

/* The slot of an index, or NULL if the table has not grown that far. */
static struct handle_slot *handle_slot_at(uint32_t index)
{
    uint32_t n = index + (1U << HANDLE_CHUNK_BITS);
    uint32_t chunk = 31U - (uint32_t)__builtin_clz(n) - HANDLE_CHUNK_BITS;
    if (chunk >= HANDLE_CHUNKS)
        return NULL;
    struct handle_slot *slots = atomic_load_explicit(&handle_chunks[chunk], memory_order_acquire);
    return slots ? &slots[n - (1U << (chunk + HANDLE_CHUNK_BITS))] : NULL;
}

static uint32_t handle_index_of(const void *handle)
{
    return (uint32_t)((uintptr_t)handle >> 32) & 0x0fffffffU;
}

static struct handle_slot *handle_slot_of(const void *handle)
{
    return handle_slot_at(handle_index_of(handle));
}

static int handle_kind_of(const void *handle)
{
    return (int)((uintptr_t)handle >> 60);
}

static uint32_t handle_free_slot(void)
{
    return atomic_load_explicit(&handle_first_free, memory_order_relaxed);
}

/* After what was stored before, also to the child of a fork. */
static void handle_begin_list(uint32_t index)
{
    atomic_store_explicit(&handle_first_free, index, memory_order_release);
}

/* Add a chunk to the free list, which is empty, lowest index first.  Caller holds handle_mutex. */
static int handle_grow(void)
{
    uint32_t used = atomic_load_explicit(&handle_chunks_used, memory_order_relaxed);
    if (used == HANDLE_CHUNKS)
        return 0;
    uint32_t count = 1U << (used + HANDLE_CHUNK_BITS);
    uint32_t base = count - (1U << HANDLE_CHUNK_BITS);
    struct handle_slot *slots = malloc(count * sizeof *slots);
    if (!slots)
        return 0;
    for (uint32_t i = 0; i < count; i++) {
        atomic_init(&slots[i].word, (uint64_t)1 << 32 | HANDLE_ENDED);
        atomic_init(&slots[i].next_free, i + 1 < count ? base + i + 1 : HANDLE_NO_SLOT);
    }
    atomic_store_explicit(&handle_chunks[used], slots, memory_order_release);
    atomic_store_explicit(&handle_chunks_used, used + 1, memory_order_release);
    handle_begin_list(base);
    return 1;
}

/* Return an ended slot without references to the free list. */
static void handle_recycle(struct handle_slot *slot, uint32_t index, uint32_t generation)
{
    if (generation == UINT32_MAX)
        return;
    pthread_mutex_lock(&handle_mutex);
    atomic_store_explicit(&slot->next_free, handle_free_slot(), memory_order_relaxed);
    atomic_store_explicit(&slot->word, (uint64_t)(generation + 1) << 32 | HANDLE_ENDED,
                          memory_order_relaxed);
    handle_begin_list(index);
    pthread_mutex_unlock(&handle_mutex);
}

static void *handle_object(struct handle_slot *slot)
{
    return atomic_load_explicit(&slot->object, memory_order_relaxed);
}

/* Whether a slot's object is live and the one that the handle was made for.  The slot knows its
 * kind, too: a handle is a number, and a damaged one must not turn a hold into a client. */
static bool handle_matches(uint64_t word, int kind, const void *handle)
{
    return (uint32_t)(word >> 32) == (uint32_t)(uintptr_t)handle && !(word & HANDLE_ENDED) &&
           (word >> HANDLE_KIND_SHIFT) % HANDLE_KINDS == (uint64_t)kind;
}

/* ---- Handles --------------------------------------------------------------------------------- */

void *snib__handle_new(int kind, void *object)
{
    assert(kind > 0 && kind < HANDLE_KINDS && object);
    if (snib__fork_init() != 0)
        return NULL;
    pthread_mutex_lock(&handle_mutex);
    if (handle_free_slot() == HANDLE_NO_SLOT && !handle_grow()) {
        pthread_mutex_unlock(&handle_mutex);
        return NULL;
    }
    uint32_t index = handle_free_slot();
    struct handle_slot *slot = handle_slot_at(index);
    handle_begin_list(atomic_load_explicit(&slot->next_free, memory_order_relaxed));
    pthread_mutex_unlock(&handle_mutex);

    uint64_t generation = atomic_load_explicit(&slot->word, memory_order_relaxed) >> 32;
    /* Not before the slot is off the list, also to the child of a fork: it was the link there. */
    atomic_store_explicit(&slot->object, object, memory_order_release);
    atomic_store_explicit(&slot->word, generation << 32 | (uint64_t)kind << HANDLE_KIND_SHIFT | 1,
                          memory_order_release);
    return (void *)((uintptr_t)kind << 60 | (uintptr_t)index << 32 | (uintptr_t)generation);
}

void snib__handle_bind(const void *handle, void *object)
{
    atomic_store_explicit(&handle_slot_of(handle)->object, object, memory_order_relaxed);
}

void *snib__handle_get(int kind, const void *handle)
{
    struct handle_slot *slot = handle_slot_of(handle);
    if (handle_kind_of(handle) != kind || !slot || snib__fork_within())
        return NULL;
    uint64_t word = atomic_load_explicit(&slot->word, memory_order_relaxed);
    do {
        if (!handle_matches(word, kind, handle))
            return NULL;
        assert((word & HANDLE_REFERENCES) < HANDLE_REFERENCES);
    } while (!atomic_compare_exchange_weak_explicit(&slot->word, &word, word + 1,
                                                    memory_order_acquire, memory_order_relaxed));
    return handle_object(slot);
}

void snib__handle_put(const void *handle)
{
    struct handle_slot *slot = handle_slot_of(handle);
    uint64_t before = atomic_fetch_sub_explicit(&slot->word, 1, memory_order_acq_rel);
    assert((uint32_t)(before >> 32) == (uint32_t)(uintptr_t)handle);
    assert((before & HANDLE_REFERENCES) > 0);
    if (!(before & HANDLE_ENDED) || (before & HANDLE_REFERENCES) != 1)
        return;
    void (*destroy)(void *) =
        atomic_load_explicit(&handle_destroy[handle_kind_of(handle)], memory_order_acquire);
    if (destroy)
        destroy(handle_object(slot));
    handle_recycle(slot, handle_index_of(handle), (uint32_t)(before >> 32));
}

void *snib__handle_take(int kind, const void *handle)
{
    struct handle_slot *slot = handle_slot_of(handle);
    if (handle_kind_of(handle) != kind || !slot || snib__fork_within())
        return NULL;
    uint64_t word = atomic_load_explicit(&slot->word, memory_order_relaxed);
    do {
        if (!handle_matches(word, kind, handle))
            return NULL;
    } while (!atomic_compare_exchange_weak_explicit(&slot->word, &word, word | HANDLE_ENDED,
                                                    memory_order_acquire, memory_order_relaxed));
    return handle_object(slot);
}

void snib__handle_free_fn(int kind, void (*destroy)(void *object))
{
    assert(kind > 0 && kind < HANDLE_KINDS);
    atomic_store_explicit(&handle_destroy[kind], destroy, memory_order_release);
}
