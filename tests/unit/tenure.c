/* tenure.c - hand-over inside the process without a command: who has the lock, what the server is asked, and what the
 * releases say.
 */
#include "fed.h"

#include "engine/route.h"

#define THERE "*0\r\n"
#define GONE "*2\r\n:1\r\n:0\r\n"
#define TAKEN "*2\r\n:1\r\n:1\r\n"
#define RENEW SNIB__SCRIPT_MUTEX_RENEW

static const struct snib__acquire renewed = {.wait = SNIB__NEVER};

static struct snib__engine *begin_tenure(void)
{
    struct snib__engine *engine = begin();
    engine->config.tenure = true;
    return engine;
}

static struct snib__op *release(struct snib__engine *engine, struct snib__hold *hold)
{
    int32_t code;
    struct snib__op *op = snib__engine_release(engine, hold, now, &code);
    assert_non_null(op);
    return op;
}

static struct snib__op *wait_for(struct snib__engine *engine, struct snib__gate *of,
                                 const struct snib__acquire *how)
{
    int32_t code;
    struct snib__op *op = snib__engine_acquire(engine, of, how, now, &code);
    assert_non_null(op);
    return op;
}

/* The operation is the next that has ended; its hold stays the caller's. */
static void ended(struct snib__engine *engine, struct snib__op *op, int32_t code)
{
    assert_ptr_equal(snib__engine_take_done(engine), op);
    assert_int_equal(op->code, code);
    snib__op_free(engine, op);
}

static void lost(struct snib__engine *engine, struct snib__hold *hold, int reason)
{
    assert_ptr_equal(snib__engine_take_lost(engine), hold);
    assert_int_equal(hold->reason, reason);
    assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_LOST);
}

/* Whether a question, or a renewal, is all that is on its way. */
static bool asks_alone(struct snib__engine *engine)
{
    return oldest_script(engine) == RENEW && on_the_way(engine) == 1;
}

/* A mutex that is held, and n operations that wait for it. */
static struct snib__hold *held(struct snib__engine *engine, struct snib__gate *of,
                               struct snib__op **waiting, int n)
{
    struct snib__hold *hold = granted(engine, of, &renewed);
    hold->tell = 1;
    for (int i = 0; i < n; i++)
        waiting[i] = wait_for(engine, of, &renewed);
    now += SNIB__MS;
    return hold;
}

static void next_has_it_at_once(void **state)
{
    (void)state;
    static const int32_t kinds[] = {SNIB_MUTEX, SNIB_PLAIN};
    for (size_t i = 0; i < COUNT(kinds); i++) {
        struct snib__engine *engine = begin_tenure();
        struct snib__gate *of = gate(engine, kinds[i], "m");
        struct snib__op *next, *given;
        struct snib__hold *first = held(engine, of, &next, 1), *second;
        const snib__time deadline = first->deadline;
        const uint64_t number = first->number;
        given = release(engine, first);
        second = acquired(engine, next);
        assert_ptr_not_equal(second, first);
        assert_true(second->number == number && second->deadline == deadline);
        assert_int_equal(snib__hold_state(engine, second, now), SNIB_HOLD_VALID);
        assert_int_equal(snib__hold_state(engine, first, now), SNIB_HOLD_RELEASED);
        assert_false(given->done); /* the server has not confirmed that it was held until then */
        assert_int_equal(oldest_script(engine),
                         kinds[i] == SNIB_MUTEX ? RENEW : SNIB__SCRIPT_PLAIN_RENEW);
        assert_ptr_equal(snib__op_link(given), snib__engine_link(engine, SNIB__COMMAND));
        answer(engine, THERE);
        ended(engine, given, SNIB_OK);
        assert_int_equal(engine->stats.handovers, 1);
        assert_int_equal(engine->stats.held, 1);
        snib__hold_drop(engine, first, now);
        given = release(engine, second);
        assert_int_equal(oldest_script(engine), kinds[i] == SNIB_MUTEX
                                                    ? SNIB__SCRIPT_MUTEX_RELEASE
                                                    : SNIB__SCRIPT_PLAIN_RELEASE);
        answer(engine, ":1\r\n");
        ended(engine, given, SNIB_OK);
        assert_int_equal(engine->stats.releases, 2);
        snib__engine_free(engine);
    }
}

/* The next one is renewed like any other hold, in its place of the watchdog's list. */
static void next_is_renewed_in_time(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_tenure();
    struct snib__gate *of = gate(engine, SNIB_MUTEX, "m");
    struct snib__op *next, *given;
    struct snib__hold *first = held(engine, of, &next, 1), *other, *second;
    now += 2 * SNIB__MS;
    other = granted(engine, gate(engine, SNIB_MUTEX, "later"), &renewed);
    given = release(engine, first);
    second = acquired(engine, next);
    assert_true(asks_alone(engine));
    answer(engine, THERE);
    ended(engine, given, SNIB_OK);
    assert_true(second->deadline < other->deadline);
    now = START + 10 * SECOND;
    snib__engine_tick(engine, now);
    assert_true(asks_alone(engine));
    answer(engine, THERE);
    assert_true(second->deadline > START + 30 * SECOND);
    snib__engine_free(engine);
}

/* The number is gone when its server is asked: the release says so, and the present hold is lost. */
static void loss_is_told_to_both(void **state)
{
    (void)state;
    static const char *const replies[] = {GONE, TAKEN};
    for (size_t i = 0; i < COUNT(replies); i++) {
        const int reason = i == 0 ? SNIB_REASON_DELETED : SNIB_REASON_TAKEN;
        struct snib__engine *engine = begin_tenure();
        struct snib__op *next, *given;
        struct snib__hold *first = held(engine, gate(engine, SNIB_MUTEX, "m"), &next, 1), *second;
        given = release(engine, first);
        second = acquired(engine, next);
        second->tell = 1;
        oldest_script(engine);
        answer(engine, replies[i]);
        assert_int_equal(given->reason, reason);
        ended(engine, given, SNIB_LOST);
        lost(engine, second, reason);
        assert_int_equal(engine->stats.held, 0);
        assert_int_equal(i == 0 ? engine->stats.lost_deleted : engine->stats.lost_taken, 2);
        snib__engine_free(engine);
    }
}

/* Releases that come while a question is on its way share the next one, and no question comes after the release that ends
 * the number. */
static void questions_are_shared(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_tenure();
    struct snib__op *next[4], *given[5];
    struct snib__hold *hold = held(engine, gate(engine, SNIB_MUTEX, "m"), next, 4);
    for (int i = 0; i < 3; i++) {
        given[i] = release(engine, hold);
        hold = acquired(engine, next[i]);
        assert_true(asks_alone(engine));
    }
    answer(engine, THERE);
    ended(engine, given[0], SNIB_OK);
    assert_true(asks_alone(engine));
    assert_ptr_equal(snib__engine_take_done(engine), NULL);
    given[3] = release(engine, hold);
    hold = acquired(engine, next[3]);
    assert_true(asks_alone(engine)); /* for two */
    given[4] = release(engine, hold);
    assert_int_equal(on_the_way(engine), 3); /* for the fourth, and then the release */
    answer(engine, THERE);
    assert_true(given[1]->done && given[2]->done && !given[3]->done);
    assert_int_equal(oldest_script(engine), RENEW);
    answer(engine, THERE);
    assert_true(given[3]->done && !given[4]->done);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RELEASE);
    answer(engine, ":1\r\n");
    for (int i = 1; i < 5; i++) {
        assert_true(given[i]->done);
        assert_int_equal(given[i]->code, SNIB_OK);
    }
    assert_int_equal(on_the_way(engine), 0);
    snib__engine_free(engine);
}

/* A hand-over by command ends the number, too. */
static void question_comes_before_a_transfer(void **state)
{
    (void)state;
    static const struct snib__acquire fixed = {.wait = SNIB__NEVER, .lease = 10 * SECOND};
    struct snib__engine *engine = begin_tenure();
    struct snib__gate *of = gate(engine, SNIB_MUTEX, "m");
    struct snib__op *next[2], *last, *given[3];
    struct snib__hold *hold = held(engine, of, next, 2);
    last = wait_for(engine, of, &fixed);
    for (int i = 0; i < 2; i++) {
        given[i] = release(engine, hold);
        hold = acquired(engine, next[i]);
    }
    given[2] = release(engine, hold);
    assert_int_equal(on_the_way(engine), 3);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(oldest_script(engine), RENEW);
        answer(engine, THERE);
        ended(engine, given[i], SNIB_OK);
    }
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_TRANSFER);
    answer(engine, ":1\r\n");
    assert_true(given[2]->done && last->done && last->code == SNIB_OK);
    snib__engine_free(engine);
}

/* The connection ends with a question and the release that ends the number on their way.  Both are repeated, and the
 * server, which has carried them out, has the number no more: no release is told of a loss. */
static void repeated_question_is_behind(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_tenure();
    struct snib__op *next, *given[2];
    struct snib__hold *hold = held(engine, gate(engine, SNIB_MUTEX, "m"), &next, 1);
    given[0] = release(engine, hold);
    given[1] = release(engine, acquired(engine, next));
    cut_link(engine);
    await_connect(engine);
    connect_link(engine);
    assert_int_equal(oldest_script(engine), RENEW);
    answer(engine, GONE);
    ended(engine, given[0], SNIB_OK);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RELEASE);
    answer(engine, ":0\r\n");
    ended(engine, given[1], SNIB_OK);
    snib__engine_free(engine);
}

/* ... but if nothing has released the number, it is lost. */
static void repeated_question_finds_a_loss(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_tenure();
    struct snib__op *next, *given;
    struct snib__hold *hold = held(engine, gate(engine, SNIB_MUTEX, "m"), &next, 1), *second;
    given = release(engine, hold);
    second = acquired(engine, next);
    second->tell = 1;
    cut_link(engine);
    await_connect(engine);
    connect_link(engine);
    assert_int_equal(oldest_script(engine), RENEW);
    answer(engine, GONE);
    ended(engine, given, SNIB_LOST);
    lost(engine, second, SNIB_REASON_DELETED);
    snib__engine_free(engine);
}

/* ... also if a renewal, which finds that out, is answered first. */
static void renewal_finds_it_before(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_tenure();
    struct snib__op *next, *given;
    struct snib__hold *hold = held(engine, gate(engine, SNIB_MUTEX, "m"), &next, 1), *second;
    given = release(engine, hold);
    second = acquired(engine, next);
    second->tell = 1;
    snib__tenure_again(hold); /* as if it had been sent on a lane that was lost */
    snib__hold_lose(engine, second, SNIB_REASON_DELETED, now);
    lost(engine, second, SNIB_REASON_DELETED);
    snib__hold_drop(engine, second, now);
    assert_int_equal(oldest_script(engine), RENEW);
    answer(engine, GONE);
    ended(engine, given, SNIB_LOST);
    snib__engine_free(engine);
}

/* ... also if it is lost by its own limit, and is not given back. */
static void limit_is_no_release(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_tenure();
    struct snib__op *next, *given;
    struct snib__hold *hold = held(engine, gate(engine, SNIB_MUTEX, "m"), &next, 1), *second;
    given = release(engine, hold);
    second = acquired(engine, next);
    snib__hold_lose(engine, second, SNIB_REASON_MAX_HOLD, now);
    cut_link(engine);
    await_connect(engine);
    connect_link(engine);
    assert_int_equal(oldest_script(engine), RENEW);
    answer(engine, GONE);
    ended(engine, given, SNIB_LOST);
    snib__engine_free(engine);
}

/* ... but one that is given back then was still there, and its release ends it, whatever is released after it. */
static void limit_ends_it_before(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_tenure();
    struct snib__op *next, *given;
    struct snib__hold *hold = held(engine, gate(engine, SNIB_MUTEX, "m"), &next, 1), *second;
    given = release(engine, hold);
    second = acquired(engine, next);
    snib__hold_lose(engine, second, SNIB_REASON_MAX_HOLD, now);
    snib__hold_drop(engine, second, now);
    struct snib__op *other = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
    snib__engine_cancel(engine, other, now); /* what it may get is given back */
    cut_link(engine);
    await_connect(engine);
    connect_link(engine);
    assert_int_equal(oldest_script(engine), RENEW);
    answer(engine, GONE);
    assert_true(given->done && given->code == SNIB_OK);
    snib__engine_free(engine);
}

/* ... and if the lease may have ended meanwhile, nothing is known of what has become of the number. */
static void repeated_question_comes_too_late(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_tenure();
    struct snib__op *next, *given;
    struct snib__hold *first = held(engine, gate(engine, SNIB_MUTEX, "m"), &next, 1);
    given = release(engine, first);
    release(engine, acquired(engine, next));
    cut_link(engine);
    while (now < first->deadline) {
        now += SECOND;
        snib__engine_tick(engine, now);
    }
    assert_true(given->done && given->code == SNIB_EUNREACHABLE);
    await_connect(engine);
    connect_link(engine);
    assert_int_equal(oldest_script(engine), RENEW);
    answer(engine, GONE);
    assert_int_equal(engine->stats.releases, 0);
    assert_int_equal(engine->stats.lost_unreachable, 1); /* whatever has become of the key since */
    assert_int_equal(engine->stats.lost_deleted, 0);
    snib__engine_free(engine);
}

/* Another server, without the number, takes over before a question is sent: that is the reason for whoever had it. */
static void failover_is_the_reason_for_all(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_tenure();
    struct snib__address second = {.host = "second", .port = 1};
    engine->home->addressed = true; /* it is one of several */
    struct snib__op *next[2], *given[3];
    struct snib__hold *hold = held(engine, gate(engine, SNIB_MUTEX, "m"), next, 2);
    given[0] = release(engine, hold);
    given[1] = release(engine, acquired(engine, next[0]));
    hold = acquired(engine, next[1]);
    cut_link(engine);
    given[2] = release(engine, hold);
    snib__node_readdress(engine, engine->home, &second, now);
    await_connect(engine);
    connect_link(engine);
    assert_int_equal(oldest_script(engine), RENEW);
    answer(engine, GONE);
    ended(engine, given[0],
          SNIB_OK); /* its release may have been repeated behind that of the number */
    assert_int_equal(oldest_script(engine), RENEW);
    answer(engine, GONE);
    ended(engine, given[1], SNIB_LOST);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RELEASE);
    answer(engine, ":0\r\n");
    ended(engine, given[2], SNIB_LOST);
    assert_int_equal(engine->stats.lost_failover, 2);
    assert_int_equal(engine->stats.lost_deleted, 0);
    snib__engine_free(engine);
}

/* What has been asked for, and has no answer, may have been answered, for each of those that share the question. */
static void question_without_an_answer_was_sent(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_tenure();
    struct snib__op *next[3], *given[3];
    struct snib__hold *hold = held(engine, gate(engine, SNIB_MUTEX, "m"), next, 3);
    for (int i = 0; i < 3; i++) {
        given[i] = release(engine, hold);
        hold = acquired(engine, next[i]);
    }
    oldest_script(engine);
    answer(engine, THERE);
    ended(engine, given[0], SNIB_OK);
    assert_true(asks_alone(engine)); /* for two */
    cut_link(engine);
    for (int i = 0; i < 6; i++) {
        now += SECOND;
        snib__engine_tick(engine, now);
    }
    assert_true(given[1]->done && given[1]->code == SNIB_EUNREACHABLE);
    assert_true(given[2]->done && given[2]->code == SNIB_EUNREACHABLE);
    snib__engine_free(engine);
}

/* The server refuses to say: the release ends with that, the question is repeated, and the next one has the lock meanwhile. */
static void refused_question_is_repeated(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_tenure();
    struct snib__op *next, *given;
    struct snib__hold *hold = held(engine, gate(engine, SNIB_MUTEX, "m"), &next, 1), *second;
    given = release(engine, hold);
    second = acquired(engine, next);
    oldest_script(engine);
    answer(engine, "-BUSY a script is running\r\n");
    assert_true(given->done && given->code < 0);
    assert_int_equal(engine->releasing, 1);
    now += 600 * SNIB__MS;
    snib__engine_tick(engine, now);
    assert_true(asks_alone(engine));
    answer(engine, THERE);
    assert_int_equal(engine->releasing, 0);
    assert_int_equal(snib__hold_state(engine, second, now), SNIB_HOLD_VALID);
    snib__engine_free(engine);
}

/* The refusal is told to all that share the question: each would wait for its repetition, and be told then that it lost
 * what another has released since. */
static void refusal_is_told_to_all(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_tenure();
    struct snib__op *next[3], *given[3];
    struct snib__hold *hold = held(engine, gate(engine, SNIB_MUTEX, "m"), next, 3);
    for (int i = 0; i < 3; i++) {
        given[i] = release(engine, hold);
        hold = acquired(engine, next[i]);
        assert_true(asks_alone(engine));
    }
    answer(engine, THERE);
    ended(engine, given[0], SNIB_OK);
    assert_true(asks_alone(engine));
    answer(engine, "-ERR unexpected\r\n");
    assert_true(given[1]->done && given[2]->done);
    assert_int_equal(given[1]->code, SNIB_ESERVER);
    assert_int_equal(given[2]->code, SNIB_ESERVER);
    assert_int_equal(engine->releasing, 2);
    now += 600 * SNIB__MS;
    snib__engine_tick(engine, now);
    assert_true(asks_alone(engine));
    answer(engine, THERE);
    assert_int_equal(engine->releasing, 0);
    assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_VALID);
    snib__engine_free(engine);
}

/* What is released after a refusal, before the question is repeated, goes by command. */
static void released_after_a_refusal(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_tenure();
    struct snib__op *next[2];
    struct snib__hold *hold = held(engine, gate(engine, SNIB_MUTEX, "m"), next, 2);
    release(engine, hold);
    assert_true(asks_alone(engine));
    answer(engine, "-ERR unexpected\r\n");
    struct snib__op *given = release(engine, acquired(engine, next[0]));
    assert_false(next[1]->done);
    answer_own(engine);
    while (!given->done) {
        assert_true(on_the_way(engine) > 0);
        int script = oldest_script(engine);
        answer(engine, script == SNIB__SCRIPT_MUTEX_RENEW ? THERE : ":1\r\n");
    }
    assert_int_equal(given->code, SNIB_OK);
    snib__engine_free(engine);
}

/* ... perhaps only after the next one has released the number. */
static void refused_question_is_behind(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_tenure();
    struct snib__op *next, *given;
    struct snib__hold *hold = held(engine, gate(engine, SNIB_MUTEX, "m"), &next, 1);
    release(engine, hold);
    given = release(engine, acquired(engine, next));
    oldest_script(engine);
    answer(engine, "-BUSY a script is running\r\n");
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RELEASE);
    answer(engine, ":1\r\n");
    assert_true(given->done && given->code == SNIB_OK);
    /* Another number comes and goes meanwhile. */
    struct snib__op *other = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
    answer(engine, "$-1\r\n");
    release(engine, other->hold);
    answer(engine, ":1\r\n");
    now += 600 * SNIB__MS;
    snib__engine_tick(engine, now);
    assert_true(asks_alone(engine));
    answer(engine, GONE);
    assert_int_equal(engine->releasing, 0);
    assert_int_equal(engine->stats.lost_deleted, 0);
    assert_int_equal(engine->stats.releases, 3);
    snib__engine_free(engine);
}

/* The server has forgotten the script of a question: it is sent again, behind the release that is on its way. */
static void question_without_its_script(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_tenure();
    struct snib__op *next, *given[2];
    struct snib__hold *hold = held(engine, gate(engine, SNIB_MUTEX, "m"), &next, 1);
    given[0] = release(engine, hold);
    given[1] = release(engine, acquired(engine, next));
    assert_int_equal(oldest_script(engine), RENEW);
    answer(engine, "-NOSCRIPT No matching script.\r\n");
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RELEASE);
    answer(engine, ":1\r\n");
    ended(engine, given[1], SNIB_OK);
    assert_true(asks_alone(engine));
    answer(engine, GONE);
    ended(engine, given[0], SNIB_OK);
    snib__engine_free(engine);
}

/* ---- When it is done by command ------------------------------------------------------------------ */

static int script_of_release(struct snib__engine *engine, struct snib__gate *of,
                             const struct snib__acquire *first, const struct snib__acquire *then,
                             snib__time later)
{
    struct snib__hold *hold = granted(engine, of, first);
    wait_for(engine, of, then);
    now += later;
    while (on_the_way(engine) > 0)
        answer(engine, THERE);
    release(engine, hold);
    return oldest_script(engine);
}

static void other_holds_by_command(void **state)
{
    (void)state;
    static const struct snib__acquire fixed = {.wait = SNIB__NEVER, .lease = 10 * SECOND};
    static const struct snib__acquire vote = {.wait = SNIB__NEVER, .vote_ms = 1000};
    static const struct snib__acquire later = {.wait = SNIB__NEVER, .vote_ms = 1001};
    const struct {
        int32_t kind;
        const struct snib__acquire *first, *then;
        int script;
    } cases[] = {
        {SNIB_MUTEX, &renewed, &renewed, RENEW},
        {SNIB_MUTEX, &fixed, &renewed, SNIB__SCRIPT_MUTEX_TRANSFER},
        {SNIB_MUTEX, &renewed, &fixed, SNIB__SCRIPT_MUTEX_TRANSFER},
        {SNIB_MUTEX, &vote, &renewed, SNIB__SCRIPT_MUTEX_TRANSFER},
        {SNIB_MUTEX, &vote, &vote, SNIB__SCRIPT_MUTEX_TRANSFER},
        /* whether it may vote is the server's to say */
        {SNIB_MUTEX, &renewed, &vote, SNIB__SCRIPT_MUTEX_RELEASE},
        {SNIB_MUTEX, &vote, &later, SNIB__SCRIPT_MUTEX_RELEASE},
        {SNIB_FENCED, &renewed, &renewed, SNIB__SCRIPT_FENCED_TRANSFER},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct snib__engine *engine = begin_tenure();
        assert_int_equal(script_of_release(engine, gate(engine, cases[i].kind, "m"), cases[i].first,
                                           cases[i].then, 0),
                         cases[i].script);
        snib__engine_free(engine);
    }
}

/* Nor if the server may have another lease than the client believes, or is in doubt. */
static void doubts_by_command(void **state)
{
    (void)state;
    enum { EXTENDED, INHERITED, MOVED_CLOCK, ASTRAY, CORRECTED, OFF, DOUBTS };
    for (int doubt = 0; doubt < DOUBTS; doubt++) {
        struct snib__engine *engine = begin_tenure();
        struct snib__op *next;
        struct snib__hold *hold = held(engine, gate(engine, SNIB_MUTEX, "m"), &next, 1);
        int32_t code;
        if (doubt == EXTENDED) {
            struct snib__op *longer = snib__engine_extend(engine, hold, 60 * SECOND, now, &code);
            oldest_script(engine);
            answer(engine, THERE);
            ended(engine, longer, SNIB_OK);
            longer = snib__engine_extend(engine, hold, 0, now, &code); /* renewed again */
            oldest_script(engine);
            answer(engine, THERE);
            ended(engine, longer, SNIB_OK);
        } else if (doubt == INHERITED) {
            hold->flags |= SNIB__INHERITED;
        } else if (doubt == MOVED_CLOCK) {
            engine->home->moved_at = now;
        } else if (doubt == ASTRAY) { /* something that shortens its lease may still arrive */
            engine->home->shortens_at = now;
        } else if (doubt == CORRECTED) { /* ... to a member, whose lease may become longer */
            engine->home->moved_back = true;
            next->hold->member = true;
        } else {
            engine->config.tenure = false;
        }
        release(engine, hold);
        assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_TRANSFER);
        snib__engine_free(engine);
    }
}

/* A chain is as long as one by command, in number and in time. */
static void chain_ends(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_tenure();
    struct snib__op *next[20];
    struct snib__hold *hold = held(engine, gate(engine, SNIB_MUTEX, "m"), next, 20);
    for (int i = 0; i < 16; i++) {
        release(engine, hold);
        struct snib__op *op;
        while ((op = snib__engine_take_done(engine)) != next[i])
            assert_non_null(op);
        hold = op->hold;
        assert_true(asks_alone(engine));
        answer(engine, THERE);
        while (on_the_way(engine) > 0)
            answer(engine, THERE);
    }
    release(engine, hold);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RELEASE);
    snib__engine_free(engine);
    engine = begin_tenure();
    hold = held(engine, gate(engine, SNIB_MUTEX, "m"), next, 2);
    now += 11 * SNIB__MS;
    release(engine, hold);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RELEASE);
    snib__engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(next_has_it_at_once),
        cmocka_unit_test(next_is_renewed_in_time),
        cmocka_unit_test(loss_is_told_to_both),
        cmocka_unit_test(questions_are_shared),
        cmocka_unit_test(question_comes_before_a_transfer),
        cmocka_unit_test(repeated_question_is_behind),
        cmocka_unit_test(repeated_question_finds_a_loss),
        cmocka_unit_test(renewal_finds_it_before),
        cmocka_unit_test(limit_is_no_release),
        cmocka_unit_test(limit_ends_it_before),
        cmocka_unit_test(repeated_question_comes_too_late),
        cmocka_unit_test(failover_is_the_reason_for_all),
        cmocka_unit_test(question_without_an_answer_was_sent),
        cmocka_unit_test(question_without_its_script),
        cmocka_unit_test(refused_question_is_repeated),
        cmocka_unit_test(refusal_is_told_to_all),
        cmocka_unit_test(released_after_a_refusal),
        cmocka_unit_test(refused_question_is_behind),
        cmocka_unit_test(other_holds_by_command),
        cmocka_unit_test(doubts_by_command),
        cmocka_unit_test(chain_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
