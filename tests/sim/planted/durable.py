"""Planted bugs: grants that count when replicas have them."""

from . import Mutant

MUTANTS = [
    Mutant(
        "the first connection stays where the address led before",
        "engine/lane.c",
        "if (snib__durable_is(link) && now > node->ready_since + LANE_FOLLOW)",
        "if (snib__durable_is(link) && e->closed)",
        "sim_topology",
    ),
    Mutant(
        "a grant does not wait for its replicas",
        "engine/durable.c",
        "if (!snib__durable_is(link) || !verdict->yes)",
        "if (snib__durable_is(link) || !verdict->yes)",
        "live/durability",
    ),
    Mutant(
        "too few replicas are enough",
        "engine/durable.c",
        "if (reached < need && hold->op &&",
        "if (reached + 1 < need && hold->op &&",
        "live/durability",
    ),
    Mutant(
        "a majority is one less",
        "engine/durable.c",
        "? in_step : (in_step + 1) / 2;",
        "? in_step : in_step / 4;",
        "live/durability",
    ),
    Mutant(
        "what is collected is sent while a WAIT is under way",
        "engine/durable.c",
        "if (d->waiting || link->conn.state != SNIB__CONN_READY)",
        "if (link->conn.state != SNIB__CONN_READY)",
        "live/durability",
    ),
]
