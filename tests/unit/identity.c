/* identity.c - when a client says who it is, what a refusal changes, and what it asks about others. */
#include "nodes.h"

#include "api/identity.h"

#include <errno.h>
#include <unistd.h>

#define UUID "00000000-0000-8000-8000-000000000001" /* of the engine under test */
#define KEY "snib_client:{" UUID "}"
#define TEXT "host h\npid 7\n"

static const struct snib__acquire any = {.wait = SNIB__NEVER};
static char last[WORDS][96]; /* the last command that is about the client */

/* Take the commands that were sent; how many are about the client. */
static int published(struct snib__engine *engine)
{
    char words[WORDS][96];
    int n = 0;
    while (next_command(snib__link_output(snib__engine_link(engine, SNIB__COMMAND)), words)) {
        if (strcmp(words[0], "SET") != 0 && strcmp(words[0], "DEL") != 0)
            continue;
        memcpy(last, words, sizeof last);
        n++;
    }
    return n;
}

static struct snib__engine *begin_known(void)
{
    struct snib__engine *engine = begin();
    engine->config.identity = TEXT;
    snib__engine_log_level(engine, SNIB_LOG_INFO);
    return engine;
}

/* Answer all that is on its way: renewals as usual, what is about the client in this way. */
static void answer_all(struct snib__engine *engine, const char *about)
{
    struct snib__conn *conn = conn_of(engine);
    while (conn->ring_count > 0)
        answer(engine, conn->ring[conn->ring_head].kind == SNIB__REQ_IDENTITY ? about : "*0\r\n");
}

/* Let this time pass, with every deadline in it; how often the client said who it is. */
static int go(struct snib__engine *engine, snib__time span, const char *about)
{
    snib__time until = now + span;
    int n = 0;
    while (now < until) {
        snib__time next = snib__engine_deadline(engine);
        now = next <= now ? now + SNIB__MS : next < until ? next : until;
        snib__engine_tick(engine, now);
        n += published(engine);
        answer_all(engine, about);
    }
    return n;
}

static void release(struct snib__engine *engine, struct snib__hold *hold)
{
    int32_t code;
    struct snib__op *op = snib__engine_release(engine, hold, now, &code);
    answer_own(engine);
    answer(engine, ":1\r\n");
    assert_ptr_equal(snib__engine_take_done(engine), op);
    snib__op_free(engine, op);
    snib__hold_drop(engine, hold, now);
}

/* Texts of the log that have this in them. */
static int logged(struct snib__engine *engine, const char *part)
{
    int32_t level;
    int n = 0;
    for (const char *text; (text = snib__engine_take_log(engine, &level));)
        n += level == SNIB_LOG_INFO && strstr(text, part) != NULL;
    return n;
}

/* ---- When ----------------------------------------------------------------------------------------- */

static void with_renewals(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_known();
    struct snib__hold *hold = granted(engine, gate(engine, SNIB_MUTEX, "m"), &any);
    assert_int_equal(go(engine, 9 * SECOND, "+OK\r\n"), 0);
    assert_int_equal(go(engine, 2 * SECOND, "+OK\r\n"), 1);
    assert_string_equal(last[0], "SET");
    assert_string_equal(last[1], KEY);
    assert_string_equal(last[2], TEXT);
    assert_string_equal(last[3], "PX");
    assert_string_equal(last[4], "30000");
    assert_int_equal(go(engine, 30 * SECOND, "+OK\r\n"), 3);
    release(engine, hold);
    published(engine);
    assert_int_equal(go(engine, 60 * SECOND, "+OK\r\n"), 0); /* nothing is held */
    snib__engine_free(engine);
}

/* However many are renewed, the client says it once a round; and not at all for what is held only briefly. */
static void once_a_round(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_known();
    char name[16];
    for (int i = 0; i < 350; i++) {
        snprintf(name, sizeof name, "m%d", i);
        granted(engine, gate(engine, SNIB_MUTEX, name), &any);
    }
    published(engine);
    assert_in_range(go(engine, 30 * SECOND, "+OK\r\n"), 2, 4);
    snib__engine_free(engine);
    engine = begin_known();
    for (int i = 0; i < 100; i++) {
        struct snib__hold *hold = granted(engine, gate(engine, SNIB_MUTEX, "m"), &any);
        assert_int_equal(go(engine, SECOND, "+OK\r\n"), 0);
        release(engine, hold);
    }
    assert_int_equal(published(engine), 0);
    snib__engine_free(engine);
}

/* The leases that end soon are renewed often, but what lies at the server stays a while. */
static void short_leases(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_known();
    engine->config.lease = 300 * SNIB__MS;
    granted(engine, gate(engine, SNIB_MUTEX, "m"), &any);
    assert_in_range(go(engine, 9 * SECOND, "+OK\r\n"), 9, 12);
    assert_string_equal(last[4], "3000");
    snib__engine_free(engine);
}

/* Holds with a fixed lease are not renewed: questions for the server's time go with them, and the first one after a
 * pause says nothing about how long they have been held. */
static void with_fixed_leases(void **state)
{
    (void)state;
    const struct snib__acquire fixed = {.wait = SNIB__NEVER, .lease = 3600 * SECOND};
    struct snib__engine *engine = begin_known();
    struct snib__hold *hold = granted(engine, gate(engine, SNIB_MUTEX, "m"), &fixed);
    for (int round = 0; round < 2; round++) {
        engine->home->clock =
            (struct snib__clock){.next = round ? now - 100 * SECOND : now + 10 * SECOND};
        assert_int_equal(go(engine, 9 * SECOND, "+OK\r\n"), 0);
        engine->home->clock.refused = false;
        for (int i = 0; i < 3; i++) { /* TIME is answered with nonsense, which ends the questions */
            assert_int_equal(go(engine, (i ? 10 : 2) * SECOND, "+OK\r\n"), 1);
            engine->home->clock.refused = false;
        }
        release(engine, hold);
        published(engine);
        now += 3600 * SECOND;
        hold = granted(engine, gate(engine, SNIB_MUTEX, "m"), &fixed);
    }
    snib__engine_free(engine);
}

static void not_at_all(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    granted(engine, gate(engine, SNIB_MUTEX, "m"), &any);
    assert_int_equal(go(engine, 60 * SECOND, "+OK\r\n"), 0);
    snib__engine_close(engine, now);
    assert_int_equal(published(engine), 0);
    snib__engine_free(engine);
}

/* ---- When it is refused ----------------------------------------------------------------------------- */

static void refused(void **state)
{
    (void)state;
    static const char *const replies[] = {
        "-NOPERM No permissions to access a key\r\n",
        "-OOM command not allowed when used memory > 'maxmemory'.\r\n",
        "-MISCONF Redis is configured to save RDB snapshots\r\n", "-ERR unknown command 'SET'\r\n"};
    for (size_t i = 0; i < COUNT(replies); i++) {
        struct snib__engine *engine = begin_known();
        struct snib__hold *hold = granted(engine, gate(engine, SNIB_MUTEX, "m"), &any);
        assert_int_equal(go(engine, 60 * SECOND, replies[i]), 1);
        assert_int_equal(logged(engine, "does not accept this client's identity"), 1);
        assert_int_equal(go(engine, 60 * SECOND, replies[i]), 1);
        assert_int_equal(logged(engine, "identity"), 0); /* once */
        assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_VALID);
        assert_true(ready(engine));
        assert_in_range(go(engine, 60 * SECOND, "+OK\r\n"), 4, 6);
        snib__engine_free(engine);
    }
}

/* What to allow is said if that would help. */
static void advice(void **state)
{
    (void)state;
    for (int allowed = 0; allowed < 2; allowed++) {
        struct snib__engine *engine = begin_known();
        granted(engine, gate(engine, SNIB_MUTEX, "m"), &any);
        go(engine, 11 * SECOND, allowed ? "-OOM x\r\n" : "-NOPERM x\r\n");
        assert_int_equal(logged(engine, "allow this user ~snib_client:* +set +del"), !allowed);
        snib__engine_free(engine);
    }
}

/* ---- The end ---------------------------------------------------------------------------------------- */

/* A client that is closed takes it back, after its releases, if it can still be there. */
static void taken_back(void **state)
{
    (void)state;
    for (int how = 0; how < 4;
         how++) { /* never written; written; that has ended; the link is down */
        struct snib__engine *engine = begin_known();
        granted(engine, gate(engine, SNIB_MUTEX, "m"), &any);
        go(engine, (how ? 11 : 1) * SECOND, "+OK\r\n");
        if (how == 2)
            now += 30 * SECOND;
        if (how == 3)
            cut_link(engine);
        snib__engine_close(engine, now);
        assert_int_equal(published(engine), how == 1);
        if (how == 1) {
            assert_string_equal(last[0], "DEL");
            assert_string_equal(last[1], KEY);
            assert_int_equal(on_the_way(engine), 2);
            answer_own(engine);
            answer(engine, ":1\r\n");
            assert_true(snib__engine_quiet(engine)); /* the close does not wait for it */
        }
        snib__engine_free(engine);
    }
}

/* ---- In a cluster ------------------------------------------------------------------------------------ */

/* A name in the same slot as the key, and one that the other node serves. */
static const char *name_at(bool same)
{
    static char name[16];
    unsigned slot = snib__slot(KEY, strlen(KEY));
    for (int i = 0;; i++) {
        snprintf(name, sizeof name, "m%d", i);
        if ((snib__slot(name, strlen(name)) < 8192) == ((slot < 8192) == same))
            return name;
    }
}

/* The key has a node of its own, to which the client connects for it. */
static void at_the_node_of_its_slot(void **state)
{
    (void)state;
    for (int same = 0; same < 2; same++) {
        struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
        engine->config.identity = TEXT;
        int there = snib__slot(KEY, strlen(KEY)) >= 8192;
        held(engine, name_at(same));
        pass(engine, now + 40 * SECOND);
        assert_in_range(peers[there].identities, same ? 3 : 2, 4);
        assert_int_equal(peers[!there].identities, 0);
        assert_true(peers[there].connects > 0);
        snib__engine_free(engine);
    }
}

/* The slot has moved, which the map says only now: the next round goes to the new node, and nobody is told. */
static void its_slot_moves(void **state)
{
    (void)state;
    char text[64];
    struct snib__engine *engine = begin_cluster("a:0-16383");
    engine->config.identity = TEXT;
    snib__engine_log_level(engine, SNIB_LOG_INFO);
    held(engine, "m");
    pass(engine, now + 15 * SECOND);
    assert_int_equal(peers[0].identities, 1);
    moved(text, KEY, 'b');
    peers[0].own = "SET";
    peers[0].own_says = text;
    map_of(common, "a:0-0 b:1-16383");
    common_epoch++;
    pass(engine, now + 25 * SECOND);
    assert_in_range(peers[1].identities, 1, 3);
    assert_int_equal(logged(engine, "identity"), 0);
    snib__engine_free(engine);
}

/* The cluster is down for a moment: that is no refusal, and the next round says it. */
static void its_slot_is_not_served(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_cluster("a:0-16383");
    engine->config.identity = TEXT;
    snib__engine_log_level(engine, SNIB_LOG_INFO);
    peers[0].own = "SET";
    peers[0].own_says = "CLUSTERDOWN The cluster is down";
    held(engine, "m");
    pass(engine, now + 15 * SECOND);
    const int told = peers[0].identities;
    assert_int_equal(told, 1);
    peers[0].own = NULL;
    pass(engine, now + 11 * SECOND);
    assert_in_range(peers[0].identities, told + 1, told + 2);
    assert_int_equal(logged(engine, "identity"), 0);
    snib__engine_free(engine);
}

/* ---- Since when ------------------------------------------------------------------------------------- */

/* What the client would write now. */
static const char *would_say(const struct snib__engine *engine)
{
    static char text[4096];
    struct snib__buf out = {.data = NULL};
    assert_int_equal(snib__identity_encode(engine, &out, 0), SNIB__NO_SCRIPT);
    assert_int_equal(snib__buf_append(&out, "", 1), 0);
    const char *at = strstr(out.data, TEXT), *end = strstr(at, "\r\n");
    snprintf(text, sizeof text, "%.*s", (int)(end - at), at);
    snib__buf_free(&out);
    return text;
}

/* The holds of all kinds that have an owner, the oldest first; not what is released, or is waited for. */
static void oldest_holds(void **state)
{
    (void)state;
    const struct snib__acquire fixed = {.wait = SNIB__NEVER, .lease = 3600 * SECOND};
    char want[256], name[16];
    int32_t code;
    struct snib__engine *engine = begin_known();
    struct snib__hold *first = granted(engine, gate(engine, SNIB_MUTEX, "m"), &any);
    assert_string_equal(would_say(engine), TEXT); /* it does not know the time of day */
    engine->config.wall_offset = (int64_t)(1000000000 * SECOND - first->acquired_at);
    now += 9 * SECOND;
    struct snib__hold *second = granted(engine, gate(engine, SNIB_READ, "r"), &fixed);
    now += SECOND / 2;
    struct snib__hold *third = granted(engine, gate(engine, SNIB_READ, "r"), &any);
    snib__engine_acquire(engine, gate(engine, SNIB_PLAIN, "p"), &any, now, &code);
    snprintf(want, sizeof want, TEXT "held %d 1000000000\nheld %d 1000000009\nheld %d 1000000009\n",
             (int)first->number, (int)second->number, (int)third->number);
    assert_string_equal(would_say(engine), want);
    snib__engine_release(engine, second, now, &code);
    snprintf(want, sizeof want, TEXT "held %d 1000000000\nheld %d 1000000009\n", (int)first->number,
             (int)third->number);
    assert_string_equal(would_say(engine), want);
    snib__engine_free(engine);
    engine = begin_known();
    for (int i = 20; i-- > 0;) {
        snprintf(name, sizeof name, "m%d", i);
        granted(engine, gate(engine, SNIB_MUTEX, name), &any)->acquired_at = (unsigned)i * SECOND;
    }
    engine->config.wall_offset = (int64_t)SECOND;
    const char *at = would_say(engine) + strlen(TEXT);
    for (int i = 0; i < 16; i++, at = strchr(at, '\n') + 1) {
        snprintf(want, sizeof want, " %d\n", i + 1);
        assert_memory_equal(strchr(at + 5, ' '), want, strlen(want));
    }
    assert_string_equal(at, "");
    snib__engine_free(engine);
}

/* What else the caller has to say about them, in whole lines, as many as others read. */
static void more_lines(void **state)
{
    (void)state;
    enum { READ = 2048 };
    char taken[4096] = "at 1 here\nby 1 me\n";
    struct snib__engine *engine = begin_known();
    granted(engine, gate(engine, SNIB_MUTEX, "m"), &any);
    engine->config.taken = taken;
    assert_string_equal(would_say(engine), TEXT "at 1 here\nby 1 me\n");
    taken[0] = 0;
    assert_string_equal(would_say(engine), TEXT);
    memset(taken, 'x', READ - strlen(TEXT));
    strcpy(taken + 1000, "\n");
    memset(taken + 1001, 'x', READ - strlen(TEXT) - 1001);
    taken[READ - strlen(TEXT) - 1] = '\n';
    assert_int_equal(strlen(would_say(engine)), READ);
    memmove(taken + 1002, taken + 1001, sizeof taken - 1002);
    assert_int_equal(strlen(would_say(engine)), strlen(TEXT) + 1001);
    snib__engine_free(engine);
}

/* A look at all of them would take too long. */
static void too_many_locks(void **state)
{
    (void)state;
    char name[16];
    struct snib__engine *engine = begin_known();
    granted(engine, gate(engine, SNIB_MUTEX, "m"), &any);
    engine->config.wall_offset = 1;
    for (int i = 1; i < 4096; i++) {
        snprintf(name, sizeof name, "m%d", i);
        gate(engine, SNIB_MUTEX, name);
    }
    assert_string_not_equal(would_say(engine), TEXT);
    gate(engine, SNIB_MUTEX, "one too many");
    assert_string_equal(would_say(engine), TEXT);
    snib__engine_free(engine);
}

/* Locks that were used for a moment each do not count for it, although their releases are remembered for a while. */
static void after_many_short_locks(void **state)
{
    (void)state;
    char name[16];
    struct snib__engine *engine = begin_known();
    for (int i = 0; i < 5000; i++) {
        snprintf(name, sizeof name, "m%d", i);
        release(engine, granted(engine, gate(engine, SNIB_MUTEX, name), &any));
    }
    granted(engine, gate(engine, SNIB_MUTEX, "m"), &any);
    engine->config.wall_offset = 1;
    assert_string_not_equal(would_say(engine), TEXT);
    snib__engine_free(engine);
}

/* What the server lost, as often as the client says anything at all, and once more after the last hold. */
static void losses(void **state)
{
    (void)state;
    char name[16];
    struct snib__engine *engine = begin_known();
    struct snib__hold *holds[4];
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "m%d", i);
        holds[i] = granted(engine, gate(engine, SNIB_MUTEX, name), &any);
    }
    snib__hold_lose(engine, holds[0], SNIB_REASON_DELETED, now);
    assert_int_equal(go(engine, 9 * SECOND, "+OK\r\n"), 0); /* it has not said who it is */
    assert_int_equal(go(engine, 2 * SECOND, "+OK\r\n"), 1);
    assert_string_equal(last[2], TEXT "losses 1\n");
    snib__hold_lose(engine, holds[1], SNIB_REASON_TAKEN, now);
    snib__hold_lose(engine, holds[2], SNIB_REASON_EXPIRED, now);
    snib__hold_lose(engine, holds[3], SNIB_REASON_FAILOVER, now);
    assert_int_equal(go(engine, 5 * SECOND, "+OK\r\n"), 0);
    assert_int_equal(go(engine, 60 * SECOND, "+OK\r\n"), 1); /* although it has nothing to renew */
    assert_string_equal(last[2], TEXT "losses 4\n");
    for (int i = 0; i < 4; i++)
        snib__hold_drop(engine, holds[i], now);
    snib__engine_free(engine);
}

/* ---- Others ------------------------------------------------------------------------------------------ */

/* The texts about an owner, joined by commas; `reply` is the server's, NULL: it must not be asked. */
static const char *told(struct snib__engine *engine, const char *owner, const char *reply)
{
    static char text[256];
    int32_t code;
    char words[WORDS][96], key[96];
    struct snib__op *op = snib__engine_identity(engine, owner, strlen(owner), 65536, now, &code);
    assert_non_null(op);
    if (reply) {
        if (!ready(engine))
            connect_link(engine);
        answer_own(engine);
        while (next_command(snib__link_output(snib__engine_link(engine, SNIB__COMMAND)), words))
            ;
        snprintf(key, sizeof key, "snib_client:{%.36s}", owner);
        assert_string_equal(words[0], "GETRANGE");
        assert_string_equal(words[1], key);
        answer(engine, reply);
    }
    assert_int_equal(on_the_way(engine), 0);
    assert_ptr_equal(snib__engine_take_done(engine), op);
    assert_int_equal(op->code, SNIB_OK);
    text[0] = 0;
    const char *at = op->asked->texts->text;
    for (uint32_t i = 0; i < op->asked->texts->count; i++, at += strlen(at) + 1)
        strcat(strcat(text, i ? "," : ""), at);
    snib__op_free(engine, op);
    return text;
}

static void asked(void **state)
{
    (void)state;
    static const char *const foreign[] = {"",
                                          "x",
                                          "11111111-1111-4111-8111-111111111111:1", /* Redisson's */
                                          "11111111-1111-8111-8111-11111111111",
                                          "11111111-1111-8111-8111-1111111111111",
                                          "11111111-1111-8111-8111-11111111111}:1",
                                          "11111111-1111-8111-8111-11111111111G:1",
                                          "11111111x1111-8111-8111-111111111111:1"};
    const char *owner = "11111111-2222-8333-8444-abcdefabcdef:17";
    struct snib__engine *engine = begin();
    for (size_t i = 0; i < COUNT(foreign); i++)
        assert_string_equal(told(engine, foreign[i], NULL), "");
    assert_string_equal(told(engine, owner, "$0\r\n\r\n"), "");
    assert_string_equal(told(engine, owner, "$12\r\nhost a\npid 1\r\n"), "host a,pid 1");
    owner = "11111111-2222-8333-8444-abcdefabcdef";
    assert_string_equal(told(engine, owner, "$15\r\nhost \x1b[2J\n\nx\xff\n\r\r\n"),
                        "host ?[2J,x?");
    snib__engine_free(engine);
}

/* ---- What the process says ----------------------------------------------------------------------------- */

static void text_of_this_process(void **state)
{
    (void)state;
    char host[256] = "", line[512], *name = program_invocation_short_name;
    static char odd[] = "a\nlabel b\x01";
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    char *text = snib__identity_text("my label", 1750000000);
    snprintf(line, sizeof line, "host %.64s\npid %d\nprogram unit_identity\nlabel my label\nsince ",
             host, (int)getpid());
    assert_memory_equal(text, line, strlen(line));
    assert_int_equal(atoll(text + strlen(line)), 1750000000);
    free(text);
    text = snib__identity_text(NULL, 7);
    assert_null(strstr(text, "label"));
    free(text);
    program_invocation_short_name = odd;
    text = snib__identity_text("", 7);
    assert_non_null(strstr(text, "\nprogram a?label b?\nsince "));
    program_invocation_short_name = name;
    free(text);
}

static void labels(void **state)
{
    (void)state;
    snib_error err;
    char text[140];
    static const struct {
        const char *label;
        int code;
    } cases[] = {{"", SNIB_OK},
                 {"nightly \xc3\xa9 \xf0\x9f\x94\x92", SNIB_OK},
                 {"a\nb", SNIB_EOPTION},
                 {"\x7f", SNIB_EOPTION},
                 {"\xc2\x85", SNIB_EOPTION},
                 {"\xff", SNIB_EOPTION},
                 {"\xc3", SNIB_EOPTION}};
    assert_int_equal(snib__label_check(NULL, true, &err), SNIB_OK);
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(snib__label_check(cases[i].label, true, &err), cases[i].code);
        if (cases[i].code)
            assert_string_equal(err.text,
                                "the option label must be UTF-8 without control characters");
    }
    memset(text, 'a', sizeof text);
    text[128] = 0;
    assert_int_equal(snib__label_check(text, true, &err), SNIB_OK);
    text[128] = 'a';
    text[129] = 0;
    assert_int_equal(snib__label_check(text, true, &err), SNIB_EOPTION);
    assert_string_equal(err.text, "the option label has 129 bytes; the limit is 128");
    assert_int_equal(snib__label_check(text, false, &err), SNIB_EINVAL);
    assert_string_equal(err.text, "the label has 129 bytes; the limit is 128");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_renewals),
        cmocka_unit_test(once_a_round),
        cmocka_unit_test(short_leases),
        cmocka_unit_test(with_fixed_leases),
        cmocka_unit_test(not_at_all),
        cmocka_unit_test(refused),
        cmocka_unit_test(advice),
        cmocka_unit_test(taken_back),
        cmocka_unit_test(at_the_node_of_its_slot),
        cmocka_unit_test(its_slot_moves),
        cmocka_unit_test(its_slot_is_not_served),
        cmocka_unit_test(losses),
        cmocka_unit_test(oldest_holds),
        cmocka_unit_test(more_lines),
        cmocka_unit_test(too_many_locks),
        cmocka_unit_test(after_many_short_locks),
        cmocka_unit_test(asked),
        cmocka_unit_test(text_of_this_process),
        cmocka_unit_test(labels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
