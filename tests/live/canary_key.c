/* canary_key.c - when a client has been freed, nothing of its private key is left in the process's memory: not of the
 * file's text, not of what it says, whatever went wrong meanwhile.
 *
 * The test knows the keys in disguise only, piece by piece. A child process reads the files for it. */
#define _GNU_SOURCE
#include "../support/disguise.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PIECES_MAX = 24, PIECE = 20, LONG_MS = 20000, LOGS = 64 };

static struct server server;

/* ---- What must not be found -------------------------------------------------------------------------- */

static struct {
    struct disguised piece[PIECES_MAX];
    size_t n;
} key;

static void say_piece(FILE *out, const char *bytes, size_t n)
{
    char text[2 * DISGUISE_MAX + 1];
    struct disguised piece;
    disguise_hide(&piece, bytes, n);
    disguise_write(&piece, text);
    fprintf(out, "%s\n", text);
}

/* Numbers lie in memory with either end first. */
static void say_number(FILE *out, const char *bytes)
{
    char turned[PIECE];
    for (size_t i = 0; i < PIECE; i++)
        turned[i] = bytes[PIECE - 1 - i];
    say_piece(out, bytes, PIECE);
    say_piece(out, turned, PIECE);
}

/* The child. The first bytes of a key's encoding are its kind, then come public numbers: secret is 36 to 68 of an EC
 * key on P-256, and about the last 55 % of an RSA key. */
static void read_key(const char *path, FILE *out)
{
    char command[512], bytes[4096], line[256];
    snprintf(command, sizeof command,
             "openssl pkcs8 -topk8 -nocrypt -passin pass:canary -outform DER -in '%s'", path);
    FILE *der = popen(command, "r");
    size_t n = der ? fread(bytes, 1, sizeof bytes, der) : 0, from = n < 200 ? 36 : n * 9 / 20;
    size_t end = n < 200 ? 68 : n, step = n < 200 ? 12 : (n - from) / 5;
    for (size_t at = from; n > 0 && at + PIECE <= end; at += step)
        say_number(out, bytes + at);
    FILE *pem = fopen(path, "r");
    bool key_begun = false;
    for (int i = 0, nth = 0; pem && fgets(line, sizeof line, pem); i++) {
        bool ends = strncmp(line, "-----END", 8) == 0;
        key_begun = (key_begun || strstr(line, "PRIVATE KEY")) && !ends;
        nth = key_begun ? nth + 1 : 0; /* 1: its first line, and so on */
        if (n < 200 && nth == 3 && strlen(line) > 30)
            say_piece(out, line, 26); /* the second of three lines of text */
        else if (n >= 200 && nth > 14 && nth % 3 == 0 && strlen(line) > 40)
            say_piece(out, line, 40);
    }
    _exit(pclose(der) || fclose(pem) || fclose(out));
}

/* Have a key's pieces looked for from now on. */
static void know_key(const char *path)
{
    int ends[2], status;
    char line[2 * DISGUISE_MAX + 2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        read_key(path, fdopen(ends[1], "w"));
    close(ends[1]);
    FILE *pieces = fdopen(ends[0], "r");
    for (key.n = 0; fgets(line, sizeof line, pieces); key.n++) {
        assert_true(key.n < PIECES_MAX);
        disguise_read(&key.piece[key.n], line);
    }
    fclose(pieces);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_true(key.n >= 3);
}

static size_t search(void)
{
    size_t hits = 0;
    for (size_t i = 0; i < key.n; i++)
        hits += disguise_search(&key.piece[i]);
    return hits;
}

/* A thread that reads files may outlive its client. */
static void expect_gone(void)
{
    size_t hits = search();
    for (int tries = 0; hits > 0 && tries < 20; tries++) {
        nap_us(50000);
        hits = search();
    }
    assert_int_equal(hits, 0);
}

/* ---- Clients ----------------------------------------------------------------------------------------- */

static const char *cert(const char *name)
{
    static char paths[4][128];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", server_certs(), name);
    return path;
}

/* All that a client says is kept until the search is over. */
static void use(int port, const char *options, int32_t expected)
{
    char url[768];
    snib_client *client = NULL;
    snib_client_options o;
    snib_event *said = calloc(LOGS, sizeof *said);
    snib_error error = {0};
    snib_hold *hold = NULL;
    snib_client_options_init(&o, sizeof o);
    o.patience_ms = expected == SNIB_ECONNECT ? 1000 : 8000; /* a refusal ends at once */
    o.connect_timeout_ms = o.reply_timeout_ms = o.patience_ms;
    snprintf(url, sizeof url, "rediss://localhost:%d?tls_ca=%s&%s", port, cert("ca.crt"), options);
    EXPECT(snib_client_open(url, &o, &client, err), SNIB_OK);
    snib_queue *log = must_queue(client);
    EXPECT(snib_client_log(client, log, SNIB_LOG_INFO, err), SNIB_OK);
    snib_lock *lock = must_lock(client, "x");
    assert_int_equal(snib_lock_acquire(lock, 0, 8000, &hold, &error), expected);
    print_message("          %s\n", error.text);
    if (expected == SNIB_OK) {
        uint64_t before = must_stats(client).reconnects;
        server_do(&server, "CLIENT KILL TYPE normal");
        AWAIT(must_stats(client).reconnects > before, LONG_MS);
        must_release(hold);
    }
    (void)snib_queue_drain(log, said, LOGS, &error);
    snib_client_stats_data stats = must_stats(client);
    assert_true(stats.size > 0);
    snib_lock_free(lock);
    snib_queue_free(log);
    snib_client_free(client);
    expect_gone();
    free(said);
}

static void use_pair(const char *certificate, const char *key_name, const char *more,
                     int32_t expected)
{
    char options[512];
    snprintf(options, sizeof options, "tls_cert=%s&tls_key=%s%s", cert(certificate), cert(key_name),
             more);
    use(server.tls_port, options, expected);
}

static void run(const char *format, const char *name)
{
    char command[1024];
    const char *c = server_certs();
    snprintf(command, sizeof command, format, c, name, name, name);
    assert_int_equal(system(command), 0);
}

/* ---- What goes right, and wrong ------------------------------------------------------------------------ */

static void search_finds(void **state)
{
    (void)state;
    char *copy = malloc(100);
    know_key(cert("client.key"));
    assert_int_equal(search(), 0);
    for (size_t i = 0; i < key.n; i++) {
        disguise_reveal(&key.piece[i], copy);
        assert_true(search() > 0);
        explicit_bzero(copy, 100);
    }
    free(copy);
    assert_int_equal(search(), 0);
}

static void accepted_keys(void **state)
{
    (void)state;
    know_key(cert("client.key"));
    use_pair("client.crt", "client.key", "", SNIB_OK);
    use_pair("client.crt", "client.enc", "&tls_key_password=canary", SNIB_OK);
    run("cd '%s' && cat client.crt client.key >both.pem && : %s", "");
    use_pair("both.pem", "both.pem", "", SNIB_OK);
    know_key(cert("rsa.key"));
    use_pair("rsa.crt", "rsa.key", "", SNIB_OK);
}

static void refused_keys(void **state)
{
    (void)state;
    know_key(cert("client.key"));
    use_pair("client.crt", "client.enc", "&tls_key_password=tweety", SNIB_ETLS);
    use_pair("client.crt", "client.enc", "", SNIB_ETLS);
    use_pair("server.crt", "client.key", "", SNIB_ETLS);
    use_pair("none.crt", "client.key", "", SNIB_ETLS);
    use_pair("client.key", "client.key", "", SNIB_ETLS);
    run("cd '%s' && grep -v BEGIN client.key >headless.key && : %s", "");
    use_pair("client.crt", "headless.key", "", SNIB_ETLS);
    run("cd '%s' && head -n 3 client.key >endless.key && : %s", "");
    use_pair("client.crt", "endless.key", "", SNIB_ETLS);
    run("cd '%s' && sed 3s/./@/5 client.key >damaged.key && : %s", "");
    use_pair("client.crt", "damaged.key", "", SNIB_ETLS);
    know_key(cert("rsa.key"));
    use_pair("client.crt", "rsa.key", "", SNIB_ETLS);
}

static void refused_certificates(void **state)
{
    (void)state;
    know_key(cert("stranger.key"));
    server_do(&server, "CONFIG SET tls-auth-clients yes");
    use_pair("stranger.crt", "stranger.key", "", SNIB_ETLS);
    server_do(&server, "CONFIG SET tls-auth-clients no");
    know_key(cert("client.key"));
    server_do(&server, "CONFIG SET tls-cert-file %s tls-key-file %s", cert("expired.crt"),
              cert("expired.key"));
    use_pair("client.crt", "client.key", "", SNIB_ETLS);
    server_do(&server, "CONFIG SET tls-cert-file %s tls-key-file %s", cert("server.crt"),
              cert("server.key"));
}

/* It takes connections and says nothing. */
static void mute_peer(void **state)
{
    (void)state;
    char options[512];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, n), 0);
    assert_int_equal(listen(fd, 16), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &n), 0);
    know_key(cert("client.key"));
    snprintf(options, sizeof options, "tls_cert=%s&tls_key=%s", cert("client.crt"),
             cert("client.key"));
    use(ntohs(address.sin_port), options, SNIB_ECONNECT);
    close(fd);
}

static int world_new(void **state)
{
    (void)state;
    server_start(&server, NULL);
    run("cd '%s' && exec >log.rsa 2>&1 && openssl req -newkey rsa:2048 -nodes -keyout %s.key -out "
        "%s.csr -subj /CN=rsa &&"
        " openssl x509 -req -in %s.csr -out rsa.crt -CA ca.crt -CAkey ca.key -CAcreateserial -days "
        "30",
        "rsa");
    return 0;
}

static int world_free(void **state)
{
    (void)state;
    server_stop(&server);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(search_finds), cmocka_unit_test(accepted_keys),
        cmocka_unit_test(refused_keys), cmocka_unit_test(refused_certificates),
        cmocka_unit_test(mute_peer),
    };
    setenv("SNIB_TEST_TLS", "1", 1);
    return cmocka_run_group_tests(tests, world_new, world_free);
}
