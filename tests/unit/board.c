/* board.c - the board on which clients leave notes for each other: what is sent, where to, and what a refusal changes. */
#include "nodes.h"

#define KEY "snib_client:{orders}"
#define NOTES "w one\nw two\n"

static struct snib__engine *begin_used(void)
{
    struct snib__engine *engine = begin();
    granted(engine, gate(engine, SNIB_MUTEX, "m"),
            &(const struct snib__acquire){.wait = SNIB__NEVER});
    snib__engine_log_level(engine, SNIB_LOG_INFO);
    return engine;
}

/* Use the board if that is possible; how many commands that sends. */
static int used(struct snib__engine *engine, const char *notes)
{
    char words[WORDS][96], want[128];
    int n = 0;
    struct snib__buf *out = snib__link_output(snib__engine_link(engine, SNIB__COMMAND));
    while (next_command(out, words)) /* others */
        ;
    if (!snib__engine_board_ready(engine, now))
        return 0;
    snib__engine_board(engine, notes, strlen(notes), now);
    snprintf(want, sizeof want, "$5\r\n65536\r\n$%zu\r\n%s\r\n", strlen(notes), notes);
    assert_non_null(memmem(out->data + out->head, snib__buf_size(out), want, strlen(want)));
    while (next_command(out, words)) {
        if (strcmp(words[0], "EVALSHA") != 0)
            continue;
        assert_string_equal(words[1], snib__script_texts[SNIB__SCRIPT_BOARD].sha1);
        assert_string_equal(words[3], KEY);
        assert_string_equal(words[4], "60");
        n++;
    }
    return n;
}

static void says(struct snib__engine *engine, const char *reply)
{
    answer_own(engine);
    answer(engine, reply);
}

static void expect_seen(struct snib__engine *engine, const char *want)
{
    size_t n;
    char *seen = snib__engine_board_read(engine, &n);
    if (!want) {
        assert_null(seen);
        return;
    }
    assert_non_null(seen);
    assert_int_equal(n, strlen(want));
    assert_memory_equal(seen, want, n);
    free(seen);
}

static int logged(struct snib__engine *engine, const char *part)
{
    int32_t level;
    int n = 0;
    for (const char *text; (text = snib__engine_take_log(engine, &level));)
        n += level == SNIB_LOG_INFO && strstr(text, part) != NULL;
    return n;
}

static void written_and_read(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_used();
    expect_seen(engine, NULL);
    assert_int_equal(used(engine, NOTES), 1);
    expect_seen(engine, NULL);
    says(engine, "$4\r\nseen\r\n");
    expect_seen(engine, "seen");
    expect_seen(engine, NULL);
    assert_int_equal(used(engine, ""), 1);
    assert_int_equal(used(engine, ""), 1);
    says(engine, "$4\r\nseen\r\n");
    says(engine, "$0\r\n\r\n"); /* the later counts */
    expect_seen(engine, "");
    assert_int_equal(used(engine, NOTES), 1);
    says(engine, "-NOSCRIPT x\r\n"); /* with the same notes */
    struct snib__buf *out = snib__link_output(snib__engine_link(engine, SNIB__COMMAND));
    assert_non_null(memmem(out->data + out->head, snib__buf_size(out), NOTES, strlen(NOTES)));
    says(engine, "$1\r\nx\r\n");
    expect_seen(engine, "x");
    assert_int_equal(used(engine, NOTES), 1);
    says(engine, "$1\r\ny\r\n");
    snib__engine_free(engine); /* with what nobody has read */
}

/* ---- When it cannot be ------------------------------------------------------------------------------ */

static void refused(void **state)
{
    (void)state;
    static char large[66000];
    snprintf(large, sizeof large, "$65600\r\n%065600d\r\n", 1);
    const char *const replies[] = {"-NOPERM No permissions to access a key\r\n",
                                   "-WRONGTYPE x\r\n",
                                   "-OOM x\r\n",
                                   ":1\r\n",
                                   "$-1\r\n",
                                   large};
    for (size_t i = 0; i < COUNT(replies); i++) {
        struct snib__engine *engine = begin_used();
        for (int round = 0; round < 3; round++) {
            assert_int_equal(used(engine, NOTES), 1);
            says(engine, replies[i]);
            expect_seen(engine, NULL);
            assert_int_equal(logged(engine, "the server does not accept the orders of locks"),
                             round == 0); /* once */
            now += 59 * SECOND;
            assert_int_equal(used(engine, NOTES), 0);
            now += 2 * SECOND;
        }
        assert_true(ready(engine));
        assert_int_equal(used(engine, NOTES), 1);
        says(engine, "$4\r\nseen\r\n");
        expect_seen(engine, "seen");
        snib__engine_free(engine);
    }
}

/* What to allow is said if that would help. */
static void advice(void **state)
{
    (void)state;
    for (int allowed = 0; allowed < 2; allowed++) {
        struct snib__engine *engine = begin_used();
        assert_int_equal(used(engine, NOTES), 1);
        says(engine, allowed ? "-OOM x\r\n" : "-NOPERM x\r\n");
        assert_int_equal(
            logged(engine, "; allow this user ~snib_client:* +evalsha +set +getrange +time"),
            !allowed);
        snib__engine_free(engine);
    }
}

/* Nothing is sent without a connection, or after the close, and nothing is repeated. */
static void not_connected(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_used();
    assert_int_equal(used(engine, NOTES), 1);
    cut_link(engine);
    assert_int_equal(used(engine, NOTES), 0);
    await_connect(engine);
    assert_int_equal(used(engine, NOTES), 0);
    connect_link(engine);
    const struct snib__conn *conn = conn_of(engine);
    for (uint32_t i = 0; i < conn->ring_count; i++)
        assert_true(conn->ring[(conn->ring_head + i) & (conn->ring_cap - 1)].kind !=
                    SNIB__REQ_BOARD);
    assert_int_equal(used(engine, NOTES), 1);
    snib__engine_close(engine, now);
    assert_int_equal(used(engine, NOTES), 0);
    snib__engine_free(engine);
}

/* ---- In a cluster ------------------------------------------------------------------------------------ */

static void use(struct snib__engine *engine)
{
    if (snib__engine_board_ready(engine, now))
        snib__engine_board(engine, NOTES, strlen(NOTES), now);
    pass(engine, now + SECOND);
}

/* The key has a node of its own, to which the client connects for it. */
static void at_the_node_of_its_slot(void **state)
{
    (void)state;
    char name[16];
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    int there = snib__slot(KEY, strlen(KEY)) >= 8192;
    for (int i = 0;; i++) { /* a lock at the other node */
        snprintf(name, sizeof name, "m%d", i);
        if ((snib__slot(name, strlen(name)) >= 8192) != there)
            break;
    }
    held(engine, name);
    for (int i = 0; i < 3; i++)
        use(engine);
    assert_non_null(strstr(peers[there].last, KEY));
    assert_null(strstr(peers[!there].last, KEY));
    snib__engine_free(engine);
}

/* The slot has moved, which the map says only now: the next one goes to the new node, and nobody is told. */
static void its_slot_moves(void **state)
{
    (void)state;
    char text[64];
    struct snib__engine *engine = begin_cluster("a:0-16383");
    snib__engine_log_level(engine, SNIB_LOG_INFO);
    held(engine, "m");
    moved(text, KEY, 'b');
    peers[0].says = text;
    peers[0].times = 1;
    map_of(common, "a:0-0 b:1-16383");
    common_epoch++;
    peers[1].then = "$4\r\nseen";
    use(engine);
    assert_non_null(strstr(peers[0].last, KEY));
    for (int i = 0; i < 5; i++)
        use(engine);
    assert_non_null(strstr(peers[1].last, KEY));
    expect_seen(engine, "seen");
    assert_int_equal(logged(engine, "orders of locks"), 0);
    snib__engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_and_read),
        cmocka_unit_test(refused),
        cmocka_unit_test(advice),
        cmocka_unit_test(not_connected),
        cmocka_unit_test(at_the_node_of_its_slot),
        cmocka_unit_test(its_slot_moves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
