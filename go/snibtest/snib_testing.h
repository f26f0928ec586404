/* snib_testing.h - a Redis server inside the process, for tests of programs that take locks.
 *
 * A memory server runs the library's real scripts on data in memory.  Clients reach it as memory://NAME.  Its clock,
 * and that of the process's clients, is moved forward by hand, and faults are caused by name, so a program's reaction
 * to a lost lock is tested within milliseconds and without Redis.
 *
 * What it is not: it answers only the commands that Snib sends and a few that look at keys, persists nothing, has one
 * user without a password, takes 256 connections, and is no cluster, no sentinel and no replica.  A name belongs to
 * the process: two programs that use the same name have two servers.  The child of a fork has none until it starts
 * its own.
 *
 * Link with libsnib-testing as well: `pkg-config --libs snib-testing`.  Any thread may call any function; results,
 * outputs and errors are as in snib.h.  Running out of memory aborts.
 */
#ifndef SNIB_TESTING_H
#define SNIB_TESTING_H

#include "snib.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct snib_memory snib_memory;

/* snib_memory_start - start a server.
 *
 * name     1 to 64 letters, digits, - and _; NULL: one that nothing else uses
 * Returns  SNIB_OK; SNIB_EINVAL: a bad name, or this process has a server of this name; SNIB_ESYSTEM.
 * Owns     end with snib_memory_stop().
 */
SNIB_API int snib_memory_start(const char *name, snib_memory **out_server, snib_error *err);

/* snib_memory_stop - end the server, with its data and connections, and free the handle, which no other thread may be
 * using.  NULL is allowed.  Blocks until its thread has ended. */
SNIB_API void snib_memory_stop(snib_memory *server);

/* snib_memory_url - memory://NAME, for snib_client_open(); lives as long as the server.  NULL for NULL. */
SNIB_API const char *snib_memory_url(const snib_memory *server);

/* snib_memory_advance - move the clocks of all memory servers and of all clients of this process forward.
 *
 * It is as if the whole machine had been suspended for that time: a hold whose lease ends meanwhile is lost.
 * ms       0 to 31536000000, a year
 */
SNIB_API int snib_memory_advance(int64_t ms, snib_error *err);

/* snib_memory_fault - cause a fault.
 *
 * lose_reply       the next script is executed, but its reply is lost and its connection cut.  Argument: how many; 1
 * stall, resume    read and answer nothing, until resume; the close of a client with holds waits for its patience
 * refuse, accept   cut all connections and accept none, until accept
 * kill_connection  argument: which one, 1 is the oldest; NULL: all
 * expire           argument: the name of a key, usually the lock's; it ends now, and nobody is told
 * snapshot         remember the data, for failover
 * failover         all connections are cut; then another server has the address, with the data of the last
 *                  snapshot, or without data
 * oom, readonly, loading, misconf, busy, noreplicas, masterdown
 *                  refuse as a real server does in that state.  Argument: "on" or "off"; NULL: on
 * mute             published messages do not arrive.  The same argument
 * heal             end all faults that last
 *
 * argument  NULL where it has a default or there is none
 * Returns   SNIB_OK; SNIB_EINVAL: no such fault, or its argument is missing or makes no sense.
 */
SNIB_API int snib_memory_fault(snib_memory *server, const char *fault, const char *argument,
                               snib_error *err);

/* snib_memory_has - 1 if the server has the key of this name in any database, else 0; SNIB_EINVAL if one is NULL. */
SNIB_API int snib_memory_has(snib_memory *server, const char *name);

/* snib_memory_connections, snib_memory_requests - how many connections there are, and how many requests were
 * executed so far.  SNIB_EINVAL for NULL. */
SNIB_API int64_t snib_memory_connections(snib_memory *server);
SNIB_API int64_t snib_memory_requests(snib_memory *server);

#ifdef __cplusplus
}
#endif

#endif
