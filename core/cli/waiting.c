/* waiting.c - see waiting.h.
 *
 * One name after the other is asked about, or one server of a quorum after the other, until one is held.  If none is,
 * the lock was free for a moment, and the next round begins a second later. */
#include "waiting.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void waiting_begin(struct waiting *waiting, const struct cli *cli, snib_client *const *clients,
                   snib_queue *const *queues, uint64_t token)
{
    *waiting = (struct waiting){.cli = cli, .clients = clients, .queues = queues, .token = token};
    bool is_short = cli->wait_ms >= 0 && cli->wait_ms * MS_NS <= SECOND_NS;
    waiting->next_ns = cli->is_quiet || is_short ? INT64_MAX : cli_now_ns() + SECOND_NS;
}

void waiting_end(struct waiting *waiting)
{
    waiting->next_ns = INT64_MAX;
    waiting->at = -1;
}

int waiting_left_ms(const struct waiting *waiting)
{
    if (waiting->next_ns == INT64_MAX)
        return -1;
    int64_t left_ns = waiting->next_ns - cli_now_ns();
    return left_ns > 0 ? (int)(left_ns / MS_NS) + 1 : 0;
}

static bool is_quorum(const struct waiting *waiting)
{
    return waiting->cli->urls_n > 1;
}

static const char *name_of(const struct waiting *waiting)
{
    return waiting->cli->names[is_quorum(waiting) ? 0 : waiting->at];
}

/* Ask about the present name, or the present server about the only name. */
static void ask(struct waiting *waiting)
{
    const char *name = name_of(waiting);
    int i = is_quorum(waiting) ? waiting->at : 0;
    waiting->next_ns = INT64_MAX;
    if (snib_client_describe_submit(waiting->clients[i], name, strlen(name), waiting->queues[i],
                                    waiting->token, NULL, NULL) != SNIB_OK)
        waiting_end(waiting); /* nobody is told, but the wait continues */
}

void waiting_look(struct waiting *waiting)
{
    if (waiting->next_ns == INT64_MAX || cli_now_ns() < waiting->next_ns)
        return;
    waiting->why[0] = '\0';
    ask(waiting);
}

/* Whether it is a hold of this client, which takes locks one after the other if no single command can take them.  The
 * first half of a permit's id is that of its client's. */
static bool is_own(const struct row *row, const char *uuid)
{
    const char *owner = row->owner;
    if (strcmp(row->word, "permit") != 0)
        return strncmp(owner, uuid, strlen(uuid)) == 0;
    return strncmp(owner, uuid, 8) == 0 && strncmp(owner + 8, uuid + 9, 4) == 0 &&
           strncmp(owner + 12, uuid + 14, 4) == 0;
}

/* The first holder, and how many there are; 0: the lock is free, or is not waited for any more. */
static int64_t find_holders(const struct description *description, snib_client *client,
                            struct row *out)
{
    const char *at = NULL;
    struct row row;
    char uuid[37];
    int64_t n = 0;
    if (snib_client_id(client, uuid, NULL) != SNIB_OK)
        return 0;
    while (description->available <= 0 && cli_next_row(description, &at, &row)) {
        if (strcmp(row.word, "waiter") == 0)
            continue;
        if (is_own(&row, uuid))
            return 0;
        if (n++ == 0)
            *out = row;
    }
    return n > 0 && description->more > 0 ? n + description->more : n;
}

/* texts: what the holder says about its process; NULL: it is not known. */
static void tell(struct waiting *waiting, const snib_texts *texts)
{
    const struct row *holder = &waiting->holder;
    const char *name = name_of(waiting);
    const int64_t n = waiting->holders;
    struct identity identity = {.is_known = false};
    char lease[64] = "no lease";
    char more[48] = "", process[CLI_IDENTITY_MAX] = "", since[CLI_TIME_MAX], taken[CLI_TAKEN_MAX];
    char *text;
    if (texts)
        cli_read_identity(texts->text, texts->used, &identity);
    if (identity.is_known)
        cli_write_identity(&identity, process, sizeof process);
    if (holder->left_ms >= 0)
        snprintf(lease, sizeof lease, "lease ends in %" PRId64 ".%03d s", holder->left_ms / 1000,
                 (int)(holder->left_ms % 1000));
    cli_write_time(cli_held_since(&identity, holder->owner), since);
    cli_write_taken(&identity, holder->owner, taken);
    if (n > 1)
        snprintf(more, sizeof more, " and %" PRId64 " more", n - 1);
    if (asprintf(&text, "waiting for %s, held by %s%s%s%s (%s%s%s%s%s)%s", name,
                 strcmp(holder->word, "permit") == 0 ? "permit " : "", holder->owner,
                 since[0] ? " since " : "", since, lease, process[0] ? "; " : "", process,
                 taken[0] ? "; " : "", taken, more) < 0)
        abort();
    cli_tell_waiting(waiting->cli, text, name, holder->owner, identity.is_known ? &identity : NULL);
    free(text);
}

/* There is a holder: ask which process it is, and tell it with the answer. */
static void found(struct waiting *waiting, const struct row *holder, int64_t n)
{
    int i = is_quorum(waiting) ? waiting->at : 0;
    waiting->holder = *holder;
    waiting->holders = n;
    if (strcmp(holder->word, "permit") != 0 &&
        snib_client_identity_submit(waiting->clients[i], holder->owner, strlen(holder->owner),
                                    waiting->queues[i], waiting->token, NULL, NULL) == SNIB_OK)
        return;
    tell(waiting, NULL);
    waiting_end(waiting);
}

/* The answer to that. */
static void hear_identity(struct waiting *waiting, const snib_event *event)
{
    if (waiting->at >= 0)
        tell(waiting, event->code == SNIB_OK ? event->texts : NULL);
    if (event->code == SNIB_OK)
        snib_texts_free(event->texts);
    waiting_end(waiting);
}

static void tell_unknown(struct waiting *waiting)
{
    const char *name = waiting->why[0] ? waiting->unknown : waiting->cli->names[0];
    const char *why = waiting->why[0] ? waiting->why
                                      : "no server reports one; a server that is new to this lock "
                                        "or was restarted votes after one lease";
    char *text;
    if (asprintf(&text, "waiting for %s, its holder is unknown: %s", name, why) < 0)
        abort();
    cli_tell_waiting(waiting->cli, text, name, NULL, NULL);
    free(text);
}

/* What holds the present name cannot be known. */
static void note_unknown(struct waiting *waiting, const char *why)
{
    snprintf(waiting->why, sizeof waiting->why, "%s", why);
    waiting->unknown = name_of(waiting);
}

/* No name was held in this round. */
static void end_round(struct waiting *waiting)
{
    bool is_unknown = waiting->why[0] != '\0' || (is_quorum(waiting) && waiting->rounds++ > 0);
    if (is_unknown)
        tell_unknown(waiting);
    waiting->at = 0;
    waiting->next_ns = is_unknown ? INT64_MAX : cli_now_ns() + SECOND_NS;
}

void waiting_hear(struct waiting *waiting, const snib_event *event)
{
    static struct description description;
    struct row holder;
    int64_t n = 0;
    if (waiting->holders > 0) {
        hear_identity(waiting, event);
        return;
    }
    if (waiting->at >= 0 && event->code != SNIB_OK) {
        note_unknown(waiting, event->text);
    } else if (waiting->at >= 0) {
        cli_read_description(event->texts, &description);
        n = find_holders(&description, waiting->clients[is_quorum(waiting) ? waiting->at : 0],
                         &holder);
        if (strcmp(description.kind, "other") == 0 || strcmp(description.kind, "counter") == 0)
            note_unknown(waiting, "the key has another program's data, which may be its lock");
    }
    if (event->code == SNIB_OK)
        snib_texts_free(event->texts);
    if (waiting->at < 0) /* it is held by now */
        return;
    if (n > 0) {
        found(waiting, &holder, n);
    } else if (++waiting->at <
               (is_quorum(waiting) ? waiting->cli->urls_n : waiting->cli->names_n)) {
        ask(waiting);
    } else {
        end_round(waiting);
    }
}
