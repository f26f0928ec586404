"""Planted bugs: what is sent and answered: connections, doubt, subscriptions."""

from . import Mutant

MUTANTS = [
    Mutant(
        "a force release is repeated after a lost answer",
        "engine/ask.c",
        "return op->kind == SNIB__OP_FORCE;",
        "return false;",
        "unit_doubt",
    ),
    Mutant(
        "what has no owner is repeated after an error that may mean anything",
        "engine/doubt.c",
        "return error == SNIB_ESERVER;",
        "return error == SNIB_EREADONLY;",
        "unit_doubt",
    ),
    Mutant(
        "the reply's time-out ignores the lease",
        "engine/node.c",
        "return share < e->config.reply_timeout ?",
        "return share > e->config.reply_timeout ?",
        "unit_doubt",
    ),
    Mutant(
        "fixed leases are not asked for after a restart",
        "engine/node.c",
        "snib__watchdog_reconnected(e, node, other || node->inherited, now);",
        "snib__watchdog_reconnected(e, node, false, now);",
        "unit_doubt",
    ),
    Mutant(
        "an operation that was never sent is told as perhaps applied",
        "engine/op.c",
        "return passing ? SNIB_ECONNECT : node->failure;",
        "return node->failure + 0 * passing;",
        "unit_doubt",
    ),
    Mutant(
        "a command that was refused is asked again",
        "engine/node.c",
        "conn->delifeq = conn->delex =",
        "conn->delifeq =",
        "unit_links",
    ),
    Mutant(
        "a replica is believed",
        "net/conn.c",
        'conn->replica = strcmp(value, "slave") == 0;',
        'conn->replica = strcmp(value, "replica") == 0;',
        "unit_links",
    ),
    Mutant(
        "a refusal by a replica is a sign of life",
        "engine/link.c",
        "if (!link->proven && !disowns)",
        "if (!link->proven)",
        "unit_links",
    ),
    Mutant(
        "a stranger's connection is killed after a restart",
        "net/conn.c",
        "strcmp(conn->run_id, conn->kill_run) != 0)",
        "false)",
        "unit_conn",
    ),
    Mutant(
        "an idle subscription is not pinged",
        "engine/chan.c",
        'if (ep->wanted && snib__chan_say(ep->node, "PING", NULL, 0) == 0)',
        'if (false && snib__chan_say(ep->node, "PING", NULL, 0) == 0)',
        "unit_links",
    ),
    Mutant(
        "a subscription is owed nothing",
        "engine/chan.c",
        "    if (ep->owed > 0)\n"
        "        return true;",
        "    if (ep->owed > 100000)\n"
        "        return true;",
        "unit_links",
    ),
    Mutant(
        "a password stands in an error",
        "net/words.c",
        "return alone || same >= WORDS_SECRET_LONG ? same : 0;",
        "return 0;",
        "unit_words",
    ),
    Mutant(
        "one owner number for all attempts",
        "engine/op.c",
        "hold->number = e->next_number++;",
        "hold->number = e->next_number;",
    ),
    Mutant(
        "the old connection may still act",
        "net/conn.c",
        "if (conn->kill_id == 0 ||",
        "if (true || conn->kill_id == 0 ||",
    ),
    Mutant(
        "a reply goes to the next request after a cancel",
        "engine/node.c",
        "            request->subject = NULL;",
        "            conn->ring_count--;",
    ),
    Mutant(
        "no try on the confirmation of a subscription",
        "engine/chan.c",
        "            snib__wait_try(e, wait, now);",
        "            (void)now;",
    ),
    Mutant(
        "no new subscription after a reconnect",
        "engine/chan.c",
        "if (snib__chan_wanted(chan)) snib__chan_subscribe(e, chan, now); for",
        "if (snib__chan_wanted(chan) && now == 0) snib__chan_subscribe(e, chan, now); for",
    ),
    Mutant(
        "the last waiter's subscription stays",
        "engine/chan.c",
        "if ((chan->state == SNIB__CHAN_ON || chan->state == SNIB__CHAN_ASKED) &&",
        "if (false &&",
    ),
    Mutant(
        "a refusal without a name takes all subscriptions",
        "engine/chan.c",
        "(chan->state == SNIB__CHAN_ASKED || chan->state == SNIB__CHAN_REFUSED)",
        "chan->state == SNIB__CHAN_ASKED",
    ),
    Mutant("the database is not selected", "net/conn.c", "if (login->database != 0)", "if (false)"),
    Mutant(
        "close keeps the locks",
        "engine/engine.c",
        "snib__gate_release(e, rest, now); hold->count = 0;",
        "hold->count = 0;",
    ),
    Mutant(
        "a forgotten script is an error",
        "engine/node.c",
        "request->script >= 0 && request->tries++ == 0 &&",
        "request->script >= 0 && false &&",
    ),
    Mutant(
        "who comes while a subscription is given up gets none",
        "engine/chan.c",
        "else if (snib__chan_wanted(chan)) snib__chan_subscribe(e, chan, now); } /* An error",
        "else if (snib__chan_wanted(chan) && now == 0) snib__chan_subscribe(e, chan, now); }"
        " /* An error",
    ),
    Mutant(
        "a refused ping is a refused subscription",
        "engine/chan.c",
        "reply[0].type == SNIB__RESP_ERROR && !pong",
        "reply[0].type == SNIB__RESP_ERROR",
        "unit_links",
    ),
    Mutant(
        "the table of subscriptions forgets when it grows",
        "engine/chan.c",
        "next = chan->next; chan->next = chans[chan->hash & (cap - 1)];",
        "next = chan->next; chan->next = NULL;",
        "unit_links",
    ),
]
