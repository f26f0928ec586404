/* handles.c - the whole public API with handles that are live, freed, of another kind, NULL or no handles at all.
 *
 * The target keeps its own list of what it has been given and what it has given back.  What must hold:
 *
 *     a call with a handle that is not live, or of another kind, returns SNIB_EHANDLE, says so in err, and leaves
 *     all outputs alone; freeing such a handle does nothing
 *     a call with live handles never returns SNIB_EHANDLE, whatever else was freed before, in any order
 *     every failure fills err with its code and a clean sentence, and success leaves err alone
 *     when everything is given back, no memory and no thread is left
 *
 * The server is a thread behind a unix socket that grants and confirms everything, so no call waits long.
 */
#include "party.h"

#include "net/text.h"
#include "snib.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define THINGS 24
#define CLIENTS_MAX 3
#define CALLERS_MAX 16
#define TEXTS_CAP 65536

/* ---- The server ------------------------------------------------------------------------------------------ */

struct caller { /* a connection */
    int fd;
    redisReader *reader;
    bool listens;
};

static char url[64];
static int server_fd;

/* A command as the words that party_reply() wants. */
static size_t answer(struct caller *caller, const redisReply *said, char *out, size_t cap)
{
    struct command command = {.argc = (unsigned)said->elements};
    for (size_t i = 0; i < said->elements && i < COMMAND_WORDS; i++)
        command.word[i] = (struct word){said->element[i]->str, said->element[i]->len};
    caller->listens = caller->listens || (command.word[0].n > 8 && command.word[0].p[0] == 'S' &&
                                          command.word[0].p[1] == 'U');
    if (caller->listens && word_is(command.word[0], "PING"))
        return (size_t)snprintf(out, cap, "*2\r\n$4\r\npong\r\n$0\r\n\r\n");
    return party_reply(NULL, NULL, &command, "standalone", out, cap);
}

/* False: the connection has ended. */
static bool hear(struct caller *caller)
{
    char bytes[16384], out[4096];
    void *said = NULL;
    ssize_t n = read(caller->fd, bytes, sizeof bytes);
    if (n <= 0)
        return n < 0 && errno == EINTR;
    redisReaderFeed(caller->reader, bytes, (size_t)n);
    while (redisReaderGetReply(caller->reader, &said) == REDIS_OK && said) {
        size_t length = answer(caller, said, out, sizeof out);
        freeReplyObject(said);
        if (send(caller->fd, out, length, MSG_NOSIGNAL) < 0)
            return false;
    }
    return true;
}

static void hang_up(struct caller *caller)
{
    close(caller->fd);
    redisReaderFree(caller->reader);
    *caller = (struct caller){.fd = -1};
}

static void *serve(void *unused)
{
    struct caller callers[CALLERS_MAX];
    struct pollfd watched[CALLERS_MAX + 1];
    (void)unused;
    for (int i = 0; i < CALLERS_MAX; i++)
        callers[i] = (struct caller){.fd = -1};
    for (;;) {
        int place = -1;
        for (int i = 0; i < CALLERS_MAX; i++) {
            watched[i] = (struct pollfd){.fd = callers[i].fd, .events = POLLIN};
            place = callers[i].fd < 0 ? i : place;
        }
        watched[CALLERS_MAX] = (struct pollfd){.fd = place < 0 ? -1 : server_fd, .events = POLLIN};
        if (poll(watched, CALLERS_MAX + 1, -1) < 0)
            continue;
        for (int i = 0; i < CALLERS_MAX; i++)
            if (watched[i].revents && !hear(&callers[i]))
                hang_up(&callers[i]);
        if (watched[CALLERS_MAX].revents)
            callers[place] =
                (struct caller){.fd = accept(server_fd, NULL, NULL), .reader = redisReaderCreate()};
    }
    return NULL;
}

static void remove_socket(void)
{
    unlink(url + strlen("unix://"));
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    pthread_t thread;
    sigset_t all, before;
    (void)argc, (void)argv;
    snprintf(address.sun_path, sizeof address.sun_path, "/tmp/snib-fuzz-%d", (int)getpid());
    snprintf(url, sizeof url, "unix://%.50s", address.sun_path);
    unlink(address.sun_path);
    server_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    MUST(server_fd >= 0 && bind(server_fd, (const struct sockaddr *)&address, sizeof address) == 0);
    MUST(listen(server_fd, 64) == 0 && atexit(remove_socket) == 0);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    MUST(pthread_create(&thread, NULL, serve, NULL) == 0 && pthread_detach(thread) == 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return 0;
}

/* ---- What was given ---------------------------------------------------------------------------------------- */

enum kind { NOTHING, CLIENT, LOCK, HOLD, OP, QUEUE };
enum state { FREED, LIVE, UNSURE /* an operation, which ends by itself */ };

static struct thing {
    void *handle;
    enum kind kind;
    enum state state;
    unsigned refs;  /* of a hold: as many frees */
    uint64_t token; /* of an operation whose event comes through a queue */
} things[THINGS];

static uint64_t last_token;
static struct input in;
static snib_error err;
static snib_event events[4];
static char texts[TEXTS_CAP];

static struct thing *thing_of(const void *handle)
{
    for (int i = 0; i < THINGS; i++)
        if (things[i].handle == handle && things[i].state != FREED)
            return &things[i];
    return NULL;
}

static bool is_live(enum kind kind, const void *handle)
{
    const struct thing *thing = handle ? thing_of(handle) : NULL;
    return thing && thing->kind == kind && thing->state == LIVE;
}

/* It may be live or not. */
static bool is_unsure(enum kind kind, const void *handle)
{
    const struct thing *thing = handle ? thing_of(handle) : NULL;
    return thing && thing->kind == kind && thing->state == UNSURE;
}

/* A free place; NULL: there is none, so nothing more can be taken. */
static struct thing *place(void)
{
    for (int i = 0; i < THINGS; i++)
        if (things[i].state == FREED)
            return &things[i];
    return NULL;
}

static unsigned room(void)
{
    unsigned n = 0;
    for (int i = 0; i < THINGS; i++)
        n += things[i].state == FREED;
    return n;
}

static void got(enum kind kind, void *handle, enum state state)
{
    struct thing *old = thing_of(handle), *thing = old ? old : place();
    MUST(handle && thing);
    MUST(!old || (kind == HOLD && old->kind == HOLD)); /* a re-entry: the same once more */
    *thing = (struct thing){handle, kind, state, old ? old->refs + 1 : 1, 0};
}

static void got_op(snib_op *op, const snib_queue *queue, uint64_t token)
{
    got(OP, op, queue ? UNSURE : LIVE);
    thing_of(op)->token = token;
}

static void gave(const void *handle)
{
    struct thing *thing = thing_of(handle);
    if (thing && --thing->refs == 0)
        thing->state = FREED;
}

/* Any handle: one of the list, live or freed, of any kind; or something near it; or nothing. */
static void *any(uint8_t which)
{
    uintptr_t handle = (uintptr_t)things[which % THINGS].handle;
    switch (which / THINGS) {
    case 8:
        return (void *)(handle + 1); /* another generation */
    case 9:
        return (void *)(handle ^ (uintptr_t)(1 + which % 15) << 60); /* another kind */
    case 10:
        return which & 1 ? NULL : (void *)(handle + (UINT64_C(1) << (32 + which % 28)));
    default:
        return (void *)handle;
    }
}

/* ---- Checks ------------------------------------------------------------------------------------------------ */

static void check_sentence(const char *text)
{
    size_t n = strlen(text);
    uint32_t c;
    for (size_t i = 0, step; i < n; i += step) {
        step = snib__utf8_next(text + i, n - i, &c);
        MUST(step > 0 && !snib__is_control(c));
    }
}

static void clear(void)
{
    memset(&err, 0x5a, sizeof err);
}

/* fits: all handles are live and of the right kind; unsure: or may be. */
static int checked_code(int code, bool fits, bool unsure)
{
    MUST(strcmp(snib_code_name(code), "SNIB_?") != 0 || code > 0);
    if (!unsure)
        MUST((code == SNIB_EHANDLE) == !fits);
    return code;
}

static int checked(int code, bool fits, bool unsure)
{
    static snib_error untouched;
    memset(&untouched, 0x5a, sizeof untouched);
    checked_code(code, fits, unsure);
    if (code == SNIB_OK) {
        MUST(memcmp(&err, &untouched, sizeof err) == 0);
    } else if (code != SNIB_AGAIN) {
        MUST(err.code == code && memchr(err.text, 0, sizeof err.text) && err.text[0]);
        check_sentence(err.text);
    }
    return code;
}

/* What an output has before a call. */
static int marker;
#define UNTOUCHED ((void *)&marker)

/* ---- Events ------------------------------------------------------------------------------------------------ */

/* An event ends an operation once, with its handle. */
static void end_token(uint64_t token)
{
    int i = 0;
    while (i < THINGS && (things[i].state != UNSURE || things[i].token != token))
        i++;
    MUST(i < THINGS);
    things[i].state = FREED;
}

static void take_event(const snib_event *event)
{
    MUST(event->size == sizeof *event);
    check_sentence(event->text);
    if (event->texts)
        snib_texts_free(event->texts);
    if (event->kind != SNIB_EVENT_DONE)
        return;
    if (event->token)
        end_token(event->token);
    if (!event->hold)
        return;
    MUST(event->code == SNIB_OK);
    if (thing_of(event->hold) || place())
        got(HOLD, event->hold, LIVE);
    else
        snib_hold_free(event->hold);
}

static void drain(snib_queue *queue, bool wait)
{
    clear();
    int n = wait ? snib_queue_wait(queue, events, 4, 1, &err)
                 : snib_queue_drain(queue, events, 4, &err);
    if (n < 0)
        checked(n, is_live(QUEUE, queue), false);
    for (int i = 0; i < n; i++)
        take_event(&events[i]);
    MUST(n < 0 || is_live(QUEUE, queue));
}

/* ---- Calls -------------------------------------------------------------------------------------------------- */

static void open_client(void)
{
    snib_client *client = UNTOUCHED;
    unsigned clients = 0;
    for (int i = 0; i < THINGS; i++)
        clients += things[i].kind == CLIENT && things[i].state == LIVE;
    if (clients == CLIENTS_MAX || !place())
        return;
    clear();
    MUST(checked(snib_client_open(url, NULL, &client, &err), true, false) == SNIB_OK);
    got(CLIENT, client, LIVE);
}

static void new_lock(snib_client *client, uint8_t how)
{
    static const char names[] = "abc";
    snib_lock *lock = UNTOUCHED;
    if (!place())
        return;
    clear();
    int code =
        checked(snib_lock_new(client, 1 + how % 10, names + how / 16 % 3, 1, NULL, &lock, &err),
                is_live(CLIENT, client), false);
    MUST((code == SNIB_OK) == (lock != UNTOUCHED));
    if (code == SNIB_OK)
        got(LOCK, lock, LIVE);
}

static void new_group(const uint8_t step[STEP])
{
    snib_lock *members[3] = {any(step[1]), any(step[2]), any(step[3])}, *lock = UNTOUCHED;
    uint32_t n = 1 + step[0] / 64 % 3;
    bool fits = true;
    for (uint32_t i = 0; i < n; i++)
        fits = fits && is_live(LOCK, members[i]);
    if (!place())
        return;
    clear();
    int code = n == 3 ? snib_quorum_new(members, n, NULL, &lock, &err)
                      : snib_multi_new(members, n, NULL, &lock, &err);
    /* Other reasons to refuse the members may come first. */
    checked(code, fits, code != SNIB_OK && code != SNIB_EHANDLE);
    MUST((code == SNIB_OK) == (lock != UNTOUCHED));
    if (code == SNIB_OK)
        got(LOCK, lock, LIVE);
}

static void acquire(snib_lock *lock, uint8_t how)
{
    snib_hold *hold = UNTOUCHED;
    if (!place())
        return;
    clear();
    int code = how & 4   ? snib_permits_acquire(lock, 1 + how % 2, 0, &hold, &err)
               : how & 8 ? snib_semaphore_acquire(lock, 1 + how % 2, 0, &hold, &err)
                         : snib_lock_acquire(lock, how % 3, 0, &hold, &err);
    checked(code, is_live(LOCK, lock), false);
    MUST((code == SNIB_OK) == (hold != UNTOUCHED));
    if (code == SNIB_OK)
        got(HOLD, hold, LIVE);
}

static void submit(snib_lock *lock, snib_queue *queue, uint8_t how)
{
    snib_op *op = UNTOUCHED;
    uint64_t token = ++last_token;
    if (room() < 2)
        return;
    queue = how & 1 ? queue : NULL;
    clear();
    int code = how & 2   ? snib_lock_info_submit(lock, queue, token, &op, &err)
               : how & 4 ? snib_latch_wait_submit(lock, 0, queue, token, &op, &err)
               : how & 8 ? snib_lock_force_release_submit(lock, queue, token, &op, &err)
                         : snib_lock_acquire_submit(lock, how & 16 ? 7 : 0, how & 32 ? 20 : 0,
                                                    queue, token, &op, &err);
    checked(code, is_live(LOCK, lock) && (!queue || is_live(QUEUE, queue)), false);
    MUST((code == SNIB_OK) == (op != UNTOUCHED));
    if (code == SNIB_OK)
        got_op(op, queue, token);
}

static void begin(snib_lock *lock, snib_queue *queue, uint8_t how)
{
    snib_op *op = UNTOUCHED;
    snib_hold *hold = UNTOUCHED;
    uint64_t token = ++last_token;
    if (room() < 2)
        return;
    queue = how & 1 ? queue : NULL;
    clear();
    int code = snib_lock_acquire_begin(lock, how & 2 ? 7 : 0, how & 4 ? 20 : 0, how & 8 ? 0 : 5,
                                       queue, token, &hold, &op, &err);
    checked(code, is_live(LOCK, lock) && (!queue || is_live(QUEUE, queue)), false);
    MUST((code == SNIB_OK) == (hold != UNTOUCHED) && (code == SNIB_AGAIN) == (op != UNTOUCHED));
    if (code == SNIB_OK)
        got(HOLD, hold, LIVE);
    else if (code == SNIB_AGAIN)
        got_op(op, queue, token);
}

static void release(snib_hold *hold, snib_queue *queue, uint8_t how)
{
    snib_op *op = UNTOUCHED;
    uint64_t token = ++last_token;
    bool fits = is_live(HOLD, hold);
    clear();
    if (how % 4 < 2) {
        checked(how & 8 ? snib_hold_extend(hold, how & 16 ? 0 : 1000, &err)
                        : snib_hold_release(hold, &err),
                fits, false);
        return;
    }
    if (!place())
        return;
    queue = how & 4 ? queue : NULL;
    int code = how & 1 ? snib_hold_release_submit(hold, queue, token, &op, &err)
                       : snib_hold_release_begin(hold, 0, queue, token, &op, &err);
    checked(code, fits && (!queue || is_live(QUEUE, queue)), false);
    MUST((code == (how & 1 ? SNIB_OK : SNIB_AGAIN)) == (op != UNTOUCHED));
    if (op != UNTOUCHED)
        got_op(op, queue, token);
}

static void look_at_hold(snib_hold *hold, uint8_t how)
{
    char owner[128];
    int32_t reason = 77;
    bool fits = is_live(HOLD, hold);
    clear();
    memset(owner, 'x', sizeof owner);
    switch (how % 7) {
    case 0:
        MUST((snib_hold_state(hold, &reason) == SNIB_EHANDLE) == !fits && (fits || reason == 77));
        return;
    case 1:
        checked(snib_hold_check(hold, &err), fits, false);
        return;
    case 2:
        MUST((snib_hold_remaining_ms(hold) == SNIB_EHANDLE) == !fits);
        return;
    case 3:
        MUST((snib_hold_token(hold) == SNIB_EHANDLE) == !fits);
        return;
    case 4:
        MUST((snib_hold_replicas(hold) == SNIB_EHANDLE) == !fits);
        return;
    case 5:
        checked(snib_hold_owner(hold, owner, &err), fits, false);
        MUST(fits || owner[0] == 'x');
        return;
    default:
        checked(snib_hold_wait(hold, how & 64, &reason, &err), fits, false);
    }
}

static void end_hold(snib_hold *hold, bool abandon)
{
    if (abandon)
        snib_hold_abandon(hold);
    else
        snib_hold_free(hold);
    if (is_live(HOLD, hold))
        gave(hold);
}

static void end_op(snib_op *op, uint8_t how)
{
    bool fits = is_live(OP, op), unsure = is_unsure(OP, op);
    snib_event event = {.size = sizeof event};
    clear();
    if (how % 4 == 0) {
        int code = snib_op_cancel(op);
        checked_code(code, fits, unsure || (fits && code == SNIB_EHANDLE)); /* it was done */
        return;
    }
    if (how % 4 == 1) {
        snib_op_free(op);
        if (fits)
            gave(op);
        return;
    }
    if (room() < 1)
        return;
    int code = checked(snib_op_wait(op, how & 64, &event, &err), fits, unsure);
    if (code != SNIB_OK)
        return;
    gave(op);
    event.token = 0;
    take_event(&event);
}

static void end_queue(snib_queue *queue)
{
    snib_queue_free(queue);
    if (is_live(QUEUE, queue))
        gave(queue);
}

static void use_queue(snib_queue *queue, snib_client *client, uint8_t how)
{
    snib_queue *made = UNTOUCHED;
    bool fits = is_live(QUEUE, queue);
    clear();
    switch (how % 8) {
    case 0:
    case 1:
        if (!place())
            return;
        if (checked(snib_queue_new(client, &made, &err), is_live(CLIENT, client), false) == SNIB_OK)
            got(QUEUE, made, LIVE);
        else
            MUST(made == UNTOUCHED);
        return;
    case 2:
        checked_code(snib_queue_fd(queue, &err) >= 0 ? SNIB_OK : SNIB_EHANDLE, fits, false);
        return;
    case 3:
        checked_code(snib_queue_wake(queue), fits, false);
        return;
    case 4:
        checked_code(how & 8 ? snib_queue_cork(queue) : snib_queue_uncork(queue), fits, false);
        return;
    case 5:
        end_queue(queue);
        return;
    default:
        drain(queue, how & 1);
    }
}

static void use_client(snib_client *client, snib_queue *queue, uint8_t how)
{
    snib_client_stats_data stats = {.size = sizeof stats};
    snib_client_options options;
    char id[37] = "x";
    size_t used = 77;
    uint32_t count = 77;
    uint64_t cursor = 0;
    bool fits = is_live(CLIENT, client), both = fits && is_live(QUEUE, queue);
    snib_client_options_init(&options, sizeof options);
    clear();
    switch (how % 11) {
    case 0:
        checked(snib_client_stats(client, &stats, &err), fits, false);
        return;
    case 1:
        checked(snib_client_get_options(client, &options, &err), fits, false);
        return;
    case 2:
        checked(snib_client_id(client, id, &err), fits, false);
        MUST(fits == (strlen(id) == 36));
        return;
    case 3:
        checked(snib_client_ping(client, 0, &err), fits, false);
        return;
    case 4:
        checked(snib_client_close(client, 0, &err), fits, false);
        return;
    case 5:
        checked(snib_client_log(client, queue, SNIB_LOG_INFO, &err), queue ? both : fits, false);
        return;
    case 6:
        checked(snib_client_list(client, "*", 1, &cursor, texts, sizeof texts, &used, &count, &err),
                fits, false);
        MUST(fits || (used == 77 && count == 77));
        return;
    case 7:
        if (how / 16 % 2)
            checked(snib_client_identity(client, "11111111-2222-8333-8444-555555555555:1", 38,
                                         texts, sizeof texts, &used, &count, &err),
                    fits, false);
        else
            checked(snib_client_describe(client, "a", 1, texts, sizeof texts, &used, &count, &err),
                    fits, false);
        return;
    case 8:
        if (how / 16 == 15)
            checked(snib_client_load(client, 0, &cursor, texts, sizeof texts, &used, &count, &err),
                    fits, false);
        else
            checked(snib_client_server(client, how / 16 == 14 ? SNIB_SERVER_WAY : 1 + how / 16 % 11,
                                       texts, sizeof texts, &used, &count, &err),
                    fits, false);
        return;
    case 9:
        /* It was not opened for that. */
        MUST(checked(snib_client_credentials(client, queue, &err), fits, fits) != SNIB_OK);
        return;
    default:
        checked(snib_client_login(client, how, NULL, &err), fits, false);
    }
}

static void use_lock(snib_lock *lock, uint8_t how)
{
    snib_lock_info_data info = {.size = sizeof info};
    int64_t value = 77;
    bool fits = is_live(LOCK, lock);
    clear();
    switch (how % 6) {
    case 0:
        checked(snib_lock_info(lock, &info, &err), fits, false);
        return;
    case 1:
        checked(snib_lock_force_release(lock, &err), fits, false);
        return;
    case 2:
        checked(snib_permits_count(lock, SNIB_COUNT_GET, 0, &value, &err), fits, false);
        break;
    case 3:
        checked(snib_semaphore_count(lock, SNIB_COUNT_GET, 0, &value, &err), fits, false);
        break;
    case 4:
        checked(snib_latch_count(lock, SNIB_COUNT_GET, 0, &value, &err), fits, false);
        break;
    default:
        checked(snib_latch_wait(lock, 0, &err), fits, false);
    }
    MUST(fits || value == 77);
}

/* ---- The program -------------------------------------------------------------------------------------------- */

static void end_client(snib_client *client)
{
    snib_client_free(client);
    if (is_live(CLIENT, client))
        gave(client);
}

static void end_lock(snib_lock *lock)
{
    snib_lock_free(lock);
    if (is_live(LOCK, lock))
        gave(lock);
}

static void step_on(const uint8_t step[STEP])
{
    void *one = any(step[1]), *other = any(step[2]);
    switch (step[0] % 16) {
    case 0:
        open_client();
        return;
    case 1:
        end_client(one);
        return;
    case 2:
        new_lock(one, step[3]);
        return;
    case 3:
        end_lock(one);
        return;
    case 4:
        acquire(one, step[3]);
        return;
    case 5:
        submit(one, other, step[3]);
        return;
    case 6:
        begin(one, other, step[3]);
        return;
    case 7:
        release(one, other, step[3]);
        return;
    case 8:
        look_at_hold(one, step[3]);
        return;
    case 9:
        end_hold(one, step[3] & 1);
        return;
    case 10:
        end_op(one, step[3]);
        return;
    case 11:
        use_queue(one, other, step[3]);
        return;
    case 12:
        use_client(one, other, step[3]);
        return;
    case 13:
        use_lock(one, step[3]);
        return;
    case 14:
        new_group(step);
        return;
    default:
        snib_texts_free(NULL);
    }
}

/* Give everything back, from any place on. */
static void end_all(unsigned from)
{
    for (unsigned i = 0; i < THINGS; i++) {
        struct thing *thing = &things[(from + i) % THINGS];
        while (thing->state != FREED) {
            if (thing->kind == CLIENT)
                snib_client_free(thing->handle);
            else if (thing->kind == LOCK)
                snib_lock_free(thing->handle);
            else if (thing->kind == HOLD)
                snib_hold_free(thing->handle);
            else if (thing->kind == OP)
                snib_op_free(thing->handle);
            else
                snib_queue_free(thing->handle);
            gave(thing->handle);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t head[STEP], step[STEP];
    in = (struct input){data, size};
    if (!take_step(&in, head))
        return 0;
    memset(things, 0, sizeof things);
    last_token = 0;
    open_client();
    new_lock(things[0].handle, 0);
    while (take_step(&in, step))
        step_on(step);
    end_all(head[0]);
    return 0;
}
