/* internal.h - what the engine's files offer each other; its structures are in state.h.
 *
 * gate.c      gates: who holds and who waits for one lock name; what all disciplines share
 * sole.c      locks with one holder: trying, the local queue, hand-over
 * tenure.c    hand-over without a command, under the same number
 * share.c     locks with many holders: readers, permits, semaphores, latches
 * place.c     the fair lock, whose waiters have places in a queue at the server
 * release.c   releases, and requests that were never answered
 * waitq.c     operations that wait for a gate: sleeping until a message, a re-check or a deadline
 * turn.c      giving way to waiters of other clients
 * chan.c      subscriptions
 * hold.c      holds: states, deadline, loss
 * watchdog.c  renewal in batches
 * clock.c     the server's clock compared with the local one
 * outer.c     holds carried outside the engine, for locks made of several clients' locks
 * doubt.c     what a missing or doubtful reply allows the engine to conclude
 * given.c     recent releases, repeated after a failover
 * ask.c       info, force release, ping, list
 * extend.c    another lease for a live hold
 * identity.c  who this client and others are
 * board.c     notes that clients leave for each other
 * op.c        operations: start, completion, patience
 * node.c      one server: its replies, its identity
 * send.c      requests on their way to a node
 * lane.c      extra command connections, for threads that call at the same time
 * durable.c   grants that count only once replicas have them
 * link.c      one connection to a node: connect, back-off, silence
 * route.c     which node serves a name, with single.c, sentinel.c (sentinels.c, ears.c), cluster.c (map.c)
 * move.c      names that move to another node, and their holds
 * pause.c     requests that no node can serve yet, kept for a retry
 * map.c       a cluster's slot map, as reported by its nodes
 * timer.c     one heap for deadlines that arrive in no order
 * engine.c    the engine as a whole: time, close, statistics
 */
#ifndef SNIB__INTERNAL_H
#define SNIB__INTERNAL_H

#include "engine/state.h"

/* timer.c */
/* Reserve room for n more subjects.  0, or -1 when out of memory. */
int snib__timer_reserve(struct snib__engine *e, uint32_t n);
/* at: the subject's `timer_at`. */
void snib__timer_set(struct snib__engine *e, enum snib__timer_what what, uint32_t *at,
                     snib__time when);
enum snib__timer_what snib__timer_what(struct snib__timer timer);
uint32_t *snib__timer_at(struct snib__timer timer);
/* The timer's subject; the timer may already have left the heap. */
void *snib__timer_subject(struct snib__timer timer);
void snib__timer_cancel(struct snib__engine *e, uint32_t *at);

/* op.c */
struct snib__hold *snib__hold_new(struct snib__engine *e, struct snib__gate *gate);
struct snib__hold *snib__hold_again(struct snib__engine *e, const struct snib__hold *hold);
void snib__hold_recycle(struct snib__engine *e, struct snib__hold *hold);
struct snib__batch *snib__batch_new(struct snib__engine *e, uint32_t n); /* room for n */
void snib__batch_recycle(struct snib__engine *e, struct snib__batch *batch);
void snib__slabs_free(struct snib__engine *e);
struct snib__op *snib__op_new(struct snib__engine *e, int kind, struct snib__gate *gate,
                              snib__time now, int32_t *out_code);
void snib__op_done(struct snib__engine *e, struct snib__op *op, int32_t code);
void snib__op_quote(const struct snib__engine *e, struct snib__op *op, const char *text,
                    uint32_t n);
void snib__op_fail(struct snib__engine *e, struct snib__op *op, int32_t code,
                   const char *server_text, uint32_t n);
void snib__op_empty(struct snib__op *op); /* frees what replies left in it */
void snib__op_arm(struct snib__engine *e, struct snib__op *op);
struct snib__node *snib__op_node(const struct snib__op *op);
void snib__op_expired(struct snib__engine *e, struct snib__op *op, snib__time now);

/* node.c */
/* A broken connection cannot be ended at the server. left: with requests still on it. */
void snib__node_unended(struct snib__engine *e, struct snib__node *node, bool left);
int snib__node_send(struct snib__engine *e, int kind, void *subject, uint64_t number,
                    snib__time now);
/* Resend a request that a server did not carry out to the node that serves its name now. */
void snib__node_again(struct snib__engine *e, const struct snib__request *request, snib__time now);
/* Send to this node, whichever node serves the name. */
int snib__node_send_to(struct snib__engine *e, struct snib__node *node,
                       const struct snib__request *request, snib__time now);
struct snib__op *snib__request_op(const struct snib__request *request);
/* The node that a request is for; it has a subject. */
struct snib__node *snib__request_node(const struct snib__request *request);
/* Discard any reply for this subject. */
void snib__node_forget(struct snib__engine *e, void *subject);
/* Take back a subject's request that has not been sent.  False: it was sent, or there is none. */
bool snib__node_unsend(struct snib__engine *e, void *subject);
void snib__node_free(struct snib__engine *e, struct snib__node *node);
bool snib__node_ready(const struct snib__node *node);
bool snib__node_listens(const struct snib__node *node); /* its pub/sub link is ready */
bool snib__node_silent(const struct snib__engine *e, const struct snib__node *node, snib__time now);
void snib__node_want(struct snib__engine *e, struct snib__node *node, snib__time now);
bool snib__node_needed(const struct snib__engine *e, const struct snib__node *node, snib__time now);
snib__time snib__node_reply_timeout(const struct snib__engine *e, const struct snib__node *node);
void snib__node_fail_ops(struct snib__engine *e, const struct snib__node *node, snib__time now);
void snib__node_link_ready(struct snib__engine *e, struct snib__link *link, snib__time now);
void snib__node_link_down(struct snib__engine *e, struct snib__link *link, snib__time since,
                          bool was_ready, int32_t code, int os_error, snib__time now);
/* What the node said to the request counts for itself only: another one serves its name since. */
bool snib__node_is_former(const struct snib__engine *e, const struct snib__link *link,
                          const struct snib__request *request);
void snib__node_answer(struct snib__engine *e, struct snib__link *link,
                       struct snib__request *request, const struct snib__value *reply, uint32_t n,
                       snib__time now);
const char *snib__node_where(const struct snib__engine *e, const struct snib__node *node);
bool snib__node_explained(int32_t code);
bool snib__node_hopeless(int32_t code, int os_error, bool was_ready);

int snib__link_write(struct snib__engine *e, struct snib__link *link, struct snib__request *request,
                     snib__time now);
int snib__node_later(struct snib__node *node, const struct snib__request *request);
void snib__node_flush(struct snib__engine *e, struct snib__node *node, snib__time now);
void snib__request_note_link(const struct snib__request *request, struct snib__link *link);

/* Requests of the node itself, made again on each connection. */
static inline bool snib__request_own(const struct snib__request *request)
{
    return request->kind == SNIB__REQ_TIME || request->kind == SNIB__REQ_ROUTE ||
           request->kind >= SNIB__REQ_KILL;
}

/* lane.c */
struct snib__link *snib__node_lane(struct snib__node *node, uint32_t i);
struct snib__link *snib__lane_for(struct snib__engine *e, struct snib__node *node,
                                  const struct snib__gate *gate, snib__time now);
bool snib__lane_rest(const struct snib__node *node); /* all further lanes are down */
void snib__lane_sent(struct snib__link *link, const struct snib__request *request, snib__time now);
void snib__lane_answered(struct snib__engine *e, struct snib__link *link,
                         struct snib__request *request);
int snib__lane_kill(struct snib__engine *e, struct snib__node *node, snib__time now);
void snib__lane_ready(struct snib__engine *e, struct snib__link *link, snib__time now);
void snib__lane_first_ready(struct snib__engine *e, struct snib__node *node, snib__time now);
void snib__lane_down(struct snib__engine *e, struct snib__link *link, int32_t code, int os_error,
                     snib__time now);
void snib__lane_close_all(struct snib__engine *e, struct snib__node *node, int32_t code,
                          snib__time now);
void snib__lane_tick(struct snib__engine *e, struct snib__link *link, snib__time now);
snib__time snib__lane_deadline(const struct snib__link *link);
/* When the oldest unanswered request was sent, on any lane; SNIB__NEVER. */
snib__time snib__node_oldest(const struct snib__node *node);
/* The same for the further lanes alone. */
snib__time snib__lane_oldest(const struct snib__node *node);
/* A request lost with its connection: resend it or end it. */
void snib__node_orphan(struct snib__engine *e, const struct snib__request *request, int32_t code,
                       int os_error, snib__time now);

/* durable.c */
bool snib__durable_is(const struct snib__link *link);
bool snib__durable_takes(const struct snib__engine *e, const struct snib__request *request);
const struct snib__request *snib__durable_collected(const struct snib__node *node, uint32_t *out_n);
bool snib__durable_pending(const struct snib__node *node);
/* A grant to the hold waits there until replicas have it. */
bool snib__durable_withholds(const struct snib__node *node, const struct snib__hold *hold);
snib__time snib__durable_since(struct snib__node *node);
void snib__durable_renamed(struct snib__node *node);
void snib__durable_succeed(struct snib__node *node, const struct snib__node *former);
void snib__durable_suppose(struct snib__node *node, const struct snib__node *former);
void snib__durable_known(struct snib__node *node);
void snib__durable_free(struct snib__node *node);
int snib__durable_encode(const struct snib__engine *e, struct snib__buf *out,
                         const struct snib__request *request);
int snib__durable_send(struct snib__engine *e, struct snib__node *node,
                       struct snib__request *request, snib__time now);
bool snib__durable_unsend(struct snib__node *node, const void *subject);
bool snib__durable_leave(struct snib__engine *e, struct snib__hold *hold, snib__time now);
void snib__durable_reroute(struct snib__engine *e, struct snib__node *node, snib__time now);
/* True: the grant is withheld until replicas have it. */
bool snib__durable_granted(struct snib__engine *e, struct snib__link *link,
                           const struct snib__request *request, const struct snib__verdict *verdict,
                           snib__time now);
void snib__durable_answer(struct snib__engine *e, struct snib__link *link,
                          const struct snib__request *request, const struct snib__value *reply,
                          int32_t error, snib__time now);
void snib__durable_ready(struct snib__engine *e, struct snib__link *link, snib__time now);
void snib__durable_node_ready(struct snib__engine *e, struct snib__node *node, snib__time now);
void snib__durable_down(struct snib__engine *e, struct snib__link *link, int32_t code, int os_error,
                        snib__time now);

/* route.c */
int snib__route_begin(struct snib__engine *e);
void snib__route_end(struct snib__engine *e);
struct snib__node *snib__route_asks(struct snib__engine *e, const struct snib__op *op);
void snib__route_wanted(struct snib__engine *e, struct snib__node *node, snib__time now);
void snib__route_ready(struct snib__engine *e, struct snib__link *link, snib__time now);
void snib__route_down(struct snib__engine *e, struct snib__link *link, int32_t code,
                      snib__time now);
void snib__route_heard(struct snib__engine *e, struct snib__link *link,
                       const struct snib__value *reply, uint32_t n, snib__time now);
/* Write what is known of the deployment, as lines: see SNIB_SERVER_WAY.  Returns its length, less than cap. */
size_t snib__route_tell(const struct snib__engine *e, char *out, size_t cap);
void snib__route_tick(struct snib__engine *e, snib__time now);
snib__time snib__route_deadline(const struct snib__engine *e);
/* Whether an error reply to a request of the client's own says that its slot is served elsewhere, or about to be, or by
 * nobody just now. */
bool snib__route_moved(const char *text);
bool snib__route_redirected(struct snib__engine *e, struct snib__link *link,
                            struct snib__request *request, const char *text, uint32_t n,
                            snib__time now);

/* cluster.c: the cursor of a list, combined with the node to continue on */
uint64_t snib__cluster_cursor_in(uint64_t cursor);
uint64_t snib__cluster_cursor_out(const struct snib__engine *e, const struct snib__node *node,
                                  uint64_t cursor);

/* given.c */
/* A server said that it has released the hold, or does not have it. */
void snib__given_note(struct snib__engine *e, const struct snib__hold *hold, snib__time now);
/* The same, and the program still has the hold, until given_done(). */
void snib__given_lost(struct snib__engine *e, const struct snib__hold *hold, snib__time now);
void snib__given_done(struct snib__engine *e, const struct snib__hold *hold, snib__time now);
/* A node became another server, or names moved. */
void snib__given_redo(struct snib__engine *e, snib__time now);
/* Whether the node has to be told of one, once it is connected. */
bool snib__given_waits(const struct snib__engine *e, const struct snib__node *node, snib__time now);
/* A repeated release has a reply, or no longer needs one. */
void snib__given_told(struct snib__engine *e, snib__time now);
void snib__given_end(struct snib__engine *e);

/* pause.c */
void snib__pause_served(struct snib__engine *e, const struct snib__request *request);
/* Resend after a pause; text: the reason in the server's words.  -1: out of memory. */
int snib__pause(struct snib__engine *e, const struct snib__request *request, const char *text,
                uint32_t n, snib__time now);
bool snib__pause_drop(struct snib__engine *e, const void *subject);
bool snib__pause_has(const struct snib__engine *e, const void *subject);
void snib__pause_tick(struct snib__engine *e, snib__time now);
snib__time snib__pause_deadline(const struct snib__engine *e);

bool snib__route_misfits(const struct snib__engine *e, const struct snib__link *link);
void snib__route_misfit_words(const struct snib__engine *e, const struct snib__link *link,
                              char out[SNIB__WORDS_MAX]);

/* link.c */
int snib__link_init(struct snib__engine *e, struct snib__link *link, struct snib__node *node,
                    int kind);
/* It is down, and no connect is wanted. */
bool snib__link_rests(const struct snib__link *link);
void snib__link_free(struct snib__engine *e, struct snib__link *link);
void snib__link_want(struct snib__engine *e, struct snib__link *link, snib__time now);
void snib__link_close(struct snib__engine *e, struct snib__link *link, int32_t code,
                      snib__time now);
void snib__link_tick(struct snib__engine *e, snib__time now);
snib__time snib__link_deadline(const struct snib__engine *e);
int32_t snib__link_error(const struct snib__link *link, const struct snib__value *reply);
bool snib__link_disowns(const struct snib__link *link, const struct snib__value *reply);

/* gate.c */
struct snib__gate *snib__gate_find(const struct snib__engine *e, int32_t kind, const char *name,
                                   size_t n);
void snib__gate_free(struct snib__engine *e, struct snib__gate *gate); /* at the engine's end */
void snib__gate_advance(struct snib__engine *e, struct snib__gate *gate, snib__time now);
void snib__gate_answer_acquire(struct snib__engine *e, struct snib__link *link,
                               const struct snib__request *request, const struct snib__value *reply,
                               uint32_t n, int32_t error, const char *text, snib__time now);
/* The rest of answer_acquire, for a reply without an error. */
void snib__gate_acquired(struct snib__engine *e, struct snib__hold *hold, snib__time sent_at,
                         const struct snib__verdict *verdict, snib__time now);
/* The server refused the message of a release; it is logged once. */
void snib__release_unheard(struct snib__engine *e);
/* former: another server serves the name since, and decides whether a waiter has the lock now. */
void snib__gate_answer_release(struct snib__engine *e, struct snib__hold *hold, snib__time sent_at,
                               bool former, const struct snib__value *reply, uint32_t n,
                               int32_t error, const char *text, snib__time now);
void snib__gate_unsent(struct snib__engine *e, struct snib__hold *hold, int kind,
                       snib__time sent_at, snib__time now);
void snib__gate_unanswered(struct snib__engine *e, const struct snib__request *request,
                           snib__time now);
void snib__gate_release(struct snib__engine *e, struct snib__hold *hold, snib__time now);
/* Return a grant that no operation wants any more, or that came too late. */
void snib__gate_spurn(struct snib__engine *e, struct snib__hold *hold, snib__time now);
void snib__gate_release_lost(struct snib__engine *e, struct snib__hold *hold, snib__time now);
snib__time snib__release_end(const struct snib__engine *e, const struct snib__hold *hold);
bool snib__release_lapsed(const struct snib__engine *e, const struct snib__hold *hold,
                          snib__time now);
void snib__gate_retry_release(struct snib__engine *e, struct snib__hold *hold, snib__time now);
bool snib__gate_leave(struct snib__engine *e, struct snib__op *op, snib__time now);
/* for share.c and place.c */
void snib__gate_join(struct snib__hold *hold);
void snib__gate_part(struct snib__hold *hold);
void snib__gate_forget_hold(struct snib__engine *e, struct snib__hold *hold);
void snib__gate_end_op(struct snib__engine *e, struct snib__op *op, int32_t code);
bool snib__gate_joins(struct snib__engine *e, struct snib__op *op, snib__time now);
int32_t snib__gate_meets(struct snib__engine *e, struct snib__op *op, snib__time now);
bool snib__gate_reads_on(const struct snib__engine *e, const struct snib__hold *hold);
/* The number of an attempt may be at a server that is not asked: it is remembered, and the next try has another one. */
void snib__gate_renumber(struct snib__engine *e, struct snib__hold *hold, snib__time now);
bool snib__gate_tried(struct snib__hold *hold);
bool snib__gate_grant(struct snib__engine *e, struct snib__hold *hold, int64_t token,
                      snib__time sent_at, snib__time now);
void snib__gate_undo(struct snib__engine *e, struct snib__hold *hold, snib__time sent_at,
                     snib__time now);
void snib__gate_released(struct snib__engine *e, struct snib__hold *hold, int32_t code,
                         snib__time now);
void snib__gate_send_release(struct snib__engine *e, struct snib__hold *hold, snib__time now);

/* sole.c */
void snib__sole_acquire(struct snib__engine *e, struct snib__op *op, snib__time now);
void snib__sole_queue(struct snib__engine *e, struct snib__op *op, bool front, snib__time now);
void snib__sole_settles(struct snib__gate *gate, snib__time now);
/* A waiting operation is blocked by this process's own earlier use of the lock, and the server has
 * not confirmed its end within the time a round trip may take. */
bool snib__sole_unconfirmed(const struct snib__engine *e, const struct snib__op *op,
                            snib__time now);
void snib__sole_advance(struct snib__engine *e, struct snib__gate *gate, snib__time now);
void snib__sole_known(struct snib__engine *e, struct snib__waitq *waitq, snib__time as_of,
                      snib__time now);
void snib__sole_refused(struct snib__engine *e, struct snib__hold *hold, snib__time sent_at,
                        const struct snib__verdict *verdict, snib__time now);
bool snib__sole_may_hand_over(struct snib__engine *e, const struct snib__hold *hold,
                              snib__time now);
bool snib__sole_hand_over(struct snib__engine *e, struct snib__hold *hold, snib__time now);
void snib__sole_answer_transfer(struct snib__engine *e, struct snib__hold *hold, snib__time sent_at,
                                const struct snib__value *reply, uint32_t n, int32_t error,
                                const char *text, snib__time now);

/* tenure.c */
/* Let the head of the local queue go on under the hold's number; false: release or hand over by command. */
bool snib__tenure_pass(struct snib__engine *e, struct snib__hold *hold, snib__time now);
int snib__tenure_encode(struct snib__buf *out, const struct snib__engine *e,
                        struct snib__hold *hold);
void snib__tenure_again(struct snib__hold *hold);
/* A release of the number begins, which the server is thought to have. */
void snib__tenure_ends(const struct snib__hold *hold);
void snib__tenure_unlink(struct snib__hold *hold); /* from those that are asked for */
void snib__tenure_ask(struct snib__engine *e, struct snib__gate *gate, snib__time now);
void snib__tenure_ended(struct snib__engine *e, struct snib__gate *gate, snib__time now);
void snib__tenure_answer(struct snib__engine *e, struct snib__hold *hold,
                         const struct snib__value *reply, uint32_t n, snib__time now);

/* share.c */
void snib__share_acquire(struct snib__engine *e, struct snib__op *op, snib__time now);
void snib__share_advance(struct snib__engine *e, struct snib__gate *gate, snib__time now);
uint32_t snib__share_singles(const struct snib__gate *gate);
void snib__share_answer(struct snib__engine *e, struct snib__hold *hold, bool single,
                        snib__time sent_at, const struct snib__verdict *verdict, snib__time now);

/* place.c */
void snib__place_acquire(struct snib__engine *e, struct snib__op *op, snib__time now);
void snib__place_answer(struct snib__engine *e, struct snib__hold *hold, snib__time sent_at,
                        const struct snib__verdict *verdict, snib__time now);
void snib__place_leave(struct snib__engine *e, struct snib__op *op, snib__time now);
void snib__place_released(struct snib__engine *e, struct snib__gate *gate,
                          const struct snib__verdict *verdict, snib__time sent_at, snib__time now);
void snib__place_beat(struct snib__engine *e, struct snib__gate *gate, snib__time now);
void snib__place_ask_all(struct snib__engine *e, struct snib__gate *gate, snib__time now);
void snib__place_message(struct snib__engine *e, struct snib__gate *gate, const char *text,
                         snib__time now);
void snib__place_own_channel(struct snib__engine *e, struct snib__gate *gate, uint64_t number,
                             const char *what, snib__time now);
/* The waiter has a channel of its own, and has not left it. */
bool snib__place_listens(const struct snib__gate *gate, uint64_t number);
void snib__place_relisten(struct snib__engine *e, struct snib__gate *gate);
void snib__place_left(struct snib__engine *e, struct snib__hold *hold);
bool snib__place_keeps(const struct snib__hold *hold); /* its attempts also keep its place */

/* waitq.c */
/* Operations wait, or something in flight needs it. */
static inline bool snib__waitq_used(const struct snib__waitq *waitq)
{
    return waitq->head || waitq->incoming || waitq->asking > 0;
}
struct snib__waitq *snib__waitq_get(struct snib__engine *e, struct snib__gate *gate);
void snib__waitq_push(struct snib__waitq *waitq, struct snib__op *op, bool front);
void snib__waitq_insert(struct snib__waitq *waitq, struct snib__op *op);
void snib__waitq_remove(struct snib__waitq *waitq, struct snib__op *op);
void snib__waitq_mark(struct snib__op *op, snib__time now);
void snib__waitq_sleep(struct snib__engine *e, struct snib__gate *gate, int64_t left_ms,
                       bool foreign, snib__time now);
void snib__waitq_expired(struct snib__engine *e, struct snib__waitq *waitq, snib__time now);
void snib__waitq_rest(struct snib__engine *e, struct snib__gate *gate, snib__time now);
void snib__waitq_try(struct snib__engine *e, struct snib__waitq *waitq, snib__time now);
void snib__waitq_message(struct snib__engine *e, struct snib__waitq *waitq, const char *text,
                         snib__time now);
void snib__waitq_rebind(struct snib__engine *e, struct snib__waitq *waitq, uint32_t blocker);
void snib__wait_recheck_all(struct snib__engine *e, const struct snib__node *node, snib__time now);
void snib__waitq_tick(struct snib__engine *e, snib__time now);
snib__time snib__waitq_deadline(const struct snib__engine *e);
void snib__waitq_free(struct snib__engine *e, struct snib__waitq *waitq);

/* turn.c */
bool snib__turn_contested(const struct snib__waitq *waitq);
void snib__turn_releasing(struct snib__waitq *waitq);
void snib__turn_released(struct snib__engine *e, struct snib__gate *gate, int64_t strangers,
                         snib__time now);
void snib__turn_heard(struct snib__waitq *waitq, snib__time now);
bool snib__turn_is_theirs(const struct snib__waitq *waitq, const struct snib__op *op,
                          snib__time now);
void snib__turn_give_way(struct snib__engine *e, struct snib__waitq *waitq, snib__time now);
void snib__turn_refused(struct snib__waitq *waitq);
void snib__turn_granted(struct snib__waitq *waitq, snib__time now);

/* chan.c */
/* The gate's subscription is confirmed. */
bool snib__chan_on(const struct snib__waitq *waitq);
int snib__chan_attach(struct snib__engine *e, struct snib__waitq *waitq);
void snib__chan_detach(struct snib__engine *e, struct snib__waitq *waitq);
void snib__chan_subscribe(struct snib__engine *e, struct snib__chan *chan, snib__time now);
void snib__chan_move(struct snib__engine *e, struct snib__waitq *waitq, struct snib__node *node,
                     snib__time now);
int snib__chan_say(struct snib__node *node, const char *verb, const char *channel, size_t n);
/* Subscribe to and leave a channel there, in every way in which releases are published. */
int snib__chan_join(struct snib__engine *e, struct snib__node *node, const char *channel, size_t n);
int snib__chan_leave(struct snib__engine *e, struct snib__node *node, const char *channel,
                     size_t n);
/* when the link counts as silent */
snib__time snib__chan_deadline(const struct snib__engine *e, const struct snib__link *link);
bool snib__chan_silent(struct snib__engine *e, struct snib__link *link, snib__time now);
bool snib__chan_wanted(const struct snib__chan *chan);
bool snib__chan_needed(const struct snib__engine *e, const struct snib__node *node);
void snib__chan_pubsub(struct snib__engine *e, struct snib__link *link,
                       const struct snib__value *reply, uint32_t n, snib__time now);
void snib__chan_heard_else(struct snib__engine *e, struct snib__link *link,
                           const struct snib__value *reply, uint32_t n, snib__time now);
void snib__chan_pubsub_ready(struct snib__engine *e, struct snib__node *node, snib__time now);
void snib__chan_pubsub_down(struct snib__engine *e, struct snib__node *node, snib__time now);

/* hold.c */
snib__time snib__hold_lease(const struct snib__engine *e, const struct snib__hold *hold);
void snib__hold_granted(struct snib__engine *e, struct snib__hold *hold, snib__time sent_at,
                        snib__time now);
void snib__hold_arm(struct snib__engine *e, struct snib__hold *hold, snib__time now);
bool snib__hold_gone(const struct snib__hold *hold);
int snib__hold_denied(const struct snib__hold *hold, bool taken);
void snib__hold_lose(struct snib__engine *e, struct snib__hold *hold, int reason, snib__time now);
void snib__hold_found_lost(struct snib__engine *e, struct snib__hold *hold, snib__time now);
bool snib__hold_over(struct snib__engine *e, struct snib__hold *hold, snib__time now);
void snib__hold_expired(struct snib__engine *e, struct snib__hold *hold, snib__time now);
void snib__hold_settle(struct snib__engine *e,
                       struct snib__hold *hold); /* free it if it is no longer used */
void snib__hold_stop(struct snib__engine *e, struct snib__hold *hold); /* no renewal, no timer */
/* The lease to send now so that it ends no earlier than the deadline. */
snib__time snib__lease_until(snib__time sent_at, snib__time deadline);

/* watchdog.c */
void snib__watchdog_add(struct snib__engine *e, struct snib__hold *hold);
void snib__watchdog_remove(struct snib__engine *e, struct snib__hold *hold);
/* Merge a chain in order of deadline, linked by next, into the list of its node and kind. */
void snib__watchdog_merge(struct snib__engine *e, struct snib__hold *chain);
void snib__watchdog_tick(struct snib__engine *e, snib__time now);
snib__time snib__watchdog_deadline(const struct snib__engine *e);
void snib__watchdog_answer(struct snib__engine *e, struct snib__node *node,
                           struct snib__batch *batch, snib__time sent_at,
                           const struct snib__value *reply, uint32_t n, int32_t error,
                           const char *text, snib__time now);
/* A hold with a fixed lease is asked for at that time, if it is in doubt then. */
void snib__watchdog_ask_later(struct snib__hold *hold, snib__time at);
void snib__watchdog_fixed(struct snib__hold *hold, snib__time sent_at, snib__time now);
void snib__watchdog_assured(const struct snib__engine *e, struct snib__hold *hold, int64_t lease_ms,
                            snib__time sent_at, snib__time now);
int snib__watchdog_single(struct snib__engine *e, struct snib__hold *hold, int64_t lease_ms,
                          snib__time now);
/* Drop the holds that have changed since the batch was made.  A batch must not be encoded again with
 * them, because their memory may be unused or belong to another hold.  False: none is left, and the
 * batch has been freed. */
bool snib__watchdog_prune(struct snib__engine *e, struct snib__batch *batch, snib__time now);
/* Resend a batch, without the holds that have gone since.  split: one hold per command, and only the
 * keys that are sure to be there, because the slot is migrating. */
void snib__watchdog_again(struct snib__engine *e, struct snib__request *request, bool split,
                          snib__time now);
void snib__watchdog_unanswered(struct snib__engine *e, struct snib__batch *batch, snib__time now);
void snib__watchdog_reconnected(struct snib__engine *e, struct snib__node *node, bool other_server,
                                snib__time now);

/* clock.c */
/* Take in a reply.  Returns by how much the server's clock has moved at least, beyond what drift
 * explains; 0: it has not. */
int64_t snib__clock_sample(struct snib__clock *clock, uint64_t server_ns, snib__time sent,
                           snib__time received);
void snib__clock_begin(struct snib__engine *e, struct snib__node *node, bool same, snib__time now);
void snib__clock_tick(struct snib__engine *e, snib__time now);
snib__time snib__clock_deadline(const struct snib__engine *e);
void snib__clock_answer(struct snib__engine *e, struct snib__node *node, snib__time sent_at,
                        const struct snib__value *reply, uint32_t n, snib__time now);
/* The hold's lease began before the server's clock moved. */
bool snib__clock_doubts(const struct snib__engine *e, const struct snib__hold *hold);

/* doubt.c */
/* A request that was refused with this error and text may still have been carried out, or a part of it. */
bool snib__doubtful(int32_t error, const char *text);
bool snib__sent_once(const struct snib__request *request); /* for requests with a subject */

/* outer.c */
bool snib__outer_is(const struct snib__gate *gate);
void snib__outer_tell(struct snib__engine *e, struct snib__hold *hold);
void snib__outer_acquire(struct snib__engine *e, struct snib__op *op, struct snib__outer *outer);
void snib__outer_extend(struct snib__engine *e, struct snib__op *op);
/* The engine stops: end the operations that would wait for other clients. */
void snib__outer_fail_ops(struct snib__engine *e, snib__time now);

/* extend.c */
int snib__extend_encode(const struct snib__engine *e, struct snib__buf *out,
                        const struct snib__op *op);
void snib__extend_answer(struct snib__engine *e, struct snib__op *op, snib__time sent_at,
                         const struct snib__value *reply, uint32_t n, snib__time now);
int32_t snib__extend_overdue(struct snib__engine *e, struct snib__op *op, snib__time now);
void snib__extend_unsure(struct snib__op *op); /* any operation */
bool snib__extend_is_undone(const struct snib__engine *e, const struct snib__hold *hold);
/* End the operations of a hold that was lost just now. */
void snib__extend_lost(struct snib__engine *e, const struct snib__hold *hold, snib__time now);

/* identity.c */
void snib__identity_tick(struct snib__engine *e, snib__time now);
/* A hold was lost, which is said soon. */
void snib__identity_lost(struct snib__engine *e, snib__time now);
snib__time snib__identity_deadline(const struct snib__engine *e);
int snib__identity_encode(const struct snib__engine *e, struct snib__buf *out, uint64_t what);
void snib__identity_answer(struct snib__engine *e, struct snib__node *node, uint64_t what,
                           int32_t error, const char *text, snib__time now);
void snib__identity_end(struct snib__engine *e, snib__time now);
int snib__identity_ask(struct snib__buf *out, const struct snib__asked *asked);

/* load.c */
int snib__load_encode(const struct snib__engine *e, struct snib__buf *out,
                      const struct snib__asked *asked);
int32_t snib__load_answer(const struct snib__engine *e, struct snib__op *op,
                          const struct snib__value *reply, const struct snib__resp *resp);

/* board.c */
int snib__board_encode(const struct snib__engine *e, struct snib__buf *out);
void snib__board_answer(struct snib__engine *e, struct snib__node *node,
                        const struct snib__value *reply, int32_t error, const char *text,
                        snib__time now);
void snib__board_end(struct snib__engine *e);

/* ask.c */
/* An operation with a payload; NULL with *out_code, or already done. */
struct snib__op *snib__ask_carry(struct snib__engine *e, int kind, struct snib__gate *gate,
                                 const char *text, size_t n, snib__time now, int32_t *out_code);
struct snib__op *snib__ask_start(struct snib__engine *e, struct snib__op *op, snib__time now);
int snib__ask_encode(struct snib__engine *e, struct snib__buf *out,
                     struct snib__op *op); /* the script; -1: out of memory; -2: a plain command */
void snib__ask_answer(struct snib__engine *e, struct snib__op *op, const struct snib__value *reply,
                      uint32_t n, const struct snib__resp *resp);
/* The lines of one string, as clean texts, without empty lines and comments. */
int32_t snib__ask_lines(struct snib__asked *asked, const char *text, size_t n);

/* engine.c */
/* Locks are held, awaited, queried or being released.  An idle client sends nothing. */
bool snib__engine_busy(const struct snib__engine *e);
uint32_t snib__hash(const char *bytes, size_t n);
void snib__histogram_add(uint64_t *buckets, snib__time duration);

#endif
