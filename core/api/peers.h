/* peers.h - what processes tell each other about the order in which they take locks.
 *
 * The caller serialises all calls, and is inside the engine's client. */
#ifndef SNIB__PEERS_H
#define SNIB__PEERS_H

#include "api/order.h"

#include <stddef.h>

/* snib__peers_self - what this process says about itself. */
void snib__peers_self(char out[SNIB__PROCESS_CAP], const char *label);

/* snib__peers_news - this process takes these locks in an order that is new. */
void snib__peers_news(const struct snib__order_name *held, const struct snib__order_name *taken);

/* snib__peers_lose - no order is known any more, and nothing is freed; see snib__order_lose(). */
void snib__peers_lose(void);

/* snib__peers_write - tell the others what is new, and ask what is new from them, if it is time for either.  server: the
 * engine's. */
void snib__peers_write(struct snib__engine *engine, uint64_t server, const char *process,
                       snib__time now);

/* snib__peers_read - take over what they told, if it has arrived; tell each circle that it closes. */
typedef void snib__peers_tell(void *context, const struct snib__order_circle *circle);
void snib__peers_read(struct snib__engine *engine, uint64_t server, snib__time now,
                      snib__peers_tell *tell, void *context);

#endif
