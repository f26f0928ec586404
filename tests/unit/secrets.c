/* secrets.c - the passwords of a URL and of options: no memory is freed with one of them in it. */
#include "unit.h"

#include "api/options.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- All freed memory is searched ----------------------------------------------------------------- */

#define SECRET "Canary-" /* the beginning of each password */

static int spilt;

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
static const bool watched = false; /* they have their own free() */
#else
static const bool watched = true;

void __libc_free(void *memory);

void free(void *memory)
{
    if (memory && memmem(memory, malloc_usable_size(memory), SECRET, strlen(SECRET)))
        spilt++;
    __libc_free(memory);
}
#endif

/* ---- Uses by a client ----------------------------------------------------------------------------- */

static int settle(const char *text, snib_client_options *given)
{
    snib_error err;
    struct snib__url url, again;
    snib_client_options query;
    int code = snib__url_parse(text, &url, &query, &err);
    if (code)
        return code;
    code = snib__options_settle(given, &query, &url, &err);
    if (code == SNIB_OK) {
        assert_int_equal(snib__url_copy(&url, &again), SNIB_OK);
        snib__url_free(&again);
    }
    snib__url_free(&url);
    return code;
}

static void expect(const char *text, snib_client_options *given, int want)
{
    spilt = 0;
    int code = settle(text, given);
    if (code != want || spilt)
        fail_msg("%s: code %d, %d times in memory that was given back", text, code, spilt);
}

static int ask(void *data, snib_credentials *out)
{
    (void)data, (void)out;
    return -1;
}

static void watching(void **state)
{
    (void)state;
    if (!watched) {
        print_message("          skipped: sanitizers have their own free()\n");
        skip();
    }
    spilt = 0;
    char *text = strdup(SECRET "1");
    assert_non_null(text);
    free(text);
    assert_int_equal(spilt, 1);
}

static void whole_urls(void **state)
{
    (void)state;
    snib_client_options o;
    snib_client_options_init(&o, sizeof o);
    expect("redis://u:" SECRET "1@h", &o, SNIB_OK);
    snib_client_options_init(&o, sizeof o);
    expect("redis://h?password=" SECRET "1", &o, SNIB_OK);
    snib_client_options_init(&o, sizeof o);
    expect("redis+sentinel://:" SECRET "1@h/m?sentinel_password=" SECRET "2", &o, SNIB_OK);
    snib_client_options_init(&o, sizeof o);
    expect("rediss://h?tls_cert=/c&tls_key_password=" SECRET "3", &o, SNIB_OK);
}

/* The part after the password is invalid. */
static void broken_urls(void **state)
{
    (void)state;
    snib_client_options o;
    snib_client_options_init(&o, sizeof o);
    expect("redis://u:" SECRET "1%zz@h", &o, SNIB_EURL);
    expect("redis://u:" SECRET "1@h:0", &o, SNIB_EURL);
    expect("redis://u:" SECRET "1@h/x", &o, SNIB_EURL);
    expect("redis://u:" SECRET "1@h?colour=blue", &o, SNIB_EOPTION);
    expect("redis://u:" SECRET "1@h?password=" SECRET "2", &o, SNIB_EURL);
    expect("redis+sentinel://:" SECRET "1@h", &o, SNIB_EURL);
    expect("redis://h?password=" SECRET "1&password=" SECRET "2", &o, SNIB_EURL);
    expect("redis://h?password=" SECRET "1%00", &o, SNIB_EURL);
    expect("redis://:" SECRET "1@h?password_file=/f", &o, SNIB_EOPTION);
    expect("redis://h?sentinel_password=" SECRET "1", &o, SNIB_EOPTION);
}

/* The program's passwords take precedence over the URL's. */
static void replaced_passwords(void **state)
{
    (void)state;
    static const char *const urls[] = {"redis://u:" SECRET "1@h", "redis://h?password=" SECRET "1"};
    snib_client_options o;
    for (size_t i = 0; i < COUNT(urls); i++) {
        snib_client_options_init(&o, sizeof o);
        o.password = SECRET "2";
        expect(urls[i], &o, SNIB_OK);
        snib_client_options_init(&o, sizeof o);
        o.password_file = "/f";
        expect(urls[i], &o, SNIB_OK);
        snib_client_options_init(&o, sizeof o);
        o.ask_credentials = 1;
        expect(urls[i], &o, SNIB_OK);
        snib_client_options_init(&o, sizeof o);
        o.credentials = ask;
        expect(urls[i], &o, SNIB_OK);
        snib_client_options_init(&o, sizeof o);
        o.password = SECRET "2";
        o.patience_ms = -7;
        expect(urls[i], &o, SNIB_EOPTION);
    }
    snib_client_options_init(&o, sizeof o);
    o.sentinel_password = SECRET "2";
    expect("redis+sentinel://h/m?sentinel_password=" SECRET "1", &o, SNIB_OK);
    snib_client_options_init(&o, sizeof o);
    o.tls_key_password = SECRET "2";
    expect("rediss://h?tls_cert=/c&tls_key_password=" SECRET "1", &o, SNIB_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(watching),
        cmocka_unit_test(whole_urls),
        cmocka_unit_test(broken_urls),
        cmocka_unit_test(replaced_passwords),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
