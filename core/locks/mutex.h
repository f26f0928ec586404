/* mutex.h - what the kinds share whose lock is the mutex' hash. */
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
int snib__mutex_info(struct snib__buf *out, const struct snib__engine *engine,
                     const struct snib__gate *gate);
int snib__mutex_force(struct snib__buf *out, const struct snib__engine *engine,
                      const struct snib__gate *gate);

/* The counter of fencing tokens of a name, which every kind with tokens shares. */
#define SNIB__TOKEN_KEY "redisson_lock_token"
/* How a grant with a token reads: an array with the token as text.  Else as the verdict without one. */
void snib__verdict_token(const struct snib__engine *engine, const struct snib__hold *hold,
                         const struct snib__value *reply, uint32_t n,
                         struct snib__verdict *verdict);
void snib__verdict_token_transfer(const struct snib__engine *engine,
                                  const struct snib__value *reply, uint32_t n,
                                  struct snib__verdict *verdict);

#endif
