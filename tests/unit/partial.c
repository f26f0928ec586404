/* partial.c - memory ends in the middle of a command: nothing of it is sent, and the next try sends it whole.
 *
 * Each request of each kind is written into a buffer with room for only its first bytes, once for every number of bytes.
 * The one allocation that is wanted then is refused, and all later ones are granted: so an encoder that ignored the
 * refusal would go on to write a damaged command.
 */
#include "unit.h"

#include "api/options.h"
#include "engine/ask.h"
#include "engine/internal.h"
#include "engine/route.h"
#include "net/script.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define START (100000 * SNIB__MS)

/* ---- Memory that is refused once ------------------------------------------------------------------ */

void *__real_malloc(size_t n);
void *__real_realloc(void *old, size_t n);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t n);
void *__wrap_realloc(void *old, size_t n);
char *__wrap_strdup(const char *text);

static int countdown; /* to the call that is refused; 0: none is */

static bool refuses(void)
{
    return countdown > 0 && --countdown == 0;
}

void *__wrap_malloc(size_t n)
{
    return refuses() ? NULL : __real_malloc(n);
}

void *__wrap_realloc(void *old, size_t n)
{
    return refuses() ? NULL : __real_realloc(old, n);
}

char *__wrap_strdup(const char *text)
{
    return refuses() ? NULL : __real_strdup(text);
}

/* Empty, with room for n bytes. */
static void make_room(struct snib__buf *out, size_t n)
{
    snib__buf_free(out);
    if (n == 0)
        return;
    out->data = __real_malloc(n);
    assert_non_null(out->data);
    memset(out->data, 0, n);
    out->cap = n;
}

/* The number of commands in a buffer, which has no part of another. */
static uint32_t whole_commands(const struct snib__buf *out)
{
    char *at = out->data ? out->data + out->head : NULL,
         *end = out->data ? out->data + out->len : NULL;
    uint32_t commands = 0;
    for (; at < end; commands++) {
        assert_int_equal(*at, '*');
        long words = strtol(at + 1, &at, 10);
        for (at += 2; words > 0; words--) {
            assert_int_equal(*at, '$');
            long n = strtol(at + 1, &at, 10);
            assert_in_range(n, 0, end - at - 4);
            assert_memory_equal(at + 2 + n, "\r\n", 2);
            at += n + 4;
        }
    }
    assert_ptr_equal(at, end);
    return commands;
}

/* ---- Requests -------------------------------------------------------------------------------------- */

static struct snib__engine *engine;
static struct snib__address seed;

static struct snib__engine *engine_of(int topology)
{
    assert_true(snib__address_host(&seed, "a", 1, 6379, false));
    struct snib__config config = {.topology = topology,
                                  .seeds = &seed,
                                  .seeds_n = 1,
                                  .service = "service",
                                  .uuid = "00000000-0000-8000-8000-000000000001",
                                  .lease = 30000 * SNIB__MS,
                                  .durability_timeout = 1000 * SNIB__MS,
                                  .durability = topology == SNIB__SINGLE,
                                  .ops_max = 100};
    struct snib__engine *made = snib__engine_new(&config);
    assert_non_null(made);
    return made;
}

static struct snib__link *command_link(void)
{
    return &engine->home->links[SNIB__COMMAND];
}

/* Take back all that was written. */
static void forget_all(void)
{
    struct snib__request request;
    struct snib__conn *conn = &command_link()->conn;
    while (snib__conn_orphan(conn, &request))
        snib__lane_answered(engine, command_link(), &request);
    snib__buf_drop(&conn->out);
}

static int32_t kind_now; /* of the lock whose requests are written; 0: of none */

/* Of the scripts that a kind is said to need, see load.c. */
static bool is_needed(int32_t kind, const char *script)
{
    char words[96], group[48], name[48];
    snprintf(words, sizeof words, " %s ", snib__kind_of(kind)->scripts);
    snprintf(group, sizeof group, " %.*s ", (int)strcspn(script, "_"), script);
    snprintf(name, sizeof name, " %s ", script);
    return strstr(words, group) || strstr(words, name);
}

static int write_it(const struct snib__request *request)
{
    struct snib__request copy = *request;
    int written = snib__link_write(engine, command_link(), &copy, START);
    if (written == 0 && kind_now && copy.script >= 0)
        assert_true(is_needed(kind_now, snib__script_of(copy.script, SNIB__CLASSIC)->name));
    return written;
}

/* The request with room for `room` bytes, and one refusal; then once more, with memory.  False: it wanted no memory. */
static bool write_with(const struct snib__request *request, size_t room, const char *expected,
                       size_t expected_n)
{
    struct snib__conn *conn = &command_link()->conn;
    uint8_t loaded[sizeof conn->loaded];
    memcpy(loaded, conn->loaded, sizeof loaded);
    make_room(&conn->out, room);
    uint64_t sent = engine->stats.commands;
    countdown = 1;
    int written = write_it(request);
    bool refused = countdown == 0;
    countdown = 0;
    assert_int_equal(written, refused ? -1 : 0);
    assert_int_equal(whole_commands(&conn->out), conn->ring_count); /* a script may be among them */
    if (refused) {
        assert_int_equal(engine->stats.commands, sent);
        assert_int_equal(write_it(request), 0);
        assert_int_equal(whole_commands(&conn->out), conn->ring_count);
    }
    assert_int_equal(snib__buf_size(&conn->out), expected_n);
    assert_memory_equal(conn->out.data + conn->out.head, expected, expected_n);
    forget_all();
    memcpy(conn->loaded, loaded, sizeof loaded);
    return refused;
}

/* No entry for the reply: the command goes, too. */
static void write_without_entry(const struct snib__request *request, uint32_t entry)
{
    struct snib__conn *conn = &command_link()->conn;
    uint32_t cap = conn->ring_cap;
    uint64_t appended = conn->appended;
    uint8_t loaded[sizeof conn->loaded];
    memcpy(loaded, conn->loaded, sizeof loaded);
    assert_true(cap > entry);
    conn->ring_count = cap - entry; /* so many are free */
    countdown = 1;
    assert_int_equal(write_it(request), -1);
    assert_int_equal(countdown, 0);
    assert_int_equal(snib__buf_size(&conn->out), 0);
    assert_int_equal(conn->ring_count, cap - entry);
    assert_int_equal(conn->appended, appended);
    conn->ring_count = 0;
    memcpy(conn->loaded, loaded, sizeof loaded);
}

static void is_whole_or_absent(const struct snib__request *request)
{
    struct snib__conn *conn = &command_link()->conn;
    uint8_t loaded[sizeof conn->loaded];
    memcpy(loaded, conn->loaded, sizeof loaded);
    make_room(&conn->out, 0);
    assert_int_equal(write_it(request), 0);
    uint32_t commands = conn->ring_count;
    size_t n = snib__buf_size(&conn->out);
    char *whole = __real_malloc(n);
    assert_non_null(whole);
    memcpy(whole, conn->out.data + conn->out.head, n);
    forget_all();
    memcpy(conn->loaded, loaded, sizeof loaded);
    size_t room = 0;
    while (write_with(request, room, whole, n))
        room++;
    assert_true(room >= n);
    for (uint32_t entry = 0; entry < commands; entry++)
        write_without_entry(request, entry);
    free(whole);
}

static void all_loaded(void)
{
    memset(command_link()->conn.loaded, 0xff, sizeof command_link()->conn.loaded);
}

/* ---- Of each kind of lock -------------------------------------------------------------------------- */

static const char lists[][24] = {"mone\0mtwo", "mone\0stwo\0fthree", "rone\0wtwo\0mthree"};

static void is_whole(int kind, void *subject)
{
    is_whole_or_absent(
        &(struct snib__request){.kind = (int16_t)kind, .subject = subject, .number = 17});
}

static void renewals_are_whole(struct snib__hold *one, struct snib__hold *other)
{
    for (int lease = 0; lease < 2; lease++)
        for (int narrow = 0; narrow < 2; narrow++) {
            struct snib__batch *batch = snib__batch_new(engine, 2);
            assert_non_null(batch);
            batch->n = 2;
            batch->kind = one->gate->kind->kind;
            batch->lease_ms = lease ? 30000 : 0;
            batch->narrow = narrow;
            batch->of[0].hold = one;
            batch->of[1].hold = other;
            int32_t kind = kind_now;
            kind_now = narrow && batch->kind != SNIB_FAIR ? 0 : kind; /* no other is ever narrow */
            is_whole(SNIB__REQ_RENEW, batch);
            kind_now = kind;
            snib__batch_recycle(engine, batch);
        }
}

static void questions_are_whole(struct snib__gate *gate)
{
    struct snib__asked asked = {.n = 3};
    struct snib__op op = {.gate = gate, .node = engine->home, .asked = &asked};
    op.kind = SNIB__OP_INFO;
    is_whole(SNIB__REQ_ASK, &op);
    op.kind = SNIB__OP_FORCE;
    is_whole(SNIB__REQ_ASK, &op);
    op.kind = SNIB__OP_COUNT;
    for (asked.what = SNIB_COUNT_GET; gate->kind->count && asked.what <= SNIB_COUNT_TOTAL;
         asked.what++) {
        struct snib__buf out = {0};
        bool applies = gate->kind->count(&out, gate, asked.what, asked.n) != -1;
        snib__buf_free(&out);
        if (applies)
            is_whole(SNIB__REQ_ASK, &op);
    }
    struct snib__buf out = {0};
    for (int32_t what = SNIB_COUNT_GET - 1;
         gate->kind->kind == SNIB_PERMITS && what <= SNIB_COUNT_TOTAL + 1;
         what += SNIB_COUNT_TOTAL + 2 - SNIB_COUNT_GET)
        assert_int_equal(gate->kind->count(&out, gate, what, 1), -1); /* no such question */
    snib__buf_free(&out);
}

/* All that is sent for the holds of a gate. */
static void requests_are_whole(struct snib__gate *gate, uint8_t options, uint32_t vote_ms)
{
    const struct snib__lock_kind *kind = gate->kind;
    struct snib__hold one = {
        .gate = gate, .number = 41, .lease_ms = 5000, .options = options & 15u};
    struct snib__hold other = {.gate = gate, .number = 42, .options = options & 15u};
    struct snib__waitq waitq = {.gate = gate, .incoming = &other};
    if (kind->kind == SNIB_PERMITS || kind->kind == SNIB_SEMAPHORE)
        one.permits = other.permits = 2;
    one.vote_ms = vote_ms ? vote_ms : one.vote_ms;
    is_whole(SNIB__REQ_ACQUIRE, &one);
    if (kind->release)
        is_whole(SNIB__REQ_RELEASE, &one);
    if (kind->renew)
        renewals_are_whole(&one, &other);
    if (kind->transfer) {
        gate->waitq = &waitq;
        is_whole(SNIB__REQ_TRANSFER, &one);
        gate->waitq = NULL;
    }
    if (kind->info.keys > 0)
        questions_are_whole(gate);
}

static void all_kinds(void)
{
    for (int32_t kind = SNIB_MUTEX; kind <= SNIB_LATCH; kind++)
        for (int fenced = 0; fenced < 2; fenced++) {
            struct snib__gate *gate = snib__gate_get(engine, kind, "name", 4);
            assert_non_null(gate);
            kind_now = kind;
            requests_are_whole(gate, fenced ? SNIB_LOCK_FENCED : 0, 0);
            kind_now = 0;
            snib__gate_put(engine, gate);
        }
}

static void commands_of_locks(void **state)
{
    (void)state;
    engine = engine_of(SNIB__SINGLE);
    all_loaded();
    all_kinds();
    for (size_t i = 0; i < COUNT(lists); i++) {
        size_t n = 0;
        while (lists[i][n])
            n += strlen(&lists[i][n]) + 1;
        struct snib__gate *gate = snib__gate_get(engine, SNIB__MULTI, lists[i], n);
        requests_are_whole(gate, 0, 0);
        snib__gate_put(engine, gate);
    }
    struct snib__gate *member = snib__gate_get(engine, SNIB_MUTEX, "name", 4);
    kind_now = SNIB_MUTEX;
    requests_are_whole(member, 0, 30000); /* of a quorum */
    kind_now = 0;
    snib__gate_put(engine, member);
    assert_null(snib__kind_of(SNIB__KINDS));
    snib__engine_free(engine);
}

/* Servers that compare and delete in one command get two commands for a plain lock's release. */
static void two_commands(void **state)
{
    (void)state;
    engine = engine_of(SNIB__SINGLE);
    all_loaded();
    struct snib__gate *gate = snib__gate_get(engine, SNIB_PLAIN, "name", 4);
    struct snib__hold hold = {.gate = gate, .number = 41};
    struct snib__conn *conn = &command_link()->conn;
    for (int valkey = 0; valkey < 2; valkey++) {
        conn->delifeq = valkey;
        conn->delex = !valkey;
        is_whole(SNIB__REQ_RELEASE, &hold);
    }
    snib__gate_put(engine, gate);
    snib__engine_free(engine);
}

/* ---- Others ---------------------------------------------------------------------------------------- */

static void commands_about_a_server(void **state)
{
    (void)state;
    engine = engine_of(SNIB__SINGLE);
    all_loaded();
    struct snib__asked *asked = calloc(1, sizeof *asked + 8);
    assert_non_null(asked);
    memcpy(asked->text, "name", 4);
    asked->text_len = 4;
    struct snib__op op = {.node = engine->home, .asked = asked};
    static const uint8_t kinds[] = {SNIB__OP_PING, SNIB__OP_DESCRIBE, SNIB__OP_LIST,
                                    SNIB__OP_IDENTITY, SNIB__OP_LOAD};
    for (size_t i = 0; i < COUNT(kinds); i++) {
        op.kind = kinds[i];
        is_whole(SNIB__REQ_ASK, &op);
    }
    op.kind = SNIB__OP_SERVER;
    for (asked->what = SNIB_SERVER_INFO; asked->what <= SNIB_SERVER_LOAD; asked->what++)
        is_whole(SNIB__REQ_ASK, &op);
    is_whole(SNIB__REQ_TIME, engine->home);
    engine->config.identity = "host h\n";
    is_whole(SNIB__REQ_IDENTITY, engine->home);
    is_whole(SNIB__REQ_BOARD, engine->home);
    is_whole(SNIB__REQ_KILL, NULL);
    is_whole(SNIB__REQ_WAIT, NULL);
    is_whole(SNIB__REQ_COUNT, NULL);
    free(asked);
    snib__engine_free(engine);
}

static void commands_about_a_deployment(void **state)
{
    (void)state;
    static const struct {
        int topology;
        uint64_t last;
    } routes[] = {{SNIB__CLUSTER, 2}, {SNIB__SENTINEL, 3}};
    for (size_t i = 0; i < COUNT(routes); i++) {
        engine = engine_of(routes[i].topology);
        struct snib__request request = {.kind = SNIB__REQ_ROUTE, .subject = engine->home};
        for (request.number = 1; request.number <= routes[i].last; request.number++)
            is_whole_or_absent(&request);
        snib__engine_free(engine);
    }
}

/* A script that the server does not know goes ahead of the command. */
static void scripts_come_along(void **state)
{
    (void)state;
    engine = engine_of(SNIB__SINGLE);
    struct snib__gate *gate = snib__gate_get(engine, SNIB_SPIN, "name", 4);
    struct snib__hold hold = {.gate = gate, .number = 41};
    for (int publish = SNIB__CLASSIC; publish <= SNIB__BOTH; publish++) {
        command_link()->conn.publish = (uint8_t)publish;
        is_whole(SNIB__REQ_RELEASE, &hold);
    }
    snib__gate_put(engine, gate);
    snib__engine_free(engine);
}

/* ASKING is not sent without an entry for its reply: all later replies would be taken for those of other requests. */
static void asking_has_its_entry(void **state)
{
    (void)state;
    engine = engine_of(SNIB__SINGLE);
    all_loaded();
    struct snib__gate *gate = snib__gate_get(engine, SNIB_SPIN, "name", 4);
    struct snib__hold hold = {.gate = gate, .number = 41};
    struct snib__request request = {.kind = SNIB__REQ_RELEASE, .subject = &hold, .asking = true};
    assert_int_equal(write_it(&request), 0);
    forget_all();
    write_without_entry(&request, 0);
    write_without_entry(&request, 1);
    snib__gate_put(engine, gate);
    snib__engine_free(engine);
}

/* Nor without its request, of which there is no memory for all: it would let the next command read what has not
 * arrived yet.  What the script needs may stay. */
static void asking_has_its_request(void **state)
{
    (void)state;
    for (int loaded = 0; loaded < 2; loaded++) {
        engine = engine_of(SNIB__SINGLE);
        struct snib__conn *conn = &command_link()->conn;
        struct snib__gate *gate = snib__gate_get(engine, SNIB_SPIN, "name", 4);
        struct snib__hold hold = {.gate = gate, .number = 41};
        struct snib__request request = {
            .kind = SNIB__REQ_RELEASE, .subject = &hold, .asking = true};
        if (loaded)
            all_loaded();
        assert_int_equal(write_it(&request), 0);
        assert_int_equal(conn->ring_count, loaded ? 2 : 3);
        const size_t n = snib__buf_size(&conn->out);
        forget_all();
        for (size_t room = 0; room < n; room++) {
            if (!loaded)
                memset(conn->loaded, 0, sizeof conn->loaded);
            make_room(&conn->out, room);
            const uint64_t appended = conn->appended;
            countdown = 1;
            assert_int_equal(write_it(&request), -1);
            assert_int_equal(countdown, 0);
            assert_in_range(conn->ring_count, 0, !loaded);
            assert_int_equal(conn->appended, appended + conn->ring_count);
            assert_int_equal(whole_commands(&conn->out), conn->ring_count);
            assert_null(conn->out.len ? memmem(conn->out.data, conn->out.len, "ASKING", 6) : NULL);
            forget_all();
        }
        snib__gate_put(engine, gate);
        snib__engine_free(engine);
    }
}

/* Where the server does not load scripts, it goes in the command. */
static void scripts_are_spelled(void **state)
{
    (void)state;
    engine = engine_of(SNIB__SINGLE);
    all_loaded();
    struct snib__gate *gate = snib__gate_get(engine, SNIB_MUTEX, "name", 4);
    struct snib__hold hold = {.gate = gate, .number = 41};
    struct snib__request request = {.kind = SNIB__REQ_ACQUIRE, .subject = &hold};
    struct snib__conn *conn = &command_link()->conn;
    conn->no_load = true;
    assert_int_equal(snib__conn_unknown(conn, SNIB__SCRIPT_MUTEX_ACQUIRE, START), 0);
    assert_int_equal(write_it(&request), 0);
    const size_t spelled = snib__buf_size(&conn->out);
    forget_all();
    assert_int_equal(write_it(&request), 0); /* once */
    const size_t hashed = snib__buf_size(&conn->out);
    assert_true(spelled > hashed + 100);
    for (size_t room = hashed + 64; room < spelled; room++) { /* enough for the hash */
        make_room(&conn->out, room);
        conn->ring_count = 0;
        assert_int_equal(snib__conn_unknown(conn, SNIB__SCRIPT_MUTEX_ACQUIRE, START), 0);
        countdown = 1;
        assert_int_equal(write_it(&request), -1);
        assert_int_equal(countdown, 0);
        assert_int_equal(snib__buf_size(&conn->out), 0);
        assert_int_equal(conn->ring_count, 0);
    }
    snib__engine_free(engine);
}

/* ---- Of a connection ------------------------------------------------------------------------------- */

static void greetings(void **state)
{
    (void)state;
    static const struct snib__login logins[] = {
        {0},
        {.password = "password"},
        {.username = "user", .password = "password", .database = 2, .passing = true}};
    for (int pubsub = 0; pubsub < 2; pubsub++)
        for (size_t i = 0; i < COUNT(logins); i++) {
            struct snib__conn conn;
            assert_int_equal(snib__conn_init(&conn, pubsub), 0);
            assert_int_equal(snib__conn_begin(&conn, &logins[i], START), 0);
            size_t n = snib__buf_size(&conn.out);
            for (size_t room = 0; room < n; room++) {
                make_room(&conn.out, room);
                countdown =
                    logins[i].passing ? 2 : 1; /* the first is for the copy of the password */
                assert_int_equal(snib__conn_begin(&conn, &logins[i], START), -1);
                assert_int_equal(countdown, 0);
            }
            countdown = logins[i].passing;
            assert_int_equal(snib__conn_begin(&conn, &logins[i], START),
                             logins[i].passing ? -1 : 0);
            assert_int_equal(countdown, 0);
            snib__conn_free(&conn);
        }
}

/* A script that cannot be written counts as not loaded. */
static void scripts(void **state)
{
    (void)state;
    struct snib__conn conn;
    assert_int_equal(snib__conn_init(&conn, false), 0);
    assert_int_equal(snib__conn_load(&conn, 0, START), 0);
    size_t n = snib__buf_size(&conn.out);
    for (size_t room = 0; room < n; room++) {
        make_room(&conn.out, room + 1);
        assert_int_equal(snib__buf_append(&conn.out, "+", 1), 0); /* waits to be sent */
        conn.ring_count = 0;
        memset(conn.loaded, 0, sizeof conn.loaded);
        countdown = 1;
        assert_int_equal(snib__conn_load(&conn, 0, START), -1);
        assert_int_equal(countdown, 0);
        assert_int_equal(snib__buf_size(&conn.out), 1);
        assert_int_equal(conn.ring_count, 0);
        assert_false(snib__conn_loaded(&conn, 0));
    }
    snib__conn_free(&conn);
}

/* ASKING is not sent without the request that it is for. */
static void asking(void **state)
{
    (void)state;
    struct snib__conn conn;
    assert_int_equal(snib__conn_init(&conn, false), 0);
    assert_int_equal(snib__conn_asking(&conn, START), 0);
    size_t n = snib__buf_size(&conn.out);
    for (size_t room = 0; room < n; room++) {
        make_room(&conn.out, room + 1);
        assert_int_equal(snib__buf_append(&conn.out, "+", 1), 0); /* waits to be sent */
        conn.ring_count = 0;
        countdown = 1;
        assert_int_equal(snib__conn_asking(&conn, START), -1);
        assert_int_equal(countdown, 0);
        assert_int_equal(snib__buf_size(&conn.out), 1);
        assert_int_equal(conn.ring_count, 0);
    }
    snib__conn_free(&conn);
}

/* A login that cannot be written leaves the connection as it was, and no copy of the password. */
static void renewed_logins(void **state)
{
    (void)state;
    static const struct snib__login login = {
        .username = "user", .password = "password", .passing = true};
    struct snib__conn conn;
    assert_int_equal(snib__conn_init(&conn, false), 0);
    assert_int_equal(snib__conn_relogin(&conn, &(struct snib__login){0}, START), -1);
    assert_int_equal(snib__conn_relogin(&conn, &login, START), 0);
    size_t n = snib__buf_size(&conn.out);
    for (size_t room = 0; room < n; room++)
        for (int refused = 1; refused <= 2; refused++) {
            make_room(&conn.out, room + 1);
            assert_int_equal(snib__buf_append(&conn.out, "+", 1), 0); /* waits to be sent */
            conn.ring_count = 0;
            conn.relogin = SNIB__RELOGIN_NONE;
            countdown = refused;
            assert_int_equal(snib__conn_relogin(&conn, &login, START), -1);
            assert_int_equal(countdown, 0);
            assert_int_equal(snib__buf_size(&conn.out), 1);
            assert_int_equal(conn.relogin, SNIB__RELOGIN_NONE);
            assert_int_equal(conn.ring_count, 0);
            if (refused == 2)
                assert_null(conn.secret);
        }
    make_room(&conn.out, 2 * n + 64); /* no entry for its reply */
    conn.ring_count = conn.ring_cap;
    countdown = 2;
    assert_int_equal(snib__conn_relogin(&conn, &login, START), -1);
    assert_int_equal(countdown, 0);
    assert_null(memmem(conn.out.data, conn.out.cap, "password", 8));
    conn.ring_count = 0;
    snib__conn_free(&conn);
}

static void subscriptions(void **state)
{
    (void)state;
    engine = engine_of(SNIB__SINGLE);
    struct snib__link *link = &engine->home->links[SNIB__PUBSUB];
    for (int publish = SNIB__CLASSIC; publish <= SNIB__BOTH; publish++) {
        engine->publish = (uint8_t)publish;
        make_room(&link->conn.out, 0);
        assert_int_equal(snib__chan_join(engine, engine->home, "channel", 7), 0);
        size_t n = snib__buf_size(&link->conn.out);
        for (size_t room = 0; room < n; room++) {
            make_room(&link->conn.out, room);
            link->owed = 0;
            countdown = 1;
            assert_int_equal(snib__chan_join(engine, engine->home, "channel", 7), -1);
            assert_int_equal(countdown, 0);
            assert_int_equal(whole_commands(&link->conn.out), link->owed);
        }
    }
    snib__engine_free(engine);
}

/* Not a command: a child of a fork copies its parent's URL, all of it or nothing. */
static void urls(void **state)
{
    (void)state;
    snib_error err;
    snib_client_options given;
    struct snib__url url, copy;
    const char *text = "rediss+sentinel://u:p@a,b/s?tls_ca=/c&tls_cert=/d&tls_key=/e&label=f";
    assert_int_equal(snib__url_parse(text, &url, &given, &err), SNIB_OK);
    int code = SNIB_ENOMEM, n = 0;
    while (code != SNIB_OK) {
        countdown = ++n;
        code = snib__url_copy(&url, &copy);
        if (code == SNIB_OK)
            break;
        assert_int_equal(code, SNIB_ENOMEM);
        assert_memory_equal(&copy, &(struct snib__url){0}, sizeof copy);
    }
    countdown = 0;
    assert_true(n > 7);
    snib__url_free(&copy);
    snib__url_free(&url);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands_of_locks),
        cmocka_unit_test(two_commands),
        cmocka_unit_test(commands_about_a_server),
        cmocka_unit_test(commands_about_a_deployment),
        cmocka_unit_test(scripts_come_along),
        cmocka_unit_test(asking_has_its_entry),
        cmocka_unit_test(asking_has_its_request),
        cmocka_unit_test(scripts_are_spelled),
        cmocka_unit_test(greetings),
        cmocka_unit_test(scripts),
        cmocka_unit_test(asking),
        cmocka_unit_test(renewed_logins),
        cmocka_unit_test(subscriptions),
        cmocka_unit_test(urls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
