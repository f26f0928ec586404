/* top_holder.c - snib top: the process behind a lock that has one holder, as it says itself.
 *
 * It is asked about after the locks, all such processes at a time, and only for locks that this refresh has asked about,
 * that are shown, and where there is room for it.  What is known of a client is asked again now and then, for its losses;
 * what is not may be known later, because a client says it only when it has held something for a third of its lease.
 *
 * snib stats, which says all or nothing, asks about all clients instead, and has failed if the server does not answer. */
#include "top.h"

#include "terminal.h"

#include <stdlib.h>
#include <string.h>

#define UUID_N 36     /* of a client; a permit's id is shorter, and others may write anything */
#define AWAY 30       /* refreshes until the server is asked again after it refused */
#define AGAIN 5       /* refreshes until a client is asked again what it has lost */
#define ROOM 1000     /* no screen has more lines */
#define QUESTIONS 300 /* in one refresh */

void top_note_holder(struct lock *lock, const char *owner)
{
    size_t n = owner ? strcspn(owner, ":") : 0;
    if (n != UUID_N)
        n = 0;
    if (strncmp(lock->client, owner ? owner : "", n) == 0 && lock->client[n] == '\0')
        return;
    if (n > 0)
        memcpy(lock->client, owner, n);
    lock->client[n] = '\0';
    free(lock->holder);
    lock->holder = NULL;
}

static bool is_fresh(const struct top *top, const struct lock *lock)
{
    return lock->holder && top->refresh < lock->told + AGAIN;
}

/* Another lock of the same client, whose process has said lately what it is. */
static const struct lock *known(const struct top *top, const char *client)
{
    for (size_t i = 0; i < top->locks_n; i++)
        if (is_fresh(top, top->locks[i]) && strcmp(top->locks[i]->client, client) == 0)
            return top->locks[i];
    return NULL;
}

static void set_holder(struct lock *lock, const struct identity *identity, int64_t told)
{
    if (!lock->holder && !(lock->holder = malloc(sizeof *lock->holder)))
        abort();
    *lock->holder = *identity;
    lock->told = told;
}

static bool is_asked(const struct top *top, const char *client)
{
    for (size_t i = 0; i < top->turn_n; i++)
        if (strcmp(top->turn[i]->client, client) == 0)
            return true;
    return false;
}

/* How many of the shown locks have their holders shown, or at least what these have lost. */
static size_t room_of(const struct top *top)
{
    int columns = 0, rows = 0;
    size_t room = (size_t)top->cli->limit;
    if (!top->cli->is_once && !top->cli->is_json) {
        terminal_size(&columns, &rows);
        size_t lines = top_has_losses(columns) && rows > 3 ? (size_t)rows - 3 : 0;
        room = room < lines ? room : lines;
        room = room < ROOM ? room : ROOM;
    }
    return room < top->shown_n ? room : top->shown_n;
}

void top_begin_holders(struct top *top)
{
    size_t room = top->stats || top->refresh < top->holders_from ? 0 : room_of(top);
    top->phase = ASKING_HOLDERS;
    top->turn_at = top->turn_n = 0;
    if (top->stats && top->err.code == SNIB_OK)
        top->turn_n = stats_clients(top->stats);
    for (size_t i = 0; i < room; i++) {
        struct lock *lock = top->shown[i];
        const struct lock *other;
        if (!lock->client[0] || is_fresh(top, lock) || lock->asked != top->refresh)
            continue;
        if ((other = known(top, lock->client)))
            set_holder(lock, other->holder, other->told);
        else if (!is_asked(top, lock->client) && (top->turn_n < QUESTIONS || top->cli->is_once))
            top->turn[top->turn_n++] = lock;
    }
}

void top_ask_holder(struct top *top)
{
    size_t i = top->turn_at++;
    const char *client = top->stats ? stats_client(top->stats, i) : top->turn[i]->client;
    snib_error err;
    int result =
        snib_client_identity_submit(top->client, client, strlen(client), top->queue, i, NULL, &err);
    top->open_n += result == SNIB_OK;
    if (result != SNIB_OK && !top_postpone(top, result) && top->stats)
        top_fail(top, result, err.text);
}

/* All locks whose only holder is this client's. */
static void note_identity(struct top *top, const char *client, const snib_texts *texts)
{
    struct identity identity = {.is_known = false};
    cli_read_identity(texts->text, texts->used, &identity);
    for (size_t i = 0; identity.is_known && i < top->shown_n; i++)
        if (!is_fresh(top, top->shown[i]) && strcmp(top->shown[i]->client, client) == 0)
            set_holder(top->shown[i], &identity, top->refresh);
}

void top_hear_holder(struct top *top, const snib_event *event)
{
    if (event->code == SNIB_OK && top->stats) {
        stats_hear_client(top->stats, event->token, event->texts);
    } else if (event->code == SNIB_OK) {
        note_identity(top, top->turn[event->token]->client, event->texts);
    } else if (event->code != SNIB_EWRONGTYPE) { /* else somebody has overwritten only this one */
        if (top->stats && event->code != SNIB_EPERM)
            top_fail(top, event->code, event->text);
        top->turn_at = top->turn_n;
        top->holders_from = top->refresh + AWAY;
    }
}
