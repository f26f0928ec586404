/* rw.h - names shared by the two sides of a read/write lock. */
#ifndef SNIB__RW_H
#define SNIB__RW_H

#include "locks/kind.h"

#define SNIB__RW_CHANNEL "redisson_rwlock"
#define SNIB__RW_MARK                                                                              \
    "snib_writer_waits" /* exists while a preferred writer waits: new readers wait behind it */

size_t snib__rw_channel(char *out, const struct snib__engine *engine, const struct snib__gate *gate,
                        uint32_t blocker);
/* Append the key of a reader's lease, {name}:<owner>:rwlock_timeout:1. */
int snib__rw_arg_lease_key(struct snib__buf *out, const struct snib__engine *engine,
                           const struct snib__hold *hold, const char *name, size_t name_len);

#endif
