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
    Mutant(
        "the line's lost connection can still be read",
        "engine/lane.c",
        "i < SNIB__LANES_MAX; i++) { struct snib__conn *lost",
        "i < SNIB__LANES_MAX - 1; i++) { struct snib__conn *lost",
        "unit_durable",
    ),
    Mutant(
        "a WAIT has the time of a reply",
        "engine/link.c",
        "(snib__durable_is(link) ? e->config.durability_timeout : 0)",
        "0",
        "unit_durable",
    ),
    Mutant(
        "a line that cannot be made is waited for",
        "engine/durable.c",
        "durable_give_up(e, node, code, os_error, now);",
        "(void)code;",
        "unit_durable",
    ),
    Mutant(
        "a line that cannot be made is tried without pause",
        "engine/durable.c",
        "link->wanted = true; /* after",
        "snib__link_want(e, link, now); /* after",
        "unit_durable",
    ),
    Mutant(
        "a refused WAIT is refused for ever",
        "engine/durable.c",
        "d->refused = false;",
        "",
        "unit_durable",
    ),
    Mutant(
        "permits whose count is lost are lost",
        "engine/durable.c",
        "if (hold->gate->kind->traits & SNIB__UNOWNED)",
        "if (!hold)",
        "unit_durable",
    ),
    Mutant(
        "where no replica is left there never was one",
        "engine/durable.c",
        "d->any = d->any || replicas > 0;",
        "d->any = replicas > 0;",
        "unit_durable",
    ),
    Mutant(
        "patience with the line begins with its first outage",
        "engine/durable.c",
        "d->stuck_since = SNIB__NEVER; d->waiting = true;",
        "d->waiting = true;",
        "unit_durable",
    ),
]
