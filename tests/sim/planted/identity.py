"""Planted bugs: a client says who it is, and others are told."""

from . import Mutant

MUTANTS = [
    Mutant(
        "of the youngest holds it is told since when",
        "engine/identity.c",
        "(full && oldest[n - 1]->acquired_at <= hold->acquired_at)",
        "(full && oldest[n - 1]->acquired_at > hold->acquired_at)",
        "unit_identity",
    ),
    Mutant(
        "a released hold is said to be held",
        "engine/identity.c",
        "if (hold->phase != SNIB__HELD || snib__outer_is(gate) ||",
        "if (snib__outer_is(gate) ||",
        "unit_identity",
    ),
    Mutant(
        "all locks of a client are looked at, however many",
        "engine/identity.c",
        "e->gates_n <= IDENTITY_LOCKS_MAX + ended && ",
        "ended + 1 > 0 && ",
        "unit_identity",
    ),
    Mutant(
        "a program's name begins another line of an identity",
        "api/identity.c",
        "snib__text_show(word, sizeof word, bytes, strlen(bytes));",
        'snprintf(word, sizeof word, "%s", bytes);',
        "unit_identity text_of_this_process",
    ),
    Mutant(
        "the child of a fork says that it is its parent",
        "api/identity.c",
        'snprintf(number, sizeof number, "%lld", (long long)getpid());',
        "static pid_t own;\n"
        "    own = own ? own : getpid();\n"
        '    snprintf(number, sizeof number, "%lld", (long long)own);',
        "live/identity forked",
    ),
    Mutant(
        "a new label is told with the next renewal",
        "engine/identity.c",
        "    e->identity.due = true;\n    e->identity.next = now;\n",
        "",
        "live/identity",
    ),
    Mutant(
        "any label is taken",
        "api/options.c",
        "code = snib__label_check(url->label, true, err);",
        "code = SNIB_OK;",
        "unit_options bad_options",
    ),
    Mutant(
        "an identity is sent with each batch",
        "engine/identity.c",
        "if (!due || now < e->identity.next)",
        "if (!due)",
        "unit_identity once_a_round",
    ),
    Mutant(
        "a refused identity is sent again with the next renewal",
        "engine/identity.c",
        "    e->identity.next = now + IDENTITY_AGAIN;\n",
        "    e->identity.next = now;\n",
        "unit_identity refused",
    ),
    Mutant(
        "an identity outlives its client's lease",
        "engine/identity.c",
        "(int64_t)(identity_lease(e) / SNIB__MS)",
        "(int64_t)(identity_lease(e) / SNIB__MS * 100)",
    ),
    Mutant(
        "an identity ends before it is renewed",
        "engine/identity.c",
        "e->config.lease > IDENTITY_LEASE_MIN ? e->config.lease : IDENTITY_LEASE_MIN",
        "e->config.lease / 4",
        "unit_identity with_renewals",
    ),
    Mutant(
        "a closed client leaves its identity",
        "engine/engine.c",
        "    snib__identity_end(e, now);\n",
        "",
        "unit_identity taken_back",
    ),
    Mutant(
        "the first question after a pause says who the client is",
        "engine/clock.c",
        "e->identity.due |= now < node->clock.next + clock_period(e);",
        "e->identity.due = true;",
        "unit_identity with_fixed_leases",
    ),
    Mutant(
        "an identity whose slot has moved counts as refused",
        "engine/identity.c",
        "if (e->slots && snib__route_moved(text))",
        "if (false && snib__route_moved(text))",
        "unit_identity its_slot_moves",
    ),
    Mutant(
        "any node is asked for an identity",
        "engine/cluster.c",
        "if (op->kind == SNIB__OP_DESCRIBE || op->kind == SNIB__OP_IDENTITY)",
        "if (op->kind == SNIB__OP_DESCRIBE)",
        "live/identity in_a_cluster",
    ),
    Mutant(
        "the identity of Redisson's clients is asked for",
        "engine/identity.c",
        "xxxxxxxx-xxxx-8xxx-xxxx-xxxxxxxxxxxx",
        "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx",
        "unit_identity asked",
    ),
]
