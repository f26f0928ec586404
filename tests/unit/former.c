/* former.c - a server that served a name before: what it still says of it, or says again when it has the name back, counts for
 * itself only, and the next server is asked. */
#include "nodes.h"

/* Nodes a, b and c: "foo" is at b, "bar" at c. */
static struct snib__engine *begin_three(void)
{
    return begin_cluster("a:0-4999 b:8192-16383 c:5000-8191");
}

/* The client hears that this node serves "foo" from now on. */
static void goes_to(struct snib__engine *engine, char host)
{
    const struct snib__cluster *cluster = engine->map;
    const uint16_t slot = host == 'c' ? snib__slot("bar", 3) : snib__slot("x", 1);
    snib__map_told(engine, snib__slot("foo", 3), cluster->owner[slot], now);
    assert_int_equal(served_by(engine, "foo"), host);
}

/* "foo" goes to c, where another client has the lock for a while, before b has answered: the operation waits for it. */
static void follows_to_its_holder(struct snib__engine *engine, struct snib__op *op)
{
    peers[2].says = ":5000";
    peers[2].times = -1;
    goes_to(engine, 'c');
    peers[1].silent = false;
    serve(engine);
    assert_false(op->done);
    peers[2].says = NULL;
    pass(engine, now + 6 * SECOND);
    acquired(engine, op);
}

/* A hold is at risk until the next server has confirmed it, even if that one is connected
 * already. */
static void moved_hold_is_at_risk_until_it_is_confirmed(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_three();
    struct snib__hold *hold = held(engine, "foo");
    held(engine, "bar");
    peers[2].silent = true;
    common_epoch++;
    map_of(common, "a:0-4999 c:5000-16383");
    crash(engine, 'b');
    pass(engine, now + 200 * SNIB__MS);
    assert_int_equal(served_by(engine, "foo"), 'c');
    assert_true(snib__node_ready(hold->gate->node));
    assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_AT_RISK);
    peers[2].silent = false;
    serve(engine);
    assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_VALID);
    snib__engine_free(engine);
}

/* Nor is a release by the former server one by the next one. */
static void former_server_releases_for_itself(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_three();
    struct snib__hold *hold = held(engine, "foo");
    held(engine, "bar");
    peers[1].silent = true;
    snib__hold_drop(engine, hold, now);
    serve(engine);
    goes_to(engine, 'c');
    assert_int_equal(peers[2].releases, 0);
    peers[1].silent = false;
    serve(engine);
    assert_int_equal(peers[1].releases, 1);
    assert_int_equal(peers[2].releases, 1);
    snib__engine_free(engine);
}

/* What the former server says of a hold, to what was on its way there, is no confirmation by the next one, which is asked. */
static void former_server_confirms_nothing(void **state)
{
    (void)state;
    int32_t code;
    for (int way = 0; way < 4; way++) { /* a renewal, an extension, a question, a first lease */
        struct snib__engine *engine = begin_three();
        struct snib__hold *hold = held(engine, "foo");
        held(engine, "bar");
        peers[1].silent = way < 2;
        if (way == 1 || way == 2)
            snib__engine_extend(engine, hold, 60 * SECOND, now, &code);
        else if (way == 0)
            pass(engine, hold->acquired_at + 10 * SECOND + 5 * SNIB__MS);
        serve(engine);
        peers[1].silent = peers[2].silent = true;
        if (way == 3)
            snib__hold_fix(engine, hold, 20 * SECOND, now);
        hold->unsure = way == 2;
        hold->gate->node->ask_at = way == 2 ? now : SNIB__NEVER;
        snib__engine_tick(engine, now);
        goes_to(engine, 'c');
        assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_AT_RISK);
        const int renewals = peers[1].renewals;
        peers[1].silent = false;
        serve(engine);
        assert_int_equal(peers[1].renewals, renewals + 1);
        assert_int_equal((hold->flags & SNIB__FIRST) != 0, way == 3);
        assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_AT_RISK);
        peers[2].silent = false;
        pass(engine, now + SECOND);
        assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_VALID);
        assert_false(hold->flags & SNIB__FIRST);
        snib__engine_free(engine);
    }
}

/* What a former server says of where the keys have gone is old news, also when it has the name back: they may be on their way
 * back from there.  The node of the name is asked: a correction does not shorten what has been extended there since, and a
 * release is not a loss. */
static void late_ask_counts_no_more(void **state)
{
    (void)state;
    int32_t code;
    char text[40];
    sprintf(text, "ASK %d a:6379", snib__slot("foo", 3));
    for (int way = 0; way < 4; way++) {
        const bool release = way % 2, back = way > 1;
        struct snib__engine *engine = begin_three();
        struct snib__hold *hold = held(engine, "foo");
        held(engine, "bar");
        held(engine, "orders"); /* at a */
        peers[1].silent = true;
        if (!release)
            snib__hold_fix(engine, hold, 20 * SECOND, now);
        struct snib__op *op = release ? snib__engine_release(engine, hold, now, &code) : NULL;
        serve(engine);
        now += SNIB__MS;
        goes_to(engine, 'c');
        serve(engine);
        if (!release)
            op = snib__engine_extend(engine, hold, 60 * SECOND, now, &code);
        serve(engine);
        if (back)
            goes_to(engine, 'b');
        peers[1].says = text;
        peers[1].times = 1;
        peers[1].silent = false;
        peers[1].lease_ms = peers[2].lease_ms = 0;
        serve(engine);
        assert_true(op->done && op->code == SNIB_OK);
        assert_int_equal(served_by(engine, "foo"), back ? 'b' : 'c');
        assert_int_equal(peers[0].asking, 0);
        assert_int_equal(peers[back ? 1 : 2].releases,
                         release * (1 + back));                    /* and what it gave up */
        assert_true(release || peers[back ? 1 : 2].lease_ms >= 0); /* nothing that shortens */
        snib__engine_free(engine);
    }
}

/* A correction that ASK leads to the next node, after another lane has had the answer to an extension, shortens nothing. */
static void late_correction_by_ask(void **state)
{
    (void)state;
    char text[40];
    sprintf(text, "ASK %d c:6379", snib__slot("foo", 3));
    struct snib__engine *engine = begin_three();
    struct snib__hold *hold = held(engine, "foo");
    held(engine, "bar");
    peers[1].says = text;
    peers[1].times = 1;
    peers[2].lease_ms = 0;
    snib__hold_fix(engine, hold, 20 * SECOND, now);
    hold->exact = false; /* as the extension leaves it */
    engine->extended = 60 * SECOND;
    serve(engine);
    assert_int_equal(peers[2].asking, 1);
    assert_true(peers[2].lease_ms > 0);
    snib__engine_free(engine);
}

/* Nor is what a node said before it served the name, to a request that ASK brought there: another server may have served the
 * name between. */
static void asked_node_confirms_nothing(void **state)
{
    (void)state;
    int32_t code;
    char text[48];
    struct snib__engine *engine = begin_three();
    struct snib__hold *hold = held(engine, "foo");
    held(engine, "bar");
    sprintf(text, "ASK %d c:6379", snib__slot("foo", 3));
    peers[1].says = text;
    peers[1].times = 1;
    peers[2].silent = true;
    const struct snib__op *op = snib__engine_extend(engine, hold, 60 * SECOND, now, &code);
    serve(engine);
    now += SNIB__MS;
    goes_to(engine, 'c');
    const int renewals = peers[2].renewals;
    peers[2].silent = false;
    serve(engine);
    assert_int_equal(peers[2].renewals,
                     renewals + 3); /* that, whether it has the hold, and once more */
    assert_true(op->done && op->code == SNIB_OK);
    assert_int_equal(peers[2].asking, 1);
    snib__engine_free(engine);
}

/* Where ASK has led, something that shortens leases may still arrive: an extension there is no more certain than at the node
 * of the name. */
static void extension_by_ask_is_undone(void **state)
{
    (void)state;
    int32_t code;
    char text[40];
    struct snib__engine *engine = begin_three();
    struct snib__hold *hold = held(engine, "foo");
    held(engine, "bar")->gate->node->shortens_at = now;
    sprintf(text, "ASK %d c:6379", snib__slot("foo", 3));
    peers[1].says = text;
    peers[1].times = 1;
    const struct snib__op *op = snib__engine_extend(engine, hold, 60 * SECOND, now, &code);
    serve(engine);
    assert_int_equal(peers[2].asking, 1);
    assert_true(op->done && op->code == SNIB_ENOTSUP);
    snib__engine_free(engine);
}

/* What the former server has still extended is extended at the next one, which may have the lease before: the hold has that
 * until the next one has answered. */
static void former_server_extends_for_itself(void **state)
{
    (void)state;
    int32_t code;
    struct snib__engine *engine = begin_three();
    struct snib__hold *hold = held(engine, "foo");
    snib__hold_drop(engine, held(engine, "bar"), now);
    snib__engine_extend(engine, hold, 5 * SECOND, now, &code);
    pass(engine, hold->deadline - SECOND);
    peers[1].silent = peers[2].silent = true;
    const struct snib__op *op = snib__engine_extend(engine, hold, 0, now, &code);
    goes_to(engine, 'c');
    peers[1].silent = false;
    serve(engine);
    assert_false(op->done);
    assert_true(hold->deadline <= now + SECOND);
    assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_AT_RISK);
    peers[2].silent = false;
    serve(engine);
    assert_true(op->done && op->code == SNIB_OK);
    assert_true(hold->deadline > now + 29 * SECOND);
    assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_VALID);
    assert_int_equal(peers[2].lease_ms, 30000);
    snib__engine_free(engine);
}

/* A grant by the former server is none by the next one, where another client has the lock. */
static void former_server_grants_nothing(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_three();
    held(engine, "{foo}1");
    held(engine, "bar");
    peers[1].silent = true;
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "foo"), 0);
    serve(engine);
    follows_to_its_holder(engine, op);
    snib__engine_free(engine);
}

/* Nor does it pass a fair lock on to a waiter that has a place at the next one: neither in its answer to a release nor by a
 * message. */
static void former_server_passes_nothing_on(void **state)
{
    (void)state;
    const char *place = "*3\r\n:5000\r\n:0\r\n:1000";
    char text[600], channel[SNIB__CHANNEL_MAX];
    struct snib__engine *engine = begin_three();
    struct snib__gate *fair = gate(engine, SNIB_FAIR, "foo");
    held(engine, "bar");
    peers[1].says = "$1\r\n0";
    peers[1].times = -1;
    struct snib__op *op = acquire(engine, fair, 0);
    pass(engine, now + SECOND);
    struct snib__hold *hold = acquired(engine, op);
    struct snib__node *former = fair->node;
    peers[1].says = peers[2].says = place;
    peers[2].times = -1;
    op = acquire(engine, fair, 0);
    pass(engine, now + 100 * SNIB__MS);
    assert_int_equal(op->hold->phase, SNIB__PLACED);
    peers[1].silent = true;
    snib__hold_drop(engine, hold, now);
    serve(engine);
    goes_to(engine, 'c');
    serve(engine);
    assert_int_equal(op->hold->phase, SNIB__PLACED);
    sprintf(text, "*5\r\n:1\r\n:%d\r\n:3000\r\n$1\r\n0\r\n:2000", (int)op->hold->number);
    peers[1].says = text;
    peers[1].silent = false;
    serve(engine);
    assert_false(op->done);
    size_t n = fair->kind->channel(channel, engine, fair, 0);
    sprintf(text, "*3\r\n$7\r\nmessage\r\n$%zu\r\n%.*s\r\n$13\r\n%d:0:3000:3000\r\n", n, (int)n,
            channel, (int)op->hold->number);
    snib__engine_input(engine, &former->links[SNIB__PUBSUB], text, strlen(text), now);
    assert_false(op->done);
    peers[2].says = "$1\r\n0";
    pass(engine, now + 2 * SECOND);
    acquired(engine, op);
    snib__engine_free(engine);
}

/* A failover that has lost a fair lock may have brought back the place that it was granted: the server that does not have it
 * may grant it again.  So it is released there, when the program is done with it. */
static void lost_fair_hold_gives_its_place_back(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_three();
    held(engine, "bar");
    peers[1].says = "$1\r\n0";
    peers[1].times = -1;
    struct snib__op *op = acquire(engine, gate(engine, SNIB_FAIR, "foo"), 0);
    pass(engine, now + SECOND);
    struct snib__hold *hold = acquired(engine, op);
    peers[2].says = "*2\r\n:1\r\n:0";
    peers[2].times = -1;
    goes_to(engine, 'c');
    pass(engine, now + SECOND);
    assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_LOST);
    assert_int_equal(hold->reason, SNIB_REASON_FAILOVER);
    const int scripts = peers[2].scripts;
    pass(engine, now + SECOND);
    assert_int_equal(peers[2].scripts, scripts);
    peers[2].says = "*5\r\n:2\r\n:0\r\n:3000\r\n$1\r\n0\r\n:2000";
    snib__hold_drop(engine, hold, now);
    serve(engine);
    assert_int_equal(peers[2].scripts, scripts + 1);
    assert_non_null(strstr(peers[2].last, snib__script_texts[SNIB__SCRIPT_FAIR_RELEASE].sha1));
    snib__engine_free(engine);
}

/* The same where an extension, which was on its way, is the first to hear it: that another client has the lock there by now
 * is no other reason. */
static void extension_finds_the_failover(void **state)
{
    (void)state;
    int32_t code;
    struct snib__engine *engine = begin_three();
    peers[1].says = "$1\r\n0";
    peers[1].times = -1;
    struct snib__op *op = acquire(engine, gate(engine, SNIB_FAIR, "foo"), 0);
    pass(engine, now + SECOND);
    struct snib__hold *hold = acquired(engine, op);
    peers[1].silent = true;
    op = snib__engine_extend(engine, hold, 3600 * SECOND, now, &code);
    serve(engine);
    peers[2].says = "*2\r\n:1\r\n:1";
    peers[2].times = -1;
    goes_to(engine, 'c');
    crash(engine, 'b');
    serve(engine);
    assert_true(op->done && op->code == SNIB_LOST);
    assert_int_equal(op->reason, SNIB_REASON_FAILOVER);
    const int scripts = peers[2].scripts;
    peers[2].says = "*5\r\n:2\r\n:0\r\n:3000\r\n$1\r\n0\r\n:2000";
    snib__hold_drop(engine, hold, now);
    serve(engine);
    assert_int_equal(peers[2].scripts, scripts + 1);
    assert_non_null(strstr(peers[2].last, snib__script_texts[SNIB__SCRIPT_FAIR_RELEASE].sha1));
    snib__engine_free(engine);
}

/* A server that restarts with the data of a second ago may have the place, too, and not the hold. */
static void restart_gives_its_place_back(void **state)
{
    (void)state;
    for (int taken = 0; taken < 2; taken++) {
        struct snib__engine *engine = begin_three();
        peers[1].says = "$1\r\n0";
        peers[1].times = -1;
        struct snib__op *op = acquire(engine, gate(engine, SNIB_FAIR, "foo"), 0);
        pass(engine, now + SECOND);
        struct snib__hold *hold = acquired(engine, op);
        peers[1].says = taken ? "*2\r\n:1\r\n:1" : "*2\r\n:1\r\n:0";
        crash(engine, 'b');
        peers[1].run++;
        peers[1].down = false;
        pass(engine, now + SECOND);
        assert_int_equal(snib__hold_reason(hold, now),
                         taken ? SNIB_REASON_TAKEN : SNIB_REASON_DELETED);
        const int scripts = peers[1].scripts;
        peers[1].says = "*5\r\n:2\r\n:0\r\n:3000\r\n$1\r\n0\r\n:2000";
        snib__hold_drop(engine, hold, now);
        serve(engine);
        assert_int_equal(peers[1].scripts, scripts + 1);
        assert_non_null(strstr(peers[1].last, snib__script_texts[SNIB__SCRIPT_FAIR_RELEASE].sha1));
        snib__engine_free(engine);
    }
}

/* Nor does a message that came from it before, while a request was on its way that it has redirected since. */
static void former_server_promises_nothing(void **state)
{
    (void)state;
    char text[80], channel[SNIB__CHANNEL_MAX], message[400], move[64];
    struct snib__engine *engine = begin_three();
    held(engine, "{foo}1");
    held(engine, "bar");
    peers[1].says = peers[2].says = "*3\r\n:20000\r\n:0\r\n:1000";
    peers[1].times = peers[2].times = -1;
    struct snib__gate *fair = gate(engine, SNIB_FAIR, "foo");
    const struct snib__op *op = acquire(engine, fair, 0);
    pass(engine, now + SECOND / 10);
    moved(move, "foo", 'c');
    peers[1].says = move;
    for (int i = 0; op->hold->phase == SNIB__PLACED; i++) {
        assert_true(i < 100);
        now = snib__engine_deadline(engine);
        snib__engine_tick(engine, now);
    }
    assert_int_equal(op->hold->phase, SNIB__TRYING);
    size_t n = fair->kind->channel(channel, engine, fair, 0);
    snprintf(text, sizeof text, "%llu:0:4000:1400", (unsigned long long)op->hold->number);
    snprintf(message, sizeof message, "*3\r\n$7\r\nmessage\r\n$%zu\r\n%.*s\r\n$%zu\r\n%s\r\n", n,
             (int)n, channel, strlen(text), text);
    snib__engine_input(engine, &fair->node->links[SNIB__PUBSUB], message, strlen(message), now);
    pass(engine, now + 2 * SECOND);
    assert_int_equal(served_by(engine, "foo"), 'c');
    assert_false(op->done);
    snib__engine_free(engine);
}

/* Nor does one that comes so late that the name has gone to another server and come back meanwhile: that server is asked. */
static void late_promise_is_a_question(void **state)
{
    (void)state;
    char text[80], channel[SNIB__CHANNEL_MAX], message[400];
    for (int moved_away = 0; moved_away < 2; moved_away++) {
        struct snib__engine *engine = begin_three();
        held(engine, "{foo}1");
        held(engine, "bar");
        peers[1].says = peers[2].says = "*3\r\n:20000\r\n:0\r\n:1000";
        peers[1].times = peers[2].times = -1;
        struct snib__gate *fair = gate(engine, SNIB_FAIR, "foo");
        const struct snib__op *op = acquire(engine, fair, 0);
        pass(engine, now + SECOND / 10);
        assert_int_equal(op->hold->phase, SNIB__PLACED);
        if (moved_away) {
            goes_to(engine, 'c');
            goes_to(engine, 'b');
        }
        size_t n = fair->kind->channel(channel, engine, fair, 0);
        snprintf(text, sizeof text, "%llu:0:4000:1400", (unsigned long long)op->hold->number);
        snprintf(message, sizeof message, "*3\r\n$7\r\nmessage\r\n$%zu\r\n%.*s\r\n$%zu\r\n%s\r\n",
                 n, (int)n, channel, strlen(text), text);
        snib__engine_input(engine, &fair->node->links[SNIB__PUBSUB], message, strlen(message), now);
        assert_int_equal(op->done, !moved_away);
        assert_int_equal(op->hold->phase, moved_away ? SNIB__TRYING : SNIB__HELD);
        snib__engine_free(engine);
    }
}

/* A plain lock's release is two commands: the first is answered, the name moves, and the connection ends before the second
 * is. */
static void former_server_has_released_one_half(void **state)
{
    (void)state;
    int32_t code;
    struct snib__engine *engine = begin_three();
    held(engine, "bar");
    struct snib__op *op = acquire(engine, gate(engine, SNIB_PLAIN, "foo"), 0);
    serve(engine);
    struct snib__hold *hold = acquired(engine, op);
    struct snib__link *link = &hold->gate->node->links[SNIB__COMMAND];
    link->conn.delifeq = true;
    peers[1].silent = true;
    now += SNIB__MS;
    op = snib__engine_release(engine, hold, now, &code);
    snib__engine_input(engine, link, ":1\r\n", 4, now);
    assert_false(op->done);
    now += SNIB__MS;
    goes_to(engine, 'c');
    serve(engine);
    const int scripts = peers[2].scripts;
    snib__engine_link_down(engine, link, SNIB_EUNREACHABLE, 104, now);
    assert_true(op->done && op->code == SNIB_OK);
    peers[2].says = ":0";
    peers[2].times = -1;
    serve(engine);
    assert_int_equal(peers[2].scripts, scripts + 1);
    assert_int_equal(engine->releasing, 0);
    snib__engine_free(engine);
}

/* Nor is a grant that waits for the former server's replicas, of which the next one may have been none. */
static void former_server_replicates_for_itself(void **state)
{
    (void)state;
    char words[WORDS][96];
    struct snib__engine *engine = begin_three();
    engine->config.durability = 1;
    engine->config.durability_timeout = SECOND;
    held(engine, "{foo}1");
    held(engine, "bar");
    peers[1].silent = true;
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "foo"), 0);
    struct snib__link *line = &op->gate->node->lanes[SNIB__LANES_MAX - 1];
    assert_true(next_command(snib__link_output(line), words));
    snib__engine_input(engine, line, "$-1\r\n", 5, now);
    assert_false(op->done);
    follows_to_its_holder(engine, op);
    snib__engine_free(engine);
}

/* A server that has its slot back was another one's replica meanwhile: it may have lost what it granted before. */
static void slot_back_has_forgotten(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_three();
    held(engine, "{foo}1");
    held(engine, "bar");
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "foo"), 0);
    const int scripts = peers[1].scripts;
    now += SNIB__MS;
    goes_to(engine, 'c');
    goes_to(engine, 'b');
    serve(engine);
    acquired(engine, op);
    assert_int_equal(peers[1].scripts, scripts + 2);
    snib__engine_free(engine);
}

/* A master that was replaced, and is the master again, may have the lock from the one between, which had not heard of the
 * release. */
static void given_back_again_to_the_same_server(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_three();
    held(engine, "bar");
    struct snib__hold *hold = held(engine, "foo");
    snib__hold_drop(engine, hold, now);
    serve(engine);
    assert_int_equal(peers[1].releases, 1);
    now += SNIB__MS;
    goes_to(engine, 'c');
    serve(engine);
    assert_int_equal(peers[2].releases, 1);
    now += SNIB__MS;
    goes_to(engine, 'b');
    serve(engine);
    assert_int_equal(peers[1].releases, 2);
    pass(engine, now + 15 * SECOND);
    assert_int_equal(peers[1].releases, 2);
    snib__engine_free(engine);
}

/* The same, if nothing is sent to the one between. */
static void given_back_again_without_the_one_between(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_three();
    struct snib__hold *hold = held(engine, "foo");
    snib__hold_drop(engine, hold, now);
    serve(engine);
    goes_to(engine, 'c'); /* it is told together with the reply */
    goes_to(engine, 'b');
    serve(engine);
    assert_int_equal(peers[1].releases, 2);
    pass(engine, now + 15 * SECOND);
    assert_int_equal(peers[1].releases, 2);
    snib__engine_free(engine);
}

/* The next server is told although nothing else needs it, also if it cannot be reached at first. */
static void given_back_again_where_nothing_else_is_needed(void **state)
{
    (void)state;
    for (int down = 0; down < 2; down++) {
        struct snib__engine *engine = begin_three();
        struct snib__hold *hold = held(engine, "foo");
        snib__hold_drop(engine, hold, now);
        serve(engine);
        peers[2].down = down;
        now += SNIB__MS;
        common_epoch++;
        map_of(common, "a:0-4999 b:16000-16383 c:5000-15999");
        goes_to(engine, 'c');
        pass(engine, now + SECOND);
        assert_int_equal(peers[2].releases, !down);
        peers[2].down = false;
        pass(engine, now + 5 * SECOND);
        assert_int_equal(peers[2].releases, 1);
        pass(engine, now + 15 * SECOND);
        assert_int_equal(peers[2].releases, 1);
        snib__engine_free(engine);
    }
}

/* A recent release is repeated at the next server, once, connected or not. */
static void given_back_again_after_a_failover(void **state)
{
    (void)state;
    for (int there = 0; there < 2; there++) {
        struct snib__engine *engine =
            begin_cluster(there ? "a:0-8191 b:8192-12999 c:13000-16383" : "a:0-8191 b:8192-16383");
        struct snib__hold *hold = held(engine, "foo");
        held(engine, "bar");
        if (there)
            held(engine, "x"); /* 16287, at c */
        snib__hold_drop(engine, hold, now);
        serve(engine);
        assert_int_equal(peers[1].releases, 1);
        acquire(engine, gate(engine, SNIB_MUTEX, "foo"), 0);
        pass(engine, now + 100 * SNIB__MS);
        common_epoch++;
        map_of(common, "a:0-8191 c:8192-16383");
        crash(engine, 'b');
        pass(engine, now + SECOND);
        assert_int_equal(served_by(engine, "foo"), 'c');
        assert_int_equal(peers[2].releases, 1);
        pass(engine, now + 15 * SECOND);
        assert_int_equal(peers[2].releases, 1);
        snib__engine_free(engine);
    }
}

/* A slot that moves there and back: each server is asked whether it has the hold. */
static void hold_is_confirmed_after_each_move(void **state)
{
    (void)state;
    char there[64], back[64];
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    struct snib__hold *hold = held(engine, "{bar}1");
    held(engine, "foo");
    moved(there, "bar", 'b');
    moved(back, "bar", 'a');
    for (int i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof name, "{bar}n%d", i);
        peers[i % 2].says = i % 2 ? back : there;
        peers[i % 2].times = 1;
        const int renewals = peers[1 - i % 2].renewals;
        acquire(engine, gate(engine, SNIB_MUTEX, name), 0);
        serve(engine);
        assert_int_equal(served_by(engine, "bar"), i % 2 ? 'a' : 'b');
        assert_true(peers[1 - i % 2].renewals > renewals);
        assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_VALID);
    }
    snib__engine_free(engine);
}

/* A renewal was refused for a while, and its hold has got a lease of its own meanwhile: the renewal is not repeated for it, or
 * it is lost with its connection.  The next server of the name is asked all the same whether it has the hold: nothing else
 * would find that out. */
static void late_renewal_was_a_question(void **state)
{
    (void)state;
    char there[64], back[64];
    int32_t code;
    for (int i = 0; i < 4; i++) {
        bool shorter = i % 2 == 0; /* so that the renewal is not repeated */
        bool paused = i > 0;       /* it still is, when the name moves again */
        bool cut = i == 3;
        struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
        struct snib__hold *hold = held(engine, "{bar}1");
        held(engine, "foo");
        moved(there, "bar", 'b');
        moved(back, "bar", 'a');
        peers[0].says = there;
        peers[0].times = 1;
        peers[1].says = "TRYAGAIN Multiple keys request during rehashing of slot";
        peers[1].times = 2;
        acquire(engine, gate(engine, SNIB_MUTEX, "{bar}2"), 0);
        serve(engine);
        assert_int_equal(engine->paused_n, 2);
        snib__engine_extend(engine, hold, shorter ? 10 * SECOND : 90 * SECOND, now, &code);
        serve(engine);
        assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_VALID);
        if (!paused)
            pass(engine, now + 100 * SNIB__MS);
        peers[1].says = back;
        peers[1].times = 1;
        peers[0].then = "*2\r\n:1\r\n:0"; /* it has gone */
        peers[0].silent = cut;
        acquire(engine, gate(engine, SNIB_MUTEX, "{bar}3"), 0);
        pass(engine, now + 100 * SNIB__MS);
        if (cut) {
            assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_AT_RISK);
            peers[0].silent = false;
            crash(engine, 'a');
            peers[0].down = false;
        }
        pass(engine, now + 2 * SECOND);
        assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_LOST);
        snib__engine_free(engine);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moved_hold_is_at_risk_until_it_is_confirmed),
        cmocka_unit_test(former_server_releases_for_itself),
        cmocka_unit_test(late_correction_by_ask),
        cmocka_unit_test(late_ask_counts_no_more),
        cmocka_unit_test(former_server_confirms_nothing),
        cmocka_unit_test(asked_node_confirms_nothing),
        cmocka_unit_test(extension_by_ask_is_undone),
        cmocka_unit_test(former_server_extends_for_itself),
        cmocka_unit_test(former_server_grants_nothing),
        cmocka_unit_test(former_server_passes_nothing_on),
        cmocka_unit_test(former_server_promises_nothing),
        cmocka_unit_test(late_promise_is_a_question),
        cmocka_unit_test(lost_fair_hold_gives_its_place_back),
        cmocka_unit_test(extension_finds_the_failover),
        cmocka_unit_test(restart_gives_its_place_back),
        cmocka_unit_test(former_server_has_released_one_half),
        cmocka_unit_test(former_server_replicates_for_itself),
        cmocka_unit_test(slot_back_has_forgotten),
        cmocka_unit_test(given_back_again_to_the_same_server),
        cmocka_unit_test(given_back_again_without_the_one_between),
        cmocka_unit_test(given_back_again_where_nothing_else_is_needed),
        cmocka_unit_test(given_back_again_after_a_failover),
        cmocka_unit_test(hold_is_confirmed_after_each_move),
        cmocka_unit_test(late_renewal_was_a_question),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
