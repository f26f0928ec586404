/* login_stories.c - a program that is asked for credentials: when, what its answers lead to, and how soon again.
 *
 * Nothing but the questions wakes the program, so each comes at its moment or the world ends.
 */
#include "driver_sim.h"

#include <stdio.h>
#include <string.h>

#define WORD "a password"

static snib_queue *questions;
static snib__time asked_at;

static void open_asking(int64_t lease_ms)
{
    snib_client_options options;
    snib_client_options_init(&options, sizeof options);
    options.lease_ms = lease_ms;
    options.ask_credentials = 1;
    model_require_password(world.server, WORD);
    open_client_with("redis://name.test", &options);
    MUST(snib_queue_new(clients[0], &questions, err), SNIB_OK);
    MUST(snib_client_credentials(clients[0], questions, err), SNIB_OK);
}

static void end_asking(void)
{
    snib_queue_free(questions);
    MUST(snib_client_close(clients[0], -1, err), SNIB_OK);
    free_client();
    expect_nothing_left();
}

static void await_event(snib_event *out)
{
    while (snib_queue_wait(questions, out, 1, 24 * 3600 * 1000, NULL) == 0)
        ;
}

/* The next question, which is the next event. */
static uint64_t question(void)
{
    snib_event event;
    await_event(&event);
    if (event.kind != SNIB_EVENT_CREDENTIALS || event.token == 0)
        world_fail("an event of kind %d instead of a question", (int)event.kind);
    asked_at = world.now;
    return event.token;
}

static snib_credentials good_for(int64_t valid_ms)
{
    snib_credentials answer = {.size = sizeof answer, .valid_ms = valid_ms, .password = WORD};
    return answer;
}

static void tell(uint64_t token, const snib_credentials *answer)
{
    MUST(snib_client_login(clients[0], token, answer, err), SNIB_OK);
}

/* The result of the ping that has token 7; until it has one there may be more questions. */
static void expect_ping(int32_t code, const char *words)
{
    snib_event event;
    do
        await_event(&event);
    while (event.kind == SNIB_EVENT_CREDENTIALS);
    if (event.kind != SNIB_EVENT_DONE || event.token != 7 || event.code != code ||
        !strstr(event.text, words))
        world_fail("event %d, %s: %s", (int)event.kind, snib_code_name(event.code), event.text);
}

static void ping(int64_t wait_ms)
{
    MUST(snib_client_ping_submit(clients[0], wait_ms, questions, 7, NULL, err), SNIB_OK);
}

/* A question has come so long after another moment, and not by chance some other time. */
static void expect_after(snib__time from, snib__time span)
{
    if (asked_at + 20 * SNIB__MS < from + span || asked_at > from + span + 20 * SNIB__MS)
        world_fail("asked after %lld ms instead of %lld", (long long)((asked_at - from) / SNIB__MS),
                   (long long)(span / SNIB__MS));
}

/* After four fifths of its time, but not within half a second, a password is asked for again; without an answer soon, but
 * not too often. */
void login_renewals(void *argument)
{
    static const struct {
        int64_t valid_ms, again_ms;
    } cases[] = {{500, 50}, {10000, 500}, {800000, 30000}, {3000, 150}};
    (void)argument;
    int64_t valid_ms = cases[world.number % 4].valid_ms;
    const snib__time again = (snib__time)cases[world.number % 4].again_ms * SNIB__MS;
    snib_credentials answer = good_for(valid_ms);
    open_asking(LEASE_MS);
    ping(-1);
    tell(question(), &answer);
    expect_ping(SNIB_OK, "");
    for (int round = 0; round < 2; round++) {
        snib__time before = asked_at;
        uint64_t token = question();
        expect_after(before,
                     (snib__time)(valid_ms / 5 * 4 < 500 ? 500 : valid_ms / 5 * 4) * SNIB__MS);
        for (int refused = 0; refused < 2; refused++) {
            snib_credentials none = good_for(valid_ms);
            none.password[0] = 0; /* none, or one that the server refuses */
            if (world_chance(2))
                strcpy(none.password, "another");
            snib__time told = world.now;
            tell(token, world_chance(3) ? NULL : &none);
            token = question();
            expect_after(told, again);
        }
        tell(token, &answer);
    }
    end_asking();
}

/* The connection ends while a renewal is asked for, and a new one begins, which may take the same answer: the login is
 * renewed as ever. */
void login_renewed_at_a_cut(void *argument)
{
    snib_credentials answer = good_for(10000);
    snib_event event;
    (void)argument;
    open_asking(LEASE_MS);
    ping(-1);
    tell(question(), &answer);
    expect_ping(SNIB_OK, "");
    for (int round = 0; round < 3; round++) {
        uint64_t token = question();
        world_cut();
        ping(-1);
        world_sleep(world_draw(300) * SNIB__MS);
        tell(token, &answer);
        for (await_event(&event); event.kind == SNIB_EVENT_CREDENTIALS; await_event(&event))
            tell(event.token, &answer);
        if (event.kind != SNIB_EVENT_DONE || event.code != SNIB_OK)
            world_fail("event %d: %s", (int)event.kind, event.text);
        if (snib_queue_wait(questions, &event, 1, 12000, NULL) == 0)
            world_fail("nobody renews the login any more");
        if (event.kind != SNIB_EVENT_CREDENTIALS)
            world_fail("an event of kind %d instead of a question", (int)event.kind);
        tell(event.token, &answer);
    }
    end_asking();
}

/* An answer that is none: why is said, in the event of whoever waits, and the next attempt asks again. */
void login_answers(void *argument)
{
    snib_credentials answers[6];
    static const char *const words[6] = {"there are no credentials: the vault is shut",
                                         "no password",
                                         "have already expired",
                                         "there are no credentials",
                                         "",
                                         ""};
    (void)argument;
    for (int i = 0; i < 6; i++)
        answers[i] = good_for(0);
    strcpy(answers[0].why, "the vault is shut");
    answers[1].password[0] = 0;
    answers[2].valid_ms = -1;
    strcpy(answers[4].password, "another");
    for (int i = 0; i < 6; i++) {
        open_asking(LEASE_MS);
        ping(300);
        tell(question(), i == 3 ? NULL : &answers[i]);
        tell(1000, &answers[5]); /* to a question that nobody has asked */
        if (i == 5) {
            expect_ping(SNIB_OK, "");
            world_sleep(600 * 1000 * SNIB__MS); /* without an end nobody asks again */
            ping(-1);
            expect_ping(SNIB_OK, "");
        } else {
            expect_ping(i == 4 ? SNIB_EAUTH : SNIB_ECREDENTIALS, words[i]);
        }
        end_asking();
    }
}

/* The program takes longer than an attempt, so its answer may come in the pause before the next one: it serves that,
 * and nobody asks again. */
void login_late(void *argument)
{
    snib_credentials answer = good_for(0);
    snib_event event;
    (void)argument;
    open_asking(LEASE_MS);
    drivers[0]->connect_timeout = 300 * SNIB__MS;
    ping(-1);
    uint64_t token = question();
    world_sleep((300 + world_draw(2500)) *
                SNIB__MS); /* less than its patience, by the longest pause */
    tell(token, &answer);
    await_event(&event);
    if (event.kind != SNIB_EVENT_DONE || event.code != SNIB_OK)
        world_fail("event %d instead of the result: %s", (int)event.kind, event.text);
    end_asking();
}

/* ---- A function of the program ---- */

static struct source {
    bool gone; /* what the function works with */
    int calls, closers;
} source;

static int supply(void *data, snib_credentials *out)
{
    struct source *from = data;
    if (from->gone)
        world_fail("the function is called after its client was freed");
    from->calls++;
    world_sleep(world_draw(4) * 5 * SNIB__MS);
    if (from->gone)
        world_fail("the client was freed, and its function still runs");
    out->valid_ms = 625;
    strcpy(out->password, WORD);
    return 0;
}

static void close_it(void *argument)
{
    world_sleep(world_draw(30000));
    snib_client_close(argument, (int64_t)world_draw(2) - 1, NULL);
    source.closers--;
}

static bool nobody_closes(void *on)
{
    (void)on;
    return source.closers == 0;
}

/* Threads close the client while another one frees it, just as its function is due, and each may stop on its way: once
 * the client is freed, the function is not called any more. */
void login_freed(void *argument)
{
    snib_client_options options;
    (void)argument;
    source = (struct source){.closers = 1 + (int)world_draw(2)};
    snib_client_options_init(&options, sizeof options);
    options.lease_ms = LEASE_MS;
    options.credentials = supply;
    options.credentials_data = &source;
    model_require_password(world.server, WORD);
    open_client_with("redis://name.test", &options);
    connect_client();
    snib_client *client = clients[--clients_n];
    snib__time begin = drivers[clients_n]->logins.renew_at - world_draw(80000);
    drivers[clients_n] = NULL;
    world_sleep(begin - world.now);
    world.freeze_next_ring = world_draw(2) * 100000;
    for (int i = source.closers; i > 0; i--)
        world_thread("closer", close_it, client);
    world_sleep(world_draw(30000));
    snib_client_free(client);
    source.gone = true;
    world_stay(nobody_closes, NULL);
    world.freeze_next_ring = 0;
    expect_nothing_left();
}
