/* deployment.c - the nodes of a deployment: ports, folders, processes. */
#define _GNU_SOURCE
#include "deployment.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Folder and configuration -------------------------------------------------------------------- */

void deployment_init(struct deployment *deployment, const struct deployment_options *options)
{
    memset(deployment, 0, sizeof *deployment);
    if (options)
        deployment->options = *options;
    server_binary(deployment->binary);
    snprintf(deployment->dir, sizeof deployment->dir, "/tmp/snib-test-XXXXXX");
    if (!mkdtemp(deployment->dir))
        fail_msg("mkdtemp: %s", strerror(errno));
    ports_begin(&deployment->ports);
    if (deployment->options.tls)
        deployment->certificate = authority_certificate(deployment->options.tls, "server",
                                                        "IP:127.0.0.1,IP:::1,DNS:localhost", 0);
}

void node_config(const struct node *node, const char *format, ...)
{
    char path[128];
    snprintf(path, sizeof path, "%s/conf", node->dir);
    FILE *file = fopen(path, "a");
    if (!file)
        fail_msg("%s: %s", path, strerror(errno));
    va_list list;
    va_start(list, format);
    vfprintf(file, format, list);
    va_end(list);
    fputc('\n', file);
    fclose(file);
}

static void config_tls(const struct deployment *deployment, const struct node *node)
{
    node_config(node, "port 0\ntls-port %d\ntls-replication yes\ntls-auth-clients optional",
                node->port);
    node_config(node, "tls-cert-file %s\ntls-key-file %s\ntls-ca-cert-file %s",
                deployment->certificate.file, deployment->certificate.key,
                deployment->options.tls->ca);
}

static void config_server(const struct deployment *deployment, const struct node *node)
{
    const struct deployment_options *options = &deployment->options;
    node_config(node, "save ''\nappendonly no\nenable-debug-command local");
    node_config(node, "repl-diskless-sync yes\nrepl-diskless-sync-delay 0");
    if (options->password)
        node_config(node, "requirepass %s\nmasterauth %s", options->password, options->password);
    if (options->min_replicas)
        node_config(node,
                    "min-replicas-to-write %d\nmin-replicas-max-lag 1\nrepl-ping-replica-period 1",
                    options->min_replicas);
    for (const char *const *line = options->lines; line && *line; line++)
        node_config(node, "%s", *line);
}

struct node *deployment_node(struct deployment *deployment, const char *kind, bool sentinel)
{
    assert_true(deployment->count < NODES_MAX);
    struct node *node = &deployment->nodes[deployment->count];
    memset(node, 0, sizeof *node);
    char dir[sizeof node->dir], name[sizeof node->name];
    snprintf(name, sizeof name, "%.8s%d", kind, deployment->count++);
    snprintf(dir, sizeof dir, "%.60s/%s", deployment->dir, name);
    memcpy(node->name, name, sizeof name);
    memcpy(node->dir, dir, sizeof dir);
    snprintf(node->socket, sizeof node->socket, "%s/s", dir);
    node->sentinel = sentinel;
    node->port = ports_take(&deployment->ports);
    const char *password =
        sentinel ? deployment->options.sentinel_password : deployment->options.password;
    snprintf(node->password, sizeof node->password, "%s", password ? password : "");
    if (mkdir(node->dir, 0700) != 0)
        fail_msg("%s: %s", node->dir, strerror(errno));
    node_config(node, "bind 127.0.0.1\nprotected-mode no\nunixsocket %s\ndir %s", node->socket,
                node->dir);
    if (deployment->options.tls)
        config_tls(deployment, node);
    else
        node_config(node, "port %d", node->port);
    if (!sentinel)
        config_server(deployment, node);
    return node;
}

void deployment_url(struct deployment *deployment, const char *scheme, int first, int end,
                    const char *rest)
{
    const struct deployment_options *options = &deployment->options;
    char *at = deployment->url, *limit = at + sizeof deployment->url;
    at += snprintf(at, (size_t)(limit - at), "%s%s://%s%s%s", options->tls ? "rediss" : "redis",
                   scheme, options->password ? ":" : "", options->password ? options->password : "",
                   options->password ? "@" : "");
    for (int i = first; i < end; i++)
        at += snprintf(at, (size_t)(limit - at), "%s127.0.0.1:%d", i > first ? "," : "",
                       deployment->nodes[i].port);
    at += snprintf(at, (size_t)(limit - at), "%s", rest);
    assert_true(at < limit);
}

/* ---- Processes ----------------------------------------------------------------------------------- */

static void node_exec(const struct deployment *deployment, const struct node *node, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    char path[128];
    snprintf(path, sizeof path, "%s/log", node->dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(fd, 1);
    dup2(fd, 2);
    snprintf(path, sizeof path, "%s/conf", node->dir);
    execl(deployment->binary, deployment->binary, path, node->sentinel ? "--sentinel" : NULL, NULL);
    _exit(127);
}

static void node_fork(const struct deployment *deployment, struct node *node)
{
    pid_t parent = getpid();
    assert_int_equal(node->pid, 0);
    node->stopped = false;
    node->pid = fork();
    assert_true(node->pid >= 0);
    if (node->pid == 0)
        node_exec(deployment, node, parent);
}

static bool node_answers(struct node *node)
{
    if (waitpid(node->pid, NULL, WNOHANG) != 0)
        fail_msg("%s does not start; see %s/log", node->name, node->dir);
    if (access(node->socket, F_OK) != 0)
        return false;
    redisReply *reply = node_try(node, "PING");
    bool answers = reply && reply->type == REDIS_REPLY_STATUS;
    if (reply)
        freeReplyObject(reply);
    return answers;
}

static void node_hurry(struct node *node)
{
    /* Sentinels send INFO to servers every 10 s and announce themselves every 2 s; versions that
     * allow it do both more often here. */
    if (node->sentinel)
        node_do(node, "SENTINEL DEBUG INFO-PERIOD 500 PUBLISH-PERIOD 500");
}

void deployment_launch(struct deployment *deployment, int first)
{
    for (int i = first; i < deployment->count; i++)
        node_fork(deployment, &deployment->nodes[i]);
    for (int i = first; i < deployment->count; i++) {
        AWAIT(node_answers(&deployment->nodes[i]), DEPLOYED_MS);
        node_hurry(&deployment->nodes[i]);
    }
}

void node_start(struct deployment *deployment, struct node *node)
{
    node_fork(deployment, node);
    AWAIT(node_answers(node), DEPLOYED_MS);
    node_hurry(node);
}

void node_restart(struct deployment *deployment, struct node *node)
{
    node_kill(node);
    node_start(deployment, node);
}

void node_kill(struct node *node)
{
    if (node->admin)
        redisFree(node->admin);
    node->admin = NULL;
    if (node->pid > 0) {
        kill(node->pid, SIGKILL);
        waitpid(node->pid, NULL, 0);
    }
    node->pid = 0;
    node->stopped = false;
    unlink(node->socket);
}

void node_stop(struct node *node)
{
    int status;
    kill(node->pid, SIGSTOP);
    assert_int_equal(waitpid(node->pid, &status, WUNTRACED), node->pid);
    assert_true(WIFSTOPPED(status));
    node->stopped = true;
}

void node_continue(struct node *node)
{
    kill(node->pid, SIGCONT);
    node->stopped = false;
}

bool node_runs(const struct node *node)
{
    return node->pid > 0 && !node->stopped;
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *at)
{
    (void)status, (void)type, (void)at;
    return remove(path);
}

void deployment_end(struct deployment *deployment)
{
    for (int i = 0; i < deployment->count; i++)
        node_kill(&deployment->nodes[i]);
    nftw(deployment->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    ports_end(&deployment->ports);
}

/* ---- Commands ------------------------------------------------------------------------------------ */

static bool node_connect(struct node *node)
{
    if (node->admin && !node->admin->err)
        return true;
    if (node->admin)
        redisFree(node->admin);
    node->admin = redisConnectUnix(node->socket);
    if (!node->admin || node->admin->err)
        return false;
    redisSetTimeout(node->admin, (struct timeval){DEPLOYED_MS / 1000, 0});
    if (*node->password)
        freeReplyObject(redisCommand(node->admin, "AUTH %s", node->password));
    return true;
}

static redisReply *node_vtry(struct node *node, const char *format, va_list list)
{
    redisReply *reply = NULL;
    void (*pipes)(int) = signal(SIGPIPE, SIG_IGN);
    /* Each sentinel closes the connections of a server that it demotes: the next attempt uses a new
     * connection. */
    for (int attempt = 0; attempt < 8 && !reply && node_connect(node); attempt++) {
        va_list again;
        va_copy(again, list);
        reply = redisvCommand(node->admin, format, again);
        va_end(again);
    }
    signal(SIGPIPE, pipes);
    return reply;
}

redisReply *node_try(struct node *node, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    redisReply *reply = node_vtry(node, format, list);
    va_end(list);
    return reply;
}

static redisReply *node_vcommand(struct node *node, const char *format, va_list list)
{
    redisReply *reply = node_vtry(node, format, list);
    if (!reply)
        fail_msg("%s: %s: no answer", node->name, format);
    if (reply->type == REDIS_REPLY_ERROR)
        fail_msg("%s: %s: %s", node->name, format, reply->str);
    return reply;
}

redisReply *node_command(struct node *node, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    redisReply *reply = node_vcommand(node, format, list);
    va_end(list);
    return reply;
}

void node_do(struct node *node, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    freeReplyObject(node_vcommand(node, format, list));
    va_end(list);
}

long long node_integer(struct node *node, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    redisReply *reply = node_vcommand(node, format, list);
    va_end(list);
    assert_int_equal(reply->type, REDIS_REPLY_INTEGER);
    long long value = reply->integer;
    freeReplyObject(reply);
    return value;
}

bool node_is_master(struct node *node)
{
    if (!node_runs(node))
        return false;
    redisReply *reply = node_command(node, "ROLE");
    bool master = strcmp(reply->element[0]->str, "master") == 0;
    freeReplyObject(reply);
    return master;
}

/* ---- One server ------------------------------------------------------------------------------------ */

bool server_has_tls(void)
{
    char binary[256], command[400];
    server_binary(binary);
    /* Without a certificate the server does not start; its error message shows whether it was built
     * with TLS. */
    snprintf(command, sizeof command,
             "%s --port 0 --save '' --tls-port 1 --tls-cert-file /none 2>&1 | grep -q 'No tls-'",
             binary);
    return system(command) == 0; /* NOLINT: the program under test */
}

void single_start(struct deployment *deployment, const struct deployment_options *options)
{
    deployment_init(deployment, options);
    deployment_node(deployment, "server", false);
    deployment_launch(deployment, 0);
    deployment_url(deployment, "", 0, 1, "");
}
