#include "net/conn.h"

#include "net/script.h"
#include "snib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Requests of the handshake and of script loads. */
enum {
    CONN_AUTH = -1,
    CONN_SELECT = -2,
    CONN_OPTIONAL = -3,
    CONN_ID = -4,
    CONN_INFO = -5,
    CONN_LOAD = -6,
    CONN_RELOGIN = -7,
    CONN_KILL = -8
};

#define CONN_MASKED 6 /* shorter passwords may occur in an error by chance */

static const struct {
    const char *word;
    int32_t code;
} conn_errors[] = {
    /* Servers before 7.0 wrap script errors, so the text is searched, for the
     * most specific words first.  But what it begins with counts: the rest may name a user, or repeat what was sent. */
    {"ERR unknown command", SNIB_ENOTSUP},
    {"NOSCRIPT", SNIB_AGAIN},
    {"WRONGTYPE", SNIB_EWRONGTYPE},
    {"Key should be of string type", SNIB_EWRONGTYPE},    /* DELEX */
    {"the number of permits would leave", SNIB_EPERMITS}, /* semaphore_*.lua, permits_count.lua */
    {"CROSSSLOT", SNIB_ENAME}, /* of one name, or of a multi lock, in a cluster */
    {"OOM ", SNIB_EOOM},
    {"READONLY", SNIB_EREADONLY},
    {"MASTERDOWN", SNIB_EREADONLY},
    {"LOADING", SNIB_ELOADING},
    {"busy running a ", SNIB_ELOADING}, /* BUSY: everything is refused until a script has ended */
    {"MISCONF", SNIB_EMISCONF},
    {"NOREPLICAS", SNIB_EMISCONF},
    {"NOPERM", SNIB_EPERM},
    {"can't run this", SNIB_EPERM},
    {"can't access", SNIB_EPERM},
    {"can't publish", SNIB_EPERM},
    {"NOAUTH", SNIB_EAUTH},
    {"WRONGPASS", SNIB_EAUTH},
    {"invalid password", SNIB_EAUTH},
    {"AUTH", SNIB_EAUTH},
    {"max number of clients", SNIB_EUNREACHABLE},
    {"in protected mode", SNIB_EUNREACHABLE}, /* DENIED: it takes no connections from other hosts */
    {"ACL failure", SNIB_EPERM},
    {"DB index", SNIB_EDATABASE},
    {"unknown command", SNIB_ENOTSUP},
};

int32_t snib__conn_classify(const char *text, uint32_t n)
{
    const size_t words = sizeof conn_errors / sizeof conn_errors[0];
    for (size_t i = 0; i < words; i++) {
        size_t len = strlen(conn_errors[i].word);
        if (n >= len && memcmp(text, conn_errors[i].word, len) == 0)
            return conn_errors[i].code;
    }
    for (size_t i = 0; i < words; i++)
        if (memmem(text, n, conn_errors[i].word, strlen(conn_errors[i].word)))
            return conn_errors[i].code;
    return SNIB_ESERVER;
}

bool snib__conn_is_half(const char *text)
{
    static const char *const words[] = {"can't run this", "can't access", "can't publish",
                                        "ACL failure"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strstr(text, words[i]))
            return true;
    return false;
}

bool snib__conn_is_stranger(const char *text)
{
    return strncmp(text, "NOAUTH", 6) == 0;
}

int snib__conn_init(struct snib__conn *conn, bool pubsub)
{
    *conn = (struct snib__conn){.pubsub = pubsub};
    conn->resp = snib__resp_new();
    return conn->resp ? 0 : -1;
}

/* No byte of a former connection may be taken for one of the next.  0, or -1 when out of memory. */
static int conn_renew_reader(struct snib__conn *conn)
{
    struct snib__resp *fresh = snib__resp_new();
    if (!fresh)
        return -1;
    snib__resp_free(conn->resp);
    conn->resp = fresh;
    return 0;
}

/* The password is no longer needed. */
static void conn_forget(struct snib__conn *conn)
{
    if (conn->secret) {
        explicit_bzero(conn->secret, strlen(conn->secret));
        free(conn->secret);
        conn->password = conn->secret = NULL;
    }
    conn->masked = 0;
    conn->in_line = conn->in_error = false;
}

/* 0, or -1 when out of memory. */
static int conn_remember(struct snib__conn *conn, const struct snib__login *login)
{
    char *copy = NULL;
    if (login->passing && login->password && !(copy = strdup(login->password)))
        return -1;
    conn_forget(conn);
    conn->secret = copy;
    conn->password = copy ? copy : login->password;
    return 0;
}

void snib__conn_free(struct snib__conn *conn)
{
    conn_forget(conn);
    snib__resp_free(conn->resp);
    snib__buf_free(&conn->out);
    free(conn->ring);
    *conn = (struct snib__conn){0};
}

int snib__conn_expect(struct snib__conn *conn, const struct snib__request *request)
{
    if (conn->ring_count == conn->ring_cap) {
        uint32_t cap = conn->ring_cap ? conn->ring_cap * 2 : SNIB__ROOM(64);
        struct snib__request *ring = malloc(cap * sizeof *ring);
        if (!ring)
            return -1;
        for (uint32_t i = 0; i < conn->ring_count; i++)
            ring[i] = conn->ring[(conn->ring_head + i) & (conn->ring_cap - 1)];
        free(conn->ring);
        conn->ring = ring;
        conn->ring_cap = cap;
        conn->ring_head = 0;
    }
    conn->ring[(conn->ring_head + conn->ring_count++) & (conn->ring_cap - 1)] = *request;
    conn->appended++;
    return 0;
}

bool snib__conn_orphan(struct snib__conn *conn, struct snib__request *out)
{
    while (conn->ring_count > 0) {
        *out = conn->ring[conn->ring_head];
        conn->ring_head = (conn->ring_head + 1) & (conn->ring_cap - 1);
        conn->ring_count--;
        if (out->kind > 0)
            return true;
    }
    return false;
}

snib__time snib__conn_oldest(const struct snib__conn *conn)
{
    return conn->ring_count ? conn->ring[conn->ring_head].sent_at : SNIB__NEVER;
}

void snib__conn_reset(struct snib__conn *conn)
{
    bool left = conn->state == SNIB__CONN_READY && !conn->pubsub && conn->ring_count > 0;
    if (left && conn->server_id != 0 && conn->run_id[0] != 0) {
        conn->kill_id = conn->server_id;
        memcpy(conn->kill_run, conn->run_id, sizeof conn->kill_run);
    } else if (left) {
        conn->left = true;
    }
    conn->server_id = 0;
    conn->state = SNIB__CONN_DOWN;
    conn->handshake_left = 0;
    conn->relogin = SNIB__RELOGIN_NONE;
    conn_forget(conn);
    snib__buf_drop(&conn->out);
    if (conn_renew_reader(conn) < 0)
        snib__resp_spoil(conn->resp); /* begin() tries again */
}

/* One handshake command: its words, then an entry in the ring. */
static int conn_say(struct snib__conn *conn, int kind, snib__time now, uint32_t argc,
                    const char *const *argv)
{
    if (snib__resp_begin(&conn->out, argc) < 0)
        return -1;
    for (uint32_t i = 0; i < argc; i++)
        if (snib__resp_arg(&conn->out, argv[i], strlen(argv[i])) < 0)
            return -1;
    return snib__conn_expect(
        conn, &(struct snib__request){.kind = (int16_t)kind, .script = -1, .sent_at = now});
}

#define CONN_SAY(conn, kind, now, ...)                                                             \
    conn_say(conn, kind, now, sizeof((const char *[]){__VA_ARGS__}) / sizeof(const char *),        \
             (const char *[]){__VA_ARGS__})

bool snib__conn_loaded(const struct snib__conn *conn, int script)
{
    return conn->loaded[script / 8] & 1u << script % 8;
}

int snib__conn_load(struct snib__conn *conn, int script, snib__time now)
{
    const struct snib__script_text *text = snib__script_of(script, conn->publish);
    struct snib__request load = {.kind = CONN_LOAD, .script = (int16_t)script, .sent_at = now};
    size_t size = snib__buf_size(&conn->out);
    if (snib__resp_begin(&conn->out, 3) < 0 || snib__resp_arg(&conn->out, "SCRIPT", 6) < 0 ||
        snib__resp_arg(&conn->out, "LOAD", 4) < 0 ||
        snib__resp_arg(&conn->out, text->text, text->length) < 0 ||
        snib__conn_expect(conn, &load) < 0) {
        conn->out.len = conn->out.head + size; /* do not send a partial command */
        return -1;
    }
    conn->loaded[script / 8] |= (uint8_t)(1u << script % 8);
    return 0;
}

int snib__conn_asking(struct snib__conn *conn, snib__time now)
{
    size_t size = snib__buf_size(&conn->out);
    if (CONN_SAY(conn, CONN_OPTIONAL, now, "ASKING") == 0)
        return 0;
    conn->out.len = conn->out.head + size; /* do not send it without an entry for its reply */
    return -1;
}

int snib__conn_unknown(struct snib__conn *conn, int script, snib__time now)
{
    if (!conn->no_load)
        return snib__conn_load(conn, script, now);
    conn->spelled[script / 8] |= (uint8_t)(1u << script % 8);
    return 0;
}

bool snib__conn_spells(struct snib__conn *conn, int script)
{
    bool spells = conn->spelled[script / 8] & 1u << script % 8;
    conn->spelled[script / 8] &= (uint8_t) ~(1u << script % 8);
    return spells;
}

/* A user may have no password: without AUTH, the connection would silently be another user's, the default one's. */
static int conn_login(struct snib__conn *conn, int kind, const struct snib__login *login,
                      snib__time now)
{
    const char *password = login->password ? login->password : "";
    if (!login->username && !login->password)
        return 0;
    conn->out.secret = true;
    return login->username ? CONN_SAY(conn, kind, now, "AUTH", login->username, password)
                           : CONN_SAY(conn, kind, now, "AUTH", password);
}

int snib__conn_relogin(struct snib__conn *conn, const struct snib__login *login, snib__time now)
{
    size_t size = snib__buf_size(&conn->out);
    if (!login->password || conn_remember(conn, login) < 0)
        return -1;
    if (conn_login(conn, CONN_RELOGIN, login, now) < 0) {
        size_t end = conn->out.head + size;
        if (conn->out.len > end) /* of the password, maybe */
            explicit_bzero(conn->out.data + end, conn->out.len - end);
        conn->out.len = end;
        conn_forget(conn);
        return -1;
    }
    conn->relogin = SNIB__RELOGIN_ASKED;
    return 0;
}

int snib__conn_begin(struct snib__conn *conn, const struct snib__login *login, snib__time now)
{
    int bad = conn_remember(conn, login);
    if (snib__resp_spoilt(conn->resp))
        bad |= conn_renew_reader(conn);
    conn->state = SNIB__CONN_HANDSHAKE;
    conn->failure = 0;
    conn->words[0] = 0;
    snib__buf_drop(&conn->out);
    conn->ring_count = 0;
    memset(conn->loaded, 0, sizeof conn->loaded);
    memset(conn->spelled, 0, sizeof conn->spelled);
    conn->no_load = false;
    conn->cluster = conn->delifeq = conn->delex = conn->evicts = conn->replica = false;
    conn->mode = SNIB__MODE_UNKNOWN;
    conn->killing = false;
    conn->any_role = login->any_role;
    conn->shards = false;
    conn->replicas = -1;
    conn->run_id[0] = 0;
    conn->history = 0;
    bad |= conn_login(conn, CONN_AUTH, login, now);
    bad |= CONN_SAY(conn, CONN_OPTIONAL, now, "CLIENT", "SETINFO", "LIB-NAME", "snib");
    if (conn->pubsub) {
        bad |= CONN_SAY(conn, CONN_INFO, now, "PING");
    } else {
        char number[24];
        snprintf(number, sizeof number, "%d", login->database);
        bad |= CONN_SAY(conn, CONN_OPTIONAL, now, "PING"); /* refused while the server loads */
        bad |= CONN_SAY(conn, CONN_ID, now, "CLIENT", "ID");
        bad |= CONN_SAY(conn, CONN_INFO, now, "INFO", "server");
        if (login->database != 0) /* last, because INFO may explain a refusal */
            bad |= CONN_SAY(conn, CONN_SELECT, now, "SELECT", number);
        bad |= CONN_SAY(conn, CONN_INFO, now, "INFO", "memory");
        bad |= CONN_SAY(conn, CONN_INFO, now, "INFO", "replication");
    }
    conn->handshake_left = conn->ring_count;
    return bad ? -1 : 0;
}

/* Requests that the old connection has sent and the server has not yet read must not run
 * after new ones: an acquire that runs after its own release would hold the lock for a
 * lease.  The id is valid at the same process only; at another it may be a stranger's.
 * 0, or -1 when out of memory. */
static int conn_kill_former(struct snib__conn *conn, snib__time now)
{
    char number[24];
    if (conn->kill_id == 0 || conn->killing || conn->run_id[0] == 0 ||
        strcmp(conn->run_id, conn->kill_run) != 0)
        return 0;
    snprintf(number, sizeof number, "%lld", (long long)conn->kill_id);
    conn->killing = true;
    conn->handshake_left++;
    return CONN_SAY(conn, CONN_KILL, now, "CLIENT", "KILL", "ID", number);
}

static int conn_fail(struct snib__conn *conn, int32_t code)
{
    conn->failure = code;
    return -1;
}

static int conn_refused(struct snib__conn *conn, int32_t code, const struct snib__value *reply)
{
    snib__words(conn->words, sizeof conn->words, snib__resp_text(conn->resp, reply), reply->count,
                conn->password);
    return conn_fail(conn, code);
}

/* A refused renewed login changes nothing: the connection continues as
 * before until the server ends it. */
static void conn_relogged(struct snib__conn *conn, const struct snib__value *reply)
{
    bool refused = reply->type == SNIB__RESP_ERROR;
    conn->relogin = refused ? SNIB__RELOGIN_REFUSED : SNIB__RELOGIN_TAKEN;
    if (refused)
        snib__words(conn->words, sizeof conn->words, snib__resp_text(conn->resp, reply),
                    reply->count, conn->password);
    conn_forget(conn);
}

/* How many bytes at the beginning of the password are also the end of its first n bytes, and not all of these. */
static size_t conn_border(const char *password, size_t n)
{
    size_t border = n - 1;
    while (border > 0 && memcmp(password, password + n - border, border) != 0)
        border--;
    return border;
}

/* Mask the password in error lines, but nothing of what frames them: a password may begin with a line break.  If two reads
 * split it, the first part is masked at once, the rest with the second: like Knuth, Morris and Pratt's search, which keeps
 * only how much of the word the input ends with. */
static __attribute__((cold)) void conn_mask(struct snib__conn *conn, const char *password,
                                            size_t len, char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char byte = bytes[i];
        const bool first = !conn->in_line;
        if (first)
            conn->in_error = byte == '-';
        conn->in_line = byte != '\n';
        const bool text = conn->in_error && !first && byte != '\r' && byte != '\n';
        size_t same = text ? conn->masked : 0;
        while (same == len || (same > 0 && byte != password[same]))
            same = conn_border(password, same);
        same += text && byte == password[same];
        conn->masked = same;
        if (same >= CONN_MASKED || i + 1 == n) { /* the rest may follow */
            const size_t here = same < i + 1 ? same : i + 1;
            memset(bytes + i + 1 - here, '*', here);
        }
    }
}

void snib__conn_mask(struct snib__conn *conn, char *bytes, size_t n)
{
    const char *password = conn->password ? conn->password : "";
    const size_t len = strlen(password);
    bool wanted = conn->state == SNIB__CONN_HANDSHAKE || conn->relogin == SNIB__RELOGIN_ASKED;
    if (wanted && len >= CONN_MASKED)
        conn_mask(conn, password, len, bytes, n);
}

/* The value of "name:value\r\n" in an INFO text. */
static bool conn_info_value(const char *text, const char *name, char *out, size_t cap)
{
    const char *at = strstr(text, name);
    if (!at || (at != text && at[-1] != '\n'))
        return false;
    at += strlen(name);
    size_t n = strcspn(at, "\r\n");
    if (n >= cap)
        return false;
    memcpy(out, at, n);
    out[n] = 0;
    return true;
}

static int conn_clamp(long n, int most)
{
    return n < 0 ? 0 : n > most ? most : (int)n;
}

/* "8.4.1" as 804. */
static int conn_version(const char *text)
{
    char *end;
    long major = strtol(text, &end, 10);
    long minor = *end == '.' ? strtol(end + 1, NULL, 10) : 0;
    return conn_clamp(major, 9999) * 100 + conn_clamp(minor, 99);
}

static void conn_learn_mode(struct snib__conn *conn, const char *mode)
{
    conn->cluster = strcmp(mode, "cluster") == 0;
    conn->mode = conn->cluster                     ? SNIB__MODE_CLUSTER
                 : strcmp(mode, "sentinel") == 0   ? SNIB__MODE_SENTINEL
                 : strcmp(mode, "standalone") == 0 ? SNIB__MODE_SINGLE
                                                   : SNIB__MODE_UNKNOWN;
}

int32_t snib__conn_replicas(const char *info)
{
    char value[48];
    int32_t in_step = 0;
    if (!conn_info_value(info, "connected_slaves:", value, sizeof value))
        return -1;
    if (!strstr(info, "slave0:")) /* none, or only their number is reported */
        return (int32_t)strtol(value, NULL, 10);
    for (const char *at = info; (at = strstr(at, "state=online")); at++)
        in_step++;
    return in_step;
}

static void conn_learn(struct snib__conn *conn, const char *info)
{
    char value[48];
    if (conn_info_value(info, "redis_version:", value, sizeof value))
        conn->shards = conn_version(value) >= 700;
    bool valkey = conn_info_value(info, "valkey_version:", value, sizeof value);
    if (valkey)
        conn->delifeq = conn_version(value) >= 900;
    else if (conn_info_value(info, "redis_version:", value, sizeof value))
        conn->delex = conn_version(value) >= 804;
    if (conn_info_value(info, "redis_mode:", value, sizeof value) ||
        conn_info_value(info, "server_mode:", value, sizeof value))
        conn_learn_mode(conn, value);
    if (conn_info_value(info, "run_id:", value, sizeof value))
        memcpy(conn->run_id, value, sizeof value);
    if (conn_info_value(info, "master_replid:", value, sizeof value))
        conn->history = strtoull(value + (strlen(value) > 16 ? strlen(value) - 16 : 0), NULL, 16);
    if (conn_info_value(info, "role:", value, sizeof value))
        conn->replica = strcmp(value, "slave") == 0;
    if (snib__conn_replicas(info) >= 0)
        conn->replicas = snib__conn_replicas(info);
    if (conn_info_value(info, "maxmemory_policy:", value, sizeof value))
        conn->evicts = strcmp(value, "noeviction") != 0;
}

/* A reply to the handshake or to a script load.  0, or -1 when the connection is useless. */
static int conn_greet(struct snib__conn *conn, const struct snib__request *request,
                      const struct snib__value *reply)
{
    if (request->kind == CONN_RELOGIN) {
        conn_relogged(conn, reply);
        return 0;
    }
    if (reply->type == SNIB__RESP_ERROR) {
        const char *text = snib__resp_text(conn->resp, reply);
        int32_t code = snib__conn_classify(text, reply->count);
        if (request->kind == CONN_LOAD) { /* the command behind it gets the same error */
            conn->no_load = conn->no_load || code == SNIB_EPERM || code == SNIB_ENOTSUP;
            return 0;
        }
        if (code == SNIB_ELOADING || code == SNIB_EUNREACHABLE)
            return conn_refused(conn, code, reply);
        if (request->kind == CONN_KILL)
            conn->left = true;
        if (request->kind == CONN_AUTH)
            return conn_refused(conn, SNIB_EAUTH, reply);
        /* A connection that has not logged in gets NOAUTH for every command. */
        if (snib__conn_is_stranger(text))
            return conn_refused(conn, SNIB_EAUTH, reply);
        if (request->kind == CONN_SELECT)
            return conn_refused(conn, code == SNIB_EPERM ? SNIB_EPERM : SNIB_EDATABASE, reply);
        /* A user without SCRIPT LOAD, CLIENT or INFO may still use scripts
         * that another user has loaded. */
        return 0;
    }
    const char *text = reply->type == SNIB__RESP_STRING || reply->type == SNIB__RESP_STATUS
                           ? snib__resp_text(conn->resp, reply)
                           : "";
    if (request->kind == CONN_ID && reply->type == SNIB__RESP_INTEGER)
        conn->server_id = reply->integer;
    else if (request->kind == CONN_INFO)
        conn_learn(conn, text);
    if (conn->replica && !conn->any_role)
        return conn_fail(conn, SNIB_EREADONLY);
    if (request->kind == CONN_INFO && conn_kill_former(conn, request->sent_at) < 0)
        return conn_fail(conn, SNIB_ENOMEM);
    if (request->kind == CONN_LOAD &&
        strcmp(text, snib__script_of(request->script, conn->publish)->sha1) != 0)
        return conn_fail(conn, SNIB_EPROTOCOL);
    return 0;
}

/* A reply to no request: an error is about the connection, such as "max number of clients reached",
 * unless it is one about a script, which nobody has sent. */
static int conn_unasked(struct snib__conn *conn, const struct snib__value *reply)
{
    int32_t code = SNIB_EPROTOCOL;
    if (reply->type != SNIB__RESP_ERROR)
        return conn_fail(conn, code);
    int32_t said = snib__conn_classify(snib__resp_text(conn->resp, reply), reply->count);
    return conn_refused(conn, said < 0 ? said : code, reply);
}

int snib__conn_next(struct snib__conn *conn, struct snib__request *request,
                    const struct snib__value **reply, uint32_t *reply_n)
{
    for (;;) {
        int broken;
        *reply = snib__resp_next(conn->resp, reply_n, &broken);
        if (broken)
            return conn_fail(conn, snib__resp_failure(conn->resp));
        if (!*reply)
            return 0;
        if (conn->pubsub && conn->state == SNIB__CONN_READY) {
            *request = (struct snib__request){.script = -1};
            return 1;
        }
        if (conn->ring_count == 0)
            return conn_unasked(conn, *reply);
        *request = conn->ring[conn->ring_head];
        conn->ring_head = (conn->ring_head + 1) & (conn->ring_cap - 1);
        conn->ring_count--;
        if (request->kind > 0)
            return 1;
        if (conn_greet(conn, request, *reply) < 0)
            return -1;
        if (conn->handshake_left > 0 && --conn->handshake_left == 0) {
            conn->state = SNIB__CONN_READY;
            conn->left = conn->left || (conn->kill_id != 0 && conn->run_id[0] == 0);
            conn->kill_id = 0;
            conn_forget(conn);
        }
    }
}
