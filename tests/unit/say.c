/* say.c - the sentence of a result ends as it must, however long the names, the addresses and the server's own words. */
#include "unit.h"

#include "api/say.h"
#include "locks/kind.h"
#include "net/error.h"
#include "net/text.h"

#include <errno.h>
#include <string.h>

#define TEXT_MAX sizeof((snib_error *)0)->text

static snib_client *handle;
static struct snib__client *client;

static int start(void **state)
{
    (void)state;
    char url[400];
    int32_t code;
    memset(url, 'h', sizeof url);
    memcpy(url, "redis://", 8);
    memcpy(url + 200, ":6379", 6);
    assert_int_equal(snib_client_open(url, NULL, &handle, NULL), SNIB_OK);
    client = snib__client_enter(handle, NULL, &code);
    assert_non_null(client);
    snib__handle_put(handle);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    snib_client_free(handle);
    return 0;
}

/* Everything that a sentence is made of, as long as it may be. */
static struct {
    char name[512], words[SNIB__WORDS_MAX], where[240];
} longest;

static struct snib__gate *gate_of(int32_t kind)
{
    int32_t code;
    memset(longest.name, 'n', sizeof longest.name);
    if (kind >= SNIB__MULTI)
        longest.name[sizeof longest.name - 1] = 0;
    struct snib__gate *gate =
        snib__lock_gate(client, kind, longest.name, sizeof longest.name, &code);
    assert_non_null(gate);
    return gate;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static void expect_whole(const char *text, size_t cap, int32_t server,
                         const struct snib__told *told)
{
    bool own = told->code == SNIB_ETOPOLOGY || told->code == SNIB_EREPLICAS ||
               told->code == SNIB_ENOTSUP || told->code == SNIB_ELEASE;
    assert_true(strlen(text) < cap);
    if (told->code == SNIB_EUNREACHABLE && !told->unconfirmed)
        assert_non_null(strstr(text, "; the request may have been applied"));
    if (told->code == SNIB_EUNREACHABLE && told->unconfirmed)
        assert_non_null(strstr(text, "whether it is free; try again later"));
    if (told->code == SNIB_ECONNECT)
        assert_non_null(strstr(text, "; nothing was applied"));
    if (told->code == SNIB_EREADONLY)
        assert_non_null(strstr(text, " is a read-only replica; connect to its master"));
    if (server) {
        assert_memory_equal(text + server - 19, "; the server said: ", 19);
        assert_true(ends_with(text, " what to do"));
        assert_memory_equal(text + server, "MISCONF", 7);
    } else if (told->words && told->code != SNIB_LOST && own) {
        assert_true(ends_with(text, " what to do"));
    }
}

static void nothing_loses_its_end(void **state)
{
    (void)state;
    static const int os_errors[] = {0, ECONNREFUSED, ENAMETOOLONG};
    static const int32_t causes[] = {0, SNIB_ECREDENTIALS, SNIB_ERESOLVE, SNIB_EAUTH};
    static const size_t caps[] = {TEXT_MAX, SNIB__SAY_MEMBER};
    memset(longest.words, 'w', sizeof longest.words);
    memcpy(longest.words, "MISCONF", 7);
    memcpy(longest.words + sizeof longest.words - 12, " what to do", 12);
    memset(longest.where, 'a', sizeof longest.where - 1);
    for (int32_t kind = 0; kind < SNIB__KINDS; kind++) {
        struct snib__gate *gate = kind ? gate_of(kind) : NULL;
        for (int32_t code = SNIB_EFORKED; code <= SNIB_NOT_HELD; code++)
            for (unsigned i = 0; i < 2U * 3 * 4 * 2 * 2 * 2; i++) {
                const struct snib__told told = {
                    .code = code,
                    .os_error = os_errors[i / 2 % 3],
                    .cause = causes[i / 6 % 4],
                    .words = i / 24 % 2 ? longest.words : NULL,
                    .where = i / 48 % 2 ? longest.where : NULL,
                    .unserved = code == SNIB_ECONNECT && i / 96 % 2,
                    .unconfirmed = code == SNIB_EUNREACHABLE && i / 96 % 2,
                };
                char text[TEXT_MAX];
                int32_t server = snib__say(text, caps[i % 2], client, gate, &told);
                expect_whole(text, caps[i % 2], server, &told);
            }
        if (gate)
            snib__gate_put(client->driver.engine, gate);
    }
}

/* A sentence of a member, as long as it may be, in that of the whole. */
static void a_members_sentence_stays_whole(void **state)
{
    (void)state;
    static const char several[] = "too many servers failed, such as: ";
    char why[sizeof several + SNIB__SAY_MEMBER];
    memset(why, 'w', sizeof why);
    memcpy(why, several, sizeof several - 1);
    memcpy(why + 100, "; the server said: MISCONF", 26);
    memcpy(why + sizeof why - 12, " what to do", 12);
    const struct snib__told told = {
        .code = SNIB_EMISCONF, .words = why, .explained = true, .server = 119};
    struct snib__gate *gate = gate_of(SNIB__OUTER);
    snib_error err;
    assert_int_equal(snib__fail_told(&err, client, gate, &told), SNIB_EMISCONF);
    expect_whole(err.text, sizeof err.text, err.server, &told);
    assert_true(err.server > 119);
    assert_non_null(strstr(err.text, why));
    snib__gate_put(client->driver.engine, gate);
}

static void the_servers_words_are_found(void **state)
{
    (void)state;
    const struct snib__told told = {.code = SNIB_EPERM, .words = "NOPERM no"};
    const struct snib__told silent = {.code = SNIB_EUNREACHABLE};
    int32_t code;
    static const char name[] = "; the server said: x";
    struct snib__gate *gate = snib__lock_gate(client, SNIB_MUTEX, name, sizeof name - 1, &code);
    snib_error err;
    assert_int_equal(snib__fail_told(&err, client, gate, &told), SNIB_EPERM);
    assert_string_equal(err.text + err.server, "NOPERM no");
    assert_int_equal(snib__fail_told(&err, client, gate, &silent), SNIB_EUNREACHABLE);
    assert_int_equal(err.server, 0);
    snib__gate_put(client->driver.engine, gate);
}

/* A server that is connected and does not serve the lock is not called unreachable, whatever it said. */
static void unserved_is_not_unconnected(void **state)
{
    (void)state;
    static const struct {
        const char *words, *text;
    } of[] = {
        {"TRYAGAIN Multiple keys",
         "its slot is being moved to another node: complete or cancel the "
         "move (a:1); nothing was applied; the server said: TRYAGAIN "
         "Multiple keys"},
        {"MIGRATING", "its slot is being moved to another node: complete or cancel the move (a:1); "
                      "nothing was applied; the server said: MIGRATING"},
        {"ERR access a non local key",
         "its slot is being moved to another node: complete or cancel "
         "the move (a:1); nothing was applied; the server said: ERR "
         "access a non local key"},
        {"MOVED 1 b:2", "the nodes disagree about which of them serves its slot (a:1); nothing was "
                        "applied; the server said: MOVED 1 b:2"},
        {"CLUSTERDOWN no", "no node serves its slot (a:1); nothing was applied; the server said: "
                           "CLUSTERDOWN no"},
        {NULL, "no node serves its slot (a:1); nothing was applied"}, /* out of memory */
    };
    for (size_t i = 0; i < COUNT(of); i++) {
        const struct snib__told told = {
            .code = SNIB_ECONNECT, .words = of[i].words, .where = "a:1", .unserved = true};
        char text[TEXT_MAX];
        snib__say(text, sizeof text, client, NULL, &told);
        assert_string_equal(text, of[i].text);
    }
}

/* The system's words are not UTF-8 in every locale, and a name may be cut. */
static void every_sentence_is_utf8(void **state)
{
    (void)state;
    const struct snib__told told = {
        .code = SNIB_ECONNECT, .cause = SNIB_ETLS, .words = "Connexion refus\xe9", .where = "a:1"};
    char text[TEXT_MAX], url[400] = "redis+sentinel://a:1/x";
    snib__say(text, sizeof text, client, NULL, &told);
    assert_string_equal(text, "no connection to a:1 (Connexion refus?); nothing was applied");
    for (int i = 0; i < 60; i++)
        strcat(url, "\xc3\xa9"); /* the 80th byte of the service is half of one */
    snib_client *other;
    int32_t code;
    assert_int_equal(snib_client_open(url, NULL, &other, NULL), SNIB_OK);
    const struct snib__client *inside = snib__client_enter(other, NULL, &code);
    char where[sizeof inside->where];
    memcpy(where, inside->where, sizeof where);
    assert_int_equal(snib__text_clean(where, strlen(where), false), strlen(inside->where));
    assert_string_equal(where, inside->where);
    snib__handle_put(other);
    snib_client_free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_loses_its_end),
        cmocka_unit_test(a_members_sentence_stays_whole),
        cmocka_unit_test(the_servers_words_are_found),
        cmocka_unit_test(unserved_is_not_unconnected),
        cmocka_unit_test(every_sentence_is_utf8),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
