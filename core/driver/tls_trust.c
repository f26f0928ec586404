/* tls_trust.c - trusted CAs, kept parsed as long as their files are unchanged.
 *
 * Reading a system's store of 150 certificates takes tens of milliseconds of CPU time, and a server
 * that ends all connections makes all clients read it at the same time.  A file is unchanged if its
 * inode, size and times are.
 *
 * OpenSSL would look into a folder of CAs only when it verifies, in the middle of a handshake, on a
 * thread that must not wait for a disk.  So all that it could find there is read before.
 */
#include "driver/forks.h"
#include "driver/tls.h"
#include "driver/tls_openssl.h"
#include "net/error.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRUST_QUOTED 80

struct trust_place {
    bool is_folder;
    dev_t device;
    ino_t number;
    off_t size;
    struct timespec changed, modified;
};

/* What tells a store from a later one. */
struct trust_look {
    struct trust_place place; /* the file, or the folder that was given */
    uint64_t entries;         /* a hash over the names and places in the folders */
};

struct snib__tls_trust {
    _Atomic int refs;
    pthread_mutex_t mutex;
    X509_STORE *store; /* NULL: none */
    struct trust_look look;
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
                              const struct trust_look *look)
{
    snib__sys_lock(&trust->mutex);
    X509_STORE *old = trust->store;
    trust->store = store;
    if (look)
        memcpy(&trust->look, look, sizeof *look);
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

static const char *trust_file(const char *ca)
{
    const struct snib__openssl *o = snib__openssl();
    const char *other = ca ? NULL : trust_other_bundle(o), *file = secure_getenv("SSL_CERT_FILE");
    return ca ? ca : other ? other : file ? file : o->X509_get_default_cert_file();
}

/* The system's folders, with ':' between them. */
static const char *trust_system_folders(void)
{
    const char *folders = secure_getenv("SSL_CERT_DIR");
    return folders ? folders : snib__openssl()->X509_get_default_cert_dir();
}

/* ---- Folders ---- */

struct trust_walk {
    SSL_CTX *context; /* that reads the certificates; NULL: only look */
    uint64_t hash;
    uint32_t read;
    int error; /* errno: not all of it could be read */
};

/* Where OpenSSL would look for a CA: in a file that is called after the hash of the CA's name, "5f15c80c.0". */
static bool trust_is_hashed(const char *name)
{
    size_t hash = strspn(name, "0123456789abcdef");
    size_t digits = hash == 8 && name[8] == '.' ? strspn(name + 9, "0123456789") : 0;
    return digits > 0 && name[9 + digits] == '\0';
}

/* A missing file counts as unchanged while it is missing. */
static void trust_look_at(const char *path, struct trust_place *out)
{
    struct stat info;
    memset(out, 0, sizeof *out); /* its bytes are compared, and hashed, padding too */
    if (stat(path, &info) != 0)
        return;
    out->is_folder = S_ISDIR(info.st_mode);
    out->device = info.st_dev;
    out->number = info.st_ino;
    out->size = info.st_size;
    out->changed = info.st_ctim;
    out->modified = info.st_mtim;
}

/* FNV-1a. */
static uint64_t trust_hash(uint64_t hash, const void *bytes, size_t n)
{
    for (const unsigned char *byte = bytes; n > 0; n--, byte++)
        hash = (hash ^ *byte) * 0x100000001b3u;
    return hash;
}

static void trust_entry(const char *path, struct trust_walk *walk)
{
    struct trust_place place;
    if (!walk->context) {
        trust_look_at(path, &place);
        walk->hash = trust_hash(walk->hash, path, strlen(path));
        walk->hash = trust_hash(walk->hash, &place, sizeof place);
        return;
    }
    errno = 0;
    if (snib__openssl()->SSL_CTX_load_verify_file(walk->context, path))
        walk->read++;
    else if (errno && errno != ENOENT) /* a file without a certificate is passed over */
        walk->error = errno;
}

static void trust_folder(const char *folder, int n, struct trust_walk *walk)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%.*s", n, folder);
    DIR *open = opendir(path);
    if (!open) {
        walk->error = errno == ENOENT ? walk->error : errno;
        return;
    }
    for (const struct dirent *entry; (entry = readdir(open));)
        if (trust_is_hashed(entry->d_name) &&
            snprintf(path, sizeof path, "%.*s/%s", n, folder, entry->d_name) < (int)sizeof path)
            trust_entry(path, walk);
    closedir(open);
}

static void trust_folders(const char *folders, struct trust_walk *walk)
{
    for (const char *end; *folders; folders = *end ? end + 1 : end) {
        end = strchrnul(folders, ':');
        trust_folder(folders, (int)(end - folders), walk);
    }
}

/* ---- The store of a config ---- */

static void trust_look(const char *ca, struct trust_look *out)
{
    struct trust_walk walk = {0};
    memset(out, 0, sizeof *out);
    trust_look_at(trust_file(ca), &out->place);
    if (!ca)
        trust_folders(trust_system_folders(), &walk);
    else if (out->place.is_folder)
        trust_folder(ca, (int)strlen(ca), &walk);
    out->entries = walk.hash;
}

static bool trust_use(struct snib__tls_trust *trust, SSL_CTX *context,
                      const struct trust_look *look)
{
    snib__sys_lock(&trust->mutex);
    bool same = trust->store && memcmp(look, &trust->look, sizeof *look) == 0;
    if (same)
        snib__openssl()->SSL_CTX_set1_cert_store(context, trust->store);
    snib__sys_unlock(&trust->mutex);
    return same;
}

static bool trust_read_file(const char *ca, SSL_CTX *context, struct snib__tls_failure *failure)
{
    const char *file = trust_file(ca);
    char quoted[TRUST_QUOTED];
    errno = 0;
    if (snib__openssl()->SSL_CTX_load_verify_file(context, file))
        return true;
    if (snib__sys_short(errno)) /* a store without its certificates must not be kept */
        return snib__tls_unread(failure, SNIB__TLS_CA, "CA file", file, errno);
    return !ca || snib__tls_fail(failure, SNIB__TLS_CA,
                                 "the CA file %s contains no certificate in PEM form",
                                 snib__quote(quoted, sizeof quoted, file, strlen(file)));
}

/* A folder of the system may be missing; the one that was given must have a certificate. */
static bool trust_read_folders(const char *ca, struct trust_walk *walk,
                               struct snib__tls_failure *failure)
{
    char quoted[TRUST_QUOTED];
    const char *folders = ca ? ca : trust_system_folders();
    if (ca)
        trust_folder(ca, (int)strlen(ca), walk);
    else
        trust_folders(folders, walk);
    if (snib__sys_short(walk->error) || (ca && walk->read == 0 && walk->error))
        return snib__tls_unread(failure, SNIB__TLS_CA, "CA directory", folders, walk->error);
    return !ca || walk->read > 0 ||
           snib__tls_fail(failure, SNIB__TLS_CA,
                          "the CA directory %s contains no certificate under the hash of its name; "
                          "run \"openssl rehash\" on it",
                          snib__quote(quoted, sizeof quoted, ca, strlen(ca)));
}

bool snib__tls_trust_load(const struct snib__tls_config *config, SSL_CTX *context,
                          struct snib__tls_failure *failure)
{
    const struct snib__openssl *o = snib__openssl();
    struct snib__tls_trust *trust = config->trust;
    struct trust_walk walk = {.context = context};
    struct trust_look look; /* taken before the files are read */
    trust_look(config->ca, &look);
    if (trust && trust_use(trust, context, &look))
        return true;
    bool is_folder = config->ca && look.place.is_folder;
    if (!is_folder && !trust_read_file(config->ca, context, failure))
        return false;
    if ((is_folder || !config->ca) && !trust_read_folders(config->ca, &walk, failure))
        return false;
    X509_STORE *store = o->SSL_CTX_get_cert_store(context);
    if (!trust || walk.error || !o->X509_STORE_up_ref(store))
        return true;
    X509_STORE *old = trust_swap(trust, store, &look);
    if (old)
        o->X509_STORE_free(old);
    return true;
}
