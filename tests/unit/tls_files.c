/* The files of TLS: certificates, keys, and the CAs that are trusted, in files and in folders. */
#include "tls.h"

/* TLS 1.3 reports it after the handshake, 1.2 during it. */
static void client_certificates(void **state)
{
    (void)state;
    static const struct {
        const char *cert, *key, *password;
        int outcome;
    } tries[] = {{NULL, NULL, NULL, SNIB__TLS_CERT_WANTED},
                 {"stranger.crt", "stranger.key", NULL, SNIB__TLS_CERT_REFUSED},
                 {"client.crt", "client.key", NULL, SNIB__TLS_FINE},
                 {"both.pem", NULL, NULL, SNIB__TLS_FINE},
                 {"client.crt", "client.enc", "canary", SNIB__TLS_FINE}};
    for (size_t i = 0; i < COUNT(tries); i++)
        for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
            char bytes[16];
            struct end end = {.peer = {.version = version, .wants_certificate = true}};
            struct snib__tls_config config = {.ca = at("ca.crt"),
                                              .cert_file = tries[i].cert ? at(tries[i].cert) : NULL,
                                              .key_file = tries[i].key ? at(tries[i].key) : NULL,
                                              .key_password = (char *)tries[i].password};
            int outcome = meet(&end, &config, "localhost");
            if (outcome == SNIB__TLS_FINE && tries[i].outcome != SNIB__TLS_FINE) {
                assert_int_equal(version, TLS1_3_VERSION);
                assert_int_equal(receive(&end, bytes, sizeof bytes), -1);
                assert_non_null(snib__tls_why(end.tls));
                end.failure = *snib__tls_why(end.tls);
                outcome = end.failure.outcome;
            }
            if (outcome)
                print_message("          %s\n", end.failure.text);
            assert_int_equal(outcome, tries[i].outcome);
            if (outcome == SNIB__TLS_FINE)
                exchange(&end, 100, 100);
            part(&end);
        }
}

/* Between the core and OpenSSL: whether a program that is started meanwhile would have the open key. */
static _Atomic int keys_read, keys_kept;

EVP_PKEY *PEM_read_bio_PrivateKey(BIO *bio, EVP_PKEY **out, pem_password_cb *callback, void *user)
{
    static EVP_PKEY *(*real)(BIO *, EVP_PKEY **, pem_password_cb *, void *);
    FILE *file = NULL;
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "PEM_read_bio_PrivateKey");
    keys_read++;
    keys_kept += BIO_get_fp(bio, &file) != 1 || !(fcntl(fileno(file), F_GETFD) & FD_CLOEXEC);
    return real(bio, out, callback, user);
}

static void key_is_for_this_program(void **state)
{
    (void)state;
    struct snib__tls_config config = {
        .cert_file = at("client.crt"), .key_file = at("client.key"), .insecure = true};
    snib__tls_files_free(read_files(&config));
    assert_true(keys_read > 0);
    assert_int_equal(keys_kept, 0);
}

static void files(void **state)
{
    enum { NOBODY = 65534 };
    (void)state;
    static const struct {
        const char *ca, *cert, *key, *password;
        int outcome;
        const char *says;
    } tries[] = {
        {"none.crt", NULL, NULL, NULL, SNIB__TLS_CA, "No such file"},
        {"secret.crt", NULL, NULL, NULL, SNIB__TLS_CA, "Permission denied"},
        {"pipe", NULL, NULL, NULL, SNIB__TLS_CA, "not a regular file"},
        {"server.key", NULL, NULL, NULL, SNIB__TLS_CA, "contains no certificate"},
        {"empty", NULL, NULL, NULL, SNIB__TLS_CA, "contains no certificate"},
        {"ca.crt", "none", "client.key", NULL, SNIB__TLS_CERT, "No such file"},
        {"ca.crt", "client.key", "client.key", NULL, SNIB__TLS_CERT, "no certificate in PEM"},
        {"ca.crt", NULL, "client.key", NULL, SNIB__TLS_CERT, "give both"},
        {"ca.crt", "client.crt", "none", NULL, SNIB__TLS_KEY, "No such file"},
        {"ca.crt", "client.crt", "ca.crt", NULL, SNIB__TLS_KEY, "no private key"},
        {"ca.crt", "client.crt", NULL, NULL, SNIB__TLS_KEY, "no private key"},
        {"ca.crt", "client.crt", "server.key", NULL, SNIB__TLS_MISMATCH, "does not match"},
        {"ca.crt", "client.crt", "client.enc", NULL, SNIB__TLS_PASSWORD, "give its password"},
        {"ca.crt", "client.crt", "client.enc", "tweety", SNIB__TLS_PASSWORD, "does not open"},
        {"cas", "client.crt", "client.enc", "canary", SNIB__TLS_FINE, ""},
    };
    for (size_t i = 0; i < COUNT(tries); i++) {
        struct snib__tls_failure failure = {0};
        struct snib__tls_config config = {.ca = at(tries[i].ca),
                                          .cert_file = tries[i].cert ? at(tries[i].cert) : NULL,
                                          .key_file = tries[i].key ? at(tries[i].key) : NULL,
                                          .key_password = (char *)tries[i].password};
        bool lowered =
            strstr(tries[i].says, "Permission") && geteuid() == 0; /* root may read everything */
        if (lowered)
            assert_int_equal(seteuid(NOBODY), 0);
        struct snib__tls_files *read = read_files(&config);
        struct snib__tls *tls = snib__tls_new(read, "localhost", &failure);
        if (lowered)
            assert_int_equal(seteuid(0), 0);
        assert_int_equal(tls ? SNIB__TLS_FINE : failure.outcome, tries[i].outcome);
        if (!tls) {
            print_message("          %s\n", failure.text);
            assert_non_null(strstr(failure.text, tries[i].says));
            assert_null(strstr(failure.text, "tweety"));
            assert_int_equal(failure.code, SNIB_ETLS);
        }
        snib__tls_free(tls);
        snib__tls_files_free(read);
    }
}

/* The CA's folder, and OpenSSL's environment variables. */
static void stores(void **state)
{
    (void)state;
    struct snib__tls_config config = {.ca = at("cas")}, system = {0};
    struct end end = {0};
    assert_int_equal(meet(&end, &config, "localhost"), SNIB__TLS_FINE);
    part(&end);
    static const char *const names[] = {"SSL_CERT_FILE", "SSL_CERT_DIR"};
    for (int i = 0; i < 2; i++) {
        struct end other = {0};
        setenv(names[i], at(i ? "cas" : "ca.crt"), 1);
        assert_int_equal(meet(&other, &system, "localhost"), SNIB__TLS_FINE);
        unsetenv(names[i]);
        part(&other);
    }
}

static const void *store_of(const struct snib__tls_config *config)
{
    struct snib__tls_context context;
    struct snib__tls_failure failure;
    assert_true(snib__tls_context_load(config, &context, &failure));
    const void *store = SSL_CTX_get_cert_store(context.ssl);
    snib__tls_context_free(&context);
    return store;
}

static void copy_file(const char *from, const char *to)
{
    char command[1024], path[200];
    snprintf(path, sizeof path, "%s", at(to));
    snprintf(command, sizeof command, "cp '%s' '%s.new' && mv '%s.new' '%s'", at(from), path, path,
             path);
    assert_int_equal(system(command), 0);
}

/* The trusted certificates are read once for all connections, until their files change. */
static void trust_is_read_once(void **state)
{
    (void)state;
    struct snib__tls_trust *trust = snib__tls_trust_new();
    struct snib__tls_config config = {.trust = trust}, copy;
    copy_file("ca.crt", "kept.crt");
    config.ca = strdup(at("kept.crt"));
    const void *store = store_of(&config);
    assert_int_equal(snib__tls_config_copy(&config, &copy), 0);
    assert_ptr_equal(store_of(&copy), store); /* from another thread, for another connection */
    snib__tls_config_free(&copy);
    struct end end = {0}, other = {0}, again = {0};
    assert_int_equal(meet(&end, &config, "localhost"), SNIB__TLS_FINE);
    part(&end);
    copy_file("strange.crt", "kept.crt");
    assert_int_equal(meet(&other, &config, "localhost"), SNIB__TLS_UNKNOWN_CA);
    part(&other);
    copy_file("ca.crt", "kept.crt");
    assert_int_equal(meet(&again, &config, "localhost"), SNIB__TLS_FINE);
    part(&again);
    unlink(config.ca); /* a file that is gone is not trusted any more */
    struct snib__tls_context context;
    struct snib__tls_failure failure;
    assert_false(snib__tls_context_load(&config, &context, &failure));
    free(config.ca);
    config.ca = NULL;
    store = store_of(&config);
    assert_ptr_equal(store_of(&config), store);
    setenv("SSL_CERT_DIR", at("none"), 1); /* the folder of a system that has none is read, too */
    store = store_of(&config);
    assert_ptr_equal(store_of(&config), store);
    unsetenv("SSL_CERT_DIR");
    setenv("SSL_CERT_FILE", at("ca.crt"), 1);
    assert_ptr_not_equal(store_of(&config), store);
    unsetenv("SSL_CERT_FILE");
    snib__tls_trust_forget(trust);
    store_of(&config);
    snib__tls_trust_free(trust);
}

/* Read them in a process that has no descriptor left. */
static bool read_short(const struct snib__tls_config *config, struct snib__tls_failure *failure)
{
    struct snib__tls_context context;
    struct rlimit limit = take_descriptors();
    bool read = snib__tls_context_load(config, &context, failure);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    if (read)
        snib__tls_context_free(&context);
    return read;
}

/* That is no fault of the files: the next attempt may succeed, and does. */
static void short_of_descriptors(void **state)
{
    (void)state;
    struct snib__tls_trust *trust = snib__tls_trust_new();
    struct snib__tls_config configs[] = {{.ca = at("ca.crt")},
                                         {.ca = at("cas")},
                                         {.cert_file = at("client.crt"), .insecure = true},
                                         {.trust = trust}};
    setenv("SSL_CERT_FILE", at("ca.crt"), 1);
    setenv("SSL_CERT_DIR", at("none"), 1);
    configs[2].key_file = at("client.key");
    for (size_t i = 0; i < COUNT(configs); i++) {
        struct snib__tls_failure failure = {0};
        struct end end = {0};
        assert_false(read_short(&configs[i], &failure));
        print_message("          %s\n", failure.text);
        assert_int_equal(failure.code, SNIB_ETLS);
        assert_int_equal(failure.os_error, EMFILE);
        assert_non_null(strstr(failure.text, "Too many open files"));
        assert_int_equal(meet(&end, &configs[i], "localhost"), SNIB__TLS_FINE);
        part(&end);
    }
    unsetenv("SSL_CERT_FILE");
    unsetenv("SSL_CERT_DIR");
    snib__tls_trust_free(trust);
}

/* Nor is a file opened in the middle of a handshake, with the client's mutex held: OpenSSL would look into a folder of CAs
 * then, be it the given one or the system's. */
static void no_file_in_a_handshake(void **state)
{
    (void)state;
    struct snib__tls_config configs[] = {{.ca = at("cas")}, {.ca = NULL}};
    setenv("SSL_CERT_FILE", at("none"), 1);
    setenv("SSL_CERT_DIR", at("cas"), 1);
    for (size_t i = 0; i < COUNT(configs); i++)
        for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
            struct end end = {.peer.version = version, .no_file = true};
            assert_int_equal(meet(&end, &configs[i], "localhost"), SNIB__TLS_FINE);
            part(&end);
        }
    struct end strange = {.peer.certificate = "stranger", .no_file = true};
    assert_int_equal(meet(&strange, &configs[1], "localhost"), SNIB__TLS_UNKNOWN_CA);
    part(&strange);
    unsetenv("SSL_CERT_FILE");
    unsetenv("SSL_CERT_DIR");
}

static void in_folder(const char *command)
{
    char line[512];
    snprintf(line, sizeof line, "cd '%s' && %s", folder, command);
    assert_int_equal(system(line), 0);
}

static void folder_is_refused(const struct snib__tls_config *config, const char *says)
{
    struct snib__tls_context context;
    struct snib__tls_failure failure;
    assert_false(snib__tls_context_load(config, &context, &failure));
    print_message("          %s\n", failure.text);
    assert_int_equal(failure.code, SNIB_ETLS);
    assert_non_null(strstr(failure.text, says));
}

/* A folder is read once, too, until one of its entries changes; of the system there may be several. */
static void folders_are_read_once(void **state)
{
    (void)state;
    static const char none[] =
        "contains no certificate under the hash of its name; run \"openssl rehash\"";
    struct snib__tls_trust *trust = snib__tls_trust_new();
    struct snib__tls_config config = {.ca = at("some"), .trust = trust}, system = {.trust = trust};
    struct end end = {0}, other = {0}, list = {0};
    char folders[300];
    in_folder("mkdir some && cp ca.crt some/ca.pem && touch some/12345678.0 && ln -s nothing "
              "some/12345678.1");
    folder_is_refused(&config, none);
    in_folder(
        "cp ca.crt linked.crt && for ca in cas/*; do ln -s ../linked.crt some/${ca##*/}; done");
    const void *store = store_of(&config);
    assert_ptr_equal(store_of(&config), store);
    assert_int_equal(meet(&end, &config, "localhost"), SNIB__TLS_FINE);
    part(&end);
    copy_file("strange.crt", "linked.crt"); /* as a link, whose folder does not change */
    assert_int_equal(meet(&other, &config, "localhost"), SNIB__TLS_UNKNOWN_CA);
    part(&other);
    in_folder("rm some/????????.0");
    folder_is_refused(&config, none);
    snprintf(folders, sizeof folders, "%s:%s", at("none"), at("cas"));
    setenv("SSL_CERT_FILE", at("none"), 1);
    setenv("SSL_CERT_DIR", folders, 1);
    assert_int_equal(meet(&list, &system, "localhost"), SNIB__TLS_FINE);
    part(&list);
    unsetenv("SSL_CERT_FILE");
    unsetenv("SSL_CERT_DIR");
    in_folder("rm -r some");
    snib__tls_trust_free(trust);
}

/* What that saves, in CPU time. */
static void cost_of_the_systems_store(void **state)
{
    (void)state;
    struct snib__tls_config read = {0}, kept = {.trust = snib__tls_trust_new()};
    clock_t start = clock();
    for (int i = 0; i < 10; i++)
        store_of(&read);
    clock_t middle = clock();
    for (int i = 0; i < 10; i++)
        store_of(&kept);
    clock_t end = clock();
    print_message("          %.2f ms each time it is read, %.2f ms with one reading of 10\n",
                  (double)(middle - start) / CLOCKS_PER_SEC * 100,
                  (double)(end - middle) / CLOCKS_PER_SEC * 100);
    snib__tls_trust_free(kept.trust);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files),
        cmocka_unit_test(key_is_for_this_program),
        cmocka_unit_test(client_certificates),
        cmocka_unit_test(stores),
        cmocka_unit_test(trust_is_read_once),
        cmocka_unit_test(short_of_descriptors),
        cmocka_unit_test(no_file_in_a_handshake),
        cmocka_unit_test(folders_are_read_once),
        cmocka_unit_test(cost_of_the_systems_store),
    };
    return cmocka_run_group_tests(tests, world_new, world_free);
}
