/* mutex.h - shared by the kinds of lock that use the mutex's hash. */
#ifndef SNIB__MUTEX_H
#define SNIB__MUTEX_H

#include "locks/kind.h"

#define SNIB__MUTEX_CHANNEL "redisson_lock__channel"

size_t snib__mutex_channel(char *out, const struct snib__engine *engine,
                           const struct snib__gate *gate, uint32_t blocker);
int snib__mutex_acquire(struct snib__buf *out, const struct snib__engine *engine,
                        const struct snib__hold *hold);
int snib__mutex_release(struct snib__buf *out, const struct snib__engine *engine,
                        const struct snib__hold *hold);
int snib__mutex_transfer(struct snib__buf *out, const struct snib__engine *engine,
                         const struct snib__hold *from, const struct snib__hold *to);
int snib__mutex_renew(struct snib__buf *out, const struct snib__engine *engine,
                      struct snib__hold *const *holds, uint32_t n, int64_t lease_ms);
#define SNIB__MUTEX_INFO                                                                           \
    {                                                                                              \
        SNIB__SCRIPT_MUTEX_INFO, 1, {SNIB__MUTEX_CHANNEL}, false                                   \
    }
#define SNIB__MUTEX_FORCE                                                                          \
    {                                                                                              \
        SNIB__SCRIPT_MUTEX_FORCE, 1, {SNIB__MUTEX_CHANNEL}, false                                  \
    }

/* The counter of fencing tokens of a name, shared by every kind with tokens. */
#define SNIB__TOKEN_KEY "redisson_lock_token"
/* A grant with a token is an array with the token as text.  Other
 * replies read as without tokens. */
void snib__verdict_token(const struct snib__engine *engine, const struct snib__hold *hold,
                         const struct snib__value *reply, uint32_t n,
                         struct snib__verdict *verdict);
void snib__verdict_token_transfer(const struct snib__engine *engine,
                                  const struct snib__value *reply, uint32_t n,
                                  struct snib__verdict *verdict);

#endif
