/* server_faults.c - the faults of a memory server by name, and what one can see of it. */
#include "server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FAULT_DATABASES 16
#define FAULT_TIMES_MAX 1000000

/* ---- those that happen ------------------------------------------------------------------------ */

/* A number of 1 to max; -1: it is none. */
static long long fault_number(const char *text, long long max)
{
    long long number;
    bool is = model__parse_integer((model_text){text, strlen(text)}, &number);
    return is && number >= 1 && number <= max ? number : -1;
}

static int fault_lose_reply(snib_memory *server, const char *argument, snib_error *err)
{
    long long times = argument ? fault_number(argument, FAULT_TIMES_MAX) : 1;
    if (times < 0)
        return snib__server_fail(err, SNIB_EINVAL,
                                 "lose_reply takes how many replies are lost: 1 "
                                 "to 1000000");
    server->lose = times;
    return SNIB_OK;
}

static int fault_stall(snib_memory *server, const char *argument, snib_error *err)
{
    (void)argument, (void)err;
    server->stalled = true;
    return SNIB_OK;
}

static int fault_resume(snib_memory *server, const char *argument, snib_error *err)
{
    (void)argument, (void)err;
    server->stalled = false;
    return SNIB_OK;
}

static int fault_refuse(snib_memory *server, const char *argument, snib_error *err)
{
    (void)argument, (void)err;
    snib__server_cut_all(server);
    if (server->listener >= 0)
        close(server->listener);
    server->listener = -1;
    return SNIB_OK;
}

static int fault_accept(snib_memory *server, const char *argument, snib_error *err)
{
    (void)argument;
    int error = server->listener < 0 ? snib__server_listen(server) : 0;
    errno = error;
    return error ? snib__server_fail(err, SNIB_ESYSTEM,
                                     "the memory server cannot listen again (%s)", strerror(error))
                 : SNIB_OK;
}

/* How many connections there are, without those that are cut, which the thread drops when it can.  *out_nth is the nth. */
static size_t fault_connections(snib_memory *server, long long nth,
                                struct server_connection **out_nth)
{
    long long n = 0;
    for (size_t i = 0; i < server->count; i++) {
        if (server->connections[i].cut)
            continue;
        if (++n == nth)
            *out_nth = &server->connections[i];
    }
    return (size_t)n;
}

static int fault_kill(snib_memory *server, const char *argument, snib_error *err)
{
    if (!argument) {
        snib__server_cut_all(server);
        return SNIB_OK;
    }
    struct server_connection *which = NULL;
    size_t n = fault_connections(server, fault_number(argument, SERVER_CONNECTIONS), &which);
    if (!which)
        return snib__server_fail(
            err, SNIB_EINVAL, "kill_connection takes which one, 1 is the oldest; there are %zu", n);
    snib__server_cut(which);
    return SNIB_OK;
}

static bool fault_delete(snib_memory *server, const char *name)
{
    bool deleted = false;
    for (int db = 0; db < FAULT_DATABASES; db++)
        deleted = model_delete(server->model, db, name, strlen(name)) || deleted;
    return deleted;
}

static int fault_expire(snib_memory *server, const char *argument, snib_error *err)
{
    if (!argument)
        return snib__server_fail(err, SNIB_EINVAL, "expire takes the name of a key");
    return fault_delete(server, argument)
               ? SNIB_OK
               : snib__server_fail(err, SNIB_EINVAL, "the memory server has no key \"%s\"",
                                   argument);
}

static int fault_snapshot(snib_memory *server, const char *argument, snib_error *err)
{
    (void)argument, (void)err;
    if (server->snapshot)
        model_data_free(server->snapshot);
    server->snapshot = model_save(server->model);
    return SNIB_OK;
}

static int fault_failover(snib_memory *server, const char *argument, snib_error *err)
{
    (void)argument, (void)err;
    snib__server_cut_all(server);
    model_restart(server->model);
    if (server->snapshot)
        model_load(server->model, server->snapshot);
    return SNIB_OK;
}

static int fault_heal(snib_memory *server, const char *argument, snib_error *err)
{
    server->faults = 0;
    server->lose = 0;
    server->stalled = false;
    return fault_accept(server, argument, err);
}

/* ---- by name ---------------------------------------------------------------------------------- */

static const struct fault {
    const char *name;
    int (*cause)(snib_memory *server, const char *argument, snib_error *err);
    bool takes;     /* an argument */
    unsigned state; /* or a state that is on or off */
} faults[] = {
    {"lose_reply", fault_lose_reply, true, 0},
    {"stall", fault_stall, false, 0},
    {"resume", fault_resume, false, 0},
    {"refuse", fault_refuse, false, 0},
    {"accept", fault_accept, false, 0},
    {"kill_connection", fault_kill, true, 0},
    {"expire", fault_expire, true, 0},
    {"snapshot", fault_snapshot, false, 0},
    {"failover", fault_failover, false, 0},
    {"heal", fault_heal, false, 0},
    {"oom", NULL, true, MODEL_OOM},
    {"readonly", NULL, true, MODEL_READONLY},
    {"loading", NULL, true, MODEL_LOADING},
    {"misconf", NULL, true, MODEL_MISCONF},
    {"busy", NULL, true, MODEL_BUSY},
    {"noreplicas", NULL, true, MODEL_NOREPLICAS},
    {"masterdown", NULL, true, MODEL_MASTERDOWN},
    {"mute", NULL, true, MODEL_MUTE},
};

#define FAULTS (sizeof faults / sizeof *faults)

static int fault_unknown(const char *name, snib_error *err)
{
    char known[200] = "";
    for (size_t i = 0; i < FAULTS; i++) {
        strcat(known, i ? ", " : ""); /* all of them have room */
        strcat(known, faults[i].name);
    }
    return snib__server_fail(err, SNIB_EINVAL, "no fault \"%.20s\"; there are %s", name, known);
}

static int fault_state(snib_memory *server, const struct fault *fault, const char *argument,
                       snib_error *err)
{
    bool off = argument && strcmp(argument, "off") == 0;
    if (argument && !off && strcmp(argument, "on") != 0)
        return snib__server_fail(err, SNIB_EINVAL, "%s is \"on\" or \"off\"", fault->name);
    server->faults = off ? server->faults & ~fault->state : server->faults | fault->state;
    return SNIB_OK;
}

static int fault_run(snib_memory *server, const struct fault *fault, const char *argument,
                     snib_error *err)
{
    int old;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    snib__server_enter(server);
    int code = fault->cause ? fault->cause(server, argument, err)
                            : fault_state(server, fault, argument, err);
    model_set_faults(server->model, server->faults);
    snib__server_ring(server);
    pthread_mutex_unlock(&snib__server_mutex);
    pthread_setcancelstate(old, NULL);
    return code;
}

int snib_memory_fault(snib_memory *server, const char *name, const char *argument, snib_error *err)
{
    const struct fault *fault = NULL;
    for (size_t i = 0; i < FAULTS && name; i++)
        fault = strcmp(faults[i].name, name) == 0 ? &faults[i] : fault;
    if (!fault)
        return fault_unknown(name ? name : "", err);
    if (argument && !fault->takes)
        return snib__server_fail(err, SNIB_EINVAL, "%s takes no argument", fault->name);
    if (!server)
        return snib__server_fail(err, SNIB_EINVAL, "server is NULL");
    if (!snib__server_is_ours(server))
        return snib__server_fail(err, SNIB_EFORKED,
                                 "the memory server belongs to the parent process");
    return fault_run(server, fault, argument, err);
}

/* ---- what one can see ------------------------------------------------------------------------- */

int snib_memory_has(snib_memory *server, const char *name)
{
    model_key found;
    bool has = false;
    if (!server || !name)
        return SNIB_EINVAL;
    snib__server_enter(server);
    for (int db = 0; db < FAULT_DATABASES; db++)
        has = has || model_key_find(server->model, db, name, strlen(name), &found);
    pthread_mutex_unlock(&snib__server_mutex);
    return has;
}

int64_t snib_memory_connections(snib_memory *server)
{
    if (!server)
        return SNIB_EINVAL;
    snib__server_enter(server);
    int64_t n = (int64_t)fault_connections(server, 0, NULL);
    pthread_mutex_unlock(&snib__server_mutex);
    return n;
}

int64_t snib_memory_requests(snib_memory *server)
{
    if (!server)
        return SNIB_EINVAL;
    snib__server_enter(server);
    int64_t n = (int64_t)model_requests(server->model);
    pthread_mutex_unlock(&snib__server_mutex);
    return n;
}
