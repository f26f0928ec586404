/* deployment.h - deployments for one test: one server, a master with replicas and sentinels, a cluster.
 *
 * Each server has its own folder below the deployment's and listens on a free port of 127.0.0.1
 * and, for the test's own commands, on a unix socket.  All servers die with the thread that started
 * them, so start them from the main thread.  Like the rest of tests/support, every function here
 * fails the running test with a message if it cannot do its work.
 */
#ifndef SNIB_TESTS_DEPLOYMENT_H
#define SNIB_TESTS_DEPLOYMENT_H

#include "support.h"

enum { NODES_MAX = 32, SLOTS = 16384 };

/* Limit for anything that a deployment has to do.  A sentinel that did not run for 2 s does nothing
 * for 30 s (TILT), and the next such stall begins these 30 s again. */
enum { DEPLOYED_MS = 120000 };

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

/* dir must exist.  Authorities of different names in one folder do not trust each other. */
void authority_make(struct authority *authority, const char *dir, const char *name);
/* hosts: in openssl's notation, "IP:127.0.0.1,DNS:localhost"; "" for none.  name: of the file, and
 * the common name. */
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

/* Commands as for redisCommand(), over the unix socket.  An error reply fails the test, except in
 * node_try(). */
redisReply *node_try(struct node *node, const char *format, ...);
redisReply *node_command(struct node *node, const char *format, ...);
void node_do(struct node *node, const char *format, ...);
long long node_integer(struct node *node, const char *format, ...);
bool node_is_master(struct node *node);  /* by ROLE; false if it does not run */
bool node_runs(const struct node *node); /* and is not stopped */

/* ---- Deployments --------------------------------------------------------------------------------- */

/* 0 and NULL stand for the defaults given here. */
struct deployment_options {
    int masters;                   /* of a cluster; 3 */
    int replicas;                  /* of each master; -1: none; 2 with sentinels, 1 in a cluster */
    int down_ms;                   /* sentinels: a server counts as down when silent for so long;
                                    * 1000 */
    int node_timeout_ms;           /* cluster-node-timeout; 1000 */
    int min_replicas;              /* min-replicas-to-write; 0.  The lag is 1 s. */
    const char *password;          /* of the servers */
    const char *sentinel_password; /* of the sentinels */
    const struct authority *tls;   /* TLS only, on all links; client certificates are optional */
    const char *const *lines;      /* further lines for the servers' configuration, ended by NULL */
};

enum { SENTINELS = 3 };

struct deployment {
    struct deployment_options options;
    char dir[64];
    char binary[256];
    char url[400];                /* what a client is given */
    struct node nodes[NODES_MAX]; /* sentinels last */
    int count;
    struct certificate certificate;
    struct ports ports;
};

bool server_has_tls(void); /* whether the server under test was built with TLS */
/* options may be NULL for defaults. */
void single_start(struct deployment *deployment, const struct deployment_options *options);
void sentinels_start(struct deployment *deployment, const struct deployment_options *options);
void cluster_start(struct deployment *deployment, const struct deployment_options *options);
void deployment_end(struct deployment *deployment);

/* Start a killed node again, with the configuration file that it rewrote itself and no data. */
void node_start(struct deployment *deployment, struct node *node);
void node_restart(struct deployment *deployment, struct node *node); /* kill and start */

/* ---- Master, replicas and sentinels ---------------------------------------------------------------- */

#define SERVICE "mymaster"

/* The master that this sentinel reports to clients. */
struct node *sentinel_announces(struct deployment *deployment, struct node *sentinel);
/* The master that all running sentinels report and that itself claims to be one; NULL while they
 * disagree. */
struct node *sentinels_agreed(struct deployment *deployment);
struct node *sentinels_master(struct deployment *deployment); /* the same; waits for it */
struct node *sentinels_replica(struct deployment *deployment, int nth);
struct node *sentinels_sentinel(struct deployment *deployment, int nth);
/* All nodes run, all replicas follow one master, and all sentinels know all nodes. */
bool sentinels_settled(struct deployment *deployment);
void sentinels_await_settled(struct deployment *deployment);
/* Wait until all running sentinels report a master other than the old one. */
struct node *sentinels_await_failover(struct deployment *deployment, const struct node *old);
/* Failover by hand while the master is healthy; returns the new master. */
struct node *sentinels_failover(struct deployment *deployment);

/* ---- Cluster ----------------------------------------------------------------------------------- */

int slot_of(const char *key);
/* The node that serves the slot, according to a running master; NULL if there is none. */
struct node *cluster_owner(struct deployment *deployment, int slot);
struct node *cluster_owner_of(struct deployment *deployment, const char *key);
struct node *cluster_replica_of(struct deployment *deployment, const struct node *master); /* one */
/* The nth name of the form "prefix<number>" that the node serves. */
void cluster_key_at(struct deployment *deployment, const struct node *node, const char *prefix,
                    int nth, char out[64]);
bool cluster_agreed(struct deployment *deployment);  /* running nodes: ok, and the same map */
bool cluster_settled(struct deployment *deployment); /* all run, are well, and replicas follow */
void cluster_await_agreed(struct deployment *deployment);
void cluster_await_settled(struct deployment *deployment);
struct node *cluster_await_failover(struct deployment *deployment, int slot,
                                    const struct node *old);
/* Do not fail one shard over twice within twice the node timeout.  A replica that won an election,
 * was demoted by hand and then loses its master claims the slots on its old votes, and no node
 * accepts that (Redis 7.0).  Fail other shards over in between. */
/* CLUSTER FAILOVER on a replica until it is the master.  how: "", "FORCE", "TAKEOVER". */
void cluster_failover(struct node *replica, const char *how);

/* A slot that is being migrated.  Between the steps clients get ASK and TRYAGAIN. */
struct move {
    struct deployment *deployment;
    int slot;
    struct node *from, *to;
};
struct move cluster_move_begin(struct deployment *deployment, int slot, struct node *to);
void cluster_move_key(const struct move *move, const char *key);
int cluster_move_keys(const struct move *move); /* all that are left; returns how many */
void cluster_move_finish(const struct move *move);
void cluster_move_give_up(const struct move *move); /* keys already moved stay, and are lost */
void cluster_move(struct deployment *deployment, int slot, struct node *to); /* all steps */

/* Valkey 9 hands a slot on as a whole: until then its node serves all of it, and then the other one. */
bool cluster_moves_slots_itself(struct deployment *deployment);
void cluster_hand_on(struct deployment *deployment, int slot, struct node *to);

/* Add a node: a replica of master, or with NULL a master without slots. */
struct node *cluster_add(struct deployment *deployment, struct node *master);
void cluster_empty(struct deployment *deployment, struct node *node);  /* gives its slots away */
void cluster_remove(struct deployment *deployment, struct node *node); /* it must have no slots */

/* ---- Internal ------------------------------------------------------------------------------------ */

void deployment_init(struct deployment *deployment, const struct deployment_options *options);
struct node *deployment_node(struct deployment *deployment, const char *kind, bool sentinel);
void node_config(const struct node *node, const char *format, ...); /* adds a line */
void deployment_launch(struct deployment *deployment, int first);   /* nodes from `first` on */
void deployment_url(struct deployment *deployment, const char *scheme, int first, int end,
                    const char *rest);

#endif
