/* birth.c - the system refuses memory, a descriptor or a thread to a socket that begins to connect: nothing of it is left.
 *
 * A socket asks for credentials, has the files of TLS read and the name of the host looked up.  Each allocation of these,
 * in order, is refused once.
 */
#include "unit.h"

#include "driver/sock.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* ---- A system that refuses once ------------------------------------------------------------------- */

void *__real_calloc(size_t n, size_t size);
char *__real_strdup(const char *text);
void __real_free(void *block);
int __real_snib__sys_bell(void);
void __real_snib__sys_close(int fd);
int __real_snib__sys_thread(void *(*run)(void *), void *argument, size_t stack, pthread_t *out);
void *__wrap_calloc(size_t n, size_t size);
char *__wrap_strdup(const char *text);
void __wrap_free(void *block);
int __wrap_snib__sys_bell(void);
void __wrap_snib__sys_close(int fd);
int __wrap_snib__sys_thread(void *(*run)(void *), void *argument, size_t stack, pthread_t *out);

static _Thread_local int countdown; /* to the call that is refused, of this thread's; 0: none is */
static _Thread_local long blocks, descriptors;

static bool refuses(int error)
{
    if (countdown == 0 || --countdown > 0)
        return false;
    errno = error;
    return true;
}

void *__wrap_calloc(size_t n, size_t size)
{
    void *block = refuses(ENOMEM) ? NULL : __real_calloc(n, size);
    blocks += block != NULL;
    return block;
}

char *__wrap_strdup(const char *text)
{
    char *copy = refuses(ENOMEM) ? NULL : __real_strdup(text);
    blocks += copy != NULL;
    return copy;
}

void __wrap_free(void *block)
{
    blocks -= block != NULL;
    __real_free(block);
}

int __wrap_snib__sys_bell(void)
{
    int fd = refuses(EMFILE) ? -1 : __real_snib__sys_bell();
    descriptors += fd >= 0;
    return fd;
}

void __wrap_snib__sys_close(int fd)
{
    descriptors--;
    __real_snib__sys_close(fd);
}

int __wrap_snib__sys_thread(void *(*run)(void *), void *argument, size_t stack, pthread_t *out)
{
    return refuses(EAGAIN) ? EAGAIN : __real_snib__sys_thread(run, argument, stack, out);
}

/* ---- Sockets ---------------------------------------------------------------------------------------- */

static struct snib__logins file_logins(void)
{
    return (struct snib__logins){
        .source = SNIB__LOGIN_FILE, .username = "user", .file = "/nowhere/password"};
}

static void forget(struct snib__logins *logins)
{
    while (logins->asking && !snib__login_done(logins->asking))
        sched_yield();
    snib__logins_end(logins);
}

/* Refuse each of a socket's wishes in turn; returns how many there are. */
static int refuse_each(struct snib__way *way, struct snib__logins *logins)
{
    for (int n = 1;; n++) {
        int32_t code = SNIB_OK;
        int error = 0;
        long blocks_before = blocks, descriptors_before = descriptors;
        countdown = n;
        struct snib__sock *sock = snib__sock_new(way, snib__now(), &code, &error);
        bool refused = countdown == 0;
        countdown = 0;
        assert_int_equal(sock == NULL, refused);
        if (!refused) {
            snib__sock_drop(sock);
            return n - 1;
        }
        if (n == 1 || error != ENOMEM)
            assert_int_equal(code, n == 1 ? SNIB_ENOMEM : SNIB_EUNREACHABLE);
        assert_true(error == ENOMEM || error == EMFILE || error == EAGAIN);
        if (logins) /* a question that was asked would stay for the next socket */
            forget(logins);
        while (way->reading &&
               !snib__tls_files_done(way->reading)) /* the next would wait for it, too */
            sched_yield();
        if (!logins && !way->address.tls) { /* no thread had a part in it */
            assert_int_equal(blocks, blocks_before);
            assert_int_equal(descriptors, descriptors_before);
        }
    }
}

static void named(struct snib__way *way, bool tls)
{
    *way = (struct snib__way){.timeout = 1000 * SNIB__MS};
    assert_true(snib__address_host(&way->address, "localhost", 9, 1, tls));
}

/* The socket itself, the lookup, its descriptor and its thread. */
static void of_a_name(void **state)
{
    (void)state;
    struct snib__way *way = __real_calloc(1, sizeof *way);
    named(way, false);
    assert_int_equal(refuse_each(way, NULL), 4);
    snib__way_free(way);
}

/* Also the question, its descriptor, the texts and its thread. */
static void with_credentials(void **state)
{
    (void)state;
    struct snib__way *way = __real_calloc(1, sizeof *way);
    struct snib__logins logins = file_logins();
    named(way, false);
    way->logins = &logins;
    assert_int_equal(refuse_each(way, &logins), 9);
    forget(&logins);
    snib__way_free(way);
}

/* Also the reader of the files, its descriptor, five texts and its thread. */
static void with_tls(void **state)
{
    (void)state;
    struct snib__way *way = __real_calloc(1, sizeof *way);
    char texts[5][4] = {"ca", "crt", "key", "pwd", "sni"};
    struct snib__tls_config config = {.ca = texts[0],
                                      .cert_file = texts[1],
                                      .key_file = texts[2],
                                      .key_password = texts[3],
                                      .server_name = texts[4]};
    named(way, true);
    way->tls = &config;
    assert_int_equal(refuse_each(way, NULL), 12);
    snib__way_free(way);
}

/* Nothing of a refused question or reader is left. */
static void parts(void **state)
{
    (void)state;
    struct snib__logins logins = file_logins();
    struct snib__tls_config config = {.ca = (char[]){"ca"}, .key_password = (char[]){"pwd"}}, copy;
    for (int n = 1; n <= 5; n++) {
        long blocks_before = blocks, descriptors_before = descriptors;
        countdown = n;
        assert_null(snib__login_ask(&logins));
        assert_int_equal(countdown, 0);
        assert_int_equal(errno, n == 2 ? EMFILE : n == 5 ? EAGAIN : ENOMEM);
        assert_null(logins.asking);
        assert_int_equal(blocks, blocks_before);
        assert_int_equal(descriptors, descriptors_before);
        countdown = n;
        assert_null(snib__tls_files_new(&config));
        assert_int_equal(countdown, 0);
        assert_int_equal(errno, n == 2 ? EMFILE : n == 5 ? EAGAIN : ENOMEM);
        assert_int_equal(blocks, blocks_before);
        assert_int_equal(descriptors, descriptors_before);
    }
    for (int n = 1; n <= 2; n++) {
        countdown = n;
        assert_int_equal(snib__tls_config_copy(&config, &copy), ENOMEM);
        assert_null(copy.ca);
        assert_null(copy.key_password);
    }
    countdown = 1;
    assert_null(snib__tls_trust_new());
    countdown = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_a_name),
        cmocka_unit_test(with_credentials),
        cmocka_unit_test(with_tls),
        cmocka_unit_test(parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
