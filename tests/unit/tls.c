/* TLS as a filter over a socket: handshakes that are good, refused, silent or endless, and bytes in both directions. */
#include "tls.h"

static _Thread_local bool no_room;

/* The linker gives the core this one. */
int __real_snib__buf_append(struct snib__buf *buf, const void *data, size_t n);
int __wrap_snib__buf_append(struct snib__buf *buf, const void *data, size_t n);

int __wrap_snib__buf_append(struct snib__buf *buf, const void *data, size_t n)
{
    return no_room ? -1 : __real_snib__buf_append(buf, data, n);
}

static void proper(void **state)
{
    (void)state;
    static const char *const hosts[] = {"localhost", "LOCALHOST.", "127.0.0.1", "::1",
                                        "a.wild.test"};
    for (size_t i = 0; i < COUNT(hosts); i++)
        for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
            struct end end = {.peer.version = version};
            struct snib__tls_config config = {.ca = at("ca.crt")};
            assert_int_equal(meet(&end, &config, hosts[i]), SNIB__TLS_FINE);
            exchange(&end, 10, 10);
            exchange(&end, 300000, 50000);
            part(&end);
        }
}

static void refusals(void **state)
{
    (void)state;
    static const struct {
        const char *certificate, *ca, *host, *server_name;
        bool old;
        enum manner manner;
        int outcome;
        const char *says;
    } tries[] = {
        {"expired", "ca.crt", "localhost", NULL, 0, PROPER, SNIB__TLS_EXPIRED, "expired"},
        {"self", "ca.crt", "localhost", NULL, 0, PROPER, SNIB__TLS_SELF_SIGNED, "self-signed"},
        {"stranger", "ca.crt", "localhost", NULL, 0, PROPER, SNIB__TLS_UNKNOWN_CA, "given CA"},
        {"server", "strange.crt", "localhost", NULL, 0, PROPER, SNIB__TLS_UNKNOWN_CA, "given CA"},
        {"server", NULL, "localhost", NULL, 0, PROPER, SNIB__TLS_UNKNOWN_CA, "system's CAs"},
        {"other", "ca.crt", "localhost", NULL, 0, PROPER, SNIB__TLS_WRONG_HOST,
         "not for localhost"},
        {"server", "ca.crt", "localhost", "b.test", 0, PROPER, SNIB__TLS_WRONG_HOST, "for b.test"},
        {"server", "ca.crt", "127.0.0.2", NULL, 0, PROPER, SNIB__TLS_WRONG_HOST, "for 127.0.0.2"},
        {"server", "ca.crt", "::2", NULL, 0, PROPER, SNIB__TLS_WRONG_HOST, "not for ::2"},
        {"server", "ca.crt", "a.b.wild.test", NULL, 0, PROPER, SNIB__TLS_WRONG_HOST, "not for"},
        {"server", "ca.crt", "localhost", NULL, 1, PROPER, SNIB__TLS_VERSION, "1.2"},
        {"server", "ca.crt", "localhost", NULL, 0, PLAIN, SNIB__TLS_NO_TLS, "does not speak TLS"},
        {"server", "ca.crt", "localhost", NULL, 0, LEAVES, SNIB__TLS_CUT, "ended"},
        {"other", "ca.crt", "localhost", "elsewhere.test", 0, PROPER, SNIB__TLS_FINE, ""},
        {"self", "self.crt", "localhost", NULL, 0, PROPER, SNIB__TLS_FINE, ""},
    };
    for (size_t i = 0; i < COUNT(tries); i++) {
        struct end end = {.peer = {.certificate = tries[i].certificate,
                                   .old = tries[i].old,
                                   .manner = tries[i].manner}};
        struct snib__tls_config config = {.ca = tries[i].ca ? at(tries[i].ca) : NULL,
                                          .server_name = (char *)tries[i].server_name};
        assert_int_equal(meet(&end, &config, tries[i].host), tries[i].outcome);
        if (tries[i].outcome) {
            print_message("          %s\n", end.failure.text);
            assert_non_null(strstr(end.failure.text, tries[i].says));
            assert_int_equal(end.failure.code, SNIB_ETLS);
            assert_int_equal(end.failure.os_error,
                             tries[i].outcome == SNIB__TLS_CUT ? ECONNRESET : 0);
        }
        part(&end);
    }
}

/* Nothing is verified; the rest is unchanged. */
static void insecure(void **state)
{
    (void)state;
    static const char *const certificates[] = {"expired", "self", "stranger", "other"};
    struct snib__tls_config config = {.insecure = true};
    for (size_t i = 0; i < COUNT(certificates); i++) {
        struct end end = {.peer.certificate = certificates[i]};
        assert_int_equal(meet(&end, &config, "localhost"), SNIB__TLS_FINE);
        exchange(&end, 1000, 1000);
        part(&end);
    }
    struct end old = {.peer.old = true};
    assert_int_equal(meet(&old, &config, "localhost"), SNIB__TLS_VERSION);
    part(&old);
}

static void a_mute_peer(void **state)
{
    (void)state;
    struct end end = {.peer.manner = MUTE};
    struct snib__tls_config config = {.ca = at("ca.crt")};
    assert_int_equal(meet(&end, &config, "localhost"), -1);
    snib__tls_too_late(end.tls, &end.failure);
    assert_int_equal(end.failure.outcome, SNIB__TLS_SILENT);
    assert_int_equal(end.failure.os_error, ETIMEDOUT);
    part(&end);
}

/* Its records need no key, and OpenSSL takes any number.  Each step takes a few, so that its caller can look at the
 * time, and the handshake is given up in the end. */
static void an_endless_handshake(void **state)
{
    (void)state;
    struct end end = {.peer.manner = ENDLESS};
    struct snib__tls_config config = {.ca = at("ca.crt")};
    assert_int_equal(meet(&end, &config, "localhost"), SNIB__TLS_BROKEN);
    print_message("          %s, after %d steps\n", end.failure.text, end.steps);
    assert_non_null(strstr(end.failure.text, "localhost has sent more than 256 KB"));
    assert_int_equal(end.failure.code, SNIB_ETLS);
    assert_int_equal(end.failure.os_error, EPROTO);
    assert_true(end.steps >= 10);
    part(&end);
}

/* What it asks for and does not read is not kept without end. */
static void a_deaf_peer(void **state)
{
    (void)state;
    char bytes[100];
    struct end end = {.peer.manner = DEAF};
    struct snib__tls_config config = {.ca = at("ca.crt")};
    assert_int_equal(meet(&end, &config, "localhost"), SNIB__TLS_FINE);
    assert_int_equal(receive(&end, bytes, sizeof bytes), -1);
    assert_int_equal(errno, EPROTO);
    print_message("          %s\n", snib__tls_why(end.tls)->text);
    assert_non_null(strstr(snib__tls_why(end.tls)->text, "keeps asking"));
    assert_int_equal(snib__tls_why(end.tls)->outcome, SNIB__TLS_BROKEN);
    part(&end);
}

static void ends(void **state)
{
    (void)state;
    static const struct {
        enum manner manner;
        int error, outcome;
    } tries[] = {{CUTS, ECONNRESET, SNIB__TLS_CUT},
                 {NO_GOODBYE, ECONNRESET, SNIB__TLS_CUT},
                 {DAMAGES, EPROTO, SNIB__TLS_BROKEN}};
    for (size_t i = 0; i < COUNT(tries); i++)
        for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
            char bytes[100];
            struct end end = {.peer = {.manner = tries[i].manner, .version = version}};
            struct snib__tls_config config = {.ca = at("ca.crt")};
            assert_int_equal(meet(&end, &config, "localhost"), SNIB__TLS_FINE);
            for (int again = 0; again < 2; again++) { /* the state persists */
                assert_int_equal(receive(&end, bytes, sizeof bytes), -1);
                assert_int_equal(errno, tries[i].error);
            }
            print_message("          %s\n", snib__tls_why(end.tls)->text);
            assert_int_equal(snib__tls_why(end.tls)->outcome, tries[i].outcome);
            assert_int_equal(snib__tls_why(end.tls)->os_error, tries[i].error);
            part(&end);
        }
    /* A close_notify is an end of file. */
    char bytes[100];
    struct end end = {0};
    struct snib__tls_config config = {.ca = at("ca.crt")};
    assert_int_equal(meet(&end, &config, "localhost"), SNIB__TLS_FINE);
    snib__tls_goodbye(end.tls, end.fd);
    assert_int_equal(receive(&end, bytes, sizeof bytes), 0);
    assert_null(snib__tls_why(end.tls));
    part(&end);
}

/* A lack of memory that has passed is not the reason of what fails later. */
static void a_shortage_passes(void **state)
{
    (void)state;
    static const char said[] = "0123456789";
    for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
        char bytes[100];
        struct end end = {.peer.version = version};
        struct snib__tls_config config = {.ca = at("ca.crt")};
        assert_int_equal(meet(&end, &config, "localhost"), SNIB__TLS_FINE);
        no_room = true;
        assert_int_equal(snib__tls_send(end.tls, end.fd, said, 10), -1);
        no_room = false;
        assert_int_equal(errno, ENOMEM);
        assert_int_equal(snib__tls_send(end.tls, end.fd, said, 10), 10);
        assert_int_equal(receive(&end, bytes, sizeof bytes), 10);
        assert_memory_equal(bytes, said, 10);
        shutdown(end.peer.fd, SHUT_WR);
        assert_int_equal(receive(&end, bytes, sizeof bytes), -1);
        assert_int_equal(snib__tls_why(end.tls)->outcome, SNIB__TLS_CUT);
        part(&end);
    }
}

static void key_updates(void **state)
{
    (void)state;
    struct end end = {.peer.manner = UPDATES};
    struct snib__tls_config config = {.ca = at("ca.crt")};
    assert_int_equal(meet(&end, &config, "localhost"), SNIB__TLS_FINE);
    for (int i = 0; i < 200; i++)
        exchange(&end, (size_t)i * 37 + 1, 1000);
    part(&end);
}

/* One thread writes while another reads, and the socket takes little at a time. */
static struct end both;
static char stream[3000000];

static void *writer(void *argument)
{
    size_t done = 0;
    (void)argument;
    while (done < sizeof stream) {
        size_t n = done % 7 ? 40000 : 100;
        n = n < sizeof stream - done ? n : sizeof stream - done;
        ssize_t taken = snib__tls_send(both.tls, both.fd, stream + done, n);
        done += taken > 0 ? (size_t)taken : 0;
        if (taken < 0)
            sched_yield();
    }
    return NULL;
}

static void both_ways(void **state)
{
    (void)state;
    static char got[sizeof stream];
    int little = 4096;
    pthread_t thread;
    struct snib__tls_config config = {.ca = at("ca.crt")};
    both = (struct end){.peer.manner = UPDATES};
    for (size_t i = 0; i < sizeof stream; i++)
        stream[i] = (char)(i ^ i / 253);
    assert_int_equal(meet(&both, &config, "localhost"), SNIB__TLS_FINE);
    setsockopt(both.fd, SOL_SOCKET, SO_SNDBUF, &little, sizeof little);
    assert_int_equal(pthread_create(&thread, NULL, writer, NULL), 0);
    for (size_t in = 0; in < sizeof stream;) {
        ssize_t n = receive(&both, got + in, sizeof stream - in < 9000 ? sizeof stream - in : 9000);
        assert_true(n > 0);
        in += (size_t)n;
    }
    pthread_join(thread, NULL);
    assert_memory_equal(got, stream, sizeof stream);
    part(&both);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(proper),
        cmocka_unit_test(refusals),
        cmocka_unit_test(insecure),
        cmocka_unit_test(a_mute_peer),
        cmocka_unit_test(an_endless_handshake),
        cmocka_unit_test(a_deaf_peer),
        cmocka_unit_test(ends),
        cmocka_unit_test(a_shortage_passes),
        cmocka_unit_test(key_updates),
        cmocka_unit_test(both_ways),
    };
    return cmocka_run_group_tests(tests, world_new, world_free);
}
