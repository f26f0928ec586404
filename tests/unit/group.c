/* group.c - which members a lock of locks tries, gives up, drops and trusts, and for how long. */
#include "unit.h"

#include "locks/group.h"
#include "snib.h"

#include <string.h>

enum { TRY = SNIB__GROUP_TRY, CANCEL, DROP, GIVE };

static struct snib__group group;

static void begin(bool majority, bool once, uint32_t n)
{
    snib__group_begin(&group, majority, once, n);
}

static void expect_wish(int wish, uint32_t member)
{
    uint32_t i = UINT32_MAX;
    assert_int_equal(snib__group_wish(&group, &i), wish);
    assert_int_equal(i, member);
}

static void expect_no_wish(void)
{
    uint32_t i;
    assert_int_equal(snib__group_wish(&group, &i), SNIB__GROUP_NOTHING);
}

static void expect_wishes(int wish, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++)
        expect_wish(wish, i);
    expect_no_wish();
}

static void expect_ended(int32_t code)
{
    assert_int_equal(group.phase, SNIB__GROUP_ENDED);
    assert_int_equal(group.code, code);
}

static void expect_held(void)
{
    snib__group_given_out(&group);
    assert_int_equal(group.phase, SNIB__GROUP_HELD);
}

static void grant(uint32_t member, snib__time deadline)
{
    snib__group_member_done(&group, member, SNIB_OK, deadline);
}

static void refuse(uint32_t member, int32_t code)
{
    snib__group_member_done(&group, member, code, 0);
}

/* A majority of 3 with the votes of 0 and 1; 2 has refused. */
static void held_by_two(void)
{
    begin(true, false, 3);
    expect_wishes(TRY, 0, 3);
    refuse(2, SNIB_BUSY);
    grant(0, 100);
    grant(1, 200);
    expect_held();
    expect_no_wish();
}

/* ---- all ---- */

static void all_are_asked_one_after_the_other(void **state)
{
    (void)state;
    begin(false, false, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(group.phase, SNIB__GROUP_COLLECTING);
        expect_wish(TRY, i);
        expect_no_wish();
        grant(i, 300 - i);
    }
    expect_held();
    assert_int_equal(snib__group_deadline(&group), 298);
    expect_no_wish();
}

static void one_refusal_undoes_all(void **state)
{
    (void)state;
    static const int32_t codes[] = {SNIB_BUSY, SNIB_TIMEDOUT, SNIB_EUNREACHABLE, SNIB_ECLOSED};
    for (size_t k = 0; k < COUNT(codes); k++) {
        begin(false, false, 3);
        expect_wish(TRY, 0);
        grant(0, 100);
        expect_wish(TRY, 1);
        refuse(1, codes[k]);
        expect_ended(codes[k]);
        expect_wishes(DROP, 0, 1);
    }
}

static void a_member_lost_while_collecting_begins_it_anew(void **state)
{
    (void)state;
    for (uint32_t lost = 0; lost < 2; lost++) {
        begin(false, false, 3);
        expect_wish(TRY, 0);
        grant(0, 100);
        expect_wish(TRY, 1);
        grant(1, 100);
        expect_wish(TRY, 2);
        snib__group_member_lost(&group, lost, SNIB_REASON_DELETED);
        assert_int_equal(group.phase, SNIB__GROUP_COLLECTING);
        /* A member's hold is dropped before it is tried again, or the try would wait for itself. */
        expect_wish(DROP, 0);
        expect_wish(TRY, 0);
        expect_wish(DROP, 1);
        expect_wish(CANCEL, 2);
        expect_no_wish();
        for (uint32_t i = 0; i < 3; i++) {
            if (i > 0)
                expect_wish(TRY, i);
            grant(i, 100);
        }
        expect_held();
        assert_int_equal(group.reason, 0);
    }
}

static void one_loss_is_the_loss_of_all(void **state)
{
    (void)state;
    begin(false, false, 2);
    expect_wish(TRY, 0);
    grant(0, 100);
    expect_wish(TRY, 1);
    grant(1, 100);
    expect_held();
    snib__group_refill(&group);
    expect_no_wish(); /* not for all */
    snib__group_member_lost(&group, 1, SNIB_REASON_TAKEN);
    expect_ended(SNIB_LOST);
    assert_int_equal(group.reason, SNIB_REASON_TAKEN);
    expect_wishes(DROP, 0, 2);
}

/* ---- majority ---- */

static void most_are_enough(void **state)
{
    (void)state;
    for (uint32_t n = 3; n <= 15; n++) {
        uint32_t need = n / 2 + 1;
        begin(true, false, n);
        expect_wishes(TRY, 0, n);
        for (uint32_t i = 0; i < need; i++) {
            assert_int_equal(group.phase, SNIB__GROUP_COLLECTING);
            grant(n - 1 - i, 1000 + i);
        }
        expect_held();
        assert_int_equal(snib__group_deadline(&group), 1000);
        grant(0, 5000); /* late, and still useful */
        assert_int_equal(snib__group_deadline(&group), 1001);
        expect_no_wish();
    }
}

static void the_deadline_is_that_of_the_last_vote_needed(void **state)
{
    (void)state;
    static const snib__time deadlines[] = {50, 20, 40, 10, 30};
    begin(true, false, 5);
    expect_wishes(TRY, 0, 5);
    for (uint32_t i = 0; i < 5; i++)
        grant(i, deadlines[i]);
    assert_int_equal(snib__group_deadline(&group), 30);
    snib__group_member_extended(&group, 3, 60);
    assert_int_equal(snib__group_deadline(&group), 40);
    snib__group_member_lost(&group, 0, SNIB_REASON_DELETED);
    expect_held();
    assert_int_equal(snib__group_deadline(&group), 30);
    snib__group_member_extended(&group, 0, 900); /* not a member any more */
    assert_int_equal(snib__group_deadline(&group), 30);
}

static void a_split_vote_is_given_back_and_tried_again(void **state)
{
    (void)state;
    begin(true, false, 3);
    expect_wishes(TRY, 0, 3);
    grant(0, 100);
    refuse(1, SNIB_BUSY);
    assert_int_equal(group.phase, SNIB__GROUP_COLLECTING);
    refuse(2, SNIB_BUSY);
    assert_int_equal(group.phase, SNIB__GROUP_PAUSING);
    expect_wishes(DROP, 0, 1);
    snib__group_pause_over(&group);
    expect_wishes(TRY, 0, 3);
}

static void once_is_one_round(void **state)
{
    (void)state;
    begin(true, true, 3);
    expect_wishes(TRY, 0, 3);
    refuse(0, SNIB_BUSY);
    refuse(1, SNIB_BUSY);
    expect_ended(SNIB_BUSY);
    expect_wishes(CANCEL, 2, 3);
    grant(2, 100); /* its reply was in flight: the grant is dropped */
    expect_wishes(DROP, 2, 3);
}

/* Of three, one has refused and one cannot be reached: what that means depends on the third. */
static void a_single_try_awaits_what_its_result_depends_on(void **state)
{
    (void)state;
    static const struct {
        int32_t third, code;
    } cases[] = {{SNIB_OK, SNIB_BUSY}, {SNIB_BUSY, SNIB_BUSY}, {SNIB_EAUTH, SNIB_EUNREACHABLE}};
    for (size_t k = 0; k < 2 * COUNT(cases); k++) {
        begin(true, true, 3);
        expect_wishes(TRY, 0, 3);
        refuse(0, k % 2 ? SNIB_BUSY : SNIB_EUNREACHABLE);
        refuse(1, k % 2 ? SNIB_EUNREACHABLE : SNIB_BUSY);
        assert_int_equal(group.phase, SNIB__GROUP_COLLECTING);
        expect_no_wish();
        if (cases[k / 2].third == SNIB_OK)
            grant(2, 100);
        else
            refuse(2, cases[k / 2].third);
        expect_ended(cases[k / 2].code);
    }
}

/* Only after a majority has answered may the result say that the lock is not free. */
static void the_end_of_the_wait_says_what_is_known(void **state)
{
    (void)state;
    for (int round = 0; round < 2; round++) {
        begin(true, false, 3);
        expect_wishes(TRY, 0, 3);
        refuse(0, SNIB_BUSY);
        if (round) { /* the second one need not be complete */
            snib__group_give_up(&group);
            assert_int_equal(group.phase, SNIB__GROUP_PAUSING);
            snib__group_overdue(&group); /* nothing is known */
            assert_int_equal(group.phase, SNIB__GROUP_PAUSING);
            expect_wishes(CANCEL, 1, 3);
            snib__group_pause_over(&group);
            expect_wishes(TRY, 0, 3);
        }
        snib__group_overdue(&group);
        assert_int_equal(group.phase, SNIB__GROUP_COLLECTING);
        assert_false(group.heard);
        if (round) { /* the same one tells nothing new */
            refuse(0, SNIB_BUSY);
            snib__group_overdue(&group);
            assert_int_equal(group.phase, SNIB__GROUP_COLLECTING);
        }
        grant(1, 100);
        assert_true(group.heard);
        snib__group_overdue(&group);
        expect_ended(SNIB_TIMEDOUT);
        expect_wish(DROP, 1);
        expect_wish(CANCEL, 2);
        expect_no_wish();
    }
    begin(true, false, 3); /* what an earlier round has shown remains known */
    expect_wishes(TRY, 0, 3);
    refuse(0, SNIB_BUSY);
    refuse(1, SNIB_BUSY);
    snib__group_pause_over(&group);
    snib__group_overdue(&group);
    expect_ended(SNIB_TIMEDOUT);

    begin(false, false, 3); /* of all, each attempt has the caller's limits */
    expect_wish(TRY, 0);
    snib__group_overdue(&group);
    snib__group_silent(&group);
    assert_int_equal(group.phase, SNIB__GROUP_COLLECTING);
    held_by_two();
    snib__group_overdue(&group);
    snib__group_silent(&group);
    expect_held();
}

static void silence_is_no_refusal(void **state)
{
    (void)state;
    begin(true, false, 3);
    expect_wishes(TRY, 0, 3);
    refuse(0, SNIB_BUSY);
    snib__group_silent(&group);
    expect_ended(SNIB_EUNREACHABLE);
    expect_wishes(CANCEL, 1, 3);
    begin(true, false, 5);
    expect_wishes(TRY, 0, 5);
    refuse(0, SNIB_BUSY);
    refuse(1, SNIB_ECONNECT);
    assert_int_equal(group.phase, SNIB__GROUP_COLLECTING);
    snib__group_silent(&group);
    expect_ended(SNIB_ECONNECT);
}

/* Half of an even number is no majority, but leaves none either. */
static void enough_refusals_are_known(void **state)
{
    (void)state;
    begin(true, false, 4);
    expect_wishes(TRY, 0, 4);
    refuse(3, SNIB_BUSY);
    assert_false(group.heard);
    refuse(1, SNIB_BUSY);
    assert_int_equal(group.phase, SNIB__GROUP_PAUSING);
    assert_true(group.heard);
    snib__group_overdue(&group);
    expect_ended(SNIB_TIMEDOUT);
}

/* Votes that were lost again before the round was over are errors of the round. */
static void lost_votes_cut_off(void **state)
{
    (void)state;
    begin(true, false, 5);
    expect_wishes(TRY, 0, 5);
    for (uint32_t i = 0; i < 4; i++)
        grant(i, 100);
    assert_int_equal(group.phase, SNIB__GROUP_TAKEN);
    for (uint32_t i = 0; i < 3; i++)
        snib__group_member_lost(&group, i, SNIB_REASON_EXPIRED);
    expect_ended(SNIB_EUNREACHABLE);
}

static void without_servers_there_is_nothing_to_wait_for(void **state)
{
    (void)state;
    begin(true, false, 3);
    expect_wishes(TRY, 0, 3);
    grant(1, 100);
    refuse(0, SNIB_EUNREACHABLE);
    refuse(2, SNIB_ECLOSED);
    expect_ended(SNIB_EUNREACHABLE);
    expect_wishes(DROP, 1, 2);
}

/* Of several errors the first, but rather one of a server that was asked. */
static void the_error_that_says_most(void **state)
{
    (void)state;
    static const int32_t cases[][3] = {
        {SNIB_ECONNECT, SNIB_EUNREACHABLE, SNIB_EUNREACHABLE},
        {SNIB_EUNREACHABLE, SNIB_ECONNECT, SNIB_EUNREACHABLE},
        {SNIB_EAUTH, SNIB_EUNREACHABLE, SNIB_EAUTH},
        {SNIB_EUNREACHABLE, SNIB_EAUTH, SNIB_EUNREACHABLE},
        {SNIB_ECONNECT, SNIB_ECONNECT, SNIB_ECONNECT},
    };
    for (size_t k = 0; k < COUNT(cases); k++) {
        begin(true, true, 3);
        expect_wishes(TRY, 0, 3);
        refuse(0, cases[k][0]);
        refuse(1, cases[k][1]);
        expect_ended(cases[k][2]);
    }
}

/* Errors of one round say nothing about the next. */
static void each_round_has_its_own_errors(void **state)
{
    (void)state;
    begin(true, false, 3);
    expect_wishes(TRY, 0, 3);
    refuse(0, SNIB_BUSY);
    refuse(1, SNIB_BUSY);
    assert_int_equal(group.phase, SNIB__GROUP_PAUSING);
    expect_wishes(CANCEL, 2, 3);
    snib__group_pause_over(&group);
    assert_false(snib__group_contested(&group));
    expect_wishes(TRY, 0, 3);
    refuse(0, SNIB_EUNREACHABLE);
    refuse(1, SNIB_EUNREACHABLE);
    expect_ended(SNIB_EUNREACHABLE);
}

static void a_vote_lost_while_collecting_counts_as_refused(void **state)
{
    (void)state;
    begin(true, false, 3);
    expect_wishes(TRY, 0, 3);
    grant(0, 100);
    snib__group_member_lost(&group, 0, SNIB_REASON_DELETED);
    expect_wishes(DROP, 0, 1);
    grant(1, 100);
    refuse(2, SNIB_EUNREACHABLE); /* 1 vote, and no pending reply */
    assert_int_equal(group.phase, SNIB__GROUP_PAUSING);
    expect_wishes(DROP, 1, 2);
}

static void votes_that_do_not_outlast_the_round_are_an_error(void **state)
{
    (void)state;
    static const struct {
        int32_t reason, code;
    } cases[] = {
        {SNIB_REASON_EXPIRED, SNIB_EUNREACHABLE}, {SNIB_REASON_UNREACHABLE, SNIB_EUNREACHABLE},
        {SNIB_REASON_CLOSED, SNIB_ECLOSED},       {SNIB_REASON_TAKEN, SNIB_BUSY},
        {SNIB_REASON_DELETED, SNIB_BUSY},         {SNIB_REASON_FAILOVER, SNIB_BUSY},
    };
    for (size_t k = 0; k < COUNT(cases); k++) {
        begin(true, true, 3);
        expect_wishes(TRY, 0, 3);
        grant(0, 100);
        grant(1, 100);
        assert_int_equal(group.phase, SNIB__GROUP_TAKEN);
        snib__group_member_lost(&group, 0, cases[k].reason);
        snib__group_member_lost(&group, 1, cases[k].reason);
        expect_ended(cases[k].code);
    }
}

static void what_was_not_given_out_is_not_lost_but_sought_again(void **state)
{
    (void)state;
    begin(true, false, 3);
    expect_wishes(TRY, 0, 3);
    grant(0, 100);
    grant(1, 200);
    assert_int_equal(group.phase, SNIB__GROUP_TAKEN);
    snib__group_member_lost(&group, 0, SNIB_REASON_DELETED);
    assert_int_equal(group.phase, SNIB__GROUP_COLLECTING); /* 2 may still grant */
    grant(2, 300);
    assert_int_equal(snib__group_deadline(&group), 200);
    snib__group_member_lost(&group, 2, SNIB_REASON_DELETED);
    assert_int_equal(group.phase, SNIB__GROUP_PAUSING);
    snib__group_given_out(&group);
    assert_int_equal(group.phase, SNIB__GROUP_PAUSING);

    begin(false, false, 2);
    expect_wish(TRY, 0);
    grant(0, 100);
    expect_wish(TRY, 1);
    grant(1, 200);
    snib__group_member_lost(&group, 1, SNIB_REASON_DELETED);
    assert_int_equal(group.phase, SNIB__GROUP_COLLECTING);
    expect_wish(DROP, 0);
    expect_wish(TRY, 0);
    expect_wish(DROP, 1);
    expect_no_wish();
}

static void a_majority_holds_at_every_moment_or_is_lost(void **state)
{
    (void)state;
    held_by_two();
    snib__group_refill(&group);
    expect_wishes(TRY, 2, 3);
    snib__group_member_lost(&group, 0, SNIB_REASON_DELETED); /* whatever 2 may reply */
    expect_ended(SNIB_LOST);
    assert_int_equal(group.reason, SNIB_REASON_DELETED);
    expect_wish(DROP, 0);
    expect_wish(DROP, 1);
    expect_wish(CANCEL, 2);
    expect_no_wish();
    grant(2, 100);
    expect_wishes(DROP, 2, 3);
}

static void a_hold_asks_for_what_it_lacks(void **state)
{
    (void)state;
    held_by_two();
    snib__group_refill(&group);
    expect_wishes(TRY, 2, 3);
    snib__group_refill(&group); /* in flight */
    expect_no_wish();
    grant(2, 300);
    assert_int_equal(snib__group_deadline(&group), 200);
    snib__group_member_lost(&group, 0, SNIB_REASON_TAKEN);
    snib__group_refill(&group); /* it is dropped first */
    expect_wish(DROP, 0);
    expect_wishes(TRY, 0, 1);
    refuse(0, SNIB_EUNREACHABLE);
    expect_held();
    snib__group_refill(&group);
    expect_wishes(TRY, 0, 1);
    grant(0, 400);
    assert_int_equal(snib__group_deadline(&group), 300);
}

static void a_contested_round_does_not_wait_for_the_silent(void **state)
{
    (void)state;
    begin(true, false, 3);
    expect_wishes(TRY, 0, 3);
    grant(0, 100);
    snib__group_give_up(&group); /* without competition there is time */
    refuse(1, SNIB_EUNREACHABLE);
    assert_false(snib__group_contested(&group));
    snib__group_give_up(&group);
    assert_int_equal(group.phase, SNIB__GROUP_COLLECTING);

    begin(true, false, 3);
    expect_wishes(TRY, 0, 3);
    grant(0, 100);
    refuse(1, SNIB_BUSY);
    assert_true(snib__group_contested(&group));
    snib__group_give_up(&group);
    assert_int_equal(group.phase, SNIB__GROUP_PAUSING);
    expect_wish(DROP, 0);
    expect_wish(CANCEL, 2);
    expect_no_wish();
    snib__group_pause_over(&group);

    begin(true, true, 3); /* a single try is not repeated, so it awaits all replies */
    expect_wishes(TRY, 0, 3);
    refuse(1, SNIB_BUSY);
    snib__group_give_up(&group);
    assert_int_equal(group.phase, SNIB__GROUP_COLLECTING);
}

/* ---- giving up and back ---- */

static void who_is_not_wanted_any_more_leaves_nothing(void **state)
{
    (void)state;
    begin(true, false, 3);
    expect_wish(TRY, 0);
    expect_wish(TRY, 1);
    grant(0, 100);
    snib__group_abandon(&group);
    expect_ended(SNIB_CANCELLED);
    expect_wish(DROP, 0);
    expect_wish(CANCEL, 1); /* 2 was never tried */
    expect_no_wish();
    refuse(1, SNIB_BUSY);
    expect_no_wish();
    snib__group_abandon(&group);
    snib__group_release(&group);
    snib__group_pause_over(&group);
    expect_ended(SNIB_CANCELLED);
}

static void an_answer_between_the_rounds_is_dropped_before_the_next_question(void **state)
{
    (void)state;
    begin(true, false, 3);
    expect_wishes(TRY, 0, 3);
    refuse(0, SNIB_BUSY);
    refuse(1, SNIB_BUSY);
    expect_wish(CANCEL, 2);
    grant(2, 100); /* granted before the cancel */
    snib__group_pause_over(&group);
    expect_wish(TRY, 0);
    expect_wish(TRY, 1);
    expect_wish(DROP, 2);
    expect_wish(TRY, 2);
    expect_no_wish();
}

static void too_late_is_of_no_use(void **state)
{
    (void)state;
    held_by_two();
    snib__group_fail(&group, SNIB_EUNREACHABLE);
    expect_ended(SNIB_EUNREACHABLE);
    expect_wishes(DROP, 0, 2);
}

static void a_release_goes_to_all_and_is_judged_by_most(void **state)
{
    (void)state;
    static const struct {
        int32_t answers[3], code;
        uint32_t from; /* from this reply on the others do not count: a dead node's may take long */
    } cases[] = {
        {{SNIB_OK, SNIB_OK, SNIB_OK}, SNIB_OK, 2},
        {{SNIB_OK, SNIB_OK, SNIB_EUNREACHABLE}, SNIB_OK, 2},
        {{SNIB_OK, SNIB_EUNREACHABLE, SNIB_OK}, SNIB_OK, 3},
        {{SNIB_OK, SNIB_LOST, SNIB_LOST}, SNIB_LOST, 3},
        {{SNIB_OK, SNIB_LOST, SNIB_EUNREACHABLE}, SNIB_EUNREACHABLE, 3},
        {{SNIB_LOST, SNIB_ENOMEM, SNIB_EUNREACHABLE}, SNIB_ENOMEM, 3}, /* the first that failed */
    };
    for (size_t k = 0; k < COUNT(cases); k++) {
        begin(true, false, 3);
        expect_wishes(TRY, 0, 3);
        refuse(0, SNIB_EUNREACHABLE); /* forgotten by then */
        grant(1, 100);
        grant(2, 100);
        expect_held();
        snib__group_refill(&group);
        expect_wishes(TRY, 0, 1);
        grant(0, 100);
        snib__group_release(&group);
        assert_int_equal(group.phase, SNIB__GROUP_GIVING);
        expect_wishes(GIVE, 0, 3);
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(group.phase,
                             i < cases[k].from ? SNIB__GROUP_GIVING : SNIB__GROUP_ENDED);
            snib__group_member_given(&group, i, cases[k].answers[i]);
        }
        expect_ended(cases[k].code);
        expect_no_wish();
    }
}

static void a_release_cancels_what_is_still_asked(void **state)
{
    (void)state;
    held_by_two();
    snib__group_refill(&group);
    expect_wishes(TRY, 2, 3);
    snib__group_release(&group);
    expect_wishes(GIVE, 0, 2);
    snib__group_member_lost(&group, 0, SNIB_REASON_EXPIRED); /* the release itself reports it */
    snib__group_member_given(&group, 0, SNIB_OK);
    expect_no_wish(); /* it may still be of use */
    snib__group_member_given(&group, 1, SNIB_OK);
    expect_ended(SNIB_OK);
    expect_wishes(CANCEL, 2, 3);
    grant(2, 100); /* its reply was in flight */
    expect_wishes(DROP, 2, 3);

    held_by_two();
    snib__group_refill(&group); /* never sent, so there is nothing to cancel */
    snib__group_release(&group);
    expect_wishes(GIVE, 0, 2);
    snib__group_abandon(&group); /* the client is closed */
    snib__group_member_given(&group, 0, SNIB_OK);
    expect_ended(SNIB_CANCELLED);
}

/* The server of one vote has died, and the vote of another one comes only now. */
static void
a_vote_that_comes_as_the_lock_is_released_takes_the_place_of_one_that_is_gone(void **state)
{
    (void)state;
    static const int32_t answers[] = {SNIB_OK, SNIB_BUSY, SNIB_EUNREACHABLE};
    for (size_t k = 0; k < COUNT(answers); k++) {
        held_by_two();
        snib__group_refill(&group);
        expect_wishes(TRY, 2, 3);
        snib__group_release(&group);
        expect_wishes(GIVE, 0, 2);
        snib__group_member_given(&group, 1, SNIB_OK);
        snib__group_member_done(&group, 2, answers[k], 300);
        assert_int_equal(group.phase, SNIB__GROUP_GIVING);
        if (answers[k] != SNIB_OK) {
            expect_no_wish();
            snib__group_member_given(&group, 0, SNIB_EUNREACHABLE);
            expect_ended(SNIB_EUNREACHABLE);
            continue;
        }
        expect_wishes(GIVE, 2, 3);
        snib__group_member_given(&group, 2, SNIB_OK);
        expect_ended(SNIB_OK);
        expect_no_wish();
    }
    held_by_two(); /* what has not come by then is not waited for */
    snib__group_refill(&group);
    expect_wishes(TRY, 2, 3);
    snib__group_release(&group);
    expect_wishes(GIVE, 0, 2);
    snib__group_member_given(&group, 1, SNIB_OK);
    snib__group_member_given(&group, 0, SNIB_EUNREACHABLE);
    expect_ended(SNIB_EUNREACHABLE);
    expect_wishes(CANCEL, 2, 3);
}

static void pauses_are_random_and_bounded(void **state)
{
    (void)state;
    static const uint64_t randoms[] = {0, 1, 12345678901ULL, UINT64_MAX};
    snib__time longest = 0;
    int brief = 0;
    begin(true, false, 3);
    for (int round = 0; round < 70; round++) {
        snib__time least = SNIB__NEVER, most = 0;
        for (size_t i = 0; i < COUNT(randoms); i++) {
            snib__time pause = snib__group_pause(&group, randoms[i]);
            least = pause < least ? pause : least;
            most = pause > most ? pause : most;
        }
        assert_true(least >= 5 * SNIB__MS && most <= 205 * SNIB__MS && most > least);
        snib__time patience = snib__group_patience(&group, 7);
        assert_true(patience >= 21 + 50 * SNIB__MS && patience <= 21 + 1600 * SNIB__MS);
        longest = patience > longest ? patience : longest;
        brief += patience <= 21 + 50 * SNIB__MS;
        group.round++;
    }
    /* Mostly no longer than the others' pauses; but a slow member is heard in the end. */
    assert_int_equal(brief, 65);
    assert_int_equal(longest, 21 + 1600 * SNIB__MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_are_asked_one_after_the_other),
        cmocka_unit_test(one_refusal_undoes_all),
        cmocka_unit_test(a_member_lost_while_collecting_begins_it_anew),
        cmocka_unit_test(one_loss_is_the_loss_of_all),
        cmocka_unit_test(most_are_enough),
        cmocka_unit_test(the_deadline_is_that_of_the_last_vote_needed),
        cmocka_unit_test(a_split_vote_is_given_back_and_tried_again),
        cmocka_unit_test(once_is_one_round),
        cmocka_unit_test(a_single_try_awaits_what_its_result_depends_on),
        cmocka_unit_test(the_end_of_the_wait_says_what_is_known),
        cmocka_unit_test(silence_is_no_refusal),
        cmocka_unit_test(enough_refusals_are_known),
        cmocka_unit_test(lost_votes_cut_off),
        cmocka_unit_test(without_servers_there_is_nothing_to_wait_for),
        cmocka_unit_test(the_error_that_says_most),
        cmocka_unit_test(each_round_has_its_own_errors),
        cmocka_unit_test(a_vote_lost_while_collecting_counts_as_refused),
        cmocka_unit_test(votes_that_do_not_outlast_the_round_are_an_error),
        cmocka_unit_test(what_was_not_given_out_is_not_lost_but_sought_again),
        cmocka_unit_test(a_majority_holds_at_every_moment_or_is_lost),
        cmocka_unit_test(a_hold_asks_for_what_it_lacks),
        cmocka_unit_test(a_contested_round_does_not_wait_for_the_silent),
        cmocka_unit_test(who_is_not_wanted_any_more_leaves_nothing),
        cmocka_unit_test(an_answer_between_the_rounds_is_dropped_before_the_next_question),
        cmocka_unit_test(too_late_is_of_no_use),
        cmocka_unit_test(a_release_goes_to_all_and_is_judged_by_most),
        cmocka_unit_test(a_release_cancels_what_is_still_asked),
        cmocka_unit_test(
            a_vote_that_comes_as_the_lock_is_released_takes_the_place_of_one_that_is_gone),
        cmocka_unit_test(pauses_are_random_and_bounded),
    };
    return cmocka_run_group_tests_name("group", tests, NULL, NULL);
}
