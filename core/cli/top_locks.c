/* top_locks.c - the locks that snib top remembers.
 *
 * A search finds their names, and may take several refreshes; they are asked about in turn.  On a server with ever new
 * names, most locks are free before ten answers say so, or even one.  So what a search over all keys has not found is free
 * unless it is asked about and is not: it has the last turn, and makes room, so that there are both for what there is. */
#include "top.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FREE_MAX 10           /* times that a lock is found free before it is forgotten */
#define ROOMY (LOCKS_MAX / 2) /* with more locks, what a search has missed is forgotten at once */
#define HOT 10 /* a lock in demand is asked about as if its turn were so many refreshes earlier */
#define OWNERS_MAX 500 /* in a description */

/* ---- Their orders ---------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp((*(struct lock *const *)a)->name, (*(struct lock *const *)b)->name);
}

/* In the order of their turns to be asked. */
static int by_turn(const void *a, const void *b)
{
    const struct lock *one = *(struct lock *const *)a, *two = *(struct lock *const *)b;
    bool is_hot_one = one->waiting > 0 || one->changes > 0;
    bool is_hot_two = two->waiting > 0 || two->changes > 0;
    if (one->is_missed != two->is_missed)
        return one->is_missed ? 1 : -1;
    int64_t turn_one = one->asked - (is_hot_one ? HOT : 0);
    int64_t turn_two = two->asked - (is_hot_two ? HOT : 0);
    return turn_one != turn_two ? (turn_one < turn_two ? -1 : 1) : by_name(a, b);
}

/* In the order in which they are shown. */
static int by_demand(const void *a, const void *b)
{
    const struct lock *one = *(struct lock *const *)a, *two = *(struct lock *const *)b;
    if (one->waiting != two->waiting)
        return one->waiting > two->waiting ? -1 : 1;
    if (one->changes != two->changes)
        return one->changes > two->changes ? -1 : 1;
    return by_name(a, b);
}

void top_sort_turn(struct top *top)
{
    top->turn_n = top->locks_n;
    memcpy(top->turn, top->locks, top->locks_n * sizeof *top->locks);
    qsort(top->turn, top->turn_n, sizeof *top->turn, by_turn);
}

/* ---- What a search finds --------------------------------------------------------------------- */

void top_begin_search(struct top *top)
{
    top->search_from = top->refresh;
    top->is_broken = top->is_full = false;
}

/* Remember a name that the search has found, for the first time or again; known_n: sorted ones before it. */
static void add_name(struct top *top, const char *name, size_t known_n)
{
    struct lock key = {.name = (char *)name}, *at = &key;
    struct lock **known = bsearch(&at, top->locks, known_n, sizeof at, by_name);
    if (known) {
        (*known)->free_n = 0; /* there is something, even if it cannot be queried */
        (*known)->is_missed = false;
        (*known)->found = top->refresh;
        return;
    }
    for (size_t i = known_n; i < top->locks_n; i++)
        if (strcmp(top->locks[i]->name, name) == 0)
            return;
    top->is_full = top->is_full || top->locks_n == LOCKS_MAX;
    if (top->locks_n == LOCKS_MAX)
        return;
    struct lock *lock = calloc(1, sizeof *lock);
    if (!lock || !(lock->name = strdup(name)))
        abort();
    lock->found = top->refresh;
    lock->waiting = lock->left_ms = -1;
    lock->total = lock->token = lock->changes = CLI_UNTOLD;
    top->locks[top->locks_n++] = lock;
}

void top_add_names(struct top *top, const snib_texts *texts)
{
    size_t known_n = top->locks_n;
    const char *at = texts->text;
    for (uint32_t i = 0; i < texts->count; i++, at += strlen(at) + 1)
        add_name(top, at, known_n);
    if (top->locks_n > known_n)
        qsort(top->locks, top->locks_n, sizeof *top->locks, by_name);
}

void top_end_search(struct top *top)
{
    for (size_t i = 0; i < top->locks_n && !top->is_broken; i++) {
        struct lock *lock = top->locks[i];
        if (lock->found >= top->search_from || lock->waiting > 0)
            continue;
        lock->is_missed = true;
        lock->free_n++;
    }
}

/* ---- What is shown, and what is forgotten ---------------------------------------------------- */

static void free_lock(struct lock *lock)
{
    free(lock->name);
    free(lock->owners);
    free(lock->holder);
    free(lock);
}

static bool is_forgotten(const struct top *top, const struct lock *lock)
{
    return lock->free_n >= FREE_MAX || (lock->is_missed && top->locks_n > ROOMY);
}

/* None of them may be in `shown` afterwards, nor in `turn`. */
static void forget_locks(struct top *top)
{
    size_t kept = 0;
    for (size_t i = 0; i < top->locks_n; i++) {
        if (is_forgotten(top, top->locks[i]))
            free_lock(top->locks[i]);
        else
            top->locks[kept++] = top->locks[i];
    }
    top->locks_n = kept;
}

void top_choose(struct top *top)
{
    forget_locks(top);
    top->turn_at = top->turn_n = 0;
    top->shown_n = 0;
    top->old_n = 0;
    for (size_t i = 0; i < top->locks_n; i++) {
        if (!top->locks[i]->kind[0] || top->locks[i]->is_missed)
            continue;
        top->shown[top->shown_n++] = top->locks[i];
        top->old_n += top->locks[i]->asked != top->refresh;
    }
    qsort(top->shown, top->shown_n, sizeof *top->shown, by_demand);
}

/* ---- What the server says of one ------------------------------------------------------------- */

static uint64_t hash_of(const char *text)
{
    uint64_t hash = 14695981039346656037U; /* FNV-1a */
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211U;
    return hash;
}

static bool has_owner(const struct lock *lock, uint64_t owner)
{
    for (size_t i = 0; i < lock->owners_n; i++)
        if (lock->owners[i] == owner)
            return true;
    return false;
}

/* Read the holders.  Returns how many were not there before. */
static int64_t take_holders(struct lock *lock, const struct description *description)
{
    static uint64_t owners[OWNERS_MAX];
    const char *at = NULL;
    struct row row;
    char only[sizeof row.owner] = "";
    size_t n = 0;
    int64_t fresh = 0;
    lock->left_ms = -1;
    while (n < OWNERS_MAX && cli_next_row(description, &at, &row)) {
        if (strcmp(row.word, "waiter") == 0)
            continue;
        if (n == 0)
            strcpy(only, row.owner);
        owners[n++] = hash_of(row.owner);
        fresh += !has_owner(lock, owners[n - 1]);
        if (row.left_ms >= 0 && (lock->left_ms < 0 || row.left_ms < lock->left_ms))
            lock->left_ms = row.left_ms;
    }
    lock->holders = (int64_t)n;
    lock->owners = realloc(lock->owners, (n + 1) * sizeof *owners);
    if (!lock->owners)
        abort();
    memcpy(lock->owners, owners, n * sizeof *owners);
    lock->owners_n = n;
    top_note_holder(lock, n == 1 && description->more <= 0 ? only : NULL);
    return fresh;
}

/* Read the numbers and the holders. */
static void take_numbers(struct lock *lock, const struct description *description)
{
    int64_t before = lock->token;
    int64_t fresh = take_holders(lock, description);
    bool is_fair = strcmp(description->kind, "fair") == 0; /* then more waiters are not told */
    bool is_cut = description->more > 0 && !is_fair;
    lock->total = description->total;
    lock->token = description->token;
    lock->waiting = description->waiting == CLI_UNTOLD ? -1 : description->waiting;
    if (lock->total != CLI_UNTOLD)
        lock->holders = lock->total - description->available;
    else if (is_cut)
        lock->holders += description->more;
    lock->changes = lock->asked == 0 || is_cut ? CLI_UNTOLD : fresh;
    int64_t granted = 0;
    if (before == CLI_UNTOLD || lock->token == CLI_UNTOLD || lock->token <= before)
        return;
    if (__builtin_sub_overflow(lock->token, before, &granted))
        granted = INT64_MAX;
    if (granted > lock->changes)
        lock->changes = granted;
}

void top_take_description(const struct top *top, struct lock *lock, int result,
                          const struct description *description)
{
    const char *kind = cli_listed_kind(lock->name, result, description);
    if (description)
        take_numbers(lock, description);
    if (description && top->stats)
        stats_note(top->stats, description);
    bool is_free = !description || strcmp(description->kind, "free") == 0;
    if (!kind && lock->waiting > 0)
        kind = "free";
    if (!is_free || lock->waiting > 0) {
        lock->free_n = 0;
        lock->is_missed = false;
    } else if (!lock->is_missed && !kind) { /* else the searches count */
        lock->free_n++;
    }
    snprintf(lock->kind, sizeof lock->kind, "%s", kind ? kind : "");
    lock->asked = top->refresh;
    lock->asked_ns = cli_now_ns();
}
