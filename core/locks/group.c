/* group.c - see group.h.
 *
 *     IDLE --> ASKED (wish TRY) --granted--> HELD --> GIVING (wish GIVE) --> GIVEN, IDLE
 *                | '--refused--> REFUSED       '--lost, not wanted--> UNWANTED (wish DROP) --> IDLE
 *                '--not wanted--> DOUBTED (wish CANCEL) --> IDLE
 *
 * A member whose hold was lost is dropped too, which releases what its server may still have of it.
 * A member that is wanted again while it is still to be dropped or cancelled is asked afterwards
 * (`again`).
 */
#include "locks/group.h"

#include "snib.h"

#include <string.h>

enum group_state {
    GROUP_IDLE,
    GROUP_ASKED,
    GROUP_REFUSED,
    GROUP_HELD,
    GROUP_UNWANTED, /* held or lost, to be dropped */
    GROUP_DOUBTED,  /* asked, to be cancelled */
    GROUP_GIVING,
    GROUP_GIVEN
};

/* What has become of a member's extension. */
enum group_leased {
    GROUP_AS_BEFORE, /* no part in one, or refused */
    GROUP_TO_EXTEND, /* wish EXTEND */
    GROUP_EXTENDING, /* the answer is awaited */
    GROUP_EXTENDED,  /* granted */
    GROUP_TO_LEASE   /* ... as by enough others: wish LEASE */
};

#define GROUP_PAUSE (10 * SNIB__MS)
#define GROUP_PAUSE_MAX (200 * SNIB__MS)
#define GROUP_PATIENCE (50 * SNIB__MS)

static uint32_t group_count(const struct snib__group *group, int state)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < group->n; i++)
        n += group->members[i].state == state;
    return n;
}

static void group_set(struct snib__group *group, uint32_t i, int state)
{
    group->members[i].state = (uint8_t)state;
    group->members[i].leased = GROUP_AS_BEFORE;
    group->members[i].wished = false;
    group->members[i].again = false;
}

/* Ask a member, at once or after it has been let go of. */
static void group_want(struct snib__group *group, uint32_t i)
{
    struct snib__group_member *member = &group->members[i];
    if (member->state == GROUP_UNWANTED || member->state == GROUP_DOUBTED)
        member->again = true;
    else
        group_set(group, i, GROUP_ASKED);
}

static void group_let_go(struct snib__group *group, uint32_t i)
{
    struct snib__group_member *member = &group->members[i];
    bool wished = member->wished;
    member->again = false;
    if (member->state == GROUP_HELD || (member->state == GROUP_GIVING && !wished))
        group_set(group, i, GROUP_UNWANTED);
    else if (member->state == GROUP_ASKED && wished)
        group_set(group, i, GROUP_DOUBTED);
    else if (member->state != GROUP_UNWANTED && member->state != GROUP_DOUBTED)
        group_set(group, i, GROUP_IDLE);
}

/* Let go of everything. */
static void group_undo(struct snib__group *group)
{
    for (uint32_t i = 0; i < group->n; i++)
        group_let_go(group, i);
}

static void group_end(struct snib__group *group, int32_t code)
{
    group_undo(group);
    group->phase = SNIB__GROUP_ENDED;
    group->code = code;
}

static void group_ask(struct snib__group *group)
{
    group->phase = SNIB__GROUP_COLLECTING;
    group->error = 0;
    group->refusals = group->errors = 0;
    group->round++;
    for (uint32_t i = 0; i < group->n; i++)
        if (group->majority || i == 0)
            group_want(group, i);
}

void snib__group_begin(struct snib__group *group, bool majority, bool once, uint32_t n)
{
    memset(group, 0, sizeof *group);
    group->majority = majority;
    group->once = once;
    group->n = n;
    group->need = majority ? n / 2 + 1 : n;
    group_ask(group);
}

/* Whether so many members could not answer that the others are no majority. */
static bool group_cut_off(const struct snib__group *group)
{
    return group->errors > group->n - group->need;
}

/* What the answers have shown: that the lock is not to be had may be said only when it is known. */
static int32_t group_known(const struct snib__group *group)
{
    if (group_cut_off(group))
        return group->error;
    return group->heard ? SNIB_BUSY : 0;
}

/* The round can no longer succeed. */
static void group_fail_round(struct snib__group *group)
{
    if (group->once || group_cut_off(group)) {
        group_end(group, group_known(group));
        return;
    }
    group_undo(group);
    group->phase = SNIB__GROUP_PAUSING;
}

/* A member has granted or refused. */
static void group_answered(struct snib__group *group, uint32_t i)
{
    group->answers += !group->members[i].answered;
    group->members[i].answered = true;
    group->heard |= group->answers >= group->need;
}

/* Count a vote that was refused, could not be had, or was lost again. */
static void group_tally(struct snib__group *group, int32_t code)
{
    bool asked = group->error == SNIB_ECONNECT && code == SNIB_EUNREACHABLE; /* one of them was */
    group->refusals += code > 0;
    group->errors += code < 0;
    group->heard |= group->refusals > group->n - group->need;
    if (code < 0 && (group->error == 0 || asked))
        group->error = code;
}

/* Whether the round can still succeed.  A single try awaits the answers that its result depends on. */
static void group_review(struct snib__group *group)
{
    uint32_t hoped = group_count(group, GROUP_HELD) + group_count(group, GROUP_ASKED);
    for (uint32_t i = 0; i < group->n; i++)
        hoped += group->members[i].again;
    if (hoped < group->need && (!group->once || group_known(group) != 0))
        group_fail_round(group);
}

/* The result of an attempt that was given up. */
static void group_late(struct snib__group *group, uint32_t i, int32_t code)
{
    bool again = group->members[i].again || group->members[i].state == GROUP_ASKED;
    group_set(group, i, code == SNIB_OK ? GROUP_UNWANTED : GROUP_IDLE);
    if (again)
        group_want(group, i);
}

void snib__group_member_done(struct snib__group *group, uint32_t i, int32_t code,
                             snib__time deadline)
{
    struct snib__group_member *member = &group->members[i];
    if (member->state != GROUP_ASKED || !member->wished) {
        group_late(group, i, code);
        return;
    }
    group_set(group, i, code == SNIB_OK ? GROUP_HELD : GROUP_REFUSED);
    member->deadline = deadline;
    if (code == SNIB_OK && group->extending) /* it may be needed, if another one is silent */
        member->leased = GROUP_TO_EXTEND;
    if (code >= 0)
        group_answered(group, i);
    if (code != SNIB_OK)
        group_tally(group, code);
    if (code == SNIB_OK && group->phase == SNIB__GROUP_GIVING)
        group_set(group, i, GROUP_GIVING);
    if (group->phase != SNIB__GROUP_COLLECTING)
        return;
    if (group_count(group, GROUP_HELD) >= group->need)
        group->phase = SNIB__GROUP_TAKEN;
    else if (group->majority)
        group_review(group);
    else if (code == SNIB_OK)
        group_want(group, i + 1);
    else
        group_end(group, code);
}

/* The error for a vote lost before the others had come: taken away, or
 * it could not wait this long. */
static int32_t group_lost_code(int32_t reason)
{
    if (reason == SNIB_REASON_TAKEN || reason == SNIB_REASON_DELETED ||
        reason == SNIB_REASON_FAILOVER)
        return SNIB_BUSY;
    return reason == SNIB_REASON_CLOSED ? SNIB_ECLOSED : SNIB_EUNREACHABLE;
}

void snib__group_member_lost(struct snib__group *group, uint32_t i, int32_t reason)
{
    if (group->members[i].state != GROUP_HELD)
        return;
    group_set(group, i, GROUP_UNWANTED);
    if (group->phase <= SNIB__GROUP_TAKEN)
        group_tally(group, group_lost_code(reason));
    if (group->phase == SNIB__GROUP_TAKEN && group_count(group, GROUP_HELD) < group->need)
        group->phase = SNIB__GROUP_COLLECTING;
    if (group->phase == SNIB__GROUP_COLLECTING && group->majority) {
        group_review(group);
    } else if (group->phase == SNIB__GROUP_COLLECTING) {
        group_undo(group); /* start over, because the order is the same everywhere */
        group_ask(group);
    } else if (group->phase == SNIB__GROUP_HELD && group_count(group, GROUP_HELD) < group->need) {
        group->reason = reason;
        group_end(group, SNIB_LOST);
    }
}

void snib__group_member_extended(struct snib__group *group, uint32_t i, snib__time deadline)
{
    if (group->members[i].state == GROUP_HELD)
        group->members[i].deadline = deadline;
}

void snib__group_given_out(struct snib__group *group)
{
    if (group->phase != SNIB__GROUP_TAKEN)
        return;
    group->phase = SNIB__GROUP_HELD;
    group->given_out = true;
}

/* The result of a release: released if as many as needed were released, otherwise lost, or
 * the error.  All releases have been sent by then; replies still to come, perhaps from a
 * dead node, change nothing. */
static void group_judge(struct snib__group *group)
{
    bool enough = group_count(group, GROUP_GIVEN) >= group->need;
    if (group->phase != SNIB__GROUP_GIVING || (!enough && group_count(group, GROUP_GIVING) > 0))
        return;
    group->phase = SNIB__GROUP_ENDED;
    group->code = enough ? SNIB_OK : group->failure ? group->failure : SNIB_LOST;
    for (uint32_t i = 0; i < group->n; i++)
        if (group->members[i].state == GROUP_ASKED)
            group_let_go(group, i);
}

void snib__group_member_given(struct snib__group *group, uint32_t i, int32_t code)
{
    if (group->members[i].state != GROUP_GIVING)
        return;
    group_set(group, i, code == SNIB_OK ? GROUP_GIVEN : GROUP_IDLE);
    if (code < 0 && group->failure == 0)
        group->failure = code;
    group_judge(group);
}

static bool group_seeks_majority(const struct snib__group *group)
{
    return group->majority && group->phase <= SNIB__GROUP_PAUSING;
}

void snib__group_overdue(struct snib__group *group)
{
    int32_t known = group_known(group);
    if (group_seeks_majority(group) && known != 0)
        group_end(group, known > 0 ? SNIB_TIMEDOUT : known);
}

void snib__group_silent(struct snib__group *group)
{
    if (group_seeks_majority(group))
        group_end(group, group->error ? group->error : SNIB_EUNREACHABLE);
}

void snib__group_abandon(struct snib__group *group)
{
    if (group->phase != SNIB__GROUP_ENDED)
        group_end(group, SNIB_CANCELLED);
}

void snib__group_fail(struct snib__group *group, int32_t code)
{
    group_end(group, code);
}

void snib__group_release(struct snib__group *group)
{
    if (group->phase != SNIB__GROUP_HELD)
        return;
    group->phase = SNIB__GROUP_GIVING;
    for (uint32_t i = 0; i < group->n; i++) {
        const struct snib__group_member *member = &group->members[i];
        bool coming = member->state == GROUP_ASKED && member->wished;
        if (member->state == GROUP_HELD)
            group_set(group, i, GROUP_GIVING);
        else if (!coming) /* which is given, too, in the place of one whose server has died */
            group_let_go(group, i);
    }
    group_judge(group);
}

/* ---- another lease ---- */

static uint32_t group_count_leased(const struct snib__group *group, int from, int to)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < group->n; i++)
        n += group->members[i].leased >= from && group->members[i].leased <= to;
    return n;
}

void snib__group_extend(struct snib__group *group)
{
    group->extending = true;
    group->trouble = 0;
    for (uint32_t i = 0; i < group->n; i++)
        group->members[i].leased =
            group->members[i].state == GROUP_HELD ? GROUP_TO_EXTEND : GROUP_AS_BEFORE;
}

void snib__group_unextend(struct snib__group *group)
{
    group->extending = false;
    for (uint32_t i = 0; i < group->n; i++)
        group->members[i].leased = GROUP_AS_BEFORE;
}

void snib__group_member_behind(struct snib__group *group, uint32_t i)
{
    if (group->phase == SNIB__GROUP_HELD && group->members[i].state == GROUP_HELD)
        group->members[i].leased = GROUP_TO_EXTEND;
}

void snib__group_member_leased(struct snib__group *group, uint32_t i, int32_t code)
{
    struct snib__group_member *member = &group->members[i];
    if (member->leased != GROUP_EXTENDING)
        return;
    member->leased = code != SNIB_OK    ? GROUP_AS_BEFORE
                     : group->extending ? GROUP_EXTENDED
                                        : GROUP_TO_LEASE;
    if (code < 0 && group->trouble == 0)
        group->trouble = code;
}

bool snib__group_leased(struct snib__group *group, int32_t *out_code)
{
    uint32_t granted = group_count_leased(group, GROUP_EXTENDED, GROUP_EXTENDED);
    uint32_t hoped = group_count_leased(group, GROUP_TO_EXTEND, GROUP_EXTENDED);
    if (!group->extending || (granted < group->need && hoped >= group->need))
        return false;
    if (granted < group->need) {
        snib__group_unextend(group);
        *out_code = group->trouble ? group->trouble : SNIB_EUNREACHABLE; /* votes were lost */
        return true;
    }
    group->extending = false;
    for (uint32_t i = 0; i < group->n; i++)
        if (group->members[i].leased == GROUP_EXTENDED)
            group->members[i].leased = GROUP_TO_LEASE;
    *out_code = SNIB_OK;
    return true;
}

/* ---- votes, rounds, wishes ---- */

void snib__group_refill(struct snib__group *group)
{
    for (uint32_t i = 0; group->majority && group->phase == SNIB__GROUP_HELD && i < group->n; i++)
        if (group->members[i].state != GROUP_HELD && group->members[i].state != GROUP_ASKED)
            group_want(group, i);
}

bool snib__group_contested(const struct snib__group *group)
{
    return group->phase == SNIB__GROUP_COLLECTING && group->majority && !group->once &&
           group->refusals > 0;
}

void snib__group_give_up(struct snib__group *group)
{
    if (snib__group_contested(group))
        group_fail_round(group);
}

void snib__group_pause_over(struct snib__group *group)
{
    if (group->phase == SNIB__GROUP_PAUSING)
        group_ask(group);
}

/* What an extension wishes for a member. */
static int group_lease_wish(struct snib__group_member *member)
{
    if (member->leased == GROUP_TO_EXTEND) {
        member->leased = GROUP_EXTENDING;
        return SNIB__GROUP_EXTEND;
    }
    if (member->leased == GROUP_TO_LEASE) {
        member->leased = GROUP_AS_BEFORE;
        return SNIB__GROUP_LEASE;
    }
    return SNIB__GROUP_NOTHING;
}

int snib__group_wish(struct snib__group *group, uint32_t *out_member)
{
    static const uint8_t wishes[] = {[GROUP_ASKED] = SNIB__GROUP_TRY,
                                     [GROUP_UNWANTED] = SNIB__GROUP_DROP,
                                     [GROUP_DOUBTED] = SNIB__GROUP_CANCEL,
                                     [GROUP_GIVING] = SNIB__GROUP_GIVE,
                                     [GROUP_GIVEN] = SNIB__GROUP_NOTHING};
    for (uint32_t i = 0; i < group->n; i++) {
        struct snib__group_member *member = &group->members[i];
        int wish = wishes[member->state];
        *out_member = i;
        if (wish == SNIB__GROUP_NOTHING && (wish = group_lease_wish(member)))
            return wish;
        if (wish == SNIB__GROUP_NOTHING || member->wished)
            continue;
        if (wish == SNIB__GROUP_DROP || wish == SNIB__GROUP_CANCEL)
            group_set(group, i, member->again ? GROUP_ASKED : GROUP_IDLE);
        else
            member->wished = true;
        return wish;
    }
    return SNIB__GROUP_NOTHING;
}

snib__time snib__group_deadline(const struct snib__group *group)
{
    /* The need-th largest deadline of the held members. */
    snib__time best = 0;
    for (uint32_t i = 0; i < group->n; i++) {
        snib__time candidate = group->members[i].deadline;
        uint32_t as_long = 0;
        if (group->members[i].state != GROUP_HELD)
            continue;
        for (uint32_t j = 0; j < group->n; j++)
            as_long +=
                group->members[j].state == GROUP_HELD && group->members[j].deadline >= candidate;
        if (as_long >= group->need && candidate > best)
            best = candidate;
    }
    return best;
}

snib__time snib__group_patience(const struct snib__group *group, snib__time elapsed)
{
    /* Long rounds must be rare: among many waiters one would always be in a long round, and keep
     * votes that the others need. */
    bool is_long = group->round >= 4 && (group->round & (group->round - 1)) == 0;
    uint32_t times = !is_long ? 1 : group->round < 64 ? group->round / 2 : 32;
    return 3 * elapsed + times * GROUP_PATIENCE;
}

snib__time snib__group_pause(const struct snib__group *group, uint64_t random)
{
    uint32_t doublings = group->round < 5 ? group->round : 5;
    snib__time most = GROUP_PAUSE << doublings;
    if (most > GROUP_PAUSE_MAX)
        most = GROUP_PAUSE_MAX;
    return GROUP_PAUSE / 2 + random % most;
}
