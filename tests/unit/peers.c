/* peers.c - the orders of locks that processes tell each other: when something is sent, what, and what is made of an
 * answer.  What the graph makes of it is in order.c, how it is sent in board.c. */
#include "unit.h"

#include "api/peers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECOND (1000 * SNIB__MS)
#define ME "me (pid 7 on h)"

static uint64_t server; /* each test has one of its own: what a process has told is the process's */
static snib__time now = 100 * SECOND;
static int circles;

/* ---- The board ------------------------------------------------------------------------------------- */

static bool ready;
static const char *answer;
static char sent[70000]; /* the last notes */
static int sent_n;

bool __wrap_snib__engine_board_ready(struct snib__engine *engine, snib__time at);
bool __wrap_snib__engine_board_ready(struct snib__engine *engine, snib__time at)
{
    assert_null(engine);
    assert_true(at == now);
    return ready;
}

void __wrap_snib__engine_board(struct snib__engine *engine, const char *notes, size_t n,
                               snib__time at);
void __wrap_snib__engine_board(struct snib__engine *engine, const char *notes, size_t n,
                               snib__time at)
{
    assert_null(engine);
    assert_true(at == now);
    snprintf(sent, sizeof sent, "%.*s", (int)n, notes);
    sent_n++;
}

char *__wrap_snib__engine_board_read(struct snib__engine *engine, size_t *out_n);
char *__wrap_snib__engine_board_read(struct snib__engine *engine, size_t *out_n)
{
    assert_null(engine);
    const char *text = answer;
    answer = NULL;
    char *copy = text ? malloc(strlen(text) + 1) : NULL;
    *out_n = text ? strlen(text) : 0;
    return copy ? memcpy(copy, text, *out_n) : NULL;
}

static int begin(void **state)
{
    (void)state;
    server++;
    circles = 0;
    ready = true;
    return 0;
}

static struct snib__order_name named(const char *name, bool reads)
{
    struct snib__order_name out = {server, (unsigned char)name[0], reads, ""};
    snprintf(out.shown, sizeof out.shown, "\"%s\"", name);
    return out;
}

/* This process takes the second while it has the first. */
static void take(const char *one, const char *two)
{
    struct snib__order_circle circle;
    struct snib__order_name held = named(one, false), taken = named(two, true);
    struct snib__order_pair pair = {&held, &taken, "a.c:1", "a.c:2", NULL};
    assert_int_equal(snib__order_note(&pair, &circle), SNIB__ORDER_NEW);
    snib__peers_news(&held, &taken);
}

/* Whether something is sent now; it is in `sent`. */
static int written(void)
{
    sent_n = 0;
    snib__peers_write(NULL, server, ME, now);
    return sent_n;
}

static void count_circle(void *context, const struct snib__order_circle *circle)
{
    assert_null(context);
    assert_true(circle->foreign);
    circles++;
}

static void board_says(const char *text)
{
    answer = text;
    snib__peers_read(NULL, server, now, count_circle, NULL);
}

/* ---- When, and what -------------------------------------------------------------------------------- */

static void seldom(void **state)
{
    (void)state;
    assert_int_equal(written(), 0); /* nothing to compare */
    take("a", "b");
    assert_int_equal(written(), 1);
    assert_non_null(
        strstr(sent, "w0000000000000061r0000000000000062 \"a\"\t\"b\"\ta.c:1\ta.c:2\t" ME "\n"));
    assert_int_equal(written(), 0);
    board_says("1000\n1060 w0000000000000061r0000000000000062 \"a\"\t\"b\"\ta.c:1\ta.c:2\t" ME
               "\n");
    now += 4900 * SNIB__MS;
    assert_int_equal(written(), 0);
    now += 100 * SNIB__MS;
    assert_int_equal(written(), 1);
    assert_string_equal(sent, ""); /* a look only */
    board_says("1005\n1035 w0000000000000061r0000000000000062 \"a\"\t\"b\"\tx:1\tx:2\tother\n");
    now += 5 * SECOND;
    assert_int_equal(written(), 1);
    assert_non_null(strstr(sent, "\"a\"\t\"b\"\ta.c:1")); /* whoever has it, it ends soon */
    take("a", "c");
    assert_int_equal(written(), 1); /* at once; the first has no answer yet */
    assert_non_null(strstr(sent, "\"a\"\t\"b\"\ta.c:1"));
    assert_non_null(strstr(sent, "\"a\"\t\"c\"\ta.c:1"));
    assert_int_equal(circles, 0);
}

static void heard(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "x",
        "1000",
        "1000\n",
        "1000\n1060\n",
        "1000\n1060 \n",
        "-1\n1060 r0000000000000062w0000000000000061 a\tb\tc\td\te\n",
        "1000\n1000 r0000000000000062w0000000000000061 a\tb\tc\td\te\n",
        "1000\n1061 r0000000000000062w0000000000000061 a\tb\tc\td\te\n",
        "1000\n1060 x0000000000000062w0000000000000061 a\tb\tc\td\te\n",
        "1000\n1060 r000000000000006gw0000000000000061 a\tb\tc\td\te\n",
        "1000\n1060 r0000000000000062w0000000000000061a\tb\tc\td\te\n",
        "1000\n1060 r0000000000000062w0000000000000061 a\tb\tc\td\n",
        "1000\n1060 r0000000000000062w0000000000000061 a\tb\tc\td\te\tf\n",
        "1000\n1060 r0000000000000062w0000000000000061 a\tb\t\td\te\n",
        "1000\n1060 r0000000000000062w0000000000000061 a\tb\tc\td\te",
        "1000\n9999999999999999999999999999999999 r0000000000000062w0000000000000061 "
        "a\tb\tc\td\te\n",
    };
    take("a", "b");
    for (size_t i = 0; i < COUNT(bad); i++) {
        assert_int_equal(written(), 1);
        board_says(bad[i]);
        if (circles)
            fail_msg("%s", bad[i]);
        now += 5 * SECOND;
    }
    assert_int_equal(written(), 1);
    board_says("1000\nx\n1060 w0000000000000062w0000000000000061 a\tb\tc\td\te\n");
    assert_int_equal(circles, 1);
}

/* No more than a request can carry; the rest goes with the next ones. */
static void many(void **state)
{
    (void)state;
    struct snib__order_circle circle;
    for (int i = 0; i < 400; i++) {
        struct snib__order_name held = named("a", false), taken = named("b", false);
        taken.name = 1000 + (uint64_t)i;
        struct snib__order_pair pair = {&held, &taken, "a.c:1", "a.c:2", NULL};
        assert_int_equal(snib__order_note(&pair, &circle), SNIB__ORDER_NEW);
        snib__peers_news(&held, &taken);
    }
    assert_int_equal(written(), 1);
    assert_in_range(strlen(sent), 16000, 16384);
    assert_int_equal(written(), 0);
}

/* What could not be sent is due until it can. */
static void not_ready(void **state)
{
    (void)state;
    take("a", "b");
    ready = false;
    assert_int_equal(written(), 0);
    now += 60 * SECOND;
    assert_int_equal(written(), 0);
    ready = true;
    assert_int_equal(written(), 1);
    assert_non_null(strstr(sent, "\"a\"\t\"b\""));
    server++; /* another one, at which nothing was taken */
    assert_int_equal(written(), 0);
}

/* ---- What the process says ----------------------------------------------------------------------------- */

static void text_of_this_process(void **state)
{
    (void)state;
    char host[256] = "", want[256], text[SNIB__PROCESS_CAP], *name = program_invocation_short_name;
    static char odd[] = "a\tb\nc with a name that is longer than is shown";
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    snib__peers_self(text, NULL);
    snprintf(want, sizeof want, "unit_peers (pid %d on %.32s)", (int)getpid(), host);
    assert_string_equal(text, want);
    snib__peers_self(text, "nightly run");
    snprintf(want, sizeof want, "nightly run (pid %d on %.32s)", (int)getpid(), host);
    assert_string_equal(text, want);
    program_invocation_short_name = odd;
    snib__peers_self(text, "");
    assert_int_equal(strncmp(text, "a?b?c with a name that is longer (pid ", 38), 0);
    program_invocation_short_name = name;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(seldom, begin),  cmocka_unit_test_setup(heard, begin),
        cmocka_unit_test_setup(many, begin),    cmocka_unit_test_setup(not_ready, begin),
        cmocka_unit_test(text_of_this_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
