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
    Mutant(
        "who was refused once is impatient for ever",
        "engine/node.c",
        "op->refused_since = 0;",
        "",
        "unit_cluster",
    ),
    Mutant(
        "a new master is connected to after the old one's pause",
        "engine/node.c",
        "link->backoff = 0; link->next_try = now; link->connect = link->wanted;",
        "link->connect = link->wanted && link->next_try <= now;",
        "unit_sentinel",
    ),
    Mutant(
        "a release that a failover has emptied is told as deleted",
        "engine/node.c",
        "(hold->phase == SNIB__HELD || hold->phase == SNIB__RELEASING) &&",
        "hold->phase == SNIB__HELD &&",
        "unit_sentinel",
    ),
    Mutant(
        "the pauses of a refused request do not grow",
        "engine/pause.c",
        "paused->request.pauses++;",
        "(void)0;",
        "unit_cluster",
    ),
    Mutant(
        "a paused request that is dropped is sent all the same",
        "engine/pause.c",
        "e->paused[i] = e->paused[--e->paused_n]; return true;",
        "return true;",
        "unit_cluster",
    ),
    Mutant(
        "a sentinel that answers again stays shunned",
        "engine/sentinel.c",
        "one->shun = one->shun_until = 0;",
        "",
        "unit_sentinel",
    ),
    Mutant(
        "the epoch of the master is not noted",
        "engine/sentinel.c",
        "map->epoch = one->epoch;",
        "",
        "unit_sentinel",
    ),
    Mutant(
        "an old node's MOVED takes back what is known",
        "engine/cluster.c",
        "bool late = !asking && c->owner[slot] && c->member[c->owner[slot]].node != "
        "link->node;",
        "bool late = false;",
        "unit_cluster",
    ),
    Mutant(
        "a map takes back what a MOVED has just told",
        "engine/map.c",
        "if (to == c->owner[slot] || map_is_recent(c, (uint16_t)slot, now))",
        "if (to == c->owner[slot])",
        "unit_cluster",
    ),
    Mutant(
        "the facts of a node are taken for the next one",
        "engine/map.c",
        "left += reply[at].count;",
        "left += reply[at].count < 4 ? reply[at].count : 3;",
        "unit_cluster",
    ),
    Mutant(
        "waiters of a slot that moves listen to its old node",
        "engine/move.c",
        "if (gate->wait) snib__chan_move(e, gate->wait, node, now);",
        "",
        "live/cluster releases_are_heard",
    ),
    Mutant(
        "moved holds are sorted the wrong way round",
        "engine/move.c",
        "return one->deadline < other->deadline;",
        "return one->deadline > other->deadline;",
        "unit_cluster",
    ),
    Mutant(
        "a batch that is sent again renews whoever has the place now",
        "engine/watchdog.c",
        "if (batch->of[i].hold->number == batch->of[i].number && batch->of[i].hold->phase "
        "== SNIB__HELD)",
        "if (batch->of[i].hold->phase == SNIB__HELD)",
        "unit_cluster",
    ),
    Mutant(
        "a request that is paused for long keeps those behind it waiting",
        "engine/pause.c",
        "if (e->paused[i].until > now) { i++; continue;",
        "if (e->paused[i].until > now) { break;",
        "sim/topology",
    ),
    Mutant(
        "a list of a cluster ends with its first server",
        "engine/cluster.c",
        "if (cursor == 0) i = cluster_after(c, (uint32_t)i);",
        "if (cursor == 0) i = 0;",
        "live/cluster list_goes_over_all_nodes",
    ),
    Mutant(
        "replicas of old maps are kept",
        "engine/map.c",
        "c->spares_n = 0;",
        "",
        "unit_cluster",
    ),
    Mutant(
        "messages of the old node are expected from the new one",
        "engine/chan.c",
        "for (struct snib__wait *other = chan->waits; other; other = other->chan_next) "
        "other->own_messages = 0;",
        "",
        "unit_cluster",
    ),
    Mutant(
        "a fixed lease that has moved is not asked for at its new node",
        "engine/move.c",
        "node->inherited = true;",
        "",
        "unit_cluster",
    ),
]
