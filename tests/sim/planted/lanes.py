"""Planted bugs: additional command links of a node."""

from . import Mutant

MUTANTS = [
    Mutant(
        "a lost lane that cannot be ended is not told",
        "engine/lane.c",
        "if (lost->left) snib__node_unended(e, node, true);",
        "",
        "unit_lanes",
    ),
    Mutant(
        "a lost lane that may not be ended is not told",
        "engine/node.c",
        "if (error) snib__node_unended(e, node, true);",
        "",
        "unit_lanes",
    ),
    Mutant(
        "what a lost lane left is repeated while its connection can still be read",
        "engine/lane.c",
        "if (snib__node_ready(node) && snib__lane_kill(e, node, now) < 0)",
        "if (snib__node_ready(node) && e->closed)",
        "unit_lanes",
    ),
    Mutant(
        "a lost lane's connection is forgotten with the one that was to end it",
        "engine/lane.c",
        "else if (snib__link_write(e, first, &kill, now) < 0)",
        "else if ((lost->kill_id = 0, snib__link_write(e, first, &kill, now)) < 0)",
        "unit_lanes",
    ),
    Mutant(
        "a login that a lane has lost takes the whole node down",
        "engine/node.c",
        "if (error == SNIB_EAUTH && link != first && ",
        "if (error == SNIB_EAUTH && link != first && e->closed && ",
        "unit_lanes",
    ),
    Mutant(
        "a name's next request takes any lane",
        "engine/lane.c",
        "if (gate && gate->unanswered > 0 && !snib__durable_is(gate->lane))",
        "if (gate && gate->unanswered > 0 && !e->calling)",
        "unit_lanes",
    ),
    Mutant(
        "what a lost lane left is not repeated",
        "engine/lane.c",
        "snib__node_orphan(e, &request, code, os_error, now);",
        "(void)os_error;",
    ),
    Mutant(
        "a lane to another server is believed",
        "engine/lane.c",
        "    if (other) {",
        "    if (other && link->conn.replica) {",
        "unit_lanes",
    ),
    Mutant(
        "a refusal on a lane leaves the node",
        "engine/node.c",
        "if (link != first && first->conn.state != SNIB__CONN_DOWN)",
        "if (link == first && first->conn.state != SNIB__CONN_DOWN)",
        "unit_lanes",
    ),
    Mutant(
        "a lane that nobody wants stays",
        "engine/lane.c",
        "return idle ? link->used_at + LANE_IDLE : SNIB__NEVER;",
        "return idle ? link->used_at + 1000 * LANE_IDLE : SNIB__NEVER;",
        "unit_lanes",
    ),
    Mutant(
        "a stranger is killed for a lost lane",
        "engine/lane.c",
        "if (strcmp(lost->kill_run, first->conn.run_id) != 0)",
        "if (lost->kill_run[0] == 0)",
        "unit_lanes",
    ),
    Mutant(
        "a node is alone for ever",
        "engine/lane.c",
        "node->alone = false;",
        "",
        "unit_lanes",
    ),
    Mutant(
        "a lane asks what the first was refused",
        "engine/lane.c",
        "link->conn.delex = link->conn.delex && first->delex;",
        "",
        "unit_lanes",
    ),
    Mutant(
        "what a lane was refused is asked on the first link",
        "engine/node.c",
        "first->delifeq = first->delex = conn->delifeq = conn->delex =",
        "(void)first; conn->delifeq = conn->delex =",
        "unit_lanes",
    ),
    Mutant(
        "a command without the right to it fails",
        "engine/node.c",
        "(error == SNIB_ENOTSUP || error == SNIB_EPERM) &&",
        "error == SNIB_ENOTSUP &&",
        "unit_lanes",
    ),
    Mutant(
        "many requests do not share the first",
        "engine/lane.c",
        "if (under_way >= LANE_FEW) return NULL;",
        "",
        "unit_lanes",
    ),
    Mutant(
        "lanes stay with the old master",
        "engine/node.c",
        "snib__lane_close_all(e, node, SNIB_EUNREACHABLE, now);",
        "",
        "unit_lanes",
    ),
    Mutant(
        "a lane that is being connected stays with the old master",
        "engine/lane.c",
        "if (link->conn.state != SNIB__CONN_DOWN || link->connecting) snib__link_close",
        "if (link->conn.state != SNIB__CONN_DOWN) snib__link_close",
        "unit_lanes",
    ),
    Mutant(
        "lanes of a silent node that serves nothing are kept",
        "engine/cluster.c",
        "snib__lane_close_all(e, node, SNIB_EUNREACHABLE, now); } if (cluster_probe_at",
        "} if (cluster_probe_at",
        "unit_deposed",
    ),
    Mutant(
        "lanes of a node that serves nothing wait for its first",
        "engine/cluster.c",
        "snib__node_ready(node) ? snib__node_oldest(node) : snib__lane_oldest(node);",
        "snib__node_ready(node) ? snib__node_oldest(node) : SNIB__NEVER;",
        "unit_deposed",
    ),
    Mutant(
        "a node is as old as the requests on its first link",
        "engine/lane.c",
        "return first < further ? first : further;",
        "return first;",
        "unit_deposed",
    ),
    Mutant(
        "what was given up is sent again when its lane has been logged out",
        "engine/node.c",
        """    if (!request->subject || snib__request_own(request))
        return;
    if (request->kind == SNIB__REQ_RENEW)""",
        """    if (snib__request_own(request))
        return;
    if (request->kind == SNIB__REQ_RENEW)""",
        "unit_lanes",
    ),
]
