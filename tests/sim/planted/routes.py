"""Planted bugs: servers that change: failover, addresses, slots that move."""

from . import Mutant

MUTANTS = [
    Mutant(
        "a name moves and nobody connects to its new node",
        "engine/move.c",
        "if (used && !snib__outer_is(gate) && !snib__node_ready(node))",
        "if (used && snib__outer_is(gate))",
        "sim/topology",
    ),
    Mutant(
        "a round in which all sentinels are shunned does not end",
        "engine/sentinel.c",
        "sentinels_end_round(e, SENTINEL_POLL, now); /* all have just failed */",
        "",
        "sim/topology",
    ),
]
