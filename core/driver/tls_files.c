/* tls_files.c - certificates, keys and CAs: checked for each connection, so that files renewed on
 * disk take effect with the next one, and on a separate thread, because disks can be slow. */
#include "driver/forks.h"
#include "driver/tls.h"
#include "driver/tls_openssl.h"
#include "net/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES_QUOTED 80
#define FILES_STACK (64 * 1024)
/* What is overwritten of the heap: blocks up to this size, a few of each. A thread's cache in glibc holds seven. */
#define FILES_LARGE (32 * 1024)
#define FILES_LARGE_COUNT 4
#define FILES_SMALL 1032
#define FILES_SMALL_COUNT 12
#define FILES_OVER UINT32_MAX

/* ---- The config ---- */

int snib__tls_config_copy(const struct snib__tls_config *from, struct snib__tls_config *to)
{
    char *const texts[] = {from->ca, from->cert_file, from->key_file, from->key_password,
                           from->server_name};
    char **const places[] = {&to->ca, &to->cert_file, &to->key_file, &to->key_password,
                             &to->server_name};
    *to = (struct snib__tls_config){.insecure = from->insecure,
                                    .trust = snib__tls_trust_ref(from->trust)};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (texts[i] && !(*places[i] = strdup(texts[i]))) {
            snib__tls_config_free(to);
            return ENOMEM;
        }
    }
    return 0;
}

void snib__tls_config_free(struct snib__tls_config *config)
{
    if (config->key_password)
        explicit_bzero(config->key_password, strlen(config->key_password));
    snib__tls_trust_free(config->trust);
    free(config->ca);
    free(config->cert_file);
    free(config->key_file);
    free(config->key_password);
    free(config->server_name);
    *config = (struct snib__tls_config){0};
}

/* ---- One context ---- */

static const char *files_quote(char out[FILES_QUOTED], const char *path)
{
    return snib__quote(out, FILES_QUOTED, path, strlen(path));
}

bool snib__tls_unread(struct snib__tls_failure *out, int outcome, const char *what,
                      const char *path, int error)
{
    char quoted[FILES_QUOTED];
    snib__tls_fail(out, outcome, "the %s %s cannot be read: %s", what, files_quote(quoted, path),
                   strerror(error));
    out->os_error = snib__sys_short(error) ? error : 0;
    return false;
}

/* OpenSSL does not say why a file cannot be read, so it is opened here first.  Returns the descriptor, or -1 with
 * *failure.  out_folder NULL: it must be a file. */
static int files_open(const char *path, const char *what, int outcome, bool *out_folder,
                      struct snib__tls_failure *failure)
{
    char quoted[FILES_QUOTED];
    struct stat info = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* does not block on a pipe */
    if (fd < 0) {
        snib__tls_unread(failure, outcome, what, path, errno);
        return -1;
    }
    bool known = fstat(fd, &info) == 0, folder = S_ISDIR(info.st_mode);
    if (out_folder)
        *out_folder = folder;
    if (known && (S_ISREG(info.st_mode) || (folder && out_folder)))
        return fd;
    close(fd);
    snib__tls_fail(failure, outcome, "the %s %s is not a regular file", what,
                   files_quote(quoted, path));
    return -1;
}

static bool files_readable(const char *path, const char *what, int outcome, bool *out_folder,
                           struct snib__tls_failure *failure)
{
    int fd = files_open(path, what, outcome, out_folder, failure);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static bool files_trust(SSL_CTX *context, const struct snib__tls_config *config,
                        struct snib__tls_failure *failure)
{
    bool folder;
    if (config->insecure)
        return true;
    if (config->ca && !files_readable(config->ca, "CA file", SNIB__TLS_CA, &folder, failure))
        return false;
    return snib__tls_trust_load(config, context, failure);
}

struct files_password {
    const char *text;
    bool asked;
};

/* Without this function, OpenSSL would prompt on the terminal. */
static int files_password(char *out, int cap, int writing, void *user)
{
    struct files_password *password = user;
    size_t n = password->text ? strlen(password->text) : 0;
    (void)writing;
    password->asked = true;
    if (n == 0 || n > (size_t)cap)
        return -1;
    memcpy(out, password->text, n);
    return (int)n;
}

/* Not by its name: OpenSSL would open it without O_CLOEXEC, and a program that another thread starts meanwhile would have
 * the open key.  False with the reason on the queue of OpenSSL, or in errno. */
static bool files_use_key(const struct snib__openssl *o, SSL_CTX *context, int fd,
                          struct files_password *password)
{
    FILE *file = fdopen(fd, "r");
    BIO *bio = file ? o->BIO_new_fp(file, 1) : NULL;
    EVP_PKEY *key = bio ? o->PEM_read_bio_PrivateKey(bio, NULL, files_password, password) : NULL;
    bool used = key && o->SSL_CTX_use_PrivateKey(context, key) == 1;
    const int os_error = errno;
    o->EVP_PKEY_free(key);
    if (bio)
        o->BIO_free(bio);
    else if (file)
        fclose(file);
    else
        close(fd);
    errno = os_error;
    return used;
}

static bool files_key(const struct snib__openssl *o, SSL_CTX *context,
                      const struct snib__tls_config *config, struct snib__tls_failure *failure)
{
    char quoted[FILES_QUOTED], other[FILES_QUOTED];
    const char *path = config->key_file ? config->key_file : config->cert_file;
    struct files_password password = {.text = config->key_password};
    int fd = files_open(path, "key file", SNIB__TLS_KEY, NULL, failure);
    if (fd < 0)
        return false;
    errno = 0;
    bool good = files_use_key(o, context, fd, &password);
    const bool fits = good && o->SSL_CTX_check_private_key(context) == 1;
    const int os_error = fits ? 0 : errno;
    if (snib__sys_short(os_error))
        return snib__tls_unread(failure, SNIB__TLS_KEY, "key file", path, os_error);
    files_quote(quoted, path);
    unsigned long error = o->ERR_peek_last_error();
    int reason = (int)(error & 0x7fffff);
    if ((!good && error >> 23 == 11 && (reason == 115 || reason == 116)) || (good && !fits))
        return snib__tls_fail(failure, SNIB__TLS_MISMATCH,
                              "the key in %s does not match the certificate in %s", quoted,
                              files_quote(other, config->cert_file));
    if (!good && password.asked)
        return snib__tls_fail(failure, SNIB__TLS_PASSWORD,
                              config->key_password
                                  ? "the given password does not open the key file %s"
                                  : "the key file %s is encrypted; give its password",
                              quoted);
    return good || snib__tls_fail(failure, SNIB__TLS_KEY,
                                  "the key file %s contains no private key in PEM form", quoted);
}

static bool files_cert(const struct snib__openssl *o, SSL_CTX *context,
                       const struct snib__tls_config *config, struct snib__tls_failure *failure)
{
    char quoted[FILES_QUOTED];
    if (!config->cert_file)
        return !config->key_file ||
               snib__tls_fail(failure, SNIB__TLS_CERT,
                              "there is a key file without a certificate file; give both");
    if (!files_readable(config->cert_file, "certificate file", SNIB__TLS_CERT, NULL, failure))
        return false;
    errno = 0;
    if (o->SSL_CTX_use_certificate_chain_file(context, config->cert_file) == 1)
        return files_key(o, context, config, failure);
    if (snib__sys_short(errno))
        return snib__tls_unread(failure, SNIB__TLS_CERT, "certificate file", config->cert_file,
                                errno);
    files_quote(quoted, config->cert_file);
    unsigned long error = o->ERR_peek_last_error();
    int reason = (int)(error & 0x7fffff);
    if (error >> 23 == 20 && reason >= 397 && reason <= 399) { /* it was read, but is too weak */
        const char *words = o->ERR_reason_error_string(error);
        return snib__tls_fail(failure, SNIB__TLS_CERT, "the certificate in %s cannot be used: %s",
                              quoted, words ? words : "no reason given");
    }
    return snib__tls_fail(failure, SNIB__TLS_CERT,
                          "the certificate file %s contains no certificate in PEM form", quoted);
}

bool snib__tls_context_load(const struct snib__tls_config *config, struct snib__tls_context *out,
                            struct snib__tls_failure *failure)
{
    const struct snib__openssl *o = snib__openssl();
    *out = (struct snib__tls_context){.insecure = config->insecure};
    *failure = (struct snib__tls_failure){0};
    if (!o)
        return snib__tls_fail(failure, SNIB__TLS_NO_LIBRARY,
                              "TLS needs OpenSSL 3 (libssl.so.3), which could not be loaded; is it "
                              "installed, and the "
                              "program not linked statically?");
    o->ERR_clear_error();
    errno = 0;
    out->ssl = o->SSL_CTX_new(o->TLS_client_method());
    if (!out->ssl)
        return snib__tls_unable(failure);
    out->server_name = config->server_name ? strdup(config->server_name) : NULL;
    out->has_cert = config->cert_file != NULL;
    out->own_ca = config->ca != NULL;
    bool good = !config->server_name || out->server_name;
    if (!good)
        snib__tls_fail(failure, SNIB__TLS_NO_MEMORY, "out of memory");
    if (good) {
        o->SSL_CTX_ctrl(out->ssl, SNIB__SSL_SET_MIN_VERSION, SNIB__SSL_TLS_1_2, NULL);
        o->SSL_CTX_ctrl(out->ssl, SNIB__SSL_SET_CACHE, 0, NULL);
        o->SSL_CTX_ctrl(out->ssl, SNIB__SSL_SET_MODE, SNIB__SSL_MODE_MOVING, NULL);
        o->SSL_CTX_set_options(out->ssl, SNIB__SSL_CLEANSE | SNIB__SSL_NO_COMPRESSION |
                                             SNIB__SSL_NO_RENEGOTIATION);
        o->SSL_CTX_set_verify(out->ssl, config->insecure ? 0 : SNIB__SSL_VERIFY_PEER, NULL);
        good = files_trust(out->ssl, config, failure) && files_cert(o, out->ssl, config, failure);
    }
    o->ERR_clear_error();
    if (!good)
        snib__tls_context_free(out);
    return good;
}

void snib__tls_context_free(struct snib__tls_context *context)
{
    snib__forks_enter();
    if (context->ssl)
        snib__openssl()->SSL_CTX_free(context->ssl);
    snib__forks_leave();
    free(context->server_name);
    *context = (struct snib__tls_context){0};
}

/* ---- The thread ---- */

/* Shared by the thread, the connections that wait for it, and the client, which may add more of these; the last one frees
 * it.  What was read, a private key among it, goes with the last connection. */
struct snib__tls_files {
    _Atomic int refs;
    _Atomic uint32_t
        waiting; /* connections; FILES_OVER: there were none when it was done, or are none any more */
    _Atomic bool done;
    int bell;
    struct snib__tls_config config; /* the thread's */
    /* when done */
    struct snib__tls_context context;
    struct snib__tls_failure failure;
};

void snib__tls_files_drop(struct snib__tls_files *files)
{
    if (!files || atomic_fetch_sub(&files->refs, 1) != 1)
        return;
    snib__tls_config_free(&files->config);
    if (files->bell >= 0)
        snib__sys_close(files->bell);
    free(files);
}

/* The thread does this when it is done, and a connection that leaves: one of them finds that nobody is left. */
static void files_forget(struct snib__tls_files *files)
{
    uint32_t nobody = 0;
    if (atomic_load(&files->done) &&
        atomic_compare_exchange_strong(&files->waiting, &nobody, FILES_OVER))
        snib__tls_context_free(&files->context);
}

void snib__tls_files_free(struct snib__tls_files *files)
{
    if (!files)
        return;
    atomic_fetch_sub(&files->waiting, 1);
    files_forget(files);
    snib__tls_files_drop(files);
}

struct snib__tls_files *snib__tls_files_keep(struct snib__tls_files *files)
{
    atomic_fetch_add(&files->refs, 1);
    return files;
}

struct snib__tls_files *snib__tls_files_join(struct snib__tls_files *files)
{
    uint32_t n = files ? atomic_load(&files->waiting) : FILES_OVER;
    do {
        if (n == FILES_OVER || atomic_load(&files->done))
            return NULL;
    } while (!atomic_compare_exchange_weak(&files->waiting, &n, n + 1));
    return snib__tls_files_keep(files);
}

static _Atomic uint32_t files_uses; /* of OpenSSL */

void snib__tls_use(void)
{
    atomic_fetch_add(&files_uses, 1);
}

void snib__tls_unuse(void)
{
    atomic_fetch_sub(&files_uses, 1);
    snib__unpark_all(&files_uses);
}

void snib__tls_await(snib__time until)
{
    for (uint32_t n; (n = atomic_load(&files_uses)) > 0;)
        if (snib__park(&files_uses, n, until) == SNIB__PARKED_TIMEOUT)
            return;
}

void snib__tls_forked(void)
{
    atomic_store(&files_uses, 0);
    snib__openssl_forked();
}

void snib__tls_thread_ends(void)
{
    snib__forks_enter();
    if (snib__openssl())
        snib__openssl()->OPENSSL_thread_stop();
    snib__forks_leave();
}

/* OpenSSL leaves a key's password on the stack if it did not open the key. */
static __attribute__((noinline)) void files_scrub_stack(void)
{
    char below[FILES_STACK];
    explicit_bzero(below, sizeof below);
}

struct files_block { /* of the heap, to be overwritten */
    struct files_block *next;
};

static struct files_block *files_take(struct files_block *taken, size_t n, int count)
{
    for (int i = 0; i < count; i++) {
        struct files_block *block = malloc(n);
        if (!block)
            break;
        explicit_bzero(block, n);
        block->next = taken;
        taken = block;
    }
    return taken;
}

/* OpenSSL frees the buffers in which it has read and decoded a private key, and does not overwrite them. An allocator
 * reuses first what the same thread has freed, and this thread has done nothing else: so blocks of each size are
 * allocated, overwritten and freed. Large ones come first, because what is left of a block that is split is small. */
static void files_scrub_heap(void)
{
    struct files_block *taken = NULL;
    for (size_t n = FILES_LARGE; n > FILES_SMALL; n -= n / 8)
        taken = files_take(taken, n, FILES_LARGE_COUNT);
    for (size_t n = FILES_SMALL; n > sizeof *taken; n -= 16)
        taken = files_take(taken, n, FILES_SMALL_COUNT);
    while (taken) {
        struct files_block *next = taken->next;
        free(taken);
        taken = next;
    }
}

static void *files_main(void *argument)
{
    struct snib__tls_files *files = argument;
    bool has_key = files->config.cert_file || files->config.key_file;
    snib__forks_enter();
    snib__tls_context_load(&files->config, &files->context, &files->failure);
    snib__forks_leave();
    snib__tls_config_free(&files->config);
    if (has_key)
        files_scrub_heap();
    files_scrub_stack();
    atomic_store(&files->done, true);
    snib__sys_ring(files->bell);
    files_forget(files);
    snib__tls_files_drop(files);
    snib__tls_thread_ends();
    snib__tls_unuse();
    return NULL;
}

struct snib__tls_files *snib__tls_files_new(const struct snib__tls_config *config)
{
    struct snib__tls_files *files = calloc(1, sizeof *files);
    if (!files)
        return NULL;
    atomic_store(&files->refs, 2);
    atomic_store(&files->waiting, 1);
    files->bell = snib__sys_bell();
    int error = files->bell < 0 ? errno : snib__tls_config_copy(config, &files->config);
    snib__tls_use();
    if (!error)
        error = snib__sys_thread(files_main, files, 0, NULL);
    if (!error)
        return files;
    snib__tls_unuse();
    atomic_store(&files->refs, 1);
    snib__tls_files_free(files);
    errno = error;
    return NULL;
}

int snib__tls_files_bell(const struct snib__tls_files *files)
{
    return files->bell;
}

bool snib__tls_files_done(const struct snib__tls_files *files)
{
    return atomic_load(&files->done);
}

const struct snib__tls_context *snib__tls_files_context(const struct snib__tls_files *files,
                                                        struct snib__tls_failure *out)
{
    if (files->context.ssl)
        return &files->context;
    *out = files->failure;
    return NULL;
}

bool snib__tls_available(void)
{
    return snib__openssl() != NULL;
}
