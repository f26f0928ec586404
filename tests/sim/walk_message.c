/* walk_message.c - the link for messages: subscriptions are confirmed or refused, and messages come that may be those of
 * any release, or of none. */
#include "net/script.h"
#include "walk.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS 3

/* Take a command's first words from the front of the output.  False: there is none. */
static bool take_command(struct snib__buf *out, char words[WORDS][SNIB__CHANNEL_MAX])
{
    char *at = out->data + out->head;
    if (snib__buf_size(out) == 0) {
        return false;
    }
    long n = strtol(at + 1, &at, 10);
    at += 2;
    memset(words, 0, WORDS * sizeof words[0]);
    for (long i = 0; i < n; i++) {
        long length = strtol(at + 1, &at, 10);
        at += 2;
        if (i < WORDS) {
            snprintf(words[i], sizeof words[i], "%.*s", (int)length, at);
        }
        at += length + 2;
    }
    snib__buf_consume(out, (size_t)(at - out->data - (long)out->head));
    return true;
}

static void say(struct snib__link *link, const char *text)
{
    walk_trace("on the link for messages: %.*s", (int)strcspn(text, "\r"), text);
    snib__engine_input(walk.engine, link, text, strlen(text), walk.now);
}

/* Answer one command. */
void message_answer(struct snib__link *link)
{
    char words[WORDS][SNIB__CHANNEL_MAX], text[2 * SNIB__CHANNEL_MAX + 100];
    bool greeting = link->conn.state == SNIB__CONN_HANDSHAKE;
    const char *elsewhere = NULL;
    if (!take_command(snib__link_output(link), words)) {
        return;
    }
    for (char *at = words[0]; *at; at++) {
        *at = (char)tolower(*at);
    }
    if (greeting) {
        say(link, strcmp(words[0], "ping") == 0 ? "+PONG\r\n" : "+OK\r\n");
    } else if (strcmp(words[0], "ping") == 0) {
        say(link, "*2\r\n$4\r\npong\r\n$0\r\n\r\n");
    } else if (strcmp(words[0], "ssubscribe") == 0 && (elsewhere = cluster_misplaced(words[1]))) {
        snprintf(text, sizeof text, "%s\r\n", elsewhere);
        say(link, text);
    } else if (!walk.calm && strcmp(words[0], "subscribe") == 0 && walk_chance(30)) {
        walk_happens(WALK_DEAF);
        say(link, "-NOPERM this user has no permissions to access one of the channels\r\n");
    } else {
        walk_trace("%s %s", words[0], words[1]);
        snprintf(text, sizeof text, "*3\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n:1\r\n", strlen(words[0]),
                 words[0], strlen(words[1]), words[1]);
        say(link, text);
    }
}

/* What the release of a fair lock says that has granted it to one of the client's waiters. */
static void fair_text(const struct snib__gate *gate, char *out, size_t cap)
{
    uint64_t number = 0, n = 0;
    for (const struct snib__hold *hold = gate->peers; hold; hold = hold->peer_next) {
        bool waits = hold->phase == SNIB__PLACED || hold->phase == SNIB__TRYING;
        number = waits && walk_draw(++n) == 0 ? hold->number : number;
    }
    uint64_t first_ms = walk_draw(3000), ago_ms = walk_draw(3) * 100;
    snprintf(out, cap, "%llu:0:%llu:%llu", (unsigned long long)number, (unsigned long long)first_ms,
             (unsigned long long)(reply_ms() - ago_ms));
}

static const struct snib__chan *some_channel(void)
{
    const struct snib__chan *some = NULL;
    uint32_t n = 0;
    for (uint32_t i = 0; i < walk.engine->chans_cap; i++) {
        for (const struct snib__chan *chan = walk.engine->chans[i]; chan; chan = chan->next) {
            bool on = chan->waitqs && chan->state == SNIB__CHAN_ON;
            some = on && walk_draw(++n) == 0 ? chan : some;
        }
    }
    return some;
}

/* A message on one of the client's channels. */
void message_say(void)
{
    char said[100], text[SNIB__CHANNEL_MAX + 200];
    const struct snib__chan *chan = some_channel();
    struct snib__link *link = chan ? &chan->node->links[SNIB__PUBSUB] : NULL;
    if (!link || link->conn.state != SNIB__CONN_READY) {
        return;
    }
    const struct snib__gate *gate = chan->waitqs->gate;
    bool fair = gate->kind->kind == SNIB_FAIR;
    snprintf(said, sizeof said, "%s", walk_one("0", "0", "1"));
    if (fair) {
        fair_text(gate, said, sizeof said);
    }
    walk_happens(WALK_MESSAGE);
    walk_trace("message %s for %.*s", said, gate->name_len, gate->name);
    const char *word = walk.engine->publish == SNIB__SHARDED ? "smessage" : "message";
    snprintf(text, sizeof text, "*3\r\n$%zu\r\n%s\r\n$%d\r\n%.*s\r\n$%zu\r\n%s\r\n", strlen(word),
             word, chan->len, chan->len, chan->text, strlen(said), said);
    snib__engine_input(walk.engine, link, text, strlen(text), walk.now);
}
