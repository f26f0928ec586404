/* group_extend.c - another lease for a lock of locks: it is the lock's once as many members have it as the lock needs,
 * and otherwise no member gets it; then at random. */
#include "unit.h"

#include "locks/group.h"
#include "snib.h"

#include <string.h>

enum { MEMBERS_MAX = 15 };

static struct snib__group group;

/* A lock that all its members have granted, or the first `granted` of a majority. */
static void hold(bool majority, uint32_t n, uint32_t granted)
{
    uint32_t i, member;
    snib__group_begin(&group, majority, false, n);
    for (i = 0; i < granted; i++) {
        assert_int_equal(snib__group_wish(&group, &member), SNIB__GROUP_TRY);
        snib__group_member_done(&group, member, SNIB_OK, 100);
    }
    snib__group_given_out(&group);
    assert_int_equal(group.phase, SNIB__GROUP_HELD);
    while (snib__group_wish(&group, &member) == SNIB__GROUP_TRY) /* those without an answer */
        ;
}

/* All wishes must be this one, of the members from..to-1. */
static void expect_wishes(int wish, uint32_t from, uint32_t to)
{
    uint32_t member;
    for (uint32_t i = from; i < to; i++) {
        assert_int_equal(snib__group_wish(&group, &member), wish);
        assert_int_equal(member, i);
    }
    assert_int_equal(snib__group_wish(&group, &member), SNIB__GROUP_NOTHING);
}

static void expect_nothing(void)
{
    int32_t code;
    assert_false(snib__group_leased(&group, &code));
}

/* Told once. */
static void expect_result(int32_t expected)
{
    int32_t code = -1;
    assert_true(snib__group_leased(&group, &code));
    assert_int_equal(code, expected);
    expect_nothing();
}

static void all_members_must_have_it(void **state)
{
    (void)state;
    hold(false, 3, 3);
    expect_nothing();
    snib__group_extend(&group);
    expect_wishes(SNIB__GROUP_EXTEND, 0, 3);
    snib__group_member_leased(&group, 1, SNIB_OK);
    snib__group_member_leased(&group, 0, SNIB_OK);
    expect_wishes(0, 0, 0); /* each keeps the lease that it has */
    snib__group_member_leased(&group, 2, SNIB_OK);
    expect_wishes(0, 0, 0);
    expect_result(SNIB_OK);
    expect_wishes(SNIB__GROUP_LEASE, 0, 3);
    assert_int_equal(group.phase, SNIB__GROUP_HELD);
}

static void one_refusal_is_enough(void **state)
{
    (void)state;
    hold(false, 4, 4);
    snib__group_extend(&group);
    expect_wishes(SNIB__GROUP_EXTEND, 0, 4);
    snib__group_member_leased(&group, 0, SNIB_OK);
    snib__group_member_leased(&group, 2, SNIB_EUNREACHABLE);
    expect_result(SNIB_EUNREACHABLE);
    snib__group_member_leased(&group, 1, SNIB_OK); /* too late */
    snib__group_member_leased(&group, 3, SNIB_EPERM);
    expect_nothing();
    expect_wishes(0, 0, 0);
    assert_int_equal(group.phase, SNIB__GROUP_HELD); /* nothing is lost by it */
}

static void most_are_enough(void **state)
{
    (void)state;
    hold(true, 5, 4); /* the fifth does not answer */
    snib__group_extend(&group);
    expect_wishes(SNIB__GROUP_EXTEND, 0, 4);
    snib__group_member_leased(&group, 3, SNIB_OK);
    snib__group_member_leased(&group, 0, SNIB_EUNREACHABLE);
    snib__group_member_leased(&group, 1, SNIB_OK);
    expect_nothing();
    expect_wishes(0, 0, 0);
    snib__group_member_leased(&group, 2, SNIB_OK);
    expect_result(SNIB_OK);
    expect_wishes(SNIB__GROUP_LEASE, 1, 4);
    /* With one member less, one failure is too much. */
    snib__group_extend(&group);
    expect_wishes(SNIB__GROUP_EXTEND, 0, 4);
    snib__group_member_leased(&group, 1, SNIB_EUNREACHABLE);
    expect_nothing();
    snib__group_member_lost(&group, 2, SNIB_REASON_DELETED);
    expect_result(SNIB_EUNREACHABLE);
}

static void a_late_vote_gets_it_as_well(void **state)
{
    (void)state;
    uint32_t member;
    hold(true, 3, 3);
    snib__group_extend(&group);
    expect_wishes(SNIB__GROUP_EXTEND, 0, 3);
    snib__group_member_leased(&group, 0, SNIB_OK);
    snib__group_member_leased(&group, 2, SNIB_OK);
    expect_result(SNIB_OK);
    assert_int_equal(snib__group_wish(&group, &member), SNIB__GROUP_LEASE);
    assert_int_equal(member, 0);
    assert_int_equal(snib__group_wish(&group, &member), SNIB__GROUP_LEASE);
    assert_int_equal(member, 2);
    expect_wishes(0, 0, 0);
    snib__group_member_leased(&group, 1, SNIB_OK);
    expect_wishes(SNIB__GROUP_LEASE, 1, 2);
    expect_nothing();
}

/* The lock is held by two of three, and one of them does not answer: the third, which comes meanwhile, makes up for it. */
static void a_vote_that_comes_meanwhile_is_asked(void **state)
{
    (void)state;
    hold(true, 3, 2);
    snib__group_extend(&group);
    expect_wishes(SNIB__GROUP_EXTEND, 0, 2);
    snib__group_member_leased(&group, 0, SNIB_OK);
    expect_nothing();
    snib__group_member_done(&group, 2, SNIB_OK, 100);
    expect_wishes(SNIB__GROUP_EXTEND, 2, 3);
    expect_nothing();
    snib__group_member_leased(&group, 2, SNIB_OK);
    expect_result(SNIB_OK);
}

static void a_cancelled_one_changes_nothing(void **state)
{
    (void)state;
    hold(false, 3, 3);
    snib__group_extend(&group);
    expect_wishes(SNIB__GROUP_EXTEND, 0, 3);
    snib__group_member_leased(&group, 1, SNIB_OK);
    snib__group_unextend(&group);
    snib__group_member_leased(&group, 0, SNIB_OK);
    snib__group_member_leased(&group, 2, SNIB_OK);
    expect_nothing();
    expect_wishes(0, 0, 0);
}

static void the_next_one_replaces_it(void **state)
{
    (void)state;
    hold(true, 3, 3);
    snib__group_extend(&group);
    expect_wishes(SNIB__GROUP_EXTEND, 0, 3);
    snib__group_member_leased(&group, 0, SNIB_OK);
    snib__group_member_leased(&group, 1, SNIB_OK);
    expect_result(SNIB_OK);
    expect_wishes(SNIB__GROUP_LEASE, 0, 2);
    snib__group_extend(&group); /* while the third has not answered the first one */
    expect_wishes(SNIB__GROUP_EXTEND, 0, 3);
    snib__group_member_leased(&group, 0, SNIB_EUNREACHABLE);
    snib__group_member_leased(&group, 1, SNIB_ECONNECT);
    expect_result(SNIB_EUNREACHABLE); /* the first */
}

static void a_release_ends_it(void **state)
{
    (void)state;
    hold(false, 2, 2);
    snib__group_extend(&group);
    expect_wishes(SNIB__GROUP_EXTEND, 0, 2);
    snib__group_release(&group);
    expect_wishes(SNIB__GROUP_GIVE, 0, 2);
    snib__group_member_leased(&group, 0, SNIB_OK);
    snib__group_member_leased(&group, 1, SNIB_NOT_HELD);
    expect_wishes(0, 0, 0);
}

/* ---- at random ---- */

/* What a carrier knows of its members: the lease that each has, and whether it is asked for another one. */
static struct {
    uint32_t lease[MEMBERS_MAX];
    bool asked[MEMBERS_MAX], granted[MEMBERS_MAX], held[MEMBERS_MAX];
    uint32_t is, wanted; /* the lock's, and what is asked for */
    bool lost;           /* some member */
} world;

static uint64_t random_state;

static uint32_t draw(uint32_t below)
{
    random_state = random_state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (uint32_t)(random_state >> 33) % below;
}

static void wish(void)
{
    uint32_t i;
    switch (snib__group_wish(&group, &i)) {
    case SNIB__GROUP_EXTEND:
        assert_true(world.held[i]);
        world.asked[i] = true; /* an earlier question is cancelled */
        world.granted[i] = false;
        break;
    case SNIB__GROUP_LEASE:
        assert_true(world.held[i] && world.granted[i]);
        world.lease[i] = world.wanted;
        break;
    case SNIB__GROUP_DROP:
        world.held[i] = world.asked[i] = false;
        break;
    default:
        break;
    }
}

static void answer(uint32_t i)
{
    if (!world.asked[i])
        return;
    world.asked[i] = false;
    bool good = draw(4) > 0;
    world.granted[i] = good;
    snib__group_member_leased(&group, i, good ? SNIB_OK : SNIB_EUNREACHABLE);
}

static uint32_t with_lease(uint32_t lease)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < group.n; i++)
        n += group.members[i].deadline && world.held[i] && world.lease[i] == lease;
    return n;
}

static void result(void)
{
    int32_t code;
    if (!snib__group_leased(&group, &code))
        return;
    if (code == SNIB_OK) {
        for (uint32_t i = 0; i < 2 * group.n; i++)
            wish();
        world.is = world.wanted;
        assert_true(with_lease(world.is) >= group.need);
    }
}

/* Once no answer is awaited and nothing is wished for, no member of a lock of all has another lease. */
static void settle(void)
{
    for (int round = 0; round < 4; round++) {
        for (uint32_t i = 0; i < group.n; i++) {
            wish();
            answer(i);
        }
        result();
    }
    for (uint32_t i = 0; i <= 2 * group.n; i++)
        wish();
    expect_nothing();
    if (group.phase == SNIB__GROUP_HELD && !world.lost)
        assert_true(with_lease(world.is) >= group.need);
    for (uint32_t i = 0; i < group.n && !group.majority; i++)
        assert_true(!world.held[i] || world.lease[i] == world.is);
}

static void walk(uint64_t seed)
{
    random_state = seed;
    memset(&world, 0, sizeof world);
    bool majority = draw(2);
    uint32_t n = 1 + draw(7);
    hold(majority, n, n);
    for (uint32_t i = 0; i < n; i++)
        world.held[i] = true;
    for (int step = 0; step < 200 && group.phase == SNIB__GROUP_HELD; step++) {
        uint32_t what = draw(40), i = draw(n);
        if (what < 16) {
            wish();
        } else if (what < 30) {
            answer(i);
        } else if (what < 36) {
            result();
        } else if (what == 36 && world.held[i] && draw(8) == 0) {
            snib__group_member_lost(&group, i, SNIB_REASON_DELETED);
            world.lost = true;
        } else if (what == 37) {
            snib__group_unextend(&group); /* or its result is still told */
        } else if (what == 38) {
            settle();
        } else if (what == 39 && !group.extending) {
            settle();
            world.wanted = world.is + 1;
            snib__group_extend(&group);
        }
    }
    settle();
}

static void no_walk_leaves_anything(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 2000; seed++)
        walk(seed);
}

/* A vote that was asked for before an extension and comes after it is given the lease that the others have got since. */
static void a_vote_from_before_follows(void **state)
{
    (void)state;
    hold(true, 3, 2);
    snib__group_extend(&group);
    expect_wishes(SNIB__GROUP_EXTEND, 0, 2);
    snib__group_member_leased(&group, 0, SNIB_OK);
    snib__group_member_leased(&group, 1, SNIB_OK);
    expect_result(SNIB_OK);
    expect_wishes(SNIB__GROUP_LEASE, 0, 2);
    snib__group_member_behind(&group, 2); /* it has not come yet */
    expect_wishes(SNIB__GROUP_EXTEND, 2, 2);
    snib__group_member_done(&group, 2, SNIB_OK, 100);
    snib__group_member_behind(&group, 2);
    expect_wishes(SNIB__GROUP_EXTEND, 2, 3);
    snib__group_member_leased(&group, 2, SNIB_OK);
    expect_wishes(SNIB__GROUP_LEASE, 2, 3);
    expect_nothing();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_members_must_have_it),
        cmocka_unit_test(one_refusal_is_enough),
        cmocka_unit_test(most_are_enough),
        cmocka_unit_test(a_late_vote_gets_it_as_well),
        cmocka_unit_test(a_vote_that_comes_meanwhile_is_asked),
        cmocka_unit_test(a_cancelled_one_changes_nothing),
        cmocka_unit_test(the_next_one_replaces_it),
        cmocka_unit_test(a_release_ends_it),
        cmocka_unit_test(no_walk_leaves_anything),
        cmocka_unit_test(a_vote_from_before_follows),
    };
    return cmocka_run_group_tests_name("group_extend", tests, NULL, NULL);
}
