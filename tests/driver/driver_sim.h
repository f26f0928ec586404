/* driver_sim.h - building blocks that all stories use (blocks.c), and the stories. */
#ifndef SNIB_TESTS_DRIVER_SIM_H
#define SNIB_TESTS_DRIVER_SIM_H

#include "world.h"

#include "../../core/testing/model_server.h"
#include "api/objects.h"
#include "engine/internal.h"
#include "engine/route.h"

#define CORKED_MAX                                                                                 \
    (20 * SNIB__MS) /* for which the consumer of a corked queue may keep requests back */
enum { LEASE_MS = 3000, CLIENTS_MAX = 12 };
extern snib_client *clients[CLIENTS_MAX];
extern struct snib__driver *drivers[CLIENTS_MAX];
extern int clients_n;
extern int running; /* workers */

#define MUST(call, want)                                                                           \
    do {                                                                                           \
        snib_error err_ = {0}, *err = &err_;                                                       \
        int got_ = (call);                                                                         \
        (void)err;                                                                                 \
        if (got_ != (want))                                                                        \
            world_fail("%s gave %s: %s", #call, snib_code_name(got_), err_.text);                  \
    } while (0)

void open_client_with(const char *url, const snib_client_options *options);
void open_client_at(const char *url, int64_t lease_ms, int64_t connect_timeout_ms);
void open_client(int64_t lease_ms, int64_t connect_timeout_ms); /* at name.test */
void connect_client(void);                                      /* the one that was opened last */
void free_client(void);
void close_client(void);
snib_lock *lock_of(int i, const char *stem, int number, int64_t lease_ms);
snib_lock *lock_named(const char *stem, int i, int64_t lease_ms); /* of worker i's client */
void prompt(snib__time since, const char *what);
bool event_within(snib_queue *queue, snib_event *out, snib__time span);
void next_event(snib_queue *queue, snib_event *out);
bool cut_off(int code); /* what may come of a connection that ends, where that is a fault */
bool nobody_runs(void *on);
void expect_nothing_left(void);

/* connect_stories.c */
void two_addresses(void *argument);
void mute_addresses(void *argument);
void two_families(void *argument);
void no_address(void *argument);
void hanging_lookup(void *argument);
void slow_lookup(void *argument);
void other_way(void *argument);
void later_lookup(void *argument);
void no_name(void *argument);
void suspend(void *argument);
void lost_rings(void *argument);
void silent_close(void *argument);

/* thread_stories.c */
void kept_from_waking(void *argument);
void kept_from_ringing(void *argument);
void kept_from_leading(void *argument);
void all_kept_from_leading(void *argument);
void stopped_in_turn(void *argument);
void silence_of_the_server(void *argument);
void nominee_leaves(void *argument);
void collected(void *argument);
void owners(void *argument);
void many_wakes(void *argument);
void freed_while_held(void *argument);
void end_while_idle(void *argument);
void seen_before_the_thread(void *argument);
void answers_together(void *argument);

/* cluster_stories.c */
void open_cluster(int64_t lease_ms);
void collected_by_all(void *argument);
void collected_alone(void *argument);
void corked_while_awake(void *argument);

/* group_stories.c */
void lost_votes(void *argument);
void late_votes(void *argument);
void shared_try(void *argument);
void silent_nodes(void *argument);
void returning_node(void *argument);
void closed_members(void *argument);
void abandoned_group(void *argument);
void short_rounds(void *argument);
void random_groups(void *argument);

/* login_stories.c */
void login_renewals(void *argument);
void login_renewed_at_a_cut(void *argument);
void login_answers(void *argument);
void login_late(void *argument);
void login_freed(void *argument);

/* lead_stories.c */
void consumer_reads(void *argument);
void only_the_thread(void *argument);
void consumer_leaves_some(void *argument);
void consumer_stalls(void *argument);
void caller_leaves_it_behind(void *argument);
void consumer_never_comes(void *argument);
void caller_goes_before(void *argument);
void caller_waits_behind(void *argument);
void leader_is_freed(void *argument);

/* queue_stories.c */
void random_queues(void *argument);
void queue_rules(void *argument);

#endif
