/* plan.h - what snib plan is asked, what it finds, and how that is shown. */
#ifndef SNIB_CLI_PLAN_H
#define SNIB_CLI_PLAN_H

#include "cli.h"

#define CORE_MOST 0.5 /* of a server's core: the rest is for peaks and for after a failover */

/* What a cost belongs to: the kinds of locks, or whatever has it. */
enum whose { MUTEX, FENCED, FAIR, READ, WRITE, PERMITS, SPIN, PLAIN, QUORUM, ANY, WHOSE_N };

/* The load. */
struct plan {
    enum whose kind;
    double locks, clients, rate, contended, waiters, lease_s, replicas, speed;
    double shards, quorum; /* 1 if there is no such thing */
    bool is_durable;
};

/* What one server has to do per second. */
struct flow {
    double commands, us, received, sent, stream;
};

struct server {
    struct flow pairs, waits, renewals, clients;
    double renewed;             /* holds a second */
    double connections, memory; /* at a time */
};

struct answer {
    struct plan plan;
    struct server server; /* each of them */
    struct flow flow;
    double core, memory;    /* of the server's core; of a client */
    double pause;           /* the mean time between a waiter's attempts, in seconds */
    int parts, given, each; /* into which the names are and must be divided, and servers in each */
};

/* plan_print_text, plan_print_json - show it. */
void plan_print_text(const struct answer *answer);
void plan_print_json(const struct answer *answer);

#endif
