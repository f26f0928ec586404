/* URLs: each part in each form, everything else refused, and no secret in any message. */
#include "unit.h"

#include "api/url.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct good {
    const char *url;
    struct snib__url want; /* without addresses */
    const char *where;     /* the addresses' texts, separated by a blank */
};

static void assert_same_text(const char *a, const char *b)
{
    if (a && b)
        assert_string_equal(a, b);
    else
        assert_ptr_equal(a, b);
}

static const char *where_of(const struct snib__url *url)
{
    static char text[32 * SNIB__ADDRESS_TEXT];
    char one[SNIB__ADDRESS_TEXT];
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < url->addresses_n; i++) {
        assert_int_equal(url->addresses[i].tls, url->tls);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i ? " " : "",
                                 snib__address_text(&url->addresses[i], one));
    }
    return text;
}

#define SENTINEL .topology = SNIB__SENTINEL
#define CLUSTER .topology = SNIB__CLUSTER

static void good_urls(void **state)
{
    (void)state;
    static const struct good good[] = {
        {"redis://h", {0}, "h:6379"},
        {"REDIS://h/", {0}, "h:6379"},
        {"redis://127.0.0.1:1/2147483647", {.database = 2147483647}, "127.0.0.1:1"},
        {"redis://a-b_c.example:65535/007", {.database = 7}, "a-b_c.example:65535"},
        {"redis://[::1]", {0}, "[::1]:6379"},
        {"redis://u:p@[fe80::1]:7/3",
         {.username = "u", .password = "p", .database = 3},
         "[fe80::1]:7"},
        {"redis://:secret@h", {.password = "secret"}, "h:6379"},
        {"redis://user@h", {.username = "user"}, "h:6379"},
        {"redis://user:@h", {.username = "user", .password = ""}, "h:6379"},
        {"redis://u%40x:p%3a%2F%25:q@h", {.username = "u@x", .password = "p:/%:q"}, "h:6379"},
        {"redis://h?db=3", {.database = 3}, "h:6379"},
        {"redis://h/?username=u&password=p%26%3d", {.username = "u", .password = "p&="}, "h:6379"},
        {"valkey://h", {0}, "h:6379"},
        {"rediss://h:6380/1", {.tls = true, .database = 1}, "h:6380"},
        {"valkeys://h", {.tls = true}, "h:6379"},
        {"rediss://h?tls_ca=/etc/ca%20s&tls_cert=c&tls_key=k&tls_server_name=n",
         {.tls = true,
          .tls_ca = "/etc/ca s",
          .tls_cert = "c",
          .tls_key = "k",
          .tls_server_name = "n"},
         "h:6379"},
        {"unix:///run/redis.sock", {0}, "/run/redis.sock"},
        {"redis+unix:///s", {0}, "/s"},
        {"valkey+unix:///s", {0}, "/s"},
        {"unix:///a%20b@c?db=4", {.database = 4}, "/a b@c"},
        {"memory://orders", {0}, "memory://orders"},
        {"memory://u:p@A-b_9/3",
         {.username = "u", .password = "p", .database = 3},
         "memory://A-b_9"},
        {"unix://u:p@/s", {.username = "u", .password = "p"}, "/s"},
        {"redis+sentinel://h/main", {SENTINEL, .service = "main"}, "h:26379"},
        {"valkey+sentinel://a,b:1,[::1],[::2]:3/my%2fmain/4",
         {SENTINEL, .service = "my/main", .database = 4},
         "a:26379 b:1 [::1]:26379 [::2]:3"},
        {"redis+sentinel://u:p@a,b/main/?sentinel_username=x&sentinel_password=y",
         {SENTINEL, .service = "main", .username = "u", .password = "p", .sentinel_username = "x",
          .sentinel_password = "y"},
         "a:26379 b:26379"},
        {"rediss+sentinel://a/m?db=2",
         {SENTINEL, .tls = true, .service = "m", .database = 2},
         "a:26379"},
        {"valkeys+sentinel://a/m", {SENTINEL, .tls = true, .service = "m"}, "a:26379"},
        {"redis+cluster://a", {CLUSTER}, "a:6379"},
        {"Valkey+Cluster://a:1,a:2,b/", {CLUSTER}, "a:1 a:2 b:6379"},
        {"rediss+cluster://:p@a,b/0", {CLUSTER, .tls = true, .password = "p"}, "a:6379 b:6379"},
        {"valkeys+cluster://a?db=0&password_file=/p",
         {CLUSTER, .tls = true, .password_file = "/p"},
         "a:6379"},
    };
    for (size_t i = 0; i < COUNT(good); i++) {
        const struct snib__url *want = &good[i].want;
        struct snib__url got, copy;
        snib_client_options given;
        snib_error err;
        if (snib__url_parse(good[i].url, &got, &given, &err) != SNIB_OK)
            fail_msg("%s: %s", good[i].url, err.text);
        assert_int_equal(snib__url_copy(&got, &copy), SNIB_OK);
        snib__url_free(&got);
        assert_memory_equal(&got, &(struct snib__url){0}, sizeof got);
        assert_int_equal(copy.topology, want->topology);
        assert_int_equal(copy.tls, want->tls);
        assert_int_equal(copy.database, want->database);
        assert_string_equal(where_of(&copy), good[i].where);
        assert_same_text(copy.service, want->service);
        assert_same_text(copy.username, want->username);
        assert_same_text(copy.password, want->password);
        assert_same_text(copy.password_file, want->password_file);
        assert_same_text(copy.sentinel_username, want->sentinel_username);
        assert_same_text(copy.sentinel_password, want->sentinel_password);
        assert_same_text(copy.tls_ca, want->tls_ca);
        assert_same_text(copy.tls_cert, want->tls_cert);
        assert_same_text(copy.tls_key, want->tls_key);
        assert_same_text(copy.tls_server_name, want->tls_server_name);
        snib__url_free(&copy);
    }
}

/* Every URL here has the canary where a password could be.  Each gives the error text that
 * helps. */
static void bad_urls(void **state)
{
    (void)state;
    static const struct {
        const char *url, *why;
    } bad[] = {
        {"", "the URL is empty"},
        {"canary", "must begin with"},
        {"redis:canary", "must begin with"},
        {"redis:/canary", "must begin with"},
        {"canary://h", "must begin with"},
        {"http://canary@h", "must begin with"},
        {"redis+canary://h", "must begin with"},
        {"rediss+unix://canary", "no TLS"},
        {"redis://", "no host"},
        {"redis://?db=1", "no host"},
        {"redis:///0", "no host"},
        {"redis://:canary@", "no host"},
        {"redis://@h", "neither user nor password"},
        {"redis://:@h", "neither user nor password"},
        {"redis://u:canary@h:0", "port"},
        {"redis://u:canary@h:65536", "port"},
        {"redis://u:canary@h:", "port"},
        {"redis://u:canary@h:+1", "port"},
        {"redis://u:canary@h:1x", "port"},
        {"redis://u:canary@h:00000006379", "port"},
        {"redis://u:canary@h/x", "database"},
        {"redis://u:canary@h/-1", "database"},
        {"redis://u:canary@h/2147483648", "database"},
        {"redis://u:canary@h/1/", "database"},
        {"redis://u:canary@h//1", "database"},
        {"redis://u:canary@h/1?db=1", "twice"},
        {"redis://u:canary@h?db=1&db=1", "twice"},
        {"redis://u:canary@h?db=", "name=value"},
        {"redis://u:canary@h?", "name=value"},
        {"redis://u:canary@h?lease=30s&", "name=value"},
        {"redis://u:canary@h?&lease=30s", "name=value"},
        {"redis://u:canary@h?canary", "name=value"},
        {"redis://u:canary@h?=canary", "name=value"},
        {"redis://u:canary@h?password=canary", "password twice"},
        {"redis://u:canary@h?lease=1s&lease=1s", "lease twice"},
        {"redis://u:canary@h?tls_ca=%zz", "percent"},
        {"redis://u:12/can?ary@h", "%3F"},
        {"redis://u:12?can=ary@h", "%3F"},
        {"redis://u:canary@h#f", "encode it"},
        {"redis://u:canary@h h", "encode it"},
        {"redis://u:canary@h\n", "encode it"},
        {"redis://u:canary@\x7f", "encode it"},
        {"redis://u:canary%@h", "percent"},
        {"redis://u:canary%4@h", "percent"},
        {"redis://u:canary%zz@h", "percent"},
        {"redis://u:canary%00@h", "percent"},
        {"redis://u:canary%0a@h", "percent"},
        {"redis://u:canary@x@h", "two @"},
        {"redis://u:ca/nary@h", "%2F"},
        {"redis://u:canary@[::1", "no ]"},
        {"redis://u:canary@[]", "not an IPv6"},
        {"redis://u:canary@[h]", "not an IPv6"},
        {"redis://u:canary@[127.0.0.1]", "not an IPv6"},
        {"redis://u:canary@[::1]x", "port"},
        {"redis://u:canary@[::1]6379", "port"},
        {"redis://u:canary@::1", "two colons"},
        {"redis://u:canary@h%41", "not a name"},
        {"redis://u:canary@h$", "not a name"},
        {"redis://u:canary@h1,h2", "several hosts"},
        {"rediss://u:canary@h1,h2", "several hosts"},
        {"unix://", "absolute path"},
        {"memory://", "1 to 64 letters"},
        {"memory://can.ary", "1 to 64 letters"},
        {"memory://a,canary", "1 to 64 letters"},
        {"unix://canary", "absolute path"},
        {"unix:///", "absolute path"},
        {"unix://u:canary@", "absolute path"},
        {"unix://host/canary", "absolute path"},
        {"unix:///s?", "name=value"},
        {"unix:///s?db=", "name=value"},
        {"unix:///s?db=-1", "database"},
        {"unix:///s?db=1&db=2", "twice"},
        {"unix:///s?db=2147483648", "database"},
        {"unix:///s%00canary", "percent"},
        {"unix:///s%", "percent"},
        {"unix://u:canary@/s#1", "encode it"},
        {"redis+sentinel://u:canary@h", "service's name"},
        {"redis+sentinel://u:canary@h/", "service's name"},
        {"redis+sentinel://u:canary@h//1", "service's name"},
        {"redis+sentinel://u:canary@h?db=1", "service's name"},
        {"redis+sentinel://u:canary@h/m%20n", "space"},
        {"redis+sentinel://u:canary@h/m%ff", "UTF-8"},
        {"redis+sentinel://u:canary@h/m%0an", "percent"},
        {"redis+sentinel://u:canary@h/m/x", "database"},
        {"redis+sentinel://u:canary@h/m/1/2", "database"},
        {"redis+sentinel://u:canary@h/m/1?db=1", "twice"},
        {"redis+sentinel:///m", "no host"},
        {"redis+sentinel://u:canary@,h/m", "empty one beside a comma"},
        {"redis+sentinel://u:canary@h,/m", "empty one beside a comma"},
        {"redis+sentinel://u:canary@a,,b/m", "empty one beside a comma"},
        {"redis+sentinel://u:canary@a,:1/m", "empty one beside a comma"},
        {"redis+sentinel://u:canary@a,b,A:26379/m", "twice"},
        {"redis+sentinel://u:canary@a,b:0/m", "port"},
        {"redis+sentinel://u:canary@a,[::1/m", "no ]"},
        {"redis+cluster://", "no host"},
        {"redis+cluster://u:canary@a,b/1", "no database but 0"},
        {"redis+cluster://u:canary@a,b/x", "database"},
        {"redis+cluster://u:canary@a,b?db=1", "no database but 0"},
        {"redis+cluster://u:canary@[::1],[::1]:6379", "twice"},
        {"redis+cluster://u:canary@a,b$", "not a name"},
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct snib__url got;
        snib_client_options given;
        snib_error err = {0};
        if (snib__url_parse(bad[i].url, &got, &given, &err) != SNIB_EURL)
            fail_msg("%s: %s", bad[i].url, err.text);
        assert_int_equal(err.code, SNIB_EURL);
        if (!strstr(err.text, bad[i].why))
            fail_msg("%s: %s", bad[i].url, err.text);
        assert_null(strstr(err.text, "canary"));
        assert_memory_equal(&got, &(struct snib__url){0}, sizeof got);
    }
    struct snib__url got;
    snib_client_options given;
    assert_int_equal(snib__url_parse(NULL, &got, &given, NULL), SNIB_EURL);
}

static int parse(const char *url)
{
    struct snib__url got;
    snib_client_options given;
    int code = snib__url_parse(url, &got, &given, NULL);
    snib__url_free(&got);
    return code;
}

static void limits(void **state)
{
    (void)state;
    char url[800] = "unix:///";
    memset(url + 8, 'x', 106);
    assert_int_equal(parse(url), SNIB_OK); /* 107 bytes and the NUL */
    url[8 + 106] = 'x';
    assert_int_equal(parse(url), SNIB_EURL);
    memcpy(url, "redis://", 8);
    memset(url + 8, 'x', 253);
    url[8 + 253] = '\0';
    assert_int_equal(parse(url), SNIB_OK);
    memcpy(url + 8 + 253, "x", 2);
    assert_int_equal(parse(url), SNIB_EURL);
    int used = snprintf(url, sizeof url, "redis+cluster://h0");
    for (int i = 1; i < 32; i++)
        used += snprintf(url + used, sizeof url - (size_t)used, ",h%d", i);
    assert_int_equal(parse(url), SNIB_OK);
    snprintf(url + used, sizeof url - (size_t)used, ",h32");
    assert_int_equal(parse(url), SNIB_EURL);
    used = snprintf(url, sizeof url, "redis+sentinel://h/");
    memset(url + used, 'm', 200);
    url[used + 200] = '\0';
    assert_int_equal(parse(url), SNIB_OK);
    memcpy(url + used + 200, "m", 2);
    assert_int_equal(parse(url), SNIB_EURL);
}

/* Random texts of the grammar's letters parse or fail, and never leak; the sanitizers judge. */
static void random_urls(void **state)
{
    (void)state;
    static const char *const schemes[] = {"redis://", "unix://", "redis+sentinel://",
                                          "rediss+cluster://"};
    static const char letters[] = "ah1/:@%[]?=#.-2\x80,&";
    srandom(1);
    int accepted[COUNT(schemes)] = {0};
    for (size_t round = 0; round < 400000; round++) {
        char url[60];
        int used = snprintf(url, sizeof url, "%s", schemes[round % COUNT(schemes)]);
        for (int n = (int)(random() % 20); n > 0; n--)
            url[used++] = letters[(size_t)random() % (sizeof letters - 1)];
        url[used] = '\0';
        struct snib__url got;
        snib_client_options given;
        if (snib__url_parse(url, &got, &given, NULL) == SNIB_OK) {
            assert_true(got.addresses_n > 0);
            assert_int_equal(got.service != NULL, got.topology == SNIB__SENTINEL);
            accepted[round % COUNT(schemes)]++;
            snib__url_free(&got);
        }
    }
    for (size_t i = 0; i < COUNT(schemes); i++)
        if (accepted[i] < 100)
            fail_msg("%s: %d", schemes[i], accepted[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_urls),
        cmocka_unit_test(bad_urls),
        cmocka_unit_test(limits),
        cmocka_unit_test(random_urls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
