/* client.c - clients: opening, closing, statistics, the log; and the driver's callbacks. */
#include "api/debug.h"
#include "api/group.h"
#include "api/identity.h"
#include "api/name.h"
#include "api/objects.h"
#include "api/options.h"
#include "api/uses.h"
#include "net/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <uuid/uuid.h>

void snib_client_options_init(snib_client_options *options, size_t size)
{
    if (!options || size < sizeof options->size + sizeof options->flags)
        return;
    memset(options, 0, size);
    options->size = (uint32_t)size;
}

/* The kernel's rule for extensible structs: fields that a shorter struct lacks take their defaults,
 * and fields of a longer one that are unknown here must be zero. */
static bool client_copy_options(const snib_client_options *from, snib_client_options *to)
{
    memset(to, 0, sizeof *to);
    if (!from)
        return true;
    if (from->size < 8 || from->size > 4096 || from->size % 8 != 0) /* no field is cut */
        return false;
    for (size_t i = sizeof *to; i < from->size; i++)
        if (((const char *)from)[i] != 0)
            return false;
    memcpy(to, from, from->size < sizeof *to ? from->size : sizeof *to);
    return true;
}

/* Refuse what this build does not support, by name. */
static int client_supports(const struct snib__url *url, snib_error *err)
{
    if (url->tls && !snib__tls_available())
        return snib__fail(err, SNIB_ENOTSUP, 0,
                          "TLS needs OpenSSL 3 (libssl.so.3), which could not be loaded; is it "
                          "installed, and the "
                          "program not linked statically?");
    return SNIB_OK;
}

/* NULL: unset or empty. */
static const char *client_environment(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* A program that has more rights than its user, as a set-user-ID program, would read files for that user and send them to
 * the server of that user's choice.  Passing over a variable could be worse: a service with capabilities would take its
 * locks on another server. */
static int client_trusts_environment(snib_error *err)
{
    static const char *const names[] = {"SNIB_URL", "SNIB_USERNAME", "SNIB_PASSWORD",
                                        "SNIB_PASSWORD_FILE"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (client_environment(names[i]) && !secure_getenv(names[i]))
            return snib__fail(err, SNIB_EURL, 0,
                              "the environment variable %s is not used, because this program has "
                              "rights that its user does not have; open the client with a URL",
                              names[i]);
    return SNIB_OK;
}

/* The environment's user and password override those in the environment's URL, but not those that
 * the program gave. */
static void client_take_environment(snib_client_options *o)
{
    if (!o->username)
        o->username = client_environment("SNIB_USERNAME");
    if (o->password || o->password_file || o->credentials || o->ask_credentials)
        return;
    o->password = client_environment("SNIB_PASSWORD");
    o->password_file = client_environment("SNIB_PASSWORD_FILE");
}

/* The program may not have a URL of its own in which to look for the mistake. */
static int client_blame_environment(int code, snib_error *err)
{
    char text[sizeof err->text];
    if (!err)
        return code;
    memcpy(text, err->text, sizeof text);
    return snib__fail(err, code, err->os_error, "SNIB_URL: %s", text);
}

/* Resolve the caller's URL and options into servers and the options in effect.  *url is empty
 * unless SNIB_OK. */
static int client_settle_options(const char *text, const snib_client_options *options,
                                 snib_client_options *o, struct snib__url *url, snib_error *err)
{
    snib_client_options query;
    bool from_environment = !text, blames_environment = false;
    if (!text) {
        text = client_environment("SNIB_URL");
        blames_environment = text;
    }
    if (!text)
        text = SNIB__URL_DEFAULT;
    if (!client_copy_options(options, o))
        return snib__fail(err, SNIB_EOPTION, 0,
                          "the options have no size that this build knows; fill them with "
                          "snib_client_options_init() first");
    if (o->flags != 0)
        return snib__fail(err, SNIB_EOPTION, 0, "flags must be 0 in options");
    if (o->ask_credentials != 0 && o->ask_credentials != 1)
        return snib__fail(err, SNIB_EOPTION, 0, "ask_credentials must be 0 or 1");
    int code = from_environment ? client_trusts_environment(err) : SNIB_OK;
    if (code)
        return code;
    if (from_environment)
        client_take_environment(o);
    code = snib__url_parse(text, url, &query, err);
    if (code)
        return blames_environment ? client_blame_environment(code, err) : code;
    code = snib__options_settle(o, &query, url, err);
    if (code == SNIB_OK)
        code = client_supports(url, err);
    if (code)
        snib__url_free(url);
    return code;
}

/* ---- the driver's callbacks, inside ---- */

static void client_done(struct snib__driver *driver, struct snib__op *op, struct snib__wakes *wakes)
{
    if (op->member) {
        snib__carrier_done(driver, op);
        return;
    }
    if (op->sink) {
        snib__queue_push(op->sink, op, wakes);
        return;
    }
    snib__op_discard((struct snib__client *)driver, op); /* its first member */
}

static void client_lost(struct snib__driver *driver, struct snib__hold *hold,
                        struct snib__wakes *wakes)
{
    if (hold->tell == SNIB__TELL_CARRIER)
        snib__carrier_lost(driver, hold);
    else if (hold->sink)
        snib__queue_push_lost(hold->sink, hold, wakes);
    snib__witness_lost(snib__gate_home(hold->gate), hold);
}

static void client_log(struct snib__driver *driver, int32_t level, const char *text,
                       struct snib__wakes *wakes)
{
    struct snib__client *client =
        (struct snib__client *)driver; /* the driver is its first member */
    uint32_t dropped = snib__engine_log_dropped(driver->engine);
    if (!client->log_queue)
        return;
    client->log_queue->log_dropped += dropped;
    snib__queue_push_log(client->log_queue, level, text, wakes);
}

/* ---- birth and end ---- */

/* A UUID of version 8: by one character, scripts tell it from Redisson's version 4.  libuuid's own random bytes would
 * begin the program's random() anew, whose lock does not survive a fork. */
static void client_uuid(uuid_t bytes, char out[37])
{
    bytes[6] = (unsigned char)((bytes[6] & 0x0f) | 0x80);
    bytes[8] = (unsigned char)((bytes[8] & 0x3f) | 0x80);
    uuid_unparse_lower(bytes, out);
}

/* How long the driver's thread may sleep at a time: a sixth of a lease, at most one second. */
static snib__time client_nap(snib__time lease)
{
    return lease / 6 < 1000 * SNIB__MS ? lease / 6 : 1000 * SNIB__MS;
}

/* The client's target, for messages.  The sentinels are shown until they have named a server. */
static void client_say_where(struct snib__client *client)
{
    const struct snib__url *url = &client->url;
    char first[SNIB__ADDRESS_TEXT], more[24] = "", service[81] = "";
    snib__address_text(url->addresses, first);
    if (url->addresses_n > 1)
        snprintf(more, sizeof more, " and %u more", url->addresses_n - 1);
    if (url->service)
        snib__text_show(service, sizeof service, url->service, strlen(url->service));
    if (url->topology == SNIB__SENTINEL)
        snprintf(client->where, sizeof client->where, "\"%s\" by the sentinel%s %s%s", service,
                 *more ? "s" : "", first, more);
    else
        snprintf(client->where, sizeof client->where, "%s", first);
}

static void client_ask_as(struct snib__client *client)
{
    const struct snib__url *url = &client->url;
    const snib_client_options *o = &client->options;
    client->driver.logins = (struct snib__logins){
        .source = o->credentials       ? SNIB__LOGIN_CALL
                  : o->ask_credentials ? SNIB__LOGIN_QUEUE
                  : url->password_file ? SNIB__LOGIN_FILE
                                       : SNIB__LOGIN_GIVEN,
        .username = url->username,
        .file = url->password_file,
        .call = o->credentials,
        .data = o->credentials_data,
    };
}

/* A grant's lease already runs while the client waits for replicas. */
static snib__time client_durability_timeout(const snib_client_options *o)
{
    int64_t most = o->lease_ms / 3;
    return (snib__time)(o->durability_timeout_ms < most ? o->durability_timeout_ms : most) *
           SNIB__MS;
}

static int client_build(struct snib__client *client, const snib_client_options *o, snib_error *err)
{
    struct {
        uint64_t seed;
        uuid_t id;
    } random;
    if (getrandom(&random, sizeof random, 0) != sizeof random)
        return snib__fail_system(err, "get random bytes for the client's id", errno);
    client_uuid(random.id, client->uuid);
    client_say_where(client);
    client_ask_as(client);
    const int64_t offset = snib__wall_offset();
    client->since = (offset + (int64_t)snib__now()) / 1000000000;
    if (o->identity > 0 &&
        !(client->identity = snib__identity_text(client->url.label, client->since)))
        return snib__fail(err, SNIB_ENOMEM, 0, NULL);
    if (snib__debug_begin(client) != 0)
        return snib__fail(err, SNIB_ENOMEM, 0, NULL);
    struct snib__config config = {
        .login = {.username = client->url.username,
                  .password = client->url.password,
                  .database = client->url.database},
        .asks = client->driver.logins.source != SNIB__LOGIN_GIVEN,
        .topology = client->url.topology,
        .seeds = client->url.addresses,
        .seeds_n = client->url.addresses_n,
        .service = client->url.service,
        .sentinel_login = {.username = client->url.sentinel_username,
                           .password = client->url.sentinel_password},
        .seed = random.seed | 1,
        .first_number = 1, /* with the UUID, short enough for the server's cheapest encoding */
        .lease = (snib__time)o->lease_ms * SNIB__MS,
        .reply_timeout = (snib__time)o->reply_timeout_ms * SNIB__MS,
        .patience = (snib__time)o->patience_ms * SNIB__MS,
        .try_timeout = (snib__time)o->try_timeout_ms * SNIB__MS,
        .recheck = (snib__time)o->recheck_ms * SNIB__MS,
        .where = client->where,
        .identity = client->identity,
        .taken = snib__debug_taken(client),
        .wall_offset = offset,
        .publish = o->publish,
        .handover_max = o->handover_max < 0 ? 0 : o->handover_max,
        .tenure = true,
        .ops_max = o->waiters_max,
        .lanes = o->lanes,
        .durability = o->durability == SNIB_DURABILITY_NONE ? 0 : o->durability,
        .durability_policy = o->durability_policy,
        .durability_timeout = client_durability_timeout(o),
        .insecure = client->url.tls_insecure,
        .home = client,
    };
    memcpy(config.uuid, client->uuid, sizeof config.uuid);
    client->patience = config.patience;
    client->lease_ms = o->lease_ms;
    client->max_hold_ms = o->max_hold_ms < 0 ? 0 : o->max_hold_ms;
    client->driver.connect_timeout = (snib__time)o->connect_timeout_ms * SNIB__MS;
    client->driver.nap = client_nap(config.lease);
    client->driver.lease = config.lease;
    client->driver.done = client_done;
    client->driver.lost = client_lost;
    client->driver.log = client_log;
    client->driver.ask = snib__client_ask;
    client->driver.outer = snib__carrier_news;
    client->driver.steps = snib__carrier_steps;
    client->driver.engine = snib__engine_new(&config);
    return client->driver.engine ? SNIB_OK : snib__fail(err, SNIB_ENOMEM, 0, NULL);
}

static void client_free(struct snib__client *client)
{
    if (client->driver.engine)
        snib__driver_free_ways(&client->driver);
    snib__engine_free(client->driver.engine);
    snib__logins_end(&client->driver.logins);
    snib__tls_trust_free(client->driver.tls.trust);
    snib__url_free(&client->url);
    snib__debug_end(client);
    free(client->identity);
    free(client);
}

/* A client with one reference, the caller's; takes over the URL's parts.  NULL: *out_code. */
static struct snib__client *client_new(struct snib__url *where, const snib_client_options *o,
                                       snib_error *err, int32_t *out_code)
{
    struct snib__client *client = calloc(1, sizeof *client);
    if (!client) {
        snib__url_free(where);
        *out_code = snib__fail(err, SNIB_ENOMEM, 0, NULL);
        return NULL;
    }
    client->fork_generation = atomic_load(&snib__fork_generation);
    client->options = *o;
    client->url = *where;
    client->driver.tls =
        (struct snib__tls_config){.ca = where->tls_ca,
                                  .cert_file = where->tls_cert,
                                  .key_file = where->tls_key,
                                  .key_password = where->tls_key_password,
                                  .server_name = where->tls_server_name,
                                  .insecure = where->tls_insecure,
                                  .trust = where->tls ? snib__tls_trust_new() : NULL};
    atomic_store(&client->refs, 1);
    *out_code = client_build(client, o, err);
    int error = *out_code ? 0 : snib__driver_init(&client->driver);
    if (error)
        *out_code = snib__fail_system(err, "create the client", error);
    if (*out_code == SNIB_OK) {
        snib__exit_add(client);
        return client;
    }
    client_free(client);
    return NULL;
}

static int client_fail_within(snib_error *err)
{
    return snib__fail(err, SNIB_EFORKED, 0,
                      "a handler of fork() that was registered before the first client was opened "
                      "cannot use Snib; register it later, or do this after fork()");
}

int snib__fail_handle(snib_error *err)
{
    return snib__fork_within() ? client_fail_within(err) : snib__fail(err, SNIB_EHANDLE, 0, NULL);
}

static int client_open(const char *url, const snib_client_options *options,
                       snib_client **out_client, snib_error *err)
{
    snib_client_options o;
    struct snib__url where;
    if (!out_client)
        return snib__fail_null(err, "out_client");
    if (snib__fork_within())
        return client_fail_within(err);
    int32_t code = client_settle_options(url, options, &o, &where, err);
    if (code)
        return code;
    if (snib__api_init() != 0)
        return snib__fail(err, SNIB_ENOMEM, 0, NULL);
    struct snib__client *client = client_new(&where, &o, err, &code);
    if (!client)
        return code;
    snib_client *handle = snib__handle_new(SNIB__CLIENT, client);
    if (!handle) {
        snib__client_unref(client);
        return snib__fail(err, SNIB_ENOMEM, 0, NULL);
    }
    if (client->debug)
        snib__debug_made(client, client, "a client");
    *out_client = handle;
    return SNIB_OK;
}

/* Random numbers, and the files that OpenSSL reads when it is first used, come from calls that are cancellation points. */
int snib_client_open(const char *url, const snib_client_options *options, snib_client **out_client,
                     snib_error *err)
{
    int old;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    int code = client_open(url, options, out_client, err);
    snib__use_forget_here();
    pthread_setcancelstate(old, NULL);
    return code;
}

bool snib__client_forked(const struct snib__client *client)
{
    return client->fork_generation !=
           atomic_load_explicit(&snib__fork_generation, memory_order_relaxed);
}

void snib__client_ref(struct snib__client *client)
{
    atomic_fetch_add(&client->refs, 1);
}

void snib__client_unref(struct snib__client *client)
{
    if (atomic_fetch_sub(&client->refs, 1) != 1)
        return;
    if (snib__client_forked(client)) {
        /* Its mutex may stay locked for ever, and its thread is the parent's: leak it.  Its heir served all that had
         * a reference, locks that were never used here, too. */
        struct snib__client *heir = atomic_load(&client->heir);
        if (heir && heir != client)
            snib__client_unref(heir);
        return;
    }
    snib__exit_remove(client);
    snib__driver_stop(&client->driver);
    snib__driver_destroy(&client->driver);
    client_free(client);
}

struct snib__client *snib__client_enter(snib_client *handle, snib_error *err, int32_t *out_code)
{
    struct snib__client *client = snib__handle_get(SNIB__CLIENT, handle);
    if (!client) {
        *out_code = snib__fail_handle(err);
        return NULL;
    }
    if (snib__client_forked(client))
        client = snib__client_heir(client, err, out_code);
    if (!client)
        snib__handle_put(handle);
    return client;
}

/* Wait until no release is outstanding.  Inside; leaves and enters. */
static bool client_settle(struct snib__client *client, snib__time until)
{
    struct snib__driver *d = &client->driver;
    bool quiet;
    d->hold_watchers++;
    while (!(quiet = snib__engine_quiet(d->engine)) && d->thread_started && snib__now() < until) {
        uint32_t seen = atomic_load(&d->hold_word);
        snib__driver_leave(d);
        snib__park(&d->hold_word, seen, until);
        snib__driver_enter(d);
    }
    d->hold_watchers--;
    return quiet;
}

void snib__client_close_begin(struct snib__client *client)
{
    snib__driver_enter(&client->driver);
    if (client->debug && !client->stopped)
        snib__debug_close(client);
    snib__engine_close(client->driver.engine, snib__now());
    snib__driver_leave(&client->driver); /* sends the releases */
}

/* Inside: whether the caller is the first, which ends the client's threads.  For all others, too, the thread begins
 * nothing from now on. */
static bool client_stops(struct snib__client *client)
{
    bool first = !client->stopped;
    client->stopped = client->driver.stop = true;
    return first;
}

void snib__client_stop(struct snib__client *client)
{
    snib__driver_enter(&client->driver);
    bool mine = client_stops(client);
    snib__driver_leave(&client->driver);
    if (!mine)
        return;
    snib__driver_stop(&client->driver);
    /* What waits, or comes now, ends: nobody reads for it any more.  There is no connection to send a release on. */
    snib__driver_enter(&client->driver);
    snib__engine_close(client->driver.engine, snib__now());
    snib__engine_stop(client->driver.engine, snib__now());
    snib__driver_leave(&client->driver);
}

bool snib__client_close_end(struct snib__client *client, snib__time until)
{
    struct snib__driver *d = &client->driver;
    snib__driver_enter(d);
    bool quiet = client_settle(client, until);
    bool mine = client_stops(client);
    snib__engine_stop(d->engine, snib__now());
    snib__driver_leave(d);
    if (mine)
        snib__driver_stop(d);
    return quiet;
}

static int client_close(struct snib__client *client, snib__time timeout, snib_error *err)
{
    snib__client_close_begin(client);
    return snib__client_close_end(client, snib__until(timeout))
               ? SNIB_OK
               : snib__fail(err, SNIB_TIMEDOUT, 0,
                            "a release was not confirmed in time: its lease will end it");
}

struct snib__client *snib__client_again(const struct snib__client *from, snib_error *err,
                                        int32_t *out_code)
{
    struct snib__url where;
    *out_code = snib__url_copy(&from->url, &where);
    if (*out_code) {
        snib__fail(err, *out_code, 0, NULL);
        return NULL;
    }
    int old;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old); /* as in snib_client_open() */
    struct snib__client *client = client_new(&where, &from->options, err, out_code);
    pthread_setcancelstate(old, NULL);
    if (client && from->stopped)
        client_close(client, 0, NULL); /* it stays closed */
    return client;
}

int snib_client_close(snib_client *handle, int64_t timeout_ms, snib_error *err)
{
    snib__time timeout;
    int32_t code;
    struct snib__client *client = snib__client_enter(handle, err, &code);
    if (!client)
        return code;
    if (!snib__wait_ns(timeout_ms, &timeout))
        code = snib__fail_wait(err, "timeout_ms");
    else
        code = client_close(client, timeout == SNIB__NEVER ? client->patience : timeout, err);
    snib__handle_put(handle);
    return code;
}

void snib__client_destroy(void *object)
{
    struct snib__client *client = object;
    if (!snib__client_forked(client))
        client_close(client, 0, NULL);
    snib__client_unref(client);
}

/* The program may free what its function works with as soon as the client is freed. */
static void client_await_login(struct snib__client *client)
{
    snib__driver_enter(&client->driver);
    struct snib__question *question = snib__login_running(&client->driver.logins);
    snib__driver_leave(&client->driver);
    snib__login_await(question);
}

void snib_client_free(snib_client *handle)
{
    struct snib__client *client = snib__handle_take(SNIB__CLIENT, handle);
    if (!client)
        return;
    client = snib__client_last(client);
    if (client->debug)
        snib__debug_freed(client);
    if (!snib__client_forked(
            client)) { /* close now: threads that a fork left behind may keep references */
        client_close(client, 0, NULL);
        client_await_login(client);
    }
    snib__handle_put(handle);
}

int snib_client_id(snib_client *handle, char out[37], snib_error *err)
{
    int32_t code;
    struct snib__client *client = snib__client_enter(handle, err, &code);
    if (!client)
        return code;
    if (out)
        memcpy(out, client->uuid, sizeof client->uuid);
    snib__handle_put(handle);
    return out ? SNIB_OK : snib__fail_null(err, "out");
}

/* Returns what is to be freed: the former text, or the new one if the client is closed. */
static char *client_relabel(struct snib__client *client, char *text, int32_t *out_code)
{
    snib__driver_enter(&client->driver);
    if (client->stopped) {
        *out_code = SNIB_ECLOSED;
    } else {
        char *former = client->identity;
        client->identity = text;
        snib__engine_identify(client->driver.engine, text, snib__now());
        text = former;
    }
    snib__driver_leave(&client->driver);
    return text;
}

int snib_client_set_label(snib_client *handle, const char *label, snib_error *err)
{
    int32_t code;
    struct snib__client *client = snib__client_enter(handle, err, &code);
    if (!client)
        return code;
    char *text = NULL;
    if (client->options.identity <= 0)
        code = snib__fail(err, SNIB_ENOTSUP, 0,
                          "a label is for those who ask who this client is, which the option "
                          "identity=no rules out");
    else if ((code = snib__label_check(label, false, err)) == SNIB_OK &&
             !(text = snib__identity_text(label, client->since)))
        code = snib__fail(err, SNIB_ENOMEM, 0, NULL);
    if (code == SNIB_OK) {
        free(client_relabel(client, text, &code));
        if (code)
            snib__fail(err, code, 0, NULL);
    }
    snib__handle_put(handle);
    return code;
}

int snib_client_get_options(snib_client *handle, snib_client_options *out, snib_error *err)
{
    int32_t code;
    struct snib__client *client = snib__client_enter(handle, err, &code);
    if (!client)
        return code;
    if (!out || out->size < 8 || out->size > sizeof *out) {
        snib__handle_put(handle);
        return snib__fail_size(err);
    }
    snib_client_options options = client->options;
    options.size = out->size;
    memcpy(out, &options, out->size);
    snib__handle_put(handle);
    return SNIB_OK;
}

int snib_client_stats(snib_client *handle, snib_client_stats_data *out, snib_error *err)
{
    int32_t code;
    struct snib__client *client = snib__client_enter(handle, err, &code);
    if (!client)
        return code;
    if (!out || out->size < 8 || out->size > sizeof *out) {
        snib__handle_put(handle);
        return snib__fail_size(err);
    }
    snib_client_stats_data stats = {.size = out->size};
    snib__driver_enter(&client->driver);
    snib__engine_tick(client->driver.engine,
                      snib__now()); /* what holds already report as lost is counted */
    snib__engine_stats(client->driver.engine, &stats);
    stats.writes = client->driver.writes;
    stats.reads = client->driver.reads;
    stats.wakes = client->driver.wakes;
    stats.debug_warnings = snib__debug_warnings(client);
    stats.memory += sizeof *client;
    for (const struct snib__link *link = snib__engine_links(client->driver.engine); link;
         link = snib__link_next(link)) {
        const struct snib__sock *sock = snib__link_transport(link);
        stats.memory += sock ? sock->sending.cap : 0;
    }
    snib__driver_leave(&client->driver);
    memcpy(out, &stats, out->size);
    snib__handle_put(handle);
    return SNIB_OK;
}

/* ---- requests that name no lock ---- */

static int client_start(struct snib__client *client, snib_error *err)
{
    int error = snib__driver_start(&client->driver);
    return error ? snib__fail_system(err, "start the client's thread", error) : SNIB_OK;
}

static int client_ping(snib_client *handle, int64_t wait_ms, snib__time slice,
                       snib_queue *queue_handle, uint64_t token, snib_op **out_op, snib_error *err)
{
    snib_event event;
    snib__time wait;
    int32_t code;
    struct snib__queue *queue = NULL;
    struct snib__client *client = snib__client_enter(handle, err, &code);
    if (!client)
        return code;
    if (queue_handle && !(queue = snib__queue_enter(queue_handle, err, &code))) {
        snib__handle_put(handle);
        return code;
    }
    if (!snib__wait_ns(wait_ms, &wait)) {
        code = snib__fail_wait(err, "wait_ms");
    } else if (queue && queue->client != client) {
        code = snib__fail_queue(err);
    } else if (!slice && !queue && !out_op) {
        code = snib__fail_silent(err);
    } else {
        snib__driver_enter(&client->driver);
        struct snib__op *op = NULL;
        if (!client->stopped && (code = client_start(client, err)) != SNIB_OK) {
            snib__driver_leave(&client->driver);
        } else {
            struct snib__run run = {client, queue, token, slice, false, out_op, NULL, 0, NULL};
            op = snib__engine_ping(client->driver.engine, wait, snib__now(), &code);
            code = snib__run(&run, op, code, &event, err);
        }
    }
    if (queue)
        snib__handle_put(queue_handle);
    snib__handle_put(handle);
    return code;
}

int snib_client_ping(snib_client *client, int64_t wait_ms, snib_error *err)
{
    return client_ping(client, wait_ms, SNIB__NEVER, NULL, 0, NULL, err);
}

int snib_client_ping_submit(snib_client *client, int64_t wait_ms, snib_queue *queue, uint64_t token,
                            snib_op **out_op, snib_error *err)
{
    int code = client_ping(client, wait_ms, 0, queue, token, out_op, err);
    return code == SNIB_AGAIN ? SNIB_OK : code;
}

int snib_client_log(snib_client *handle, snib_queue *queue_handle, int32_t level, snib_error *err)
{
    int32_t code;
    struct snib__queue *queue = NULL;
    struct snib__client *client = snib__client_enter(handle, err, &code);
    if (!client)
        return code;
    if (queue_handle && !(queue = snib__queue_enter(queue_handle, err, &code))) {
        snib__handle_put(handle);
        return code;
    }
    code = SNIB_OK;
    if (level < SNIB_LOG_NONE || level > SNIB_LOG_INFO) {
        code = snib__fail(err, SNIB_EINVAL, 0, "no such log level");
    } else if (queue && queue->client != client) {
        code = snib__fail_queue(err);
    } else {
        snib__driver_enter(&client->driver);
        if (queue && !queue->log && !(queue->log = calloc(SNIB__LOG_MAX, sizeof *queue->log)))
            code = snib__fail(err, SNIB_ENOMEM, 0, NULL);
        if (code == SNIB_OK) {
            client->log_queue = level == SNIB_LOG_NONE ? NULL : queue;
            snib__engine_log_level(client->driver.engine,
                                   client->log_queue ? level : SNIB_LOG_NONE);
        }
        snib__driver_leave(&client->driver);
    }
    if (queue)
        snib__handle_put(queue_handle);
    snib__handle_put(handle);
    return code;
}

static int client_registered; /* 0 or errno: forks would not be noticed */

static void client_register(void)
{
    int error = snib__fork_init();
    error = error ? error : snib__uses_init();
    error = error ? error : snib__exit_init();
    client_registered = error;
    snib__sys_begin();
    snib__handle_free_fn(SNIB__CLIENT, snib__client_destroy);
    snib__handle_free_fn(SNIB__LOCK, snib__lock_destroy);
    snib__handle_free_fn(SNIB__HOLD, snib__hold_destroy);
    snib__handle_free_fn(SNIB__OP, snib__op_destroy);
    snib__handle_free_fn(SNIB__QUEUE, snib__queue_destroy);
}

/* Begun anew in the child of a fork beside it: what has been registered for forks is not registered again, or the child's
 * own fork would wait for itself.  Not as the library is loaded: the handlers of an allocator, which keep all others from
 * memory, are to be the last before a fork. */
int snib__api_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, client_register);
    if (client_registered == 0)
        snib__sys_stay();
    return client_registered;
}
