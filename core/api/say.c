/* say.c - see say.h. */
#include "api/say.h"

#include "locks/kind.h"
#include "net/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SAY_NAME_MAX 96   /* with its quotation marks */
#define SAY_PART_LEAST 30 /* with so much of each of its parts any sentence fits */

static size_t say_kind(char *out, size_t cap, int32_t kind, const char *name, size_t n)
{
    static const char *const kinds[SNIB__KINDS] = {
        [SNIB_MUTEX] = "mutex",      [SNIB_FAIR] = "fair lock",      [SNIB_READ] = "read lock",
        [SNIB_WRITE] = "write lock", [SNIB_FENCED] = "fenced lock",  [SNIB_SPIN] = "spin lock",
        [SNIB_PLAIN] = "plain lock", [SNIB_SEMAPHORE] = "semaphore", [SNIB_PERMITS] = "permits",
        [SNIB_LATCH] = "latch",      [SNIB__MULTI] = "multi lock",   [SNIB__OUTER] = "multi lock",
    };
    char quoted[SAY_NAME_MAX];
    bool quorum = kind == SNIB__OUTER && name[0] == SNIB__QUORUM_LETTER;
    if (kind >= SNIB__MULTI)
        n = strlen(++name);
    return (size_t)snprintf(out, cap, "%s %s%s", quorum ? "quorum lock" : kinds[kind],
                            snib__quote(quoted, sizeof quoted, name, n),
                            kind >= SNIB__MULTI && !quorum ? " and others" : "");
}

size_t snib__say_lock(char *out, size_t cap, const struct snib__gate *gate)
{
    size_t n;
    const char *name = snib__gate_name(gate, &n);
    return say_kind(out, cap, snib__gate_kind(gate), name, n);
}

int snib__fail_kind(snib_error *err, int32_t kind, const char *name, size_t n, int code)
{
    char lock[SNIB__SAY_LOCK];
    snib_error bare;
    if (!err || code == SNIB_OK)
        return code;
    bare = *err;
    say_kind(lock, sizeof lock, kind, name, n);
    return snib__fail(err, code, bare.os_error, "%s: %s", lock, bare.text);
}

int snib__fail_lock(snib_error *err, const struct snib__gate *gate, int code)
{
    size_t n;
    const char *name = snib__gate_name(gate, &n);
    return snib__fail_kind(err, snib__gate_kind(gate), name, n, code);
}

/* Whether the words are a sentence of the client, not of the server. */
static bool say_explained(int32_t code, const struct snib__told *told)
{
    return (code == SNIB_ETLS || code == SNIB_ECREDENTIALS) && told->words && told->words[0];
}

/* Why there is no connection or no reply: the client's sentence, the system's text, or a code's. */
static const char *say_cause(const struct snib__told *told)
{
    if (say_explained(told->cause, told))
        return told->words;
    if (told->os_error)
        return snib__engine_why(told->cause, told->os_error);
    if (told->cause == SNIB_ESERVER) /* to a question about the servers: the request was not sent */
        return "the answer was an error";
    return told->cause && told->cause != SNIB_EUNREACHABLE ? snib_code_text(told->cause) : NULL;
}

/* Why a cluster that was reached does not serve the name, from the server's words; NULL: it was not reached. */
static const char *say_unserved(const struct snib__told *told)
{
    const char *words = told->code == SNIB_ECONNECT && told->words ? told->words : "";
    if (strncmp(words, "TRYAGAIN", 8) == 0 || strncmp(words, "ASK ", 4) == 0 ||
        strncmp(words, "MIGRATING", 9) == 0 || strstr(words, "non local key"))
        return "its slot is being moved to another node: complete or cancel the move";
    if (strncmp(words, "MOVED ", 6) == 0)
        return "the nodes disagree about which of them serves its slot";
    bool down = strncmp(words, "CLUSTERDOWN", 11) == 0;
    return down || told->unserved ? "no node serves its slot" : NULL;
}

/* A sentence that grows.  It is measured to its end, even if that is beyond cap. */
struct saying {
    char *out;
    size_t cap, n;
    size_t most; /* bytes of each part that others may make as long as they like */
};

static void say_add(struct saying *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void say_add(struct saying *s, const char *format, ...)
{
    size_t room = s->n < s->cap ? s->cap - s->n : 0;
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(room ? s->out + s->n : NULL, room, format, arguments);
    va_end(arguments);
    s->n += n > 0 ? (size_t)n : 0;
}

static void say_part(struct saying *s, const char *text)
{
    char part[sizeof((snib_error *)0)->text];
    size_t most = s->most < sizeof part ? s->most : sizeof part - 1;
    snib__text_shorten(part, most + 1, text, strlen(text));
    say_add(s, "%s", part);
}

static void say_network(struct saying *s, const char *where, const struct snib__told *told)
{
    const char *cause = say_cause(told), *unserved = say_unserved(told);
    bool nothing = told->code == SNIB_ECONNECT;
    if (told->os_error == ECONNREFUSED && strncmp(where, "memory://", 9) == 0)
        cause = "no memory server of this name accepts connections in this process; start one with "
                "snib.testing, snibtest or snib_memory_start()";
    if (unserved) {
        say_add(s, "%s (", unserved);
        say_part(s, where);
        say_add(s, "); nothing was applied");
        return;
    }
    if (told->unconfirmed) {
        say_part(s, where);
        say_add(s, " has not confirmed this client's earlier release of it, so it is not known "
                   "whether it is free; try again later");
        return;
    }
    say_add(s, nothing ? "no connection to " : "no answer in time from ");
    say_part(s, where);
    if (cause) {
        say_add(s, " (");
        say_part(s, cause);
        say_add(s, ")");
    }
    say_add(s, nothing ? "; nothing was applied" : "; the request may have been applied");
}

/* What a result means for this kind of lock; NULL: what it means for any. */
static const char *say_not_free(const struct snib__gate *gate, int32_t code)
{
    size_t n;
    bool busy = code == SNIB_BUSY;
    if (!gate || (!busy && code != SNIB_TIMEDOUT))
        return NULL;
    int32_t kind = snib__gate_kind(gate);
    if (kind == SNIB_LATCH)
        return busy ? "its count is not 0" : "the wait ended before its count was 0";
    if (kind == SNIB_PERMITS || kind == SNIB_SEMAPHORE)
        return busy ? "too few permits are free" : "the wait ended before enough permits were free";
    if (kind == SNIB__OUTER && snib__gate_name(gate, &n)[0] == SNIB__QUORUM_LETTER)
        return busy ? "no majority of its servers granted it"
                    : "the wait ended before a majority of its servers granted it";
    return NULL;
}

/* What happened, without the lock. */
static void say_what(struct saying *s, const struct snib__gate *gate, const char *where,
                     const struct snib__told *told)
{
    const char *not_free = say_not_free(gate, told->code);
    if (not_free) {
        say_add(s, "%s", not_free);
    } else if (told->code == SNIB_ECONNECT || told->code == SNIB_EUNREACHABLE) {
        say_network(s, where, told);
    } else if (told->code == SNIB_EREADONLY) {
        /* after "its master", the address would look like the master's */
        say_part(s, where);
        say_add(s, " is a read-only replica; connect to its master");
    } else if (told->code <= SNIB_ERESOLVE && told->code > SNIB_ECLOSED) {
        say_part(s, say_explained(told->code, told)
                        ? told->words
                        : snib__engine_why(told->code,
                                           told->code == SNIB_ERESOLVE ? told->os_error : 0));
        say_add(s, " (");
        say_part(s, where);
        say_add(s, ")");
    } else {
        say_add(s, "%s", snib_code_text(told->code));
    }
}

/* The sentence, whatever its length.  Returns where the server's own words begin; 0: there are none. */
static int32_t say_all(struct saying *s, const struct snib__client *client,
                       const struct snib__gate *gate, const struct snib__told *told)
{
    const char *where = told->where ? told->where
                        : gate && snib__gate_kind(gate) == SNIB__OUTER
                            ? "its servers"
                            : snib__engine_where(client->driver.engine);
    bool names = gate && told->code > SNIB_ECLOSED;
    char lock[SNIB__SAY_LOCK];
    if (names)
        snib__say_lock(lock, sizeof lock, gate);
    if (told->code == SNIB_LOST) {
        say_add(s, "%s was lost (%s): stop working under it", names ? lock : "the lock",
                snib_reason_text(told->reason));
        return 0;
    }
    if (names)
        say_add(s, "%s: ", lock);
    bool has_words = told->words && told->words[0];
    bool sentence = told->code == SNIB_ETOPOLOGY || told->code == SNIB_EREPLICAS ||
                    told->code == SNIB_ENOTSUP || told->code == SNIB_ELEASE;
    if ((sentence || told->explained) && has_words) { /* the client's own */
        bool whole = strlen(told->words) <= s->most;
        int32_t server =
            told->explained && whole && told->server ? (int32_t)s->n + told->server : 0;
        say_part(s, told->words);
        return server;
    }
    say_what(s, gate, where, told);
    if (!has_words || say_explained(told->cause, told) || say_explained(told->code, told))
        return 0;
    say_add(s, "; the server said: ");
    int32_t server = (int32_t)s->n;
    say_part(s, told->words);
    return server;
}

int32_t snib__say(char *out, size_t cap, const struct snib__client *client,
                  const struct snib__gate *gate, const struct snib__told *told)
{
    struct saying s = {.out = out, .cap = cap, .most = cap};
    int32_t server = say_all(&s, client, gate, told);
    while (s.n >= cap && s.most > SAY_PART_LEAST) {
        s = (struct saying){.out = out, .cap = cap, .most = s.most * 3 / 4};
        server = say_all(&s, client, gate, told);
    }
    /* The system's words have the bytes of the program's locale. */
    snib__text_clean(out, strlen(out), false);
    return server;
}

int snib__fail_told(snib_error *err, const struct snib__client *client,
                    const struct snib__gate *gate, const struct snib__told *told)
{
    char text[sizeof err->text];
    if (!err)
        return told->code;
    int32_t server = snib__say(text, sizeof text, client, gate, told);
    snib__fail(err, told->code, told->os_error, "%s", text);
    err->server = server;
    err->reason = told->code == SNIB_LOST ? told->reason : SNIB_REASON_NONE;
    return told->code;
}
