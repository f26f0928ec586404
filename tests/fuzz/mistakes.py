"""Mistakes to be planted in the core, each with the target that must find it, from its corpus, within a number of runs.

The number of runs includes the corpus; the seed is fixed, so a mistake is found always or never by one build.  Only
`handles` has threads, and covers something else in each run: an input of its corpus must find each of its mistakes.
"""

from typing import NamedTuple


class Mistake(NamedTuple):
    """As a Mutant in tests/sim/planted; `by` is a target."""

    name: str
    file: str
    old: str
    new: str
    by: str
    runs: int = 3000


MISTAKES = [
    # ---- reply
    Mistake(
        "a reply that comes in two pieces begins anew with the second",
        "net/resp.c",
        "if (resp->reader->ridx == -1) {",
        "{",
        "reply",
    ),
    Mistake(
        "a text has no end of its own",
        "net/resp.c",
        'snib__buf_append(&resp->text, "", 1) < 0)',
        "false)",
        "reply",
    ),
    Mistake(
        "an empty array counts as none",
        "net/resp.c",
        "resp->excess |= (int64_t)count < 0 || (int64_t)count > SNIB__RESP_VALUES_MAX;",
        "resp->excess |= (int64_t)count <= 0 || (int64_t)count > SNIB__RESP_VALUES_MAX;",
        "reply",
    ),
    Mistake(
        "a password in two pieces is shown",
        "net/conn.c",
        "size_t same = text ? conn->masked : 0;",
        "size_t same = conn->in_error && i > 0 ? conn->masked : 0;",
        "reply",
    ),
    # ---- core
    Mistake(
        "a renewed lease counts from the reply",
        "engine/watchdog.c",
        "snib__time deadline = snib__lease_end(sent_at, e->config.lease);",
        "snib__time deadline = snib__lease_end(now, e->config.lease);",
        "core",
    ),
    Mistake(
        "a lease counts from the grant",
        "engine/hold.c",
        "else if (!(hold->flags & SNIB__FIRST)) /* otherwise it is set */"
        " hold->deadline = snib__lease_end(sent_at, snib__hold_lease(e, hold));",
        "else if (!(hold->flags & SNIB__FIRST))"
        " hold->deadline = snib__lease_end(now, snib__hold_lease(e, hold));",
        "core",
    ),
    Mistake(
        "what a message grants counts from the message",
        "engine/place.c",
        "place_heard(e, hold, hold->op->fair.seen_at, part[0], part[1], part[2], now);",
        "place_heard(e, hold, now, part[0], part[1], part[2], now);",
        "core",
    ),
    Mistake(
        "a grant that nobody wants any more stays",
        "engine/gate.c",
        "snib__gate_end_op(e, op, SNIB_EUNREACHABLE); snib__gate_spurn(e, hold, now); return false;",
        "snib__gate_end_op(e, op, SNIB_EUNREACHABLE); return false;",
        "core",
    ),
    # ---- url
    Mistake(
        "a control byte may be encoded",
        "api/url.c",
        "if (byte < 0x20 || byte == 0x7f) {",
        "if (byte < 0x20) {",
        "url",
    ),
    Mistake(
        "f is no hexadecimal digit",
        "api/url.c",
        "return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;",
        "return c >= 'a' && c <= 'e' ? c - 'a' + 10 : -1;",
        "url",
    ),
    Mistake(
        "an unknown option is shown with its value",
        "api/options.c",
        'return snib__fail(err, SNIB_EOPTION, 0, "there is no option %s", name);',
        'return snib__fail(err, SNIB_EOPTION, 0, "there is no option %s=%s", name, value);',
        "url",
    ),
    Mistake(
        "a database of a cluster is accepted",
        "api/url.c",
        "if (out->topology == SNIB__CLUSTER && number != 0)",
        "if (out->topology == SNIB__CLUSTER && number > 99)",
        "url",
    ),
    Mistake(
        "the program's number is not checked",
        "api/options.c",
        "return number == 0 || option_in_range(option, number) ? SNIB_OK : option_refused(option, err);",
        "return SNIB_OK;",
        "url",
    ),
    # ---- names
    Mistake(
        "surrogates are UTF-8",
        "net/text.c",
        "|| (c >= 0xd800 && c <= 0xdfff))",
        ")",
        "names",
    ),
    Mistake(
        "letters may be longer than they need",
        "net/text.c",
        "if (c < least[len] ||",
        "if (",
        "names",
    ),
    Mistake(
        "an empty tag is accepted",
        "api/name.c",
        'return close == open + 1 ? "the hash tag between its braces is empty" : NULL;',
        "return NULL;",
        "names",
    ),
    Mistake(
        "braces are put around a name that has some",
        "locks/kind.c",
        "bool tagged = memchr(name, '{', name_len) != NULL; size_t n = 0;",
        "bool tagged = memchr(name, '}', name_len) == name + name_len - 1; size_t n = 0;",
        "names",
    ),
    # ---- scripts
    Mistake(
        "a release that found nothing is a release",
        "locks/kind.c",
        "verdict->yes = verdict->unheard || (counts && reply->integer > 0);",
        "verdict->yes = verdict->unheard || (counts && reply->integer >= 0);",
        "scripts",
    ),
    Mistake(
        "a shorter answer to an info is read to its end",
        "engine/ask.c",
        "if (n != 6 || reply[1].type != SNIB__RESP_INTEGER ||",
        "if (n < 4 || reply[1].type != SNIB__RESP_INTEGER ||",
        "scripts",
    ),
    Mistake(
        "whoever has taken a lock has deleted it",
        "engine/watchdog.c",
        "bool taken = lost && reply[at + 1].integer != 0;",
        "bool taken = lost && reply[at + 1].integer > 1;",
        "scripts",
    ),
    Mistake(
        "an integer grants a fenced lock",
        "locks/fenced.c",
        "verdict->yes = true; verdict->token = snib__reply_number(engine, &reply[1]);",
        "verdict->yes = true; verdict->token = snib__reply_number(engine, &reply[0]);",
        "scripts",
    ),
    # ---- cluster
    Mistake(
        "a slot that is given away is still counted",
        "engine/map.c",
        "c->member[c->owner[slot]].slots--;",
        "",
        "cluster",
    ),
    Mistake(
        "there is one slot more",
        "engine/map.c",
        "if (first < 0 || last < first || last >= SNIB__SLOTS ||",
        "if (first < 0 || last < first || last > SNIB__SLOTS ||",
        "cluster",
    ),
    Mistake(
        "a redirection to any slot is followed",
        "engine/cluster.c",
        "if (slot < 0 || slot >= SNIB__SLOTS || *end != ' ')",
        "if (slot < 0 || slot >= 4 * SNIB__SLOTS || *end != ' ')",
        "cluster",
    ),
    Mistake(
        "a host may have any characters",
        "net/address.c",
        "if (!is_letter && c != '-' && c != '.' && c != '_' && c != ':')",
        "if (c == ' ')",
        "cluster",
    ),
    # ---- sentinel
    Mistake(
        "sentinels name others without end",
        "engine/sentinels.c",
        "if (map->n < SENTINELS_LEARNT) {",
        "if (map) {",
        "sentinel",
    ),
    Mistake(
        "port 0 is a port",
        "net/address.c",
        "if (port < 1 || port > 65535 ||",
        "if (port < 0 || port > 65535 ||",
        "sentinel",
    ),
    Mistake(
        "a sentinel is known as often as it is named",
        "engine/sentinels.c",
        "if (snib__address_equal(&map->all[i].node->address, address)) return &map->all[i];",
        "if (&map->all[i].node->address == address) return &map->all[i];",
        "sentinel",
    ),
    Mistake(
        "a sentinel that failed is not asked again",
        "engine/sentinel.c",
        "one->shun_until = now + one->shun; sentinels_unhelped(e, now);",
        "one->asked = true; sentinels_unhelped(e, now);",
        "sentinel",
    ),
    # ---- handles
    Mistake(
        "a handle of another generation is as good",
        "api/handle.c",
        "return (uint32_t)(word >> 32) == (uint32_t)(uintptr_t)handle && !(word & HANDLE_ENDED) &&",
        "return !(word & HANDLE_ENDED) &&",
        "handles",
    ),
    Mistake(
        "a handle of another kind is as good",
        "api/handle.c",
        "           (word >> HANDLE_KIND_SHIFT) % HANDLE_KINDS == (uint64_t)kind;",
        "           kind > 0;",
        "handles",
    ),
    Mistake(
        "an index beyond the table is looked up",
        "api/handle.c",
        "return slots ? &slots[n - (1U << (chunk + HANDLE_CHUNK_BITS))] : NULL;",
        "return &slots[n - (1U << (chunk + HANDLE_CHUNK_BITS))];",
        "handles",
    ),
]
