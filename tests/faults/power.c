/* power.c - the server's machine loses its power: after the restart, the append-only file lacks what had not yet been
 * written to the disk.
 *
 * The server is killed and the end of its file cut off, between two commands or inside one, before it is started again
 * at the same address.  A hold that is cut off is lost as soon as its client has asked, one that is not is kept, and
 * what they are agrees with what others get.  Tokens go on from the counter that the server still has.
 */
#define _GNU_SOURCE
#include "../support/kinds.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Nothing ends or is renewed by itself while a test lasts, except where it is short. */
enum { LONG_MS = 120000, SHORT_MS = 6000, SOON_MS = 10000 };

struct world {
    struct server server;
    char address[112], url[128]; /* clients reach the server only while the link is there */
    char folder[96], file[400];  /* of the append-only file */
    int marks;
    snib_client *ours, *theirs;
};

/* ---- The append-only file ------------------------------------------------------------------------ */

struct text {
    char *bytes;
    size_t n;
};

/* The commands since the server started; those before are in another file. */
static bool find_file(struct world *world)
{
    DIR *dir = opendir(world->folder);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        if (strstr(entry->d_name, ".incr.aof"))
            snprintf(world->file, sizeof world->file, "%s/%s", world->folder, entry->d_name);
    if (dir)
        closedir(dir);
    return *world->file;
}

static struct text read_file(const struct world *world)
{
    struct stat status;
    int fd = open(world->file, O_RDONLY | O_CLOEXEC);
    assert_int_equal(fstat(fd, &status), 0);
    struct text text = {.bytes = malloc((size_t)status.st_size + 1), .n = (size_t)status.st_size};
    assert_int_equal(pread(fd, text.bytes, text.n, 0), text.n);
    close(fd);
    return text;
}

/* Where the file has the text, after it; 0: not yet. */
static size_t end_of(const struct world *world, const char *wanted)
{
    struct text text = read_file(world);
    const char *at = memmem(text.bytes, text.n, wanted, strlen(wanted));
    size_t end = at ? (size_t)(at - text.bytes) + strlen(wanted) : 0;
    free(text.bytes);
    return end;
}

/* The end of all that was done so far, and of a command. */
static size_t mark(struct world *world)
{
    char wanted[64];
    size_t end;
    server_do(&world->server, "SET mark:%d x", ++world->marks);
    snprintf(wanted, sizeof wanted, "mark:%d\r\n$1\r\nx\r\n", world->marks);
    AWAIT((end = end_of(world, wanted)), SOON_MS);
    return end;
}

/* The end of the command that begins there. */
static size_t command_end(const struct text *text, size_t at)
{
    char *rest;
    assert_int_equal(text->bytes[at], '*');
    long words = strtol(text->bytes + at + 1, &rest, 10);
    for (; words > 0; words--) {
        assert_memory_equal(rest, "\r\n$", 3);
        long n = strtol(rest + 3, &rest, 10);
        rest += 2 + n;
    }
    return (size_t)(rest + 2 - text->bytes);
}

/* ---- The world ------------------------------------------------------------------------------------- */

static void connect_clients(const struct world *world, bool on)
{
    if (on)
        assert_int_equal(symlink(world->server.socket, world->address), 0);
    else
        unlink(world->address);
}

static void world_open(struct world *world, int64_t lease_ms)
{
    memset(world, 0, sizeof *world);
    server_start(&world->server, "--appendonly", "yes", "--appendfsync", "everysec",
                 "--aof-load-truncated", "yes", "--auto-aof-rewrite-percentage", "0", NULL);
    snprintf(world->folder, sizeof world->folder, "%s/appendonlydir", world->server.dir);
    AWAIT(find_file(world), SOON_MS);
    snprintf(world->address, sizeof world->address, "%s/address", world->server.dir);
    /* waiters must outlast the server's next start, on any machine */
    snprintf(world->url, sizeof world->url, "unix://%s?patience=60s", world->address);
    connect_clients(world, true);
    world->ours = must_open_lease(world->url, lease_ms);
    world->theirs = must_open_lease(world->url, lease_ms);
}

static void world_close(struct world *world)
{
    snib_client_free(world->ours);
    snib_client_free(world->theirs);
    DIR *dir = opendir(world->folder);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        unlinkat(dirfd(dir), entry->d_name, 0);
    closedir(dir);
    rmdir(world->folder);
    server_stop(&world->server);
}

static bool is_loaded(struct server *server)
{
    redisReply *reply = redisCommand(server->admin, "PING");
    assert_non_null(reply);
    bool loaded = reply->type == REDIS_REPLY_STATUS;
    freeReplyObject(reply);
    return loaded;
}

/* The file has only so much of what it had, and no client has been there since. */
static void lose_power(struct world *world, size_t kept)
{
    connect_clients(world, false);
    server_down(&world->server);
    assert_int_equal(truncate(world->file, (off_t)kept), 0);
    server_restart(&world->server);
    AWAIT(is_loaded(&world->server), SOON_MS);
}

/* ---- Locks of all kinds ---------------------------------------------------------------------------- */

static bool is_leased(const struct kind *kind)
{
    return kind->traits & LEASED;
}

static snib_lock *lock_of(snib_client *client, const struct kind *kind, const char *prefix,
                          bool rival, int64_t lease_ms)
{
    char name[64];
    snib_lock_options options;
    snib_lock_options_init(&options, sizeof options);
    options.flags = rival ? kind->rival_flags : kind->flags;
    options.lease_ms = lease_ms;
    snprintf(name, sizeof name, "%s:%s", prefix, kind->name);
    return must_lock_with(client, rival ? kind->rival : kind->kind, name, &options);
}

/* If it has none. */
static void set_number(struct world *world, const struct kind *kind, const char *prefix)
{
    snib_lock *lock = lock_of(world->theirs, kind, prefix, false, 0);
    if (kind->traits & COUNTED)
        must_count(kind->kind, lock, SNIB_COUNT_INIT, 1);
    snib_lock_free(lock);
}

/* fixed_ms: the lease of a hold that is not renewed; 0: it is renewed. */
static snib_hold *hold_of(struct world *world, const struct kind *kind, const char *prefix,
                          int64_t fixed_ms)
{
    snib_lock *lock = lock_of(world->ours, kind, prefix, false, fixed_ms);
    set_number(world, kind, prefix);
    snib_hold *hold = must_acquire(lock, 0);
    snib_lock_free(lock);
    return hold;
}

static snib_op *waiter_of(struct world *world, const struct kind *kind, const char *prefix)
{
    uint64_t before = must_stats(world->theirs).waiting;
    snib_lock *lock = lock_of(world->theirs, kind, prefix, true, 0);
    snib_op *op = must_submit(lock, -1, NULL, 0);
    AWAIT(must_stats(world->theirs).waiting == before + 1, SOON_MS);
    snib_lock_free(lock);
    return op;
}

static void expect_lost(snib_hold *hold)
{
    int32_t reason;
    EXPECT(snib_hold_wait(hold, patient_ms(SOON_MS), &reason, err), SNIB_LOST);
    if (reason != SNIB_REASON_DELETED && reason != SNIB_REASON_TAKEN)
        fail_msg("lost by \"%s\"", snib_reason_text(reason));
}

static void expect_lost_for_ever(snib_hold *hold)
{
    EXPECT(snib_hold_check(hold, err), SNIB_LOST);
    assert_int_equal(snib_hold_remaining_ms(hold), 0);
    EXPECT(snib_hold_release(hold, err), SNIB_LOST);
    snib_hold_free(hold);
}

/* Half of the holds of all kinds are cut off, with the places of those who wait for them. */
static void the_last_holds_are_lost(bool fixed)
{
    struct world world;
    snib_hold *kept[KINDS], *gone[KINDS];
    snib_op *behind_kept[KINDS], *behind_gone[KINDS];
    snib_event event = {.size = sizeof event};
    world_open(&world, LONG_MS);
    for (int i = 0; i < KINDS; i++)
        if (is_leased(&kinds[i])) {
            kept[i] = hold_of(&world, &kinds[i], "kept", fixed ? LONG_MS : 0);
            set_number(&world, &kinds[i], "gone");
        }
    size_t end = mark(&world);
    for (int i = 0; i < KINDS; i++)
        if (is_leased(&kinds[i]))
            gone[i] = hold_of(&world, &kinds[i], "gone", fixed ? LONG_MS : 0);
    for (int i = 0; i < KINDS; i++)
        if (is_leased(&kinds[i])) {
            behind_kept[i] = waiter_of(&world, &kinds[i], "kept");
            behind_gone[i] = waiter_of(&world, &kinds[i], "gone");
        }
    assert_true(mark(&world) > end);
    lose_power(&world, end);
    assert_int_equal(server_integer(&world.server, "EXISTS gone:mutex"), 0);
    assert_int_equal(server_integer(&world.server, "EXISTS kept:mutex"), 1);
    connect_clients(&world, true);
    for (int i = 0; i < KINDS; i++)
        if (is_leased(&kinds[i])) {
            expect_lost(gone[i]);
            must_release(must_end(behind_gone[i], SOON_MS).hold);
        }
    for (int i = 0; i < KINDS; i++)
        if (is_leased(&kinds[i])) {
            must_be_valid(kept[i], SOON_MS);
            EXPECT(snib_op_wait(behind_kept[i], 0, &event, err), SNIB_AGAIN);
            must_release(kept[i]);
            must_release(must_end(behind_kept[i], SOON_MS).hold);
            expect_lost_for_ever(gone[i]);
        }
    world_close(&world);
}

static void last_holds(void **state)
{
    (void)state;
    the_last_holds_are_lost(false);
}

static void last_fixed_leases(void **state)
{
    (void)state;
    the_last_holds_are_lost(true);
}

/* ---- Anywhere ---------------------------------------------------------------------------------------- */

/* Whether a hold is valid is what another client finds. */
static void expect_agreement(struct world *world, const struct kind *kind, snib_hold *hold,
                             bool may_be_kept, bool may_be_lost)
{
    snib_hold *other = NULL;
    snib_lock *rival = lock_of(world->theirs, kind, "cut", true, 0);
    snib_error error = {0};
    int code;
    set_number(world, kind, "cut");
    AWAIT((code = snib_lock_acquire(rival, 0, 0, &other, &error)) >= 0, SOON_MS);
    if (code == SNIB_OK) {
        assert_true(may_be_lost);
        expect_lost(hold);
        expect_lost_for_ever(hold);
        must_release(other);
    } else {
        expect_code_at(code, SNIB_BUSY, &error, __FILE__, __LINE__);
        assert_true(may_be_kept);
        must_be_valid(hold, SOON_MS);
        must_release(hold);
        must_release(must_acquire(rival, SOON_MS));
    }
    snib_lock_free(rival);
}

/* Holds of all kinds are taken one after the other, and the file ends at or in the nth of all these commands.  Returns
 * whether there are so many. */
static bool cut_at(int nth, bool inside)
{
    struct world world;
    snib_hold *holds[KINDS];
    size_t ends[KINDS], begin, from, to;
    world_open(&world, LONG_MS);
    begin = to = mark(&world);
    for (int i = 0; i < KINDS; i++)
        if (is_leased(&kinds[i])) {
            holds[i] = hold_of(&world, &kinds[i], "cut", 0);
            ends[i] = mark(&world);
        }
    struct text text = read_file(&world);
    int commands = 0;
    for (from = begin; commands <= nth && to < text.n; commands++) {
        from = to;
        to = command_end(&text, from);
    }
    size_t cut = inside ? from + (to - from) / 2 : to;
    lose_power(&world, cut);
    connect_clients(&world, true);
    for (int i = 0, last = -1; i < KINDS; i++)
        if (is_leased(&kinds[i])) {
            expect_agreement(&world, &kinds[i], holds[i], cut > (last < 0 ? begin : ends[last]),
                             cut < ends[i]);
            last = i;
        }
    free(text.bytes);
    world_close(&world);
    return commands > nth;
}

static void cut_anywhere(void **state)
{
    (void)state;
    int step = count_of(1, 3);
    bool inside = false;
    for (int nth = 0; cut_at(nth, inside); nth += step)
        inside = !inside;
    if (step == 1)
        for (int nth = 0; cut_at(nth, true); nth++)
            ;
}

/* ---- What is set back --------------------------------------------------------------------------------- */

/* Holds of a name, one after the other, then one more; the file ends after one of them was taken or released. */
static void tokens_of(const struct kind *kind, int kept, bool released)
{
    enum { TAKEN = 3 };
    struct world world;
    size_t ends[TAKEN][2];
    snib_hold *hold = NULL;
    world_open(&world, LONG_MS);
    size_t begin = mark(&world);
    for (int i = 0; i < TAKEN; i++) {
        hold = hold_of(&world, kind, "tokens", 0);
        assert_int_equal(snib_hold_token(hold), i + 1);
        ends[i][0] = ends[i][1] = mark(&world);
        if (i + 1 == TAKEN)
            break;
        must_release(hold);
        ends[i][1] = mark(&world);
    }
    lose_power(&world, kept ? ends[kept - 1][released] : begin);
    connect_clients(&world, true);
    snib_lock *lock = lock_of(world.theirs, kind, "tokens", false, 0);
    if (kept == TAKEN) {
        must_be_valid(hold, SOON_MS);
        assert_int_equal(snib_hold_token(hold), TAKEN);
        must_release(hold);
    } else {
        expect_lost(
            hold); /* one that its owner had given back was there again, and was given back again */
    }
    snib_hold *next = must_acquire(lock, SOON_MS);
    assert_int_equal(snib_hold_token(next), kept + 1);
    if (kept < TAKEN)
        expect_lost_for_ever(hold);
    must_release(next);
    snib_lock_free(lock);
    world_close(&world);
}

/* A token is greater than those that the server still knows of, and the same as one that it has forgotten; what was
 * valid with that one is lost. */
static void tokens(void **state)
{
    (void)state;
    for (int i = 0; i < KINDS; i++)
        if (kinds[i].kind == SNIB_FENCED || kinds[i].flags & SNIB_LOCK_FENCED)
            for (int kept = 0; kept <= 3; kept++)
                for (int released = 0; released < 2; released++)
                    tokens_of(&kinds[i], kept, released);
}

/* A hold that was given back is there again, and the next one is not: its holder is told, and the lock is free when the
 * old lease ends. */
static void release_is_forgotten(void **state)
{
    struct world world;
    (void)state;
    world_open(&world, LONG_MS);
    snib_lock *first = must_lock_lease(world.theirs, "name", SHORT_MS, -1),
              *second = must_lock(world.ours, "name");
    snib_hold *hold = must_acquire(first, 0);
    size_t end = mark(&world);
    must_release(hold);
    hold = must_acquire(second, SOON_MS);
    mark(&world);
    lose_power(&world, end);
    assert_true(server_integer(&world.server, "PTTL name") <= SHORT_MS);
    connect_clients(&world, true);
    expect_lost(hold);
    must_release(must_acquire(second, SHORT_MS + SOON_MS));
    expect_lost_for_ever(hold);
    snib_lock_free(first);
    snib_lock_free(second);
    world_close(&world);
}

/* What a hold was renewed by is cut off, and the lease before that has ended: the holder is told, and by its deadline at
 * the latest. */
static void renewals_are_forgotten(void **state)
{
    struct world world;
    (void)state;
    world_open(&world, SHORT_MS);
    snib_lock *lock = must_lock(world.ours, "renewed");
    snib_hold *hold = must_acquire(lock, 0);
    size_t end = mark(&world);
    int64_t ended_ms = now_ms() + SHORT_MS;
    AWAIT(must_stats(world.ours).renewals >= 2 && now_ms() > ended_ms, 2 * SHORT_MS);
    mark(&world);
    assert_int_equal(server_integer(&world.server, "EXISTS renewed"), 1);
    lose_power(&world, end);
    assert_int_equal(server_integer(&world.server, "EXISTS renewed"), 0);
    connect_clients(&world, true);
    EXPECT(snib_hold_wait(hold, patient_ms(SHORT_MS), NULL, err), SNIB_LOST);
    must_release(must_acquire(lock, SOON_MS));
    expect_lost_for_ever(hold);
    snib_lock_free(lock);
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(last_holds),           cmocka_unit_test(last_fixed_leases),
        cmocka_unit_test(cut_anywhere),         cmocka_unit_test(tokens),
        cmocka_unit_test(release_is_forgotten), cmocka_unit_test(renewals_are_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
