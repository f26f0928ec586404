/* deployment.h - deployments for one test: one server, a master with replicas and sentinels, a cluster.
 *
 * Each server lies in a folder of its own below the deployment's, listens on a free port of 127.0.0.1 and, for the test
 * alone, on a unix socket.  All die with the thread that started them, so start them from the main one.  Like the rest
 * of the support, everything here ends the running test with a message when it cannot do its work.
 */
#ifndef SNIB_TESTS_DEPLOYMENT_H
#define SNIB_TESTS_DEPLOYMENT_H

#include "support.h"

enum { NODES_MAX = 32, SLOTS = 16384 };

/* How long what a deployment has to do is waited for, on a machine that has nothing else to do. */
enum { DEPLOYED_MS = 30000 };

/* ---- Certificates ---------------------------------------------------------------------------- */

struct authority {
    char dir[96];
    char ca[128]; /* the certificate to trust */
    char key[128];
};

struct certificate {
    char file[160], key[160];
};

enum { CERTIFICATE_EXPIRED = 1, CERTIFICATE_CLIENT = 2 };

/* dir exists.  Two authorities of different names in one folder are strangers to each other. */
void authority_make(struct authority *authority, const char *dir, const char *name);
/* hosts: as openssl has them, "IP:127.0.0.1,DNS:localhost"; "" for none.  name: the file's, and the common name. */
struct certificate authority_certificate(const struct authority *authority, const char *name,
                                         const char *hosts, unsigned flags);
struct certificate certificate_self_signed(const char *dir, const char *name, const char *hosts);

/* ---- Nodes ------------------------------------------------------------------------------------- */

struct node {
    char name[16];
    char dir[96];
    char socket[104];
    char id[41]; /* in a cluster, or as a sentinel */
    char password[64];
    int port;
    bool sentinel;
    bool stopped; /* SIGSTOP */
    bool gone;    /* removed for good */
    pid_t pid;    /* 0: not running */
    redisContext *admin;
};

void node_kill(struct node *node); /* SIGKILL; its peers see their connections end */
void node_stop(struct node *node); /* SIGSTOP, and wait until it has stopped */
void node_continue(struct node *node);

/* Commands as for redisCommand(), over the unix socket.  An error reply fails the test, but not with try. */
redisReply *node_try(struct node *node, const char *format, ...);
redisReply *node_command(struct node *node, const char *format, ...);
void node_do(struct node *node, const char *format, ...);
long long node_integer(struct node *node, const char *format, ...);
bool node_is_master(struct node *node);  /* by ROLE; false if it does not run */
bool node_runs(const struct node *node); /* and is not stopped */

/* ---- Deployments --------------------------------------------------------------------------------- */

/* What is 0 or NULL has the default that is told. */
struct deployment_options {
    int masters;                   /* of a cluster; 3 */
    int replicas;                  /* of each master; -1: none; 2 with sentinels, 1 in a cluster */
    int down_ms;                   /* sentinels: a server is down when it is silent so long; 1000 */
    int node_timeout_ms;           /* cluster-node-timeout; 1000 */
    int min_replicas;              /* min-replicas-to-write; 0.  The lag is 1 s. */
    const char *password;          /* of the servers */
    const char *sentinel_password; /* of the sentinels */
    const struct authority *tls;   /* TLS alone, on all links, client certificates as they like */
    const char *const *lines;      /* further lines for the servers' configuration, ended by NULL */
};

enum { SENTINELS = 3 };

struct deployment {
    struct deployment_options options;
    char dir[64];
    char binary[256];
    char url[400];                /* as a client is given it */
    struct node nodes[NODES_MAX]; /* sentinels last */
    int count;
    struct certificate certificate;
    int ports_lock, port_next, port_end;
};

bool server_has_tls(void); /* whether the program that is tested was built with it */
/* options may be NULL for defaults. */
void single_start(struct deployment *deployment, const struct deployment_options *options);
void sentinels_start(struct deployment *deployment, const struct deployment_options *options);
void cluster_start(struct deployment *deployment, const struct deployment_options *options);
void deployment_end(struct deployment *deployment);

/* A node that was killed starts again, with the configuration that it has written and nothing in memory. */
void node_start(struct deployment *deployment, struct node *node);
void node_restart(struct deployment *deployment, struct node *node); /* kill and start */

/* ---- Master, replicas and sentinels ---------------------------------------------------------------- */

#define SERVICE "mymaster"

/* The master that this sentinel tells clients. */
struct node *sentinel_announces(struct deployment *deployment, struct node *sentinel);
/* The master that all running sentinels tell and that says so itself; NULL while they differ. */
struct node *sentinels_agreed(struct deployment *deployment);
struct node *sentinels_master(struct deployment *deployment); /* the same, awaited */
struct node *sentinels_replica(struct deployment *deployment, int nth);
struct node *sentinels_sentinel(struct deployment *deployment, int nth);
/* All run, all replicas follow the one master, all sentinels know all of it. */
bool sentinels_settled(struct deployment *deployment);
void sentinels_await_settled(struct deployment *deployment);
/* Wait until all running sentinels tell another master than the old one. */
struct node *sentinels_await_failover(struct deployment *deployment, const struct node *old);
/* By hand, the master being well; returns the new one. */
struct node *sentinels_failover(struct deployment *deployment);

/* ---- Cluster ----------------------------------------------------------------------------------- */

int slot_of(const char *key);
/* The node that serves the slot, by what a running master says; NULL: nobody. */
struct node *cluster_owner(struct deployment *deployment, int slot);
struct node *cluster_owner_of(struct deployment *deployment, const char *key);
struct node *cluster_replica_of(struct deployment *deployment, const struct node *master); /* one */
/* The nth name of the form "prefix<number>" that the node serves. */
void cluster_key_at(struct deployment *deployment, const struct node *node, const char *prefix,
                    int nth, char out[64]);
bool cluster_agreed(struct deployment *deployment);  /* running nodes: ok, and one map */
bool cluster_settled(struct deployment *deployment); /* all run, are well, and replicas follow */
void cluster_await_agreed(struct deployment *deployment);
void cluster_await_settled(struct deployment *deployment);
struct node *cluster_await_failover(struct deployment *deployment, int slot,
                                    const struct node *old);
/* A replica that won an election less than twice the node timeout ago, was made a replica again by hand and then loses
 * its master takes the slots by its old votes, and nobody believes it (Redis 7.0): let other shards be between. */
/* CLUSTER FAILOVER on a replica until it is the master.  how: "", "FORCE", "TAKEOVER". */
void cluster_failover(struct node *replica, const char *how);

/* A slot on its way.  Between the steps: ASK, TRYAGAIN. */
struct move {
    struct deployment *deployment;
    int slot;
    struct node *from, *to;
};
struct move cluster_move_begin(struct deployment *deployment, int slot, struct node *to);
void cluster_move_key(const struct move *move, const char *key);
int cluster_move_keys(const struct move *move); /* all that are left; returns how many */
void cluster_move_finish(const struct move *move);
void cluster_move_give_up(const struct move *move); /* what was moved stays moved, and is lost */
void cluster_move(struct deployment *deployment, int slot, struct node *to); /* all of it */

/* A further node: a replica, or with NULL a master without slots. */
struct node *cluster_add(struct deployment *deployment, struct node *master);
void cluster_empty(struct deployment *deployment, struct node *node);  /* its slots to the others */
void cluster_remove(struct deployment *deployment, struct node *node); /* it has no slots */

/* ---- Among themselves ---------------------------------------------------------------------------- */

void deployment_init(struct deployment *deployment, const struct deployment_options *options);
struct node *deployment_node(struct deployment *deployment, const char *kind, bool sentinel);
void node_config(const struct node *node, const char *format, ...); /* a further line */
void deployment_launch(struct deployment *deployment, int first);   /* those from the first on */
void deployment_url(struct deployment *deployment, const char *scheme, int first, int end,
                    const char *rest);

#endif
