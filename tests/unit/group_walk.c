/* group_walk.c - a lock of locks whose members answer at random: it is held by as many as it needs at every step, it
 * never stands still, and in the end nothing of it is left. */
#include "unit.h"

#include "locks/group.h"
#include "snib.h"

#include <string.h>
enum { STEPS = 200000, MEMBERS_MAX = 15 };

/* A carrier's state of a member. */
struct walker {
    bool asked, releasing;
    bool held; /* must be given back */
    bool lost; /* and useless now */
    snib__time deadline;
};

static struct walker walkers[MEMBERS_MAX];
static struct snib__group group;
static uint64_t random_state;

static uint64_t draw(uint64_t below)
{
    random_state = random_state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (random_state >> 33) % below;
}

static void carry_out(int wish, uint32_t i)
{
    struct walker *walker = &walkers[i];
    switch (wish) {
    case SNIB__GROUP_TRY:
        assert_false(walker->asked);
        assert_false(walker->held); /* else the try would wait for itself */
        assert_true(group.phase <= SNIB__GROUP_HELD && group.phase != SNIB__GROUP_PAUSING);
        walker->asked = true;
        break;
    case SNIB__GROUP_CANCEL:
        if (walker->asked && draw(3) == 0) { /* its reply came first */
            walker->held = true;
            snib__group_member_done(&group, i, SNIB_OK, 1000);
        }
        walker->asked = false;
        break;
    case SNIB__GROUP_DROP:
        assert_true(walker->held);
        walker->held = walker->lost = false;
        break;
    default:
        assert_int_equal(wish, SNIB__GROUP_GIVE);
        assert_true(walker->held);
        walker->releasing = true;
    }
}

static void answer(uint32_t i)
{
    static const int32_t codes[] = {SNIB_BUSY, SNIB_BUSY, SNIB_EUNREACHABLE, SNIB_ECLOSED};
    struct walker *walker = &walkers[i];
    if (walker->releasing) {
        walker->releasing = walker->held = walker->lost = false;
        snib__group_member_given(&group, i, draw(4) ? SNIB_OK : draw(2) ? SNIB_LOST : -30);
    } else if (walker->asked) {
        walker->asked = false;
        walker->held = draw(3) > 0;
        walker->deadline = 1000 + draw(1000);
        snib__group_member_done(&group, i, walker->held ? SNIB_OK : codes[draw(COUNT(codes))],
                                walker->held ? walker->deadline : 0);
    } else if (walker->held && draw(3) == 0) {
        walker->lost = true;
        snib__group_member_lost(&group, i, SNIB_REASON_DELETED);
    } else if (walker->held) {
        walker->deadline += draw(100);
        snib__group_member_extended(&group, i, walker->deadline);
    }
}

static void check_held(void)
{
    uint32_t held = 0, as_long = 0;
    snib__time deadline = snib__group_deadline(&group);
    for (uint32_t i = 0; i < group.n; i++) {
        held += walkers[i].held && !walkers[i].lost;
        as_long += walkers[i].held && !walkers[i].lost && walkers[i].deadline >= deadline;
    }
    if (group.phase == SNIB__GROUP_TAKEN || group.phase == SNIB__GROUP_HELD) {
        assert_true(held >= group.need);
        assert_true(deadline > 0 && as_long >= group.need);
    }
}

/* Once all wishes are carried out and no reply is pending, the group is done, or has a time to wait
 * for. */
static void check_progress(void)
{
    uint32_t i, busy = 0;
    for (int wish; (wish = snib__group_wish(&group, &i)) != SNIB__GROUP_NOTHING;)
        carry_out(wish, i);
    for (i = 0; i < group.n; i++)
        busy += walkers[i].asked || walkers[i].releasing;
    assert_true(busy > 0 ||
                (group.phase != SNIB__GROUP_COLLECTING && group.phase != SNIB__GROUP_GIVING));
    if (group.phase == SNIB__GROUP_COLLECTING) { /* and the tries in flight can still be enough */
        for (i = 0; i < group.n; i++)
            busy += walkers[i].held && !walkers[i].lost;
        assert_true(!group.majority || group.once || busy >= group.need);
    }
}

/* Whatever has happened, what remains is given back, and nothing else is wished for. */
static void check_end(void)
{
    uint32_t i;
    snib__group_abandon(&group);
    for (int wish; (wish = snib__group_wish(&group, &i)) != SNIB__GROUP_NOTHING;)
        carry_out(wish, i);
    for (i = 0; i < group.n; i++) {
        assert_false(walkers[i].asked);
        assert_true(!walkers[i].held || walkers[i].releasing);
    }
}

static void walk(uint64_t seed)
{
    random_state = seed;
    memset(walkers, 0, sizeof walkers);
    bool majority = draw(3) > 0;
    snib__group_begin(&group, majority, draw(4) == 0,
                      majority ? 3 + (uint32_t)draw(5) : 1 + (uint32_t)draw(5));
    for (int step = 0; step < 100; step++) {
        uint32_t i;
        uint64_t what = draw(42);
        int wish;
        if (what < 16) {
            if ((wish = snib__group_wish(&group, &i)) != SNIB__GROUP_NOTHING)
                carry_out(wish, i);
        } else if (what < 34) {
            answer((uint32_t)draw(group.n));
        } else if (what < 36) {
            snib__group_pause_over(&group);
        } else if (what < 38) {
            snib__group_refill(&group);
        } else if (what >= 40) {
            snib__group_given_out(&group);
        } else if (what == 38) {
            snib__group_give_up(&group);
        } else if (draw(8) == 0) {
            draw(2) ? snib__group_overdue(&group) : snib__group_silent(&group);
        } else if (draw(4) == 0) {
            draw(2) ? snib__group_release(&group) : snib__group_abandon(&group);
        }
        check_held();
        if (draw(8) == 0)
            check_progress();
    }
    check_end();
}

static void no_walk_leaves_anything(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= STEPS / 100; seed++)
        walk(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_walk_leaves_anything),
    };
    return cmocka_run_group_tests_name("group_walk", tests, NULL, NULL);
}
