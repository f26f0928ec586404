/* tls_trust.c - trusted CAs, kept parsed as long as their files are unchanged.
 *
 * Reading a system's store of 150 certificates takes tens of milliseconds of CPU time, and a server
 * that ends all connections makes all clients read it at the same time.  A file is unchanged if its
 * inode, size and times are.  A folder given as an option is not cached: OpenSSL looks into it only
 * when it verifies, so it costs nothing to load.
 */
#include "driver/forks.h"
#include "driver/tls.h"
#include "driver/tls_openssl.h"
#include "net/error.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRUST_QUOTED 80
#define TRUST_PLACES 2 /* a file; for the system's store a folder, too */

struct trust_place {
    bool is_folder;
    dev_t device;
    ino_t number;
    off_t size;
    struct timespec changed, modified;
};

struct snib__tls_trust {
    _Atomic int refs;
    pthread_mutex_t mutex;
    X509_STORE *store; /* NULL: none */
    struct trust_place places[TRUST_PLACES];
};

struct snib__tls_trust *snib__tls_trust_new(void)
{
    struct snib__tls_trust *trust = calloc(1, sizeof *trust);
    if (!trust)
        return NULL;
    atomic_store(&trust->refs, 1);
    pthread_mutex_init(&trust->mutex, NULL);
    return trust;
}

struct snib__tls_trust *snib__tls_trust_ref(struct snib__tls_trust *trust)
{
    if (trust)
        atomic_fetch_add(&trust->refs, 1);
    return trust;
}

/* Take the store out, or put another one in. */
static X509_STORE *trust_swap(struct snib__tls_trust *trust, X509_STORE *store,
                              const struct trust_place *places)
{
    snib__sys_lock(&trust->mutex);
    X509_STORE *old = trust->store;
    trust->store = store;
    if (places)
        memcpy(trust->places, places, sizeof trust->places);
    snib__sys_unlock(&trust->mutex);
    return old;
}

void snib__tls_trust_forget(struct snib__tls_trust *trust)
{
    X509_STORE *old = trust ? trust_swap(trust, NULL, NULL) : NULL;
    if (!old)
        return;
    snib__forks_enter();
    snib__openssl()->X509_STORE_free(old);
    snib__forks_leave();
}

void snib__tls_trust_free(struct snib__tls_trust *trust)
{
    if (!trust || atomic_fetch_sub(&trust->refs, 1) != 1)
        return;
    snib__tls_trust_forget(trust);
    pthread_mutex_destroy(&trust->mutex);
    free(trust);
}

/* OpenSSL knows one place and two environment variables.  A copy built for another distribution
 * must look in the places of the others.  NULL: OpenSSL's own places will do. */
static const char *trust_other_bundle(const struct snib__openssl *o)
{
    static const char *const bundles[] = {
        "/etc/ssl/certs/ca-certificates.crt",                /* Debian, Alpine, Arch */
        "/etc/pki/tls/certs/ca-bundle.crt",                  /* Fedora, RHEL */
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", /* newer ones */
        "/etc/ssl/ca-bundle.pem",                            /* openSUSE */
        "/etc/ssl/cert.pem",                                 /* Alpine without the package */
    };
    if (secure_getenv("SSL_CERT_FILE") || secure_getenv("SSL_CERT_DIR") ||
        access(o->X509_get_default_cert_file(), R_OK) == 0)
        return NULL;
    for (size_t i = 0; i < sizeof bundles / sizeof bundles[0]; i++)
        if (access(bundles[i], R_OK) == 0)
            return bundles[i];
    return NULL;
}

/* A missing file counts as unchanged while it is missing. */
static void trust_look(const char *path, struct trust_place *out)
{
    struct stat info;
    memset(out, 0, sizeof *out); /* memcmp() sees the padding, too */
    if (!path || stat(path, &info) != 0)
        return;
    out->is_folder = S_ISDIR(info.st_mode);
    out->device = info.st_dev;
    out->number = info.st_ino;
    out->size = info.st_size;
    out->changed = info.st_ctim;
    out->modified = info.st_mtim;
}

static const char *trust_file(const char *ca)
{
    const struct snib__openssl *o = snib__openssl();
    const char *other = ca ? NULL : trust_other_bundle(o), *file = secure_getenv("SSL_CERT_FILE");
    return ca ? ca : other ? other : file ? file : o->X509_get_default_cert_file();
}

static void trust_look_at_all(const char *ca, struct trust_place places[TRUST_PLACES])
{
    const struct snib__openssl *o = snib__openssl();
    const char *folder = secure_getenv("SSL_CERT_DIR");
    trust_look(trust_file(ca), &places[0]);
    trust_look(ca ? NULL : folder ? folder : o->X509_get_default_cert_dir(), &places[1]);
}

static bool trust_use(struct snib__tls_trust *trust, SSL_CTX *context,
                      const struct trust_place places[TRUST_PLACES])
{
    snib__sys_lock(&trust->mutex);
    bool same = trust->store && memcmp(places, trust->places, sizeof trust->places) == 0;
    if (same)
        snib__openssl()->SSL_CTX_set1_cert_store(context, trust->store);
    snib__sys_unlock(&trust->mutex);
    return same;
}

static bool trust_read(const char *ca, bool is_folder, SSL_CTX *context,
                       struct snib__tls_failure *failure)
{
    const struct snib__openssl *o = snib__openssl();
    const char *file = trust_file(ca);
    char quoted[TRUST_QUOTED];
    snib__quote(quoted, sizeof quoted, file, strlen(file));
    if (is_folder)
        return o->SSL_CTX_load_verify_dir(context, ca) ||
               snib__tls_fail(failure, SNIB__TLS_CA, "the CA directory %s cannot be used", quoted);
    if (!ca) { /* all of OpenSSL's places but the file */
        o->SSL_CTX_set_default_verify_dir(context);
        o->SSL_CTX_set_default_verify_store(context);
    }
    errno = 0;
    if (o->SSL_CTX_load_verify_file(context, file))
        return true;
    if (snib__sys_short(errno)) /* a store without its certificates must not be kept */
        return snib__tls_unread(failure, SNIB__TLS_CA, "CA file", file, errno);
    return !ca || snib__tls_fail(failure, SNIB__TLS_CA,
                                 "the CA file %s contains no certificate in PEM form", quoted);
}

bool snib__tls_trust_load(const struct snib__tls_config *config, SSL_CTX *context,
                          struct snib__tls_failure *failure)
{
    const struct snib__openssl *o = snib__openssl();
    struct snib__tls_trust *trust = config->trust;
    struct trust_place places[TRUST_PLACES]; /* taken before the files are read */
    trust_look_at_all(config->ca, places);
    bool is_folder = config->ca && places[0].is_folder;
    if (trust && !is_folder && trust_use(trust, context, places))
        return true;
    if (!trust_read(config->ca, is_folder, context, failure))
        return false;
    X509_STORE *store = o->SSL_CTX_get_cert_store(context);
    if (!trust || is_folder || !o->X509_STORE_up_ref(store))
        return true;
    X509_STORE *old = trust_swap(trust, store, places);
    if (old)
        o->X509_STORE_free(old);
    return true;
}
