/* peers.c - see peers.h.
 *
 * Each edge is a note on the board of its database (engine/board.c), once for all processes that have it:
 *
 *     w0123456789abcdefr0123456789abcdef "a" TAB "b" TAB orders.c:31 TAB orders.c:32 TAB orders (pid 7 on web1)
 *
 * The word is how each lock is taken, reading or writing, and a hash of its name: the note has the name only as it is
 * shown.  What is on the board is known here from the last time that it was read.  Edges of this process that it does
 * not have, or not for long any more, are left on it: at once if one is new, and otherwise with the look that any
 * process with edges takes now and then.  So a lost answer, a deleted key and a dead process that had left a note for
 * others need no care.
 *
 * Edges between the locks of two servers are not told: a server has another name in each process. */
#include "api/peers.h"

#include "net/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PEERS_PERIOD (5000 * SNIB__MS)
#define PEERS_NOTES 16384 /* bytes that are sent at once */
#define PEERS_NOTE 1024   /* the longest that is read */
#define PEERS_WORD 34

/* A server at whose locks this process has edges; they stay. */
struct peers_server {
    struct peers_server *next;
    uint64_t server;
    snib__time due; /* 0: there is something new */
};

static struct peers_server *peers_servers;

static struct peers_server *peers_find(uint64_t server)
{
    struct peers_server *at = peers_servers;
    while (at && at->server != server)
        at = at->next;
    return at;
}

void snib__peers_self(char out[SNIB__PROCESS_CAP], const char *label)
{
    enum { WORD = 33 };
    char host[256] = "", shown_host[WORD], shown_name[WORD];
    const char *name = label && label[0] ? label : program_invocation_short_name;
    if (gethostname(host, sizeof host - 1) != 0)
        snprintf(host, sizeof host, "an unknown host");
    snib__text_show(shown_name, sizeof shown_name, name, strlen(name));
    snib__text_show(shown_host, sizeof shown_host, host, strlen(host));
    snprintf(out, SNIB__PROCESS_CAP, "%s (pid %lld on %s)", shown_name, (long long)getpid(),
             shown_host);
}

void snib__peers_news(const struct snib__order_name *held, const struct snib__order_name *taken)
{
    if (held->server != taken->server)
        return;
    struct peers_server *at = peers_find(held->server);
    if (!at && (at = calloc(1, sizeof *at))) {
        at->server = held->server;
        at->next = peers_servers;
        peers_servers = at;
    }
    if (at)
        at->due = 0;
}

void snib__peers_lose(void)
{
    peers_servers = NULL;
}

/* ---- to others ---- */

struct peers_notes {
    const char *process;
    size_t used;
    char text[PEERS_NOTES];
};

static bool peers_note(void *context, const struct snib__order_pair *pair)
{
    struct peers_notes *notes = context;
    size_t room = sizeof notes->text - notes->used;
    int n = snprintf(notes->text + notes->used, room, "%c%016llx%c%016llx %s\t%s\t%s\t%s\t%s\n",
                     pair->held->reads ? 'r' : 'w', (unsigned long long)pair->held->name,
                     pair->taken->reads ? 'r' : 'w', (unsigned long long)pair->taken->name,
                     pair->held->shown, pair->taken->shown, pair->held_place, pair->taken_place,
                     notes->process);
    if (n < 0 || (size_t)n >= room)
        return false; /* the next time */
    notes->used += (size_t)n;
    return true;
}

void snib__peers_write(struct snib__engine *engine, uint64_t server, const char *process,
                       snib__time now)
{
    struct peers_server *at = peers_find(server);
    if (!at || now < at->due || !snib__engine_board_ready(engine, now))
        return;
    struct peers_notes *notes = malloc(sizeof *notes);
    if (!notes)
        return;
    notes->process = process;
    notes->used = 0;
    snib__order_tell(server, now + SNIB__BOARD_LEASE / 2 * 1000 * SNIB__MS, peers_note, notes);
    snib__engine_board(engine, notes->text, notes->used, now);
    at->due = now + PEERS_PERIOD;
    free(notes);
}

/* ---- from others ---- */

/* A second since 1970, and what follows it; -1: it is none. */
static int64_t peers_second(const char *at, const char **out_after)
{
    int64_t second = 0;
    const char *from = at;
    for (; *at >= '0' && *at <= '9' && at - from < 12; at++)
        second = second * 10 + (*at - '0');
    *out_after = at;
    return at == from ? -1 : second;
}

/* "w0123456789abcdef" */
static bool peers_name(const char *word, uint64_t server, struct snib__order_name *out)
{
    *out = (struct snib__order_name){.server = server, .reads = word[0] == 'r'};
    for (int i = 1; i <= 16; i++) {
        const char *digits = "0123456789abcdef", *digit = word[i] ? strchr(digits, word[i]) : NULL;
        if (!digit)
            return false;
        out->name = out->name << 4 | (uint64_t)(digit - digits);
    }
    return word[0] == 'r' || word[0] == 'w';
}

/* The bytes up to the next tab, or to the end, as clean text; false: there are none. */
static bool peers_field(const char **at, const char *end, char *out, size_t cap)
{
    if (*at >= end)
        return false;
    const char *tab = memchr(*at, '\t', (size_t)(end - *at)), *stop = tab ? tab : end;
    snib__text_show(out, cap, *at, (size_t)(stop - *at));
    *at = tab ? tab + 1 : end;
    return out[0] != 0;
}

/* One note, which ends at *end: "1732590110 w...w... ...". */
static void peers_hear(const char *at, const char *end, uint64_t server, int64_t server_now,
                       snib__time now, snib__peers_tell *tell, void *context)
{
    struct snib__order_name held, taken;
    char held_place[SNIB__SITE_CAP], taken_place[SNIB__SITE_CAP], process[SNIB__PROCESS_CAP];
    struct snib__order_circle circle;
    const char *word;
    int64_t left = peers_second(at, &word) - server_now;
    if (*word++ != ' ' || end - word <= PEERS_WORD || word[PEERS_WORD] != ' ' || left <= 0 ||
        left > SNIB__BOARD_LEASE || !peers_name(word, server, &held) ||
        !peers_name(word + PEERS_WORD / 2, server, &taken))
        return;
    at = word + PEERS_WORD + 1;
    if (!peers_field(&at, end, held.shown, sizeof held.shown) ||
        !peers_field(&at, end, taken.shown, sizeof taken.shown) ||
        !peers_field(&at, end, held_place, sizeof held_place) ||
        !peers_field(&at, end, taken_place, sizeof taken_place) ||
        !peers_field(&at, end, process, sizeof process) || at < end)
        return;
    struct snib__order_pair pair = {&held, &taken, held_place, taken_place, process};
    if (snib__order_hear(&pair, now + (snib__time)left * 1000 * SNIB__MS, &circle))
        tell(context, &circle);
}

void snib__peers_read(struct snib__engine *engine, uint64_t server, snib__time now,
                      snib__peers_tell *tell, void *context)
{
    size_t n;
    char *board = snib__engine_board_read(engine, &n);
    const char *at, *end;
    if (!board)
        return;
    board[n] = 0;
    int64_t server_now = peers_second(board, &at);
    snib__order_listen(server);
    for (; (end = memchr(at, '\n', (size_t)(board + n - at))); at = end + 1)
        if (end - at < PEERS_NOTE && server_now > 0)
            peers_hear(at, end, server, server_now, now, tell, context);
    snib__order_heard(server);
    free(board);
}
