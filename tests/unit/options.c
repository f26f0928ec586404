/* Options: every spelling of a value, every range, which source takes precedence, and what cannot
 * be combined. */
#include "unit.h"

#include "api/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static snib_error err;

/* A URL and options as snib_client_open() takes them; the URL's parts are freed. */
static int settle(const char *url, const snib_client_options *given, snib_client_options *out)
{
    struct snib__url where;
    snib_client_options query;
    memset(&err, 0, sizeof err);
    snib_client_options_init(out, sizeof *out);
    int code = snib__url_parse(url, &where, &query, &err);
    if (code)
        return code;
    if (given)
        *out = *given;
    code = snib__options_settle(out, &query, &where, &err);
    snib__url_free(&where);
    return code;
}

static void defaults(void **state)
{
    (void)state;
    snib_client_options o;
    assert_int_equal(settle("redis://h", NULL, &o), SNIB_OK);
    assert_int_equal(o.lease_ms, 30000);
    assert_int_equal(o.max_hold_ms, -1);
    assert_int_equal(o.connect_timeout_ms, 3000);
    assert_int_equal(o.reply_timeout_ms, 3000);
    assert_int_equal(o.patience_ms, 5000);
    assert_int_equal(o.try_timeout_ms, 1000);
    assert_int_equal(o.recheck_ms, 3000);
    assert_int_equal(o.handover_max, 64);
    assert_int_equal(o.waiters_max, 200000);
    assert_int_equal(o.durability, SNIB_DURABILITY_NONE);
    assert_int_equal(o.durability_policy, SNIB_DURABILITY_REFUSE);
    assert_int_equal(o.publish, SNIB_PUBLISH_AUTO);
    assert_int_equal(o.tls_insecure, -1);
    assert_int_equal(o.lanes, 4);
    assert_int_equal(o.identity, 1);
    assert_int_equal(o.debug, -1);
    assert_int_equal(o.debug_hold_ms, 60000);
}

/* Tests look for mistakes, unless they say no. */
static void default_of_the_test_kit(void **state)
{
    (void)state;
    snib_client_options o, no;
    snib_client_options_init(&no, sizeof no);
    no.debug = -1;
    assert_int_equal(settle("memory://m", NULL, &o), SNIB_OK);
    assert_int_equal(o.debug, 1);
    assert_int_equal(settle("memory://m?debug_hold=1s", NULL, &o), SNIB_OK);
    assert_int_equal(settle("memory://m?debug=no", NULL, &o), SNIB_OK);
    assert_int_equal(o.debug, -1);
    assert_int_equal(settle("memory://m", &no, &o), SNIB_OK);
    assert_int_equal(o.debug, -1);
}

static void times(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ms; /* 0: EOPTION */
    } times[] = {
        {"500ms", 500},
        {"10s", 10000},
        {"2m", 120000},
        {"1h", 3600000},
        {"24h", 86400000},
        {"3", 3000},
        {"1.5", 1500},
        {"0.25s", 250},
        {"1.5h", 5400000},
        {"0.001", 1},
        {"1.4ms", 1},
        {"0.0015s", 2},
        {"86400", 86400000},
        {"007s", 7000},
        {"25h", 0},
        {"86400.001", 0},
        {"0", 0},
        {"0s", 0},
        {"0.0001", 0},
        {"0.4ms", 0},
        {"-1s", 0},
        {"+1s", 0},
        {"1 s", 0},
        {"1d", 0},
        {"s", 0},
        {".5s", 0},
        {"1.s", 0},
        {"1..5s", 0},
        {"1e3", 0},
        {"0x10", 0},
        {"99999999999999999999", 0},
        {"99999999999999999999h", 0},
        {"1S", 0},
        {"1sec", 0},
        {"inf", 0},
        {"nan", 0},
        {"1,5", 0},
    };
    for (size_t i = 0; i < COUNT(times); i++) {
        snib_client_options o;
        char url[80];
        snprintf(url, sizeof url, "redis://h?connect_timeout=%s", times[i].text);
        for (char *p = url; *p; p++)
            if (*p == ' ')
                memmove(p + 3, p + 1, strlen(p)), memcpy(p, "%20", 3);
        int code = settle(url, NULL, &o);
        if (code != (times[i].ms ? SNIB_OK : SNIB_EOPTION))
            fail_msg("%s: %d %s", url, code, err.text);
        if (times[i].ms)
            assert_int_equal(o.connect_timeout_ms, times[i].ms);
        else
            assert_non_null(strstr(err.text, "connect_timeout"));
    }
}

/* Each error text names the option and its allowed values; it never shows the value given. */
static void bad_options(void **state)
{
    (void)state;
    static const struct {
        const char *url;
        int code;
        const char *text;
    } bad[] = {
        {"redis://h?colour=blue", SNIB_EOPTION, "there is no option colour"},
        {"redis://h?lease_ms=5", SNIB_EOPTION, "there is no option lease_ms"},
        {"redis://h?flags=1", SNIB_EOPTION, "there is no option flags"},
        {"redis://h?Lease=5", SNIB_EOPTION,
         "an option in the URL's query is not known; names have lower-case letters and "
         "underscores"},
        {"redis://h?lease=99ms", SNIB_ELEASE, "the lease is out of range; use 100 ms to 24 hours"},
        {"redis://h?lease=x", SNIB_EOPTION,
         "the option lease is not a time; write it as 500ms, 10s, 2m, 1h or plain seconds"},
        {"redis://h?patience=0", SNIB_EOPTION,
         "the option patience cannot have this value; use 1ms to 24h"},
        {"redis://h?recheck=61s", SNIB_EOPTION,
         "the option recheck cannot have this value; use 50ms to 1m"},
        {"redis://h?max_hold=25h", SNIB_EOPTION,
         "the option max_hold cannot have this value; use 1ms to 24h or none"},
        {"redis://h?handover_max=-1", SNIB_EOPTION,
         "the option handover_max cannot have this value; use 1 to 2147483647 or none"},
        {"redis://h?handover_max=2147483648", SNIB_EOPTION,
         "the option handover_max cannot have this value; use 1 to 2147483647 or none"},
        {"redis://h?waiters_max=0", SNIB_EOPTION,
         "the option waiters_max cannot have this value; use 1 to 2147483647"},
        {"redis://h?waiters_max=many", SNIB_EOPTION,
         "the option waiters_max cannot have this value; use 1 to 2147483647"},
        {"redis://h?label=a%ffb", SNIB_EOPTION,
         "the option label must be UTF-8 without control characters"},
        {"redis://h?debug=maybe", SNIB_EOPTION,
         "the option debug cannot have this value; use yes or no"},
        {"redis://h?debug=yes&debug_hold=25h", SNIB_EOPTION,
         "the option debug_hold cannot have this value; use 1ms to 24h or none"},
        {"redis://h?debug=yes&debug_hold=long", SNIB_EOPTION,
         "the option debug_hold is not a time; write it as 500ms, 10s, 2m, 1h or plain seconds"},
        {"redis://h?debug_hold=1s", SNIB_EOPTION, "debug_hold requires debug"},
        {"redis://h?debug=no&debug_hold=1s", SNIB_EOPTION, "debug_hold requires debug"},
        {"redis://h?identity=maybe", SNIB_EOPTION,
         "the option identity cannot have this value; use yes or no"},
        {"redis://h?publish=loud", SNIB_EOPTION,
         "the option publish cannot have this value; use auto, classic, sharded or both"},
        {"redis://h?durability=most", SNIB_EOPTION,
         "the option durability cannot have this value; use 1 to 100, none, majority or all"},
        {"redis://h?durability=101", SNIB_EOPTION,
         "the option durability cannot have this value; use 1 to 100, none, majority or all"},
        {"redis://h?durability=1&durability_policy=1", SNIB_EOPTION,
         "the option durability_policy cannot have this value; use refuse or report"},
        {"redis://h?lanes=5", SNIB_EOPTION, "the option lanes cannot have this value; use 1 to 4"},
        {"rediss://h?tls_insecure=maybe", SNIB_EOPTION,
         "the option tls_insecure cannot have this value; use yes or no"},
        {"redis://h?tls_ca=/ca", SNIB_EOPTION,
         "the option tls_ca is for TLS, but the URL does not use TLS; use rediss://"},
        {"unix:///s?tls_insecure=yes", SNIB_EOPTION,
         "the option tls_insecure is for TLS, but the URL does not use TLS; use rediss://"},
        {"rediss://h?tls_key=/k", SNIB_EOPTION, "the option tls_key requires tls_cert"},
        {"rediss://h?tls_ca=/ca&tls_insecure=1", SNIB_EOPTION,
         "tls_insecure accepts any certificate, so leave tls_ca out"},
        {"rediss://h?tls_server_name=.test", SNIB_EOPTION,
         "tls_server_name must be a host name or an address, without a dot or brackets in front"},
        {"rediss://h?tls_server_name=[::1]", SNIB_EOPTION,
         "tls_server_name must be a host name or an address, without a dot or brackets in front"},
        {"redis://:p@h?password_file=/f", SNIB_EOPTION,
         "both a password and a password_file are given; use one of them"},
        {"redis://h?sentinel_password=p", SNIB_EOPTION,
         "the sentinels' user and password are for redis+sentinel:// only"},
        {"redis+cluster://h?sentinel_username=u", SNIB_EOPTION,
         "the sentinels' user and password are for redis+sentinel:// only"},
        {"redis://h?durability_timeout=1s", SNIB_EOPTION,
         "durability_timeout and durability_policy require durability"},
        {"redis://h?durability=none&durability_policy=report", SNIB_EOPTION,
         "durability_timeout and durability_policy require durability"},
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        snib_client_options o;
        if (settle(bad[i].url, NULL, &o) != bad[i].code)
            fail_msg("%s: %s", bad[i].url, err.text);
        assert_string_equal(err.text, bad[i].text);
    }
}

/* A struct's values are subject to the same ranges, with the same error texts. */
static void bad_fields(void **state)
{
    (void)state;
    snib_client_options o, out;
    snib_client_options_init(&o, sizeof o);
    o.recheck_ms = 49;
    assert_int_equal(settle("redis://h", &o, &out), SNIB_EOPTION);
    assert_string_equal(err.text, "the option recheck cannot have this value; use 50ms to 1m");
    snib_client_options_init(&o, sizeof o);
    o.handover_max = -2;
    assert_int_equal(settle("redis://h", &o, &out), SNIB_EOPTION);
    snib_client_options_init(&o, sizeof o);
    o.lease_ms = INT64_MIN;
    assert_int_equal(settle("redis://h", &o, &out), SNIB_ELEASE);
    snib_client_options_init(&o, sizeof o);
    o.publish = 5;
    assert_int_equal(settle("redis://h", &o, &out), SNIB_EOPTION);
    snib_client_options_init(&o, sizeof o);
    o.tls_server_name = "";
    assert_int_equal(settle("rediss://h", &o, &out), SNIB_EOPTION);
    assert_string_equal(err.text, "the option tls_server_name is empty; leave it out");
    snib_client_options_init(&o, sizeof o);
    o.publish = -1;
    assert_int_equal(settle("redis://h", &o, &out), SNIB_EOPTION);
}

static void who_goes_first(void **state)
{
    (void)state;
    snib_client_options o, query;
    struct snib__url url;
    assert_int_equal(
        snib__url_parse("redis://u:p@h?lease=5s&max_hold=9s&recheck=100ms", &url, &query, &err),
        SNIB_OK);
    snib_client_options_init(&o, sizeof o);
    o.lease_ms = 7000;
    o.max_hold_ms = -1;
    o.password = "q";
    assert_int_equal(snib__options_settle(&o, &query, &url, &err), SNIB_OK);
    assert_int_equal(o.lease_ms, 7000);
    assert_int_equal(o.max_hold_ms, -1);
    assert_int_equal(o.recheck_ms, 100);
    assert_int_equal(o.patience_ms, 5000);
    assert_null(o.password); /* the URL's one is used */
    assert_string_equal(url.username, "u");
    assert_string_equal(url.password, "q");
    snib__url_free(&url);
}

/* Requesting certificate verification explicitly gives no less than the default. */
static void verified_by_choice(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool insecure;
    } urls[] = {{"rediss://h", false},
                {"rediss://h?tls_insecure=yes", true},
                {"rediss://h?tls_insecure=no", false},
                {"rediss://h?tls_ca=/ca&tls_insecure=no", false}};
    for (size_t i = 0; i < COUNT(urls); i++) {
        snib_client_options o, query;
        struct snib__url url;
        assert_int_equal(snib__url_parse(urls[i].text, &url, &query, &err), SNIB_OK);
        snib_client_options_init(&o, sizeof o);
        assert_int_equal(snib__options_settle(&o, &query, &url, &err), SNIB_OK);
        assert_int_equal(url.tls_insecure, urls[i].insecure);
        snib__url_free(&url);
    }
}

static int ask(void *data, snib_credentials *out)
{
    (void)data, (void)out;
    return -1;
}

/* A password file replaces the URL's password, and the other way round. */
static void one_password(void **state)
{
    (void)state;
    snib_client_options o, query;
    struct snib__url url;
    assert_int_equal(snib__url_parse("redis://h?password_file=/f", &url, &query, &err), SNIB_OK);
    snib_client_options_init(&o, sizeof o);
    o.password = "q";
    assert_int_equal(snib__options_settle(&o, &query, &url, &err), SNIB_OK);
    assert_null(url.password_file);
    assert_string_equal(url.password, "q");
    snib__url_free(&url);
    assert_int_equal(snib__url_parse("redis://:p@h", &url, &query, &err), SNIB_OK);
    snib_client_options_init(&o, sizeof o);
    o.password_file = "/f";
    snib__options_settle(&o, &query, &url, &err);
    assert_string_equal(url.password_file, "/f");
    assert_null(url.password);
    snib__url_free(&url);
}

/* With a credentials provider the URL's password, or its file, is not used. */
static void asked_for_passwords(void **state)
{
    (void)state;
    static const char *const urls[] = {"redis://:p@h", "redis://h?password=p",
                                       "redis://h?password_file=/f", "redis://u@h"};
    for (size_t i = 0; i < COUNT(urls); i++)
        for (int by_function = 0; by_function < 2; by_function++) {
            snib_client_options o, query;
            struct snib__url url;
            assert_int_equal(snib__url_parse(urls[i], &url, &query, &err), SNIB_OK);
            snib_client_options_init(&o, sizeof o);
            o.credentials = by_function ? ask : NULL;
            o.ask_credentials = !by_function;
            assert_int_equal(snib__options_settle(&o, &query, &url, &err), SNIB_OK);
            assert_null(url.password);
            assert_null(url.password_file);
            snib__url_free(&url);
        }
    snib_client_options o, out;
    for (int way = 0; way < 3; way++) { /* but the program cannot give both */
        snib_client_options_init(&o, sizeof o);
        o.ask_credentials = 1;
        o.password = way == 0 ? "p" : NULL;
        o.password_file = way == 1 ? "/f" : NULL;
        o.credentials = way == 2 ? ask : NULL;
        assert_int_equal(settle("redis://h", &o, &out), SNIB_EOPTION);
        assert_string_equal(err.text, "both credentials and a password are given; use one of them");
    }
}

/* Options that are not implemented yet are refused by name, and never ignored. */
static void not_yet(void **state)
{
    (void)state;
    static const struct {
        const char *url, *name;
    } later[] = {
        {"redis://h?password_file=/f", "password_file"},
        {"redis+sentinel://h/m?sentinel_username=u", "sentinel_username"},
        {"redis+sentinel://h/m?sentinel_password=p", "sentinel_password"},
        {"rediss://h?tls_ca=/ca", "tls_ca"},
        {"rediss://h?tls_cert=/c", "tls_cert"},
        {"rediss://h?tls_cert=/c&tls_key=/k", "tls_cert"},
        {"rediss://h?tls_server_name=n", "tls_server_name"},
        {"rediss://h?tls_insecure=yes", "tls_insecure"},
        {"redis://h?durability=1", "durability"},
        {"redis://h?durability=none", "durability"},
        {"redis://h?publish=auto", "publish"},
        {"redis://h?lanes=1", "lanes"},
    };
    static const char *const ready[] = {
#define X(name, field, kind, state, min, max, standard, words, text) #state, #name,
#include "api/options.def"
#undef X
    };
    for (size_t i = 0; i < COUNT(later); i++) {
        snib_client_options o;
        char text[100];
        bool is_ready = false;
        for (size_t r = 0; r < COUNT(ready); r += 2)
            if (strcmp(ready[r + 1], later[i].name) == 0)
                is_ready = strcmp(ready[r], "READY") == 0;
        int code = settle(later[i].url, NULL, &o);
        snprintf(text, sizeof text, "this build cannot do the option %s yet", later[i].name);
        if (is_ready ? code != SNIB_OK : code != SNIB_ENOTSUP || strcmp(err.text, text) != 0)
            fail_msg("%s: %d %s", later[i].url, code, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(default_of_the_test_kit),
        cmocka_unit_test(times),
        cmocka_unit_test(bad_options),
        cmocka_unit_test(bad_fields),
        cmocka_unit_test(who_goes_first),
        cmocka_unit_test(one_password),
        cmocka_unit_test(verified_by_choice),
        cmocka_unit_test(asked_for_passwords),
        cmocka_unit_test(not_yet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
