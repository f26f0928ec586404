/* story_shared.c - locks with many holders, or several names at a time: readers and writers,
 * permits, multi locks. */
#include "stories.h"

/* A writer that also reads still keeps other writers out when it steps down, and lets readers
 * in. */
static void downgrade(void)
{
    begin_world();
    struct actor *a = new_actor(), *b = new_actor();
    struct snib__acquire own = {.wait = SNIB__NEVER, .owner = 7};
    struct waiter *writes = acquire(a, SNIB_WRITE, "orders", 6, own);
    struct waiter *reads = acquire(a, SNIB_READ, "orders", 6, own);
    expect(reads->code == SNIB_OK, "a writer may not read");
    struct waiter *reader = wait_for(b, SNIB_READ, "orders");
    struct waiter *writer = wait_for(b, SNIB_WRITE, "orders");
    run_for(SECOND);
    expect(reader->code == SNIB_AGAIN, "a reader came in beside the writer");
    release(writes);
    expect(reader->code == SNIB_OK, "the reader was not notified");
    run_for(40 * SECOND);
    expect(writer->code == SNIB_AGAIN, "a writer came in beside readers");
    release(reader);
    release(reads);
    run_for(SECOND);
    expect(writer->code == SNIB_OK, "the writer was not notified");
    release(writer);
    run_for(5 * SECOND);
    expect_nothing_left();
    end_world();
}

static void dead_reader(void)
{
    begin_world();
    struct actor *reader = new_actor(), *writer = new_actor(), *other = new_actor();
    wait_for(reader, SNIB_READ, "orders");
    struct waiter *second = wait_for(other, SNIB_READ, "orders");
    struct waiter *waiting = wait_for(writer, SNIB_WRITE, "orders");
    run_for(5 * SECOND);
    kill_actor(reader);
    snib__time killed = now;
    run_for(SECOND);
    release(second);
    run_for(60 * SECOND);
    expect(waiting->code == SNIB_OK, "the writer never came in");
    expect(waiting->ended <= killed + LEASE + 3 * SECOND, "the writer came in after %.3f s",
           (double)(waiting->ended - killed) / 1e9);
    expect(waiting->ended >= killed + LEASE - 10 * SECOND - SNIB__MS, "the writer was too early");
    end_world();
}

/* Readers come without end; a preferred writer still gets in. */
static void preferred_writer(void)
{
    begin_world();
    struct actor *readers[] = {new_actor(), new_actor()}, *writer = new_actor();
    struct waiter *reads = wait_for(readers[0], SNIB_READ, "orders"), *writes = NULL;
    snib__time asked = 0;
    for (int i = 0; i < 40 && (writes == NULL || writes->code == SNIB_AGAIN); i++) {
        struct waiter *next = wait_for(readers[(i + 1) % 2], SNIB_READ, "orders");
        run_for(SECOND / 10);
        if (i == 3) {
            struct snib__acquire how = {.wait = SNIB__NEVER, .options = SNIB_LOCK_PREFER_WRITER};
            writes = acquire(writer, SNIB_WRITE, "orders", 6, how);
            asked = now;
        }
        if (reads->hold != NULL) {
            release(reads);
        }
        reads = next;
        run_for(SECOND / 10);
    }
    expect(writes->code == SNIB_OK, "the writer never came in");
    expect(writes->ended < asked + SECOND, "the writer came in after %.3f s",
           (double)(writes->ended - asked) / 1e9);
    end_world();
}

/* A writer comes after readers whose leases are over, although the lock itself would live longer
 * than the writer's lease. */
static void late_readers(void)
{
    begin_world();
    model_key key;
    struct actor *reader = new_actor(), *writer = new_actor();
    struct snib__acquire longer = {.wait = SNIB__NEVER, .lease = 60 * SECOND};
    struct snib__acquire shorter = {.wait = SNIB__NEVER, .lease = 10 * SECOND};
    acquire(reader, SNIB_READ, "orders", 6, longer);
    kill_actor(reader);
    for (size_t i = 0; model_key_at(server, i, &key); i++) {
        if (key.type == MODEL_STRING) {
            model_delete(server, 0, key.name.p, key.name.n);
            break;
        }
    }
    struct waiter *writes = acquire(writer, SNIB_WRITE, "orders", 6, shorter);
    expect(writes->code == SNIB_OK, "readers with expired leases keep a writer out");
    kill_actor(writer);
    run_for(11 * SECOND);
    expect(!there_is("orders"), "a writer's lock has outlived its lease");
    end_world();
}

/* A dead process' permits come back when their lease is over, once. */
static void dead_permits(void)
{
    begin_world();
    struct actor *dead = new_actor(), *live = new_actor();
    struct snib__gate *gate = snib__gate_get(live->engine, SNIB_PERMITS, "orders", 6);
    int32_t code;
    struct snib__op *op = snib__engine_count(live->engine, gate, SNIB_COUNT_INIT, 3, now, &code);
    op->token = WAITERS - 1;
    settle();
    struct snib__acquire two = {.wait = SNIB__NEVER, .permits = 2};
    acquire(dead, SNIB_PERMITS, "orders", 6, two);
    struct waiter *waiting = acquire(live, SNIB_PERMITS, "orders", 6, two);
    run_for(SECOND);
    kill_actor(dead);
    snib__time killed = now;
    run_for(60 * SECOND);
    expect(waiting->code == SNIB_OK, "the permits never came back");
    expect(waiting->ended <= killed + LEASE + 3 * SECOND, "they came back after %.3f s",
           (double)(waiting->ended - killed) / 1e9);
    release(waiting);
    model_text field, value;
    model_field_at(server, 0, "orders", 6, 0, &field, &value);
    expect(value.n == 1 && value.p[0] == '3', "of three permits there are %.*s", (int)value.n,
           value.p);
    end_world();
}

/* The reply to a cancelled try is news for waiters that want fewer permits. */
static void cancelled_wish(void)
{
    begin_world();
    struct actor *a = new_actor(), *b = new_actor();
    struct snib__gate *gate = snib__gate_get(b->engine, SNIB_PERMITS, "orders", 6);
    struct snib__acquire one = {.wait = SNIB__NEVER, .permits = 1};
    struct snib__acquire all = {.wait = SNIB__NEVER, .permits = 3};
    struct waiter *held[3];
    int32_t code;
    struct snib__op *op = snib__engine_count(b->engine, gate, SNIB_COUNT_INIT, 3, now, &code);
    op->token = WAITERS - 1;
    settle();
    for (int i = 0; i < 3; i++) {
        held[i] = acquire(b, SNIB_PERMITS, "orders", 6, one);
    }
    struct waiter *much = acquire(a, SNIB_PERMITS, "orders", 6, all);
    struct waiter *little = acquire(a, SNIB_PERMITS, "orders", 6, one);
    run_for(SECOND / 2);
    a->stopped = true;
    release(held[0]);
    hear(a);
    a->stopped = false;
    cancel(much);
    expect(little->code == SNIB_OK, "a small request waits for a large one that has left");
    end_world();
}

static void opposite_orders(void)
{
    static const char forth[] = "morders\0mstock", back[] = "mstock\0morders";
    begin_world();
    struct actor *a = new_actor(), *b = new_actor(), *c = new_actor();
    struct snib__acquire forever = {.wait = SNIB__NEVER}, once = {0};
    for (int i = 0; i < 20; i++) {
        struct waiter *x = acquire(a, SNIB__MULTI, forth, sizeof forth, forever);
        struct waiter *y = acquire(b, SNIB__MULTI, back, sizeof back, forever);
        for (int done = 0; done < 2; done++) {
            run_for(4 * SECOND);
            struct waiter *held = x->hold != NULL ? x : y;
            expect((x->hold != NULL) != (y->hold != NULL), "not one of two has both");
            release(held);
        }
    }
    struct waiter *stock = wait_for(c, SNIB_MUTEX, "stock");
    struct waiter *none = acquire(a, SNIB__MULTI, forth, sizeof forth, once);
    expect(none->code == SNIB_BUSY && !there_is("orders"), "one of two was kept");
    struct waiter *both = acquire(b, SNIB__MULTI, back, sizeof back, forever);
    run_for(SECOND);
    expect(!there_is("orders"), "one of two was kept by a waiter");
    release(stock);
    run_for(SECOND);
    expect(both->code == SNIB_OK && there_is("orders") && there_is("stock"),
           "two free locks are not taken");
    release(both);
    expect_nothing_left();
    end_world();
}

const struct story stories_shared[] = {
    {"downgrade", downgrade},
    {"dead reader", dead_reader},
    {"preferred writer", preferred_writer},
    {"late readers", late_readers},
    {"dead permits", dead_permits},
    {"cancelled wish", cancelled_wish},
    {"opposite orders", opposite_orders},
    {NULL, NULL},
};
