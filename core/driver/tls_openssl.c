#include "driver/tls_openssl.h"

#include "driver/forks.h"
#include "driver/tls.h"

#include <pthread.h>
#include <stdatomic.h>
#ifndef SNIB_OPENSSL_LINKED
#include <dlfcn.h>
#include <link.h>
#endif

static struct snib__openssl openssl_table;
static _Atomic bool openssl_works; /* the table is complete, and does not change any more */
static pthread_mutex_t openssl_mutex = PTHREAD_MUTEX_INITIALIZER; /* taken inside forks.h's calls */

static void (*_Atomic openssl_ends)(void);

#ifdef SNIB_OPENSSL_LINKED

static bool openssl_find(void)
{
#define X(result, name, arguments) openssl_table.name = name;
    SNIB__OPENSSL_CRYPTO(X)
    SNIB__OPENSSL_SSL(X)
#undef X
    return true;
}

#else

static int openssl_program(struct dl_phdr_info *program, size_t size, void *has_loader)
{
    (void)size;
    for (int i = 0; i < program->dlpi_phnum; i++)
        if (program->dlpi_phdr[i].p_type == PT_INTERP)
            *(bool *)has_loader = true;
    return 1; /* it is the first one */
}

/* What a static program loads brings a second C library along, which does not know the threads that exist: OpenSSL
 * crashes in them. */
static bool openssl_can_load(void)
{
    bool has_loader = false;
    dl_iterate_phdr(openssl_program, &has_loader);
    return has_loader;
}

/* Never closed: its handlers stay registered as long as the process lives. */
static bool openssl_find(void)
{
    if (!openssl_can_load())
        return false;
    void *crypto = dlopen("libcrypto.so.3", RTLD_NOW | RTLD_LOCAL);
    void *ssl = crypto ? dlopen("libssl.so.3", RTLD_NOW | RTLD_LOCAL) : NULL;
    bool all = ssl != NULL;
    if (!all)
        return false;
        /* POSIX lets dlsym() return a function pointer; the C language has no cast for it. */
#define X(result, name, arguments)                                                                 \
    *(void **)&openssl_table.name = dlsym(library, #name);                                         \
    all = all && openssl_table.name;
    void *library = crypto;
    SNIB__OPENSSL_CRYPTO(X)
    library = ssl;
    SNIB__OPENSSL_SSL(X)
#undef X
    return all;
}

#endif

static void openssl_ending(void)
{
    void (*ends)(void) = atomic_load(&openssl_ends);
    if (ends)
        ends();
}

void snib__tls_at_end(void (*ends)(void))
{
    atomic_store(&openssl_ends, ends);
}

/* The code that initialises OpenSSL first decides whether its exit handler tears it down, while
 * threads may still use it and before locks are released.  Snib asks for no handler; if other code
 * was first, Snib is told before the teardown. */
static bool openssl_begin(struct snib__openssl *o)
{
    uint64_t options = SNIB__SSL_NO_ATEXIT;
#ifdef SNIB_OPENSSL_OWN
    options |= SNIB__SSL_NO_LOAD_CONFIG; /* the system's is for the system's library */
    o->own = true;
#endif
    if (!openssl_find() || !o->OPENSSL_init_crypto(options, NULL))
        return false;
    if (!o->bio)
        o->bio = o->BIO_meth_new(o->BIO_get_new_index() | SNIB__SSL_BIO_SOURCE_SINK, "snib");
    return o->bio && o->BIO_meth_set_read(o->bio, snib__tls_bio_read) &&
           o->BIO_meth_set_write(o->bio, snib__tls_bio_write) &&
           o->BIO_meth_set_ctrl(o->bio, snib__tls_bio_ctrl) &&
           (o->own || o->OPENSSL_atexit(openssl_ending));
}

/* If it fails, for want of descriptors or memory for example, the next call tries again. */
static bool openssl_start(void)
{
    snib__forks_enter();
    snib__sys_lock(&openssl_mutex);
    if (!openssl_works)
        openssl_works = openssl_begin(&openssl_table);
    snib__sys_unlock(&openssl_mutex);
    snib__forks_leave();
    return openssl_works;
}

void snib__openssl_forked(void)
{
    pthread_mutex_init(&openssl_mutex, NULL);
}

const struct snib__openssl *snib__openssl(void)
{
    return openssl_works || openssl_start() ? &openssl_table : NULL;
}
