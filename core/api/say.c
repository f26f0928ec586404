/* say.c - see say.h. */
#include "api/say.h"

#include "locks/kind.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SAY_NAME_MAX 96 /* a result's text has room for it and more */

size_t snib__say_lock(char *out, size_t cap, const struct snib__gate *gate)
{
    static const char *const kinds[SNIB__KINDS] = {
        [SNIB_MUTEX] = "mutex",      [SNIB_FAIR] = "fair lock",      [SNIB_READ] = "read lock",
        [SNIB_WRITE] = "write lock", [SNIB_FENCED] = "fenced lock",  [SNIB_SPIN] = "spin lock",
        [SNIB_PLAIN] = "plain lock", [SNIB_SEMAPHORE] = "semaphore", [SNIB_PERMITS] = "permits",
        [SNIB_LATCH] = "latch",      [SNIB__MULTI] = "multi lock",   [SNIB__OUTER] = "multi lock",
    };
    char quoted[SAY_NAME_MAX];
    size_t n;
    const char *name = snib__gate_name(gate, &n);
    int32_t kind = snib__gate_kind(gate);
    bool quorum = kind == SNIB__OUTER && name[0] == SNIB__QUORUM_LETTER;
    if (kind >= SNIB__MULTI)
        n = strlen(++name);
    return (size_t)snprintf(out, cap, "%s %s%s", quorum ? "quorum lock" : kinds[kind],
                            snib__quote(quoted, sizeof quoted, name, n),
                            kind >= SNIB__MULTI && !quorum ? " and others" : "");
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
        return strerror(told->os_error);
    return told->cause && told->cause != SNIB_EUNREACHABLE ? snib_code_text(told->cause) : NULL;
}

/* Why a cluster that was reached does not serve the name, from the server's words; NULL: it may. */
static const char *say_unserved(const struct snib__told *told)
{
    const char *words = told->code == SNIB_ECONNECT && told->words ? told->words : "";
    if (strncmp(words, "TRYAGAIN", 8) == 0 || strncmp(words, "ASK ", 4) == 0)
        return "its slot is being moved to another node: complete or cancel the move";
    if (strncmp(words, "CLUSTERDOWN", 11) == 0)
        return "no node serves its slot";
    return strncmp(words, "MOVED ", 6) == 0
               ? "the nodes disagree about which of them serves its slot"
               : NULL;
}

static void say_network(char *out, size_t cap, const char *where, const struct snib__told *told)
{
    const char *cause = say_cause(told), *unserved = say_unserved(told);
    bool nothing = told->code == SNIB_ECONNECT;
    if (told->os_error == ECONNREFUSED && strncmp(where, "memory://", 9) == 0)
        cause = "no memory server of this name accepts connections in this process; start one with "
                "snib.testing, snibtest or snib_memory_start()";
    if (unserved) {
        snprintf(out, cap, "%s (%s); nothing was applied", unserved, where);
        return;
    }
    if (told->unconfirmed) {
        snprintf(out, cap,
                 "%s has not confirmed this client's earlier release of it, so it is not known "
                 "whether it is free; try again later",
                 where);
        return;
    }
    snprintf(out, cap, "%s %s%s%s%s; %s", nothing ? "no connection to" : "no answer in time from",
             where, cause ? " (" : "", cause ? cause : "", cause ? ")" : "",
             nothing ? "nothing was applied" : "the request may have been applied");
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

const char *snib__say(char *out, size_t cap, const struct snib__client *client,
                      const struct snib__gate *gate, const struct snib__told *told)
{
    bool about_client = told->code <= SNIB_ECLOSED;
    const char *where = told->where ? told->where
                        : gate && snib__gate_kind(gate) == SNIB__OUTER
                            ? "its servers"
                            : snib__engine_where(client->driver.engine);
    size_t n = gate && !about_client ? snib__say_lock(out, cap, gate) : 0;
    if (told->code == SNIB_LOST) {
        snprintf(out + n, cap - n, "%s was lost (%s): stop working under it", n ? "" : "the lock",
                 snib_reason_text(told->reason));
        return out;
    }
    n += (size_t)snprintf(out + n, cap - n, "%s", n ? ": " : "");
    bool sentence = told->code == SNIB_ETOPOLOGY || told->code == SNIB_EREPLICAS ||
                    told->code == SNIB_ENOTSUP || told->code == SNIB_ELEASE;
    if ((sentence || told->explained) && told->words && told->words[0]) { /* the client's own */
        snprintf(out + n, cap - n, "%s", told->words);
        return out;
    }
    const char *not_free = say_not_free(gate, told->code);
    if (not_free)
        snprintf(out + n, cap - n, "%s", not_free);
    else if (told->code == SNIB_ECONNECT || told->code == SNIB_EUNREACHABLE)
        say_network(out + n, cap - n, where, told);
    else if (say_explained(told->code, told))
        snprintf(out + n, cap - n, "%s (%s)", told->words, where);
    else if (told->code ==
             SNIB_EREADONLY) /* after "its primary", the address would look like the primary's */
        snprintf(out + n, cap - n, "%s is a read-only replica; connect to its primary", where);
    else if (told->code <= SNIB_ERESOLVE && !about_client)
        snprintf(out + n, cap - n, "%s (%s)", snib_code_text(told->code), where);
    else
        snprintf(out + n, cap - n, "%s", snib_code_text(told->code));
    n = strlen(out);
    if (told->words && told->words[0] && n < cap && !say_explained(told->cause, told) &&
        !say_explained(told->code, told))
        snprintf(out + n, cap - n, "; the server said: %s", told->words);
    return out;
}

int snib__fail_told(snib_error *err, const struct snib__client *client,
                    const struct snib__gate *gate, const struct snib__told *told)
{
    char text[sizeof err->text];
    if (!err)
        return told->code;
    snib__fail(err, told->code, told->os_error, "%s",
               snib__say(text, sizeof text, client, gate, told));
    err->reason = told->code == SNIB_LOST ? told->reason : SNIB_REASON_NONE;
    return told->code;
}
