/* server.c - a private Redis or Valkey for one test, on a unix socket in a folder of its own.
 *
 * The binary is $SNIB_TEST_SERVER, else redis-server or valkey-server on PATH.  The server dies
 * with the test program, however that ends.
 *
 * With $SNIB_TEST_TLS clients reach it by TLS on a TCP port; the binary is then Debian's, if
 * installed, because not every package has TLS.  The test's own commands still use the unix socket.
 */
#define _GNU_SOURCE
#include "support.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

void server_binary(char out[256])
{
    const char *given = getenv("SNIB_TEST_SERVER");
    if (given && *given) {
        snprintf(out, 256, "%s", given);
        return;
    }
    static const char *const names[] = {"redis-server", "valkey-server"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s", getenv("PATH") ? getenv("PATH") : "/usr/bin");
        char *rest = path;
        for (char *dir; (dir = strsep(&rest, ":"));) {
            snprintf(out, 256, "%s/%s", dir, names[i]);
            if (access(out, X_OK) == 0)
                return;
        }
    }
    fail_msg("no server: set SNIB_TEST_SERVER or install redis-server or valkey-server");
}

/* ---- TLS ---- */

static char certs[64];
static pid_t certs_owner;

static void certs_remove(void)
{
    char command[96];
    snprintf(command, sizeof command, "rm -rf '%s'", certs);
    if (getpid() == certs_owner && system(command) != 0)
        perror(certs);
}

const char *server_certs(void)
{
    char command[512];
    if (certs[0])
        return certs;
    snprintf(certs, sizeof certs, "/tmp/snib-certs-XXXXXX");
    if (!mkdtemp(certs))
        fail_msg("mkdtemp: %s", strerror(errno));
    certs_owner = getpid();
    atexit(certs_remove);
    snprintf(command, sizeof command, "'%s/tests/support/certs.sh' '%s'", SNIB_SOURCE_DIR, certs);
    if (system(command) != 0)
        fail_msg("no certificates: is the openssl command there?");
    return certs;
}

static void server_prepare_tls(struct server *server)
{
    const char *debian = "/usr/bin/redis-check-rdb"; /* the same binary under another name */
    server->tls_port = free_port();
    snprintf(server->url, sizeof server->url, "rediss://localhost:%d?tls_ca=%s/ca.crt",
             server->tls_port, server_certs());
    if (access(debian, X_OK) != 0)
        return;
    snprintf(server->binary, sizeof server->binary, "%s/redis-server", certs);
    if (symlink(debian, server->binary) != 0 && errno != EEXIST)
        fail_msg("symlink: %s", strerror(errno));
}

static size_t server_tls_arguments(const struct server *server, char *arguments[])
{
    static const char *const options[] = {"--tls-cert-file", "server.crt",         "--tls-key-file",
                                          "server.key",      "--tls-ca-cert-file", "ca.crt"};
    static char values[6][96], port[8];
    size_t n = 0;
    snprintf(port, sizeof port, "%d", server->tls_port);
    arguments[n++] = "--tls-port";
    arguments[n++] = port;
    arguments[n++] = "--tls-auth-clients";
    arguments[n++] = "no";
    for (size_t i = 0; i < 6; i++) {
        snprintf(values[i], sizeof values[i], i % 2 ? "%s/%s" : "%.0s%s", certs, options[i]);
        arguments[n++] = values[i];
    }
    return n;
}

static void server_exec(struct server *server, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    char *arguments[48] = {server->binary, "--port", "0",        "--unixsocket",
                           server->socket, "--save", "",         "--appendonly",
                           "no",           "--dir",  server->dir};
    size_t n = 11;
    if (server->tls_port)
        n += server_tls_arguments(server, arguments + n);
    for (char **more = server->arguments; *more; more++)
        arguments[n++] = *more;
    char log[96];
    snprintf(log, sizeof log, "%s/log", server->dir);
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(fd, 1);
    dup2(fd, 2);
    execv(server->binary, arguments);
    _exit(127);
}

/* False: it has ended, as one does whose port is taken. */
static bool server_launched(struct server *server)
{
    pid_t parent = getpid();
    server->pid = fork();
    assert_true(server->pid >= 0);
    if (server->pid == 0)
        server_exec(server, parent);
    int64_t end = now_ms() + patient_ms(10000);
    for (;;) {
        server->admin = redisConnectUnix(server->socket);
        if (server->admin && !server->admin->err)
            return true;
        redisFree(server->admin);
        if (waitpid(server->pid, NULL, WNOHANG) != 0)
            return false;
        if (now_ms() > end)
            fail_msg("%s does not start; see %s/log", server->binary, server->dir);
        nap_us(2000);
    }
}

static void server_launch(struct server *server)
{
    if (!server_launched(server))
        fail_msg("%s does not start; see %s/log", server->binary, server->dir);
}

void server_start(struct server *server, ...)
{
    memset(server, 0, sizeof *server);
    server_binary(server->binary);
    snprintf(server->dir, sizeof server->dir, "/tmp/snib-test-XXXXXX");
    if (!mkdtemp(server->dir))
        fail_msg("mkdtemp: %s", strerror(errno));
    snprintf(server->socket, sizeof server->socket, "%s/s", server->dir);
    snprintf(server->url, sizeof server->url, "unix://%s", server->socket);
    if (getenv("SNIB_TEST_TLS"))
        server_prepare_tls(server);
    va_list list;
    va_start(list, server);
    for (size_t n = 0; (server->arguments[n] = va_arg(list, char *)); n++)
        assert_true(n + 2 < sizeof server->arguments / sizeof *server->arguments);
    va_end(list);
    for (int tries = 20; server->tls_port && tries > 0; tries--) {
        if (server_launched(server))
            return;
        server_prepare_tls(server); /* another port */
    }
    server_launch(server);
}

static void server_kill(struct server *server)
{
    if (server->pid <= 0) /* down, or never started */
        return;
    redisFree(server->admin);
    kill(server->pid, SIGKILL);
    waitpid(server->pid, NULL, 0);
    unlink(server->socket);
    server->admin = NULL;
    server->pid = 0;
}

void server_down(struct server *server)
{
    server_kill(server);
}

void server_stop(struct server *server)
{
    server_kill(server);
    DIR *dir = opendir(server->dir);
    if (!dir)
        return;
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        unlinkat(dirfd(dir), entry->d_name, 0);
    closedir(dir);
    rmdir(server->dir);
}

void server_restart(struct server *server)
{
    server_kill(server);
    server_launch(server);
}

void server_pause(struct server *server)
{
    int status;
    kill(server->pid, SIGSTOP);
    assert_int_equal(waitpid(server->pid, &status, WUNTRACED), server->pid);
    assert_true(WIFSTOPPED(status));
}

void server_continue(struct server *server)
{
    kill(server->pid, SIGCONT);
}

static redisReply *server_vcommand(struct server *server, const char *format, va_list list)
{
    redisReply *reply = redisvCommand(server->admin, format, list);
    if (!reply)
        fail_msg("%s: %s", format, server->admin->errstr);
    if (reply->type == REDIS_REPLY_ERROR)
        fail_msg("%s: %s", format, reply->str);
    return reply;
}

redisReply *server_command(struct server *server, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    redisReply *reply = server_vcommand(server, format, list);
    va_end(list);
    return reply;
}

long long server_integer(struct server *server, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    redisReply *reply = server_vcommand(server, format, list);
    va_end(list);
    assert_int_equal(reply->type, REDIS_REPLY_INTEGER);
    long long value = reply->integer;
    freeReplyObject(reply);
    return value;
}

void server_do(struct server *server, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    freeReplyObject(server_vcommand(server, format, list));
    va_end(list);
}

/* What clients say about themselves, which ends with their lease. */
#define IDENTITIES "snib_client:{"

bool server_is_empty(struct server *server)
{
    static const char others[] = "for db = 0, 15 do redis.call('select', db) "
                                 "if #redis.call('keys', '*') > #redis.call('keys', '" IDENTITIES
                                 "*') then return 1 end end";
    redisReply *reply = server_command(server, "INFO keyspace");
    bool empty = !strstr(reply->str, "db");
    freeReplyObject(reply);
    if (empty)
        return true;
    reply = server_command(server, "EVAL %s 0", others);
    empty = reply->type == REDIS_REPLY_NIL;
    freeReplyObject(reply);
    return empty;
}

long long server_expired(struct server *server)
{
    redisReply *reply = server_command(server, "INFO stats");
    const char *found = strstr(reply->str, "expired_keys:");
    assert_non_null(found);
    long long count = atoll(found + strlen("expired_keys:"));
    freeReplyObject(reply);
    return count;
}

long long server_channels(struct server *server)
{
    redisReply *reply = server_command(server, "PUBSUB CHANNELS");
    long long count = (long long)reply->elements;
    freeReplyObject(reply);
    return count;
}

long long server_calls(struct server *server, const char *command)
{
    char field[64];
    snprintf(field, sizeof field, "cmdstat_%s:calls=", command);
    redisReply *reply = server_command(server, "INFO commandstats");
    const char *at = strstr(reply->str, field);
    long long calls = at ? strtoll(at + strlen(field), NULL, 10) : 0;
    freeReplyObject(reply);
    return calls;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

char *server_keys(struct server *server)
{
    redisReply *reply = server_command(server, "KEYS *");
    char *names[256];
    size_t size = 1, n = 0;
    assert_true(reply->elements < sizeof names / sizeof *names);
    for (size_t i = 0; i < reply->elements; i++) {
        if (strncmp(reply->element[i]->str, IDENTITIES, strlen(IDENTITIES)) == 0)
            continue;
        names[n++] = reply->element[i]->str;
        size += reply->element[i]->len + 1;
    }
    qsort(names, n, sizeof *names, by_text);
    char *text = malloc(size), *at = text;
    *at = '\0';
    for (size_t i = 0; i < n; i++)
        at += sprintf(at, "%s\n", names[i]);
    freeReplyObject(reply);
    return text;
}

/* Comment lines and blank lines never reach the server.  A first line "-- with" another file puts
 * that file's text in front. */
static size_t server_read_script(const char *name, char *text, size_t cap)
{
    char path[512], line[1024], other[64];
    snprintf(path, sizeof path, "%s/core/lua/%s.lua", SNIB_SOURCE_DIR, name);
    FILE *file = fopen(path, "r");
    if (!file)
        fail_msg("%s: %s", path, strerror(errno));
    size_t used = 0;
    for (bool first = true; fgets(line, sizeof line, file); first = false) {
        const char *start = line + strspn(line, " \t");
        if (first && sscanf(line, "-- with %60[_a-z].lua", other) == 1)
            used = server_read_script(other, text, cap);
        if (*start == '\n' || strncmp(start, "--", 2) == 0)
            continue;
        size_t n = strlen(line);
        assert_true(used + n < cap);
        memcpy(text + used, line, n + 1);
        used += n;
    }
    fclose(file);
    return used;
}

void server_script(struct server *server, const char *name, char out_sha1[41])
{
    char text[16384];
    size_t n = server_read_script(name, text, sizeof text);
    redisReply *reply = server_command(server, "SCRIPT LOAD %b", text, n);
    snprintf(out_sha1, 41, "%s", reply->str);
    freeReplyObject(reply);
}
