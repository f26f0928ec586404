/* cluster.c - whom the route of a cluster believes, and where requests go: nodes that say what the test wants. */
#include "fed.h"

#include "engine/cluster.h"

#include <stdlib.h>

/* ---- Nodes ------------------------------------------------------------------------------------------ */

/* One node; its host is its name: "a", "b", ... at port 6379. */
struct peer {
    char map[600]; /* its answer to CLUSTER SLOTS; "": the common one */
    int epoch;     /* 0: the common one */
    bool down;
    const char *says; /* to scripts, instead of granting: an error, or a number */
    int times;        /* so often; -1 always */
    const char *then; /* and always after that */
    int scripts, asked, connects, asking; /* what was seen */
    bool asking_on;                       /* ASKING came just before */
    int renewals, renewed_keys, prolonged;
};

static struct peer peers[8];
static char common[600];
static int common_epoch;

static struct peer *peer_of(const struct snib__link *link)
{
    const struct snib__address *address = snib__link_address(link);
    assert_non_null(address);
    assert_true(address->host[0] >= 'a' && address->host[0] <= 'h' && address->host[1] == 0);
    return &peers[address->host[0] - 'a'];
}

static bool next_command(struct snib__buf *out, char words[5][64])
{
    char *at = out->data + out->head, *end = out->data + out->len;
    if (at == end)
        return false;
    long n = strtol(at + 1, &at, 10);
    at += 2;
    memset(words, 0, 5 * sizeof words[0]);
    for (long i = 0; i < n; i++) {
        long length = strtol(at + 1, &at, 10);
        at += 2;
        if (i < 5)
            snprintf(words[i], sizeof words[i], "%.*s", (int)length, at);
        at += length + 2;
    }
    snib__buf_consume(out, (size_t)(at - out->data - (long)out->head));
    return true;
}

static void script_says(struct peer *one, char words[5][64], char *out)
{
    bool renewal = strcmp(words[1], snib__script_texts[SNIB__SCRIPT_MUTEX_RENEW].sha1) == 0;
    one->scripts++;
    one->renewals += renewal;
    one->renewed_keys += renewal ? atoi(words[2]) : 0;
    one->prolonged += renewal && atoi(words[2]) == 1 && atoi(words[4]) > 0; /* 0: a question */
    one->asking += one->asking_on;
    if (one->says && one->times != 0) {
        one->times -= one->times > 0;
        sprintf(out, one->says[0] == ':' ? "%s\r\n" : "-%s\r\n", one->says);
    } else if (one->then) {
        sprintf(out, one->then[0] == ':' ? "%s\r\n" : "-%s\r\n", one->then);
    } else {
        sprintf(out, renewal ? "*0\r\n" : "$-1\r\n");
    }
}

static void peer_says(struct peer *one, char words[5][64], char *out)
{
    char text[700];
    bool asking = one->asking_on;
    if (strcmp(words[0], "CLUSTER") == 0 && strcmp(words[1], "INFO") == 0) {
        sprintf(text, "cluster_current_epoch:%d\r\n", one->epoch ? one->epoch : common_epoch);
        sprintf(out, "$%d\r\n%s\r\n", (int)strlen(text), text);
    } else if (strcmp(words[0], "CLUSTER") == 0) {
        one->asked++;
        strcpy(out, one->map[0] ? one->map : common);
    } else if (strcmp(words[0], "EVALSHA") == 0) {
        script_says(one, words, out);
    } else if (strcmp(words[0], "SCRIPT") == 0) {
        out[0] = 0; /* by the caller, who knows the text's hash */
    } else if (strcmp(words[0], "CLIENT") == 0 && strcmp(words[1], "ID") == 0) {
        sprintf(out, ":7\r\n");
    } else if (strcmp(words[0], "INFO") == 0) {
        sprintf(text, "run_id:%c\r\nredis_mode:cluster\r\n", 'a' + (int)(one - peers));
        sprintf(out, "$%d\r\n%s\r\n", (int)strlen(text), text);
    } else {
        sprintf(out, "+OK\r\n");
    }
    one->asking_on = strcmp(words[0], "ASKING") == 0 || (asking && !*out);
}

/* The hash of the script that is loaded, which the connection compares. */
static void loaded(struct snib__link *link, char *out)
{
    const struct snib__conn *conn = &link->conn;
    assert_int_equal(conn->ring[conn->ring_head].kind, CONN_LOAD);
    sprintf(out, "$40\r\n%s\r\n", snib__script_texts[conn->ring[conn->ring_head].script].sha1);
}

static bool serve_link(struct snib__engine *engine, struct snib__link *link)
{
    char words[5][64], out[800];
    int wish = snib__engine_take_wish(engine, link);
    if (wish == SNIB__WISH_CONNECT) {
        struct peer *one = peer_of(link);
        one->connects++;
        if (one->down)
            snib__engine_link_down(engine, link, SNIB_EUNREACHABLE, 111, now);
        else
            snib__engine_link_up(engine, link, now);
        return true;
    }
    if (wish != SNIB__WISH_NOTHING || !link->node->addressed || peer_of(link)->down ||
        !next_command(snib__link_output(link), words))
        return wish != SNIB__WISH_NOTHING;
    peer_says(peer_of(link), words, out);
    if (!out[0])
        loaded(link, out);
    snib__engine_input(engine, link, out, strlen(out), now);
    return true;
}

/* Everything that is asked is answered, at once. */
static void serve(struct snib__engine *engine)
{
    bool more = true;
    for (int i = 0; more; i++) {
        assert_true(i < 10000);
        more = false;
        for (struct snib__link *link = snib__engine_links(engine); link;
             link = snib__link_next(link))
            more = serve_link(engine, link) || more;
    }
}

static void pass(struct snib__engine *engine, snib__time until)
{
    serve(engine);
    while (now < until) {
        snib__time next = snib__engine_deadline(engine);
        now = next <= now ? now + SNIB__MS : next < until ? next : until;
        snib__engine_tick(engine, now);
        serve(engine);
    }
}

/* "a:0-8191 b:8192-16383" as CLUSTER SLOTS answers it. */
static void map_of(char out[600], const char *text)
{
    char host;
    int from, to, n = 0, used;
    char *at = out + sprintf(out, "*0\r\n");
    for (const char *word = text; sscanf(word, " %c:%d-%d%n", &host, &from, &to, &used) == 3;
         word += used, n++)
        at += sprintf(at, "*3\r\n:%d\r\n:%d\r\n*4\r\n$1\r\n%c\r\n:6379\r\n$2\r\nid\r\n*0\r\n", from,
                      to, host);
    out[1] = (char)('0' + n);
}

static struct snib__address seeds[2];

static struct snib__engine *begin_cluster(const char *map)
{
    memset(peers, 0, sizeof peers);
    map_of(common, map);
    common_epoch = 5;
    assert_true(snib__address_host(&seeds[0], "a", 1, 6379, false));
    assert_true(snib__address_host(&seeds[1], "b", 1, 6379, false));
    struct snib__config config = {.topology = SNIB__CLUSTER,
                                  .seeds = seeds,
                                  .seeds_n = 2,
                                  .publish = SNIB_PUBLISH_CLASSIC,
                                  .uuid = "00000000-0000-8000-8000-000000000001",
                                  .seed = 1,
                                  .first_number = 1,
                                  .lease = 30 * SECOND,
                                  .reply_timeout = 3 * SECOND,
                                  .patience = 5 * SECOND,
                                  .try_timeout = SECOND,
                                  .recheck = 3 * SECOND,
                                  .handover_max = 16,
                                  .ops_max = 10000};
    struct snib__engine *engine = snib__engine_new(&config);
    assert_non_null(engine);
    now = START;
    return engine;
}

static struct snib__hold *held(struct snib__engine *engine, const char *name)
{
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, name), 0);
    pass(engine, now + SECOND);
    return acquired(engine, op);
}

static char served_by(struct snib__engine *engine, const char *name)
{
    const struct snib__node *node = engine->route->serves(engine, name, strlen(name));
    return node->addressed ? node->address.host[0] : '-';
}

static void moved(char out[64], const char *name, char host)
{
    sprintf(out, "MOVED %d %c:6379", snib__slot(name, strlen(name)), host);
}

/* ---- Whom it believes --------------------------------------------------------------------------------- */

static void endpoints_have_many_forms(void **state)
{
    (void)state;
    static const struct {
        const char *endpoint, *facts;
        char host;
    } forms[] = {
        {"$1\r\nb\r\n", "*0\r\n", 'b'},
        {"$-1\r\n", "*0\r\n", 'a'}, /* the host that was asked */
        {"$0\r\n\r\n", "*0\r\n", 'a'},
        {"$1\r\n?\r\n", "*2\r\n$2\r\nip\r\n$1\r\nc\r\n", 'c'},
        {"$1\r\n?\r\n", "*4\r\n$1\r\nx\r\n$1\r\ny\r\n$2\r\nip\r\n$1\r\nc\r\n", 'c'},
        {"$1\r\n?\r\n", "*0\r\n", '-'},
        {"$1\r\nb\r\n", "*2\r\n$2\r\nip\r\n$1\r\nc\r\n", 'b'},
    };
    for (size_t i = 0; i < COUNT(forms); i++) {
        struct snib__engine *engine = begin_cluster("a:0-1");
        peers[1].down = true;
        sprintf(common,
                "*1\r\n*4\r\n:0\r\n:16383\r\n*4\r\n%s:6379\r\n$2\r\nid\r\n%s"
                "*4\r\n$1\r\nd\r\n:6379\r\n$2\r\nid\r\n*0\r\n",
                forms[i].endpoint, forms[i].facts);
        acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
        pass(engine, now + 300 * SNIB__MS);
        assert_int_equal(served_by(engine, "m"), forms[i].host);
        snib__engine_free(engine);
    }
}

/* What a node says of its own slot goes before a map for a while, and then not. */
static void moved_goes_before_maps(void **state)
{
    (void)state;
    char text[64];
    struct snib__engine *engine = begin_cluster("a:0-16383");
    struct snib__hold *hold = held(engine, "m");
    moved(text, "m", 'b');
    peers[0].says = text;
    peers[0].times = 1;
    struct snib__hold *other = held(engine, "{m}2");
    assert_int_equal(served_by(engine, "m"), 'b');
    assert_ptr_equal(hold->gate->node, other->gate->node);
    assert_int_equal(snib__hold_state(engine, hold, now),
                     SNIB_HOLD_VALID); /* it was asked for at once */
    assert_int_equal(peers[1].renewals, 1);
    assert_true(peers[0].asked + peers[1].asked >= 2); /* and the map, which lags */
    assert_int_equal(served_by(engine, "m"), 'b');
    pass(engine, now + 15 * SECOND);
    assert_int_equal(served_by(engine, "m"), 'a');
    snib__engine_free(engine);
}

/* The name has left the node while it had not answered yet: what it says of the slot is older than what is known. */
static void old_node_is_not_believed(void **state)
{
    (void)state;
    char text[64], older[64];
    struct snib__engine *engine = begin_cluster("a:0-16383");
    held(engine, "{m}1");
    moved(text, "m", 'b');
    moved(older, "m", 'c');
    peers[0].says = text;
    peers[0].times = 1;
    peers[0].then = older;
    struct snib__op *one = acquire(engine, gate(engine, SNIB_MUTEX, "{m}2"), 0),
                    *two = acquire(engine, gate(engine, SNIB_MUTEX, "{m}3"), 0);
    serve(engine);
    assert_int_equal(served_by(engine, "m"), 'b');
    pass(engine, now + SECOND / 2);
    assert_true(one->done && two->done);
    assert_int_equal(peers[2].scripts, 0);
    snib__engine_free(engine);
}

/* Holds that are moved come into the order of their deadlines, between those that are there. */
static void moved_holds_are_in_order(void **state)
{
    (void)state;
    enum { HOLDS = 9 };
    char text[64], name[16];
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    for (int i = 0; i < HOLDS; i++) { /* bar: 5061, foo: 12182 */
        snprintf(name, sizeof name, i % 3 == 2 ? "{foo}%d" : "{bar}%d", i * 5 % HOLDS);
        held(engine, name);
    }
    peers[1].down = true;
    for (struct snib__link *link = snib__engine_links(engine); link; link = snib__link_next(link))
        if (link->node->addressed && peer_of(link) == &peers[1] &&
            link->conn.state != SNIB__CONN_DOWN)
            snib__engine_link_down(engine, link, SNIB_EUNREACHABLE, 104, now);
    moved(text, "bar", 'b');
    peers[0].says = text;
    peers[0].times = 1;
    acquire(engine, gate(engine, SNIB_MUTEX, "{bar}x"), 0);
    serve(engine);
    assert_int_equal(served_by(engine, "bar"), 'b');
    const struct snib__node *node = engine->route->serves(engine, "bar", 3);
    const struct snib__renewals *list = &node->renewals[SNIB_MUTEX];
    assert_int_equal(list->n, HOLDS);
    assert_ptr_equal(list->cursor, list->head);
    for (const struct snib__hold *hold = list->head; hold; hold = hold->next)
        assert_true(!hold->next || hold->deadline <= hold->next->deadline);
    snib__engine_free(engine);
}

/* A fixed lease is asked for where its name is now, as soon as there is a connection, and not prolonged. */
static void fixed_lease_is_asked_for(void **state)
{
    (void)state;
    char text[64];
    int32_t code;
    const struct snib__acquire fixed = {.wait = SNIB__NEVER, .lease = 60 * SECOND};
    for (int there = 0; there < 2; there++) { /* whether there is one already */
        struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
        struct snib__op *op =
            snib__engine_acquire(engine, gate(engine, SNIB_MUTEX, "{bar}1"), &fixed, now, &code);
        pass(engine, now + SECOND);
        struct snib__hold *hold = acquired(engine, op);
        const snib__time deadline = hold->deadline;
        if (there)
            held(engine, "foo"); /* at b */
        const struct peer *to = &peers[there ? 1 : 2];
        moved(text, "bar", there ? 'b' : 'c');
        peers[0].says = text;
        peers[0].times = 1;
        held(engine, "{bar}2");
        assert_int_equal(served_by(engine, "bar"), there ? 'b' : 'c');
        assert_int_equal(to->renewals, 1);
        assert_int_equal(to->prolonged, 0);
        assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_VALID);
        assert_true(hold->deadline == deadline);
        snib__engine_free(engine);
    }
}

/* A node that has lost its slots is to answer soon; when it has some again it may be as slow as any. */
static void slots_that_come_back(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_cluster("a:0-16383");
    held(engine, "m");
    const struct snib__cluster *map = engine->map;
    uint16_t a = map->owner[0];
    common_epoch++;
    map_of(common, "b:0-16383");
    pass(engine, now + 11 * SECOND);
    assert_true(map->owner[0] != a && map->member[a].deposed);
    common_epoch++;
    map_of(common, "a:0-100 b:101-16383");
    pass(engine, now + 11 * SECOND);
    assert_int_equal(map->owner[0], a);
    assert_false(map->member[a].deposed);
    snib__engine_free(engine);
}

/* A waiter's name moves: what it expects to hear of its own releases it does not expect of the next node. */
static void expected_messages_do_not_move(void **state)
{
    (void)state;
    char text[64];
    struct snib__engine *engine = begin_cluster("a:0-16383");
    held(engine, "{m}1");
    struct snib__gate *mutex = gate(engine, SNIB_MUTEX, "{m}2");
    peers[0].says = ":86400000";
    peers[0].times = 1;
    acquire(engine, mutex, 0);
    serve(engine);
    mutex->wait->own_messages = 1;
    moved(text, "m", 'b');
    peers[0].says = text;
    peers[0].times = 1;
    peers[1].then = ":86400000";
    acquire(engine, gate(engine, SNIB_MUTEX, "{m}3"), 0);
    serve(engine);
    assert_int_equal(served_by(engine, "m"), 'b');
    assert_int_equal(mutex->wait->own_messages, 0);
    snib__engine_free(engine);
}

/* Replicas are those of the last map. */
static void replicas_are_of_the_last_map(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_cluster("a:0-16383");
    sprintf(common, "*1\r\n*4\r\n:0\r\n:16383\r\n"
                    "*4\r\n$1\r\na\r\n:6379\r\n$2\r\nid\r\n*0\r\n"
                    "*4\r\n$1\r\nd\r\n:6379\r\n$2\r\nid\r\n*0\r\n");
    held(engine, "m");
    const struct snib__cluster *map = engine->map;
    assert_int_equal(map->spares_n, 1);
    assert_string_equal(map->spare[0].host, "d");
    common[strlen("*1\r\n*4\r\n:0\r\n:16383\r\n*4\r\n$1\r\na\r\n:6379\r\n$2\r\nid\r\n*0\r\n"
                  "*4\r\n$1\r\n")] = 'e';
    common_epoch++;
    pass(engine, now + 15 * SECOND);
    assert_int_equal(map->spares_n, 1);
    assert_string_equal(map->spare[0].host, "e");
    snib__engine_free(engine);
}

/* A node that lags takes nothing back, unless nobody knows better for long. */
static void old_maps_are_not_believed(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_cluster("a:0-16383");
    held(engine, "m");
    map_of(common, "b:0-16383");
    common_epoch = 4;
    pass(engine, now + 10 * SECOND);
    assert_int_equal(served_by(engine, "m"), 'a');
    pass(engine, now + 20 * SECOND);
    assert_int_equal(served_by(engine, "m"), 'b');
    common_epoch = 6;
    map_of(common, "c:0-16383");
    pass(engine, now + 11 * SECOND);
    assert_int_equal(served_by(engine, "m"), 'c');
    snib__engine_free(engine);
}

static void idle_client_is_silent(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_cluster("a:0-16383");
    pass(engine, now + 60 * SECOND);
    assert_int_equal(peers[0].connects + peers[1].connects, 0);
    struct snib__hold *hold = held(engine, "m");
    int asked = peers[0].asked + peers[1].asked;
    pass(engine, now + 60 * SECOND);
    int more = peers[0].asked + peers[1].asked - asked;
    assert_true(more >= 5 && more <= 7);
    snib__hold_drop(engine, hold, now);
    pass(engine, now + SECOND);
    asked = peers[0].asked + peers[1].asked;
    pass(engine, now + 60 * SECOND);
    assert_int_equal(peers[0].asked + peers[1].asked, asked);
    snib__engine_free(engine);
}

static void node_that_has_gone_is_left(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_cluster("a:0-16383");
    held(engine, "m");
    struct snib__node *node = engine->route->serves(engine, "m", 1);
    common_epoch++;
    map_of(common, "b:0-16383");
    pass(engine, now + 11 * SECOND);
    assert_int_equal(served_by(engine, "m"), 'b');
    assert_int_equal(node->links[SNIB__COMMAND].conn.state, SNIB__CONN_DOWN);
    strcpy(node->words, "what it said");
    int connects = peers[0].connects;
    peers[0].down = true;
    common_epoch++;
    map_of(common, "b:0-8000 c:8001-16383");
    pass(engine, now + 30 * SECOND);
    assert_int_equal(peers[0].connects, connects);
    assert_int_equal(node->address.host[0], 'c'); /* used again, */
    assert_string_equal(node->words, "");         /* ... as another's */
    snib__engine_free(engine);
}

/* ---- Where requests go -------------------------------------------------------------------------------- */

static void ask_is_for_one_request(void **state)
{
    (void)state;
    char text[64];
    struct snib__engine *engine = begin_cluster("a:0-16383");
    sprintf(text, "ASK %d b:6379", snib__slot("m", 1));
    peers[0].says = text;
    peers[0].times = 1;
    held(engine, "m");
    assert_int_equal(peers[1].scripts, 1);
    assert_int_equal(peers[1].asking, 1);
    assert_int_equal(served_by(engine, "m"), 'a');
    held(engine, "{m}2");
    assert_int_equal(peers[1].scripts, 1);
    snib__engine_free(engine);
}

/* ASKING has been used up by the script that was not there. */
static void forgotten_script_is_asked_for_again(void **state)
{
    (void)state;
    char text[64];
    struct snib__engine *engine = begin_cluster("a:0-16383");
    sprintf(text, "ASK %d b:6379", snib__slot("m", 1));
    peers[0].says = text;
    peers[0].times = 1;
    peers[1].says = "NOSCRIPT No matching script.";
    peers[1].times = 1;
    held(engine, "m");
    assert_int_equal(peers[1].scripts, 2);
    assert_int_equal(peers[1].asking, 2);
    snib__engine_free(engine);
}

/* Nobody would serve it: it is asked again with pauses, and ends like what cannot be reached, surely undone. */
static void refusals_are_endured(void **state)
{
    (void)state;
    static const char *const refusals[] = {
        "TRYAGAIN Multiple keys request during rehashing of slot",
        "CLUSTERDOWN The cluster is down", "CLUSTERDOWN Hash slot not served",
        "MIGRATING", /* Garnet's */
    };
    for (size_t i = 0; i < COUNT(refusals); i++)
        for (int heals = 0; heals < 2; heals++) {
            struct snib__engine *engine = begin_cluster("a:0-16383");
            peers[0].says = refusals[i];
            peers[0].times = heals ? 10 : -1;
            struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
            pass(engine, now + 4 * SECOND);
            assert_int_equal(op->done, heals);
            pass(engine, now + 2 * SECOND);
            assert_true(op->done && peers[0].scripts < 100);
            assert_int_equal(op->code, heals ? SNIB_OK : SNIB_ECONNECT);
            assert_true(heals || strstr(op->words, refusals[i]) != NULL);
            assert_true(heals || snib__engine_quiet(engine));
            snib__engine_free(engine);
        }
}

/* When a node has served it, patience with those who did not is at an end: it waits for the lock as long as it may. */
static void served_after_refusals(void **state)
{
    (void)state;
    int32_t code;
    const struct snib__acquire how = {.wait = 20 * SECOND};
    struct snib__engine *engine = begin_cluster("a:0-16383");
    peers[0].says = "CLUSTERDOWN The cluster is down";
    peers[0].times = 3;
    peers[0].then = ":86400000"; /* held by somebody else, for a day */
    struct snib__op *op =
        snib__engine_acquire(engine, gate(engine, SNIB_MUTEX, "m"), &how, now, &code);
    pass(engine, now + 19 * SECOND);
    assert_false(op->done);
    pass(engine, now + 2 * SECOND);
    assert_true(op->done);
    assert_int_equal(op->code, SNIB_TIMEDOUT);
    snib__engine_free(engine);
}

/* Two nodes that send it to each other. */
static void circle_is_no_storm(void **state)
{
    (void)state;
    char there[64], back[64];
    struct snib__engine *engine = begin_cluster("a:0-16383");
    moved(there, "m", 'b');
    moved(back, "m", 'a');
    peers[0].says = there;
    peers[1].says = back;
    peers[0].times = peers[1].times = -1;
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
    pass(engine, now + 6 * SECOND);
    assert_true(op->done && op->code == SNIB_ECONNECT);
    assert_true(peers[0].scripts + peers[1].scripts < 500);
    snib__engine_free(engine);
}

/* In the middle of a script: what has an owner is repeated, what has none is not. */
static void broken_off_script_is_repeated_by_its_owner(void **state)
{
    (void)state;
    static const char text[] =
        "ERR Script attempted to access a non local key in a cluster node script: x";
    for (int owned = 0; owned < 2; owned++) {
        struct snib__engine *engine = begin_cluster("a:0-16383");
        peers[0].says = text;
        peers[0].times = 1;
        struct snib__op *op =
            acquire(engine, gate(engine, owned ? SNIB_MUTEX : SNIB_SEMAPHORE, "m"), 0);
        pass(engine, now + SECOND);
        assert_true(op->done);
        assert_int_equal(op->code, owned ? SNIB_OK : SNIB_ESERVER);
        assert_int_equal(peers[0].scripts, owned + 1);
        snib__engine_free(engine);
    }
}

/* A batch of renewals has the keys of one slot; one that cannot go as it is goes in pieces. */
static void renewals_go_by_slot(void **state)
{
    (void)state;
    static const char *const names[] = {"{x}1", "{x}2", "{x}3", "{y}1", "{y}2", "z"};
    struct snib__engine *engine = begin_cluster("a:0-16383");
    struct snib__hold *holds[COUNT(names)];
    for (size_t i = 0; i < COUNT(names); i++)
        holds[i] = held(engine, names[i]);
    peers[0].renewals = peers[0].renewed_keys = 0;
    now += 11 * SECOND;
    snib__engine_tick(engine, now);
    serve(engine);
    assert_int_equal(peers[0].renewals, 3);
    assert_int_equal(peers[0].renewed_keys, 6);
    peers[0].renewals = 0;
    peers[0].says = "TRYAGAIN Multiple keys request during rehashing of slot";
    peers[0].times = 3;
    now += 11 * SECOND;
    snib__engine_tick(engine, now);
    pass(engine, now + SECOND);
    assert_int_equal(peers[0].renewals, 3 + 6); /* then one by one */
    for (size_t i = 0; i < COUNT(names); i++)
        assert_true(holds[i]->deadline > now + 27 * SECOND);
    snib__engine_free(engine);
}

/* A renewal is paused, its hold is given back, and another has the place in memory: that one is not renewed. */
static void paused_renewal_of_what_has_gone(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    struct snib__hold *hold = held(engine, "bar");
    held(engine, "foo");
    now += 11 * SECOND;
    peers[0].says = "CLUSTERDOWN Hash slot not served";
    peers[0].times = 1;
    snib__engine_tick(engine, now);
    serve(engine);
    assert_int_equal(peers[0].renewals, 1);
    int others = peers[1].renewals;
    snib__hold_drop(engine, hold, now);
    serve(engine);
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "{foo}2"), 0);
    serve(engine);
    assert_ptr_equal(acquired(engine, op), hold);
    pass(engine, now + SECOND / 2);
    assert_int_equal(peers[0].renewals, 1);
    assert_int_equal(peers[1].renewals, others);
    snib__engine_free(engine);
}

/* A failover: others are asked, and what the new master does not have is lost by it. */
static void failover_is_asked_for(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    struct snib__hold *hold = held(engine, "foo"); /* 12182 */
    assert_int_equal(served_by(engine, "foo"), 'b');
    held(engine, "bar"); /* 5061 */
    peers[1].down = true;
    for (struct snib__link *link = snib__engine_links(engine); link; link = snib__link_next(link))
        if (link->node == hold->gate->node && link->conn.state == SNIB__CONN_READY)
            snib__engine_link_down(engine, link, SNIB_EUNREACHABLE, 104, now);
    pass(engine, now + 2 * SECOND);
    assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_AT_RISK);
    common_epoch++;
    map_of(common, "a:0-8191 c:8192-16383");
    pass(engine, now + 200 * SNIB__MS); /* while it is not served others are asked all the time */
    assert_int_equal(served_by(engine, "foo"), 'c');
    assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_VALID);
    assert_int_equal(peers[2].renewals, 1);
    snib__engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(endpoints_have_many_forms),
        cmocka_unit_test(moved_goes_before_maps),
        cmocka_unit_test(old_node_is_not_believed),
        cmocka_unit_test(moved_holds_are_in_order),
        cmocka_unit_test(fixed_lease_is_asked_for),
        cmocka_unit_test(slots_that_come_back),
        cmocka_unit_test(expected_messages_do_not_move),
        cmocka_unit_test(replicas_are_of_the_last_map),
        cmocka_unit_test(old_maps_are_not_believed),
        cmocka_unit_test(idle_client_is_silent),
        cmocka_unit_test(node_that_has_gone_is_left),
        cmocka_unit_test(ask_is_for_one_request),
        cmocka_unit_test(forgotten_script_is_asked_for_again),
        cmocka_unit_test(refusals_are_endured),
        cmocka_unit_test(served_after_refusals),
        cmocka_unit_test(circle_is_no_storm),
        cmocka_unit_test(broken_off_script_is_repeated_by_its_owner),
        cmocka_unit_test(renewals_go_by_slot),
        cmocka_unit_test(paused_renewal_of_what_has_gone),
        cmocka_unit_test(failover_is_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
