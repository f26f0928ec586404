/* server.h - what the files of the memory server share. */
#ifndef SNIB_TESTING_SERVER_H
#define SNIB_TESTING_SERVER_H

#include "model_internal.h"
#include "snib_testing.h"

#include <pthread.h>

#define SERVER_CONNECTIONS 256 /* a client has at most six */

struct server_connection {
    int fd;
    uint64_t id;   /* the model's */
    buffer unsent; /* what the socket had no room for */
    bool cut;      /* it ends, whatever was not sent or read */
};

struct snib_memory {
    snib_memory *next; /* of this process */
    uint64_t process;  /* a child has no thread for it */
    pthread_t thread;
    model *model;
    model_data *snapshot; /* NULL: there is none */
    int listener;         /* -1: refusing */
    int bell;             /* the thread has to look */
    bool stop, stalled;
    bool rests;      /* there was no descriptor for a connection, which waits */
    unsigned faults; /* of the model */
    long long lose;  /* this many replies to scripts are to be lost */
    struct server_connection connections[SERVER_CONNECTIONS]; /* the oldest first */
    size_t count;
    char name[65], url[80];
};

/* One lock for all servers, because the models share an interpreter. */
extern pthread_mutex_t snib__server_mutex;

bool snib__server_is_ours(const snib_memory *server); /* not its parent's */
void snib__server_enter(snib_memory *server); /* takes the lock, and tells the model the time */
int snib__server_fail(snib_error *err, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int snib__server_listen(snib_memory *server); /* 0 or errno */
void snib__server_ring(snib_memory *server);  /* the thread has something to do */
void snib__server_cut(struct server_connection *c);
void snib__server_cut_all(snib_memory *server);

#endif
