/* replay_roles.c - see roles.pml.
 *
 * The model's threads are coroutines here, which run the real core/driver (driver.c, thread.c, sock.c).  This file is the
 * other side of core/driver/sys.h and park.h: a thread stops before it locks the mutex, behind each unlock, before it
 * sleeps, and while it does, and the trace says who goes on, and what a call has come to.  The callers ask one thing after
 * another (a ping), of which the answers are told from nothing else.  The thread's work for a new connection is one step:
 * it connects at once, and the server answers its handshake.
 */
#include "replay.h"

#include "driver/driver.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define CALLERS 2
#define THREADS (CALLERS + 1) /* the last is the client's own */
#define STACK (512 * 1024)
#define LONG (1000000 * SECOND)
#define SOCKETS 16 /* at a time */
#define FIRST_SOCKET 200
#define BELL 100
#define ALARM 101
#define BYTES 4096

enum where { BEGINS, LOCKS, UNLOCKED, POLLS, PARKS, PARKED };
static const char *const wheres[] = {"begins", "locks the mutex",   "has unlocked the mutex",
                                     "sleeps", "is about to sleep", "sleeps on its word"};

struct thread {
    ucontext_t context;
    char *stack;
    enum where where;
    struct snib__op *op;
    _Atomic uint32_t *word; /* PARKED */
    bool woken, interrupted;
    bool sends; /* what its send() does ... */
    int sent;   /* ... and how many it has called */
    char
        recv; /* what its recv() comes to: the first letter of the trace's word; 0: whatever there is */
    int received; /* how many it has called */
};

struct end { /* a socket and what is on its way in it */
    bool used, cut, shut;
    uint64_t connection;
    char to_server[BYTES], to_client[BYTES];
    size_t to_server_n, to_client_n;
};

static struct thread threads[THREADS], *running, *holder;
static ucontext_t outside;
static struct snib__driver driver;
static struct snib__address address;
static struct end ends[SOCKETS];
static bool bell, slow;
static uint64_t overdue; /* the serial number of an operation whose time is over; 0: none */

/* ---- Threads ---------------------------------------------------------------------------------------- */

static void stop(enum where where)
{
    running->where = where;
    swapcontext(&running->context, &outside);
}

/* The thread goes on, from here, up to the next place where it stops. */
static void go(struct thread *t, enum where from)
{
    if (t->where != from)
        differ("thread %d %s, and the model's does not", (int)(t - threads) + 1, wheres[t->where]);
    running = t;
    swapcontext(&outside, &t->context);
    running = NULL;
}

void __real_snib__driver_enter(struct snib__driver *d);
void __real_snib__driver_leave(struct snib__driver *d);
bool __real_snib__driver_run(struct snib__driver *d, struct snib__op *op, snib__time until,
                             bool interruptible, bool until_waiting);

/* It waits for the answer, or gives up when it is interrupted. */
static void call(struct thread *t)
{
    int32_t code;
    struct snib__engine *engine = driver.engine;
    struct snib__op *op = snib__engine_ping(engine, SNIB__NEVER, snib__now(), &code);
    if (!op)
        broken("a call was not started");
    op->awaited = true;
    t->op = op;
    bool done = __real_snib__driver_run(&driver, op, SNIB__NEVER, true, false);
    t->op = NULL;
    if (done) {
        snib__op_free(engine, op);
        return;
    }
    op->awaited = false;
    snib__engine_cancel(engine, op, snib__now());
}

static void run_caller(void)
{
    for (;;) {
        __real_snib__driver_enter(&driver);
        call(running);
        __real_snib__driver_leave(&driver);
    }
}

static void run_thread(void)
{
    snib__thread_main(&driver);
}

static struct thread *thread_at(int index)
{
    int n = arg(index);
    if (n < 1 || n > THREADS)
        broken("there is no thread %d", n);
    return &threads[n - 1];
}

/* ---- The seam: threads ------------------------------------------------------------------------------ */

void snib__sys_lock(pthread_mutex_t *mutex)
{
    (void)mutex;
    if (!running)
        return;
    stop(LOCKS);
    if (holder)
        broken("two threads have the mutex");
    holder = running;
}

void snib__sys_unlock(pthread_mutex_t *mutex)
{
    (void)mutex;
    if (!running)
        return;
    if (holder != running)
        differ("a thread unlocks a mutex that it does not have");
    holder = NULL;
    stop(UNLOCKED);
}

int snib__park(_Atomic uint32_t *word, uint32_t expected, snib__time until)
{
    (void)until;
    stop(PARKS);
    if (atomic_load(word) != expected)
        return SNIB__PARKED_NO;
    running->word = word;
    running->woken = false;
    stop(PARKED);
    return running->interrupted ? SNIB__PARKED_SIGNAL : SNIB__PARKED_NO;
}

void snib__unpark(_Atomic uint32_t *word)
{
    for (int i = 0; i < CALLERS; i++)
        if (threads[i].where == PARKED && threads[i].word == word)
            threads[i].woken = true;
}

void snib__unpark_all(_Atomic uint32_t *word)
{
    snib__unpark(word);
}

void snib__sys_begin(void)
{
}

void snib__sys_stay(void)
{
}

void snib__sys_print(int fd, const char *line, size_t n)
{
    (void)fd, (void)line, (void)n;
}

int snib__sys_thread(void *(*run)(void *), void *argument, size_t stack, pthread_t *out_thread)
{
    (void)run, (void)argument, (void)stack, (void)out_thread;
    broken("a thread is started");
}

void snib__sys_join(pthread_t thread)
{
    (void)thread;
}

struct snib__steps *snib__sys_steps(void)
{
    static struct snib__steps steps;
    return &steps;
}

int snib__sys_bell(void)
{
    return BELL;
}

void snib__sys_ring(int fd)
{
    bell = bell || fd == BELL;
}

void snib__sys_hush(int fd)
{
    bell = bell && fd != BELL;
}

int snib__sys_alarm(void)
{
    return ALARM;
}

void snib__sys_alarm_set(int alarm, snib__time in)
{
    (void)alarm, (void)in;
}

/* No queue's consumer reads here. */
int snib__sys_set(void)
{
    broken("a set is made");
}

int snib__sys_set_add(int set, int fd)
{
    (void)set, (void)fd;
    broken("a set is used");
}

void snib__sys_set_remove(int set, int fd)
{
    (void)set, (void)fd;
}

/* ---- The seam: sockets ------------------------------------------------------------------------------ */

static struct end *end_of(int fd)
{
    if (fd < FIRST_SOCKET || fd >= FIRST_SOCKET + SOCKETS || !ends[fd - FIRST_SOCKET].used)
        differ("a descriptor is used that is not open");
    return &ends[fd - FIRST_SOCKET];
}

static bool has_ended(const struct end *end)
{
    return end->cut || end->shut;
}

int snib__sys_connect(const struct sockaddr *to, socklen_t n, int *out_fd)
{
    (void)to, (void)n;
    int i = 0;
    while (i < SOCKETS && ends[i].used)
        i++;
    if (i == SOCKETS)
        differ("too many sockets are never closed");
    ends[i] = (struct end){.used = true, .connection = model_connect(server)};
    *out_fd = FIRST_SOCKET + i;
    return 0;
}

int snib__sys_connected(int fd)
{
    (void)fd;
    return 0;
}

void snib__sys_may_block(int fd)
{
    (void)fd;
}

void snib__sys_shutdown(int fd)
{
    end_of(fd)->shut = true;
}

void snib__sys_close(int fd)
{
    struct end *end = end_of(fd);
    model_close(server, end->connection);
    end->used = false;
}

int snib__sys_resolve(const char *host, const char *port, bool numeric, struct addrinfo **out)
{
    (void)host, (void)port, (void)numeric, (void)out;
    broken("a name is looked up");
}

void snib__sys_resolve_free(struct addrinfo *addresses)
{
    (void)addresses;
}

ssize_t snib__sys_send(int fd, const char *bytes, size_t n)
{
    struct end *end = end_of(fd);
    running->sent++;
    if (running->sends && has_ended(end))
        differ("the model's send() works, and the socket has ended");
    if (!running->sends) {
        errno = has_ended(end) ? EPIPE : EAGAIN;
        return -1;
    }
    if (end->to_server_n + n > BYTES)
        broken("too much is sent");
    memcpy(end->to_server + end->to_server_n, bytes, n);
    end->to_server_n += n;
    return (ssize_t)n;
}

static ssize_t take_all(struct end *end, char *bytes, size_t cap)
{
    size_t n = end->to_client_n;
    if (n > cap)
        broken("too much is received");
    memcpy(bytes, end->to_client, n);
    end->to_client_n = 0;
    return (ssize_t)n;
}

ssize_t snib__sys_recv(int fd, char *bytes, size_t cap, bool wait)
{
    struct end *end = end_of(fd);
    (void)wait;
    running->received++;
    bool is_caller = running->recv != 0;
    if (is_caller && (running->recv == 'E') != has_ended(end) && running->recv != 'S')
        differ("the socket %s ended", has_ended(end) ? "has" : "has not");
    errno = running->recv == 'S' ? EINTR : EAGAIN;
    if (running->recv == 'S' || running->recv == 'R' || running->recv == 'N')
        return -1;
    if (has_ended(end))
        return 0;
    if (end->to_client_n > 0)
        return take_all(end, bytes, cap);
    if (is_caller)
        differ("nothing has come");
    return -1;
}

/* Of a caller, which waits also for room: as its recv(). */
static int poll_caller(struct pollfd *one)
{
    errno = EINTR;
    if (running->recv == 'R' && !(one->events & POLLOUT))
        differ("it does not wait for room");
    one->revents = running->recv == 'R' ? POLLOUT : POLLIN;
    if (running->recv == 'S')
        running->received++;
    return running->recv == 'S' ? -1 : running->recv != 'N';
}

int snib__sys_poll(struct pollfd *polls, uint32_t n, snib__time left)
{
    int ready = 0;
    (void)left;
    if (running != &threads[CALLERS])
        return poll_caller(polls);
    stop(POLLS);
    for (uint32_t i = 0; i < n; i++) {
        struct pollfd *one = &polls[i];
        one->revents = 0;
        if (one->fd == BELL && bell)
            one->revents = POLLIN;
        if (one->fd < FIRST_SOCKET)
            continue;
        const struct end *end = end_of(one->fd);
        if (has_ended(end))
            one->revents = one->events & (POLLIN | POLLRDHUP);
        else if (end->to_client_n > 0)
            one->revents = one->events & POLLIN;
        one->revents = (short)(one->revents | (one->events & POLLOUT));
        ready += one->revents != 0;
    }
    return ready + bell;
}

/* ---- The world -------------------------------------------------------------------------------------- */

/* No reply is overdue: the thread's sleep has no end because of one. */
snib__time __real_snib__link_deadline(const struct snib__engine *engine);
snib__time __wrap_snib__link_deadline(const struct snib__engine *engine);
snib__time __wrap_snib__link_deadline(const struct snib__engine *engine)
{
    return snib__node_ready(engine->home) ? SNIB__NEVER : __real_snib__link_deadline(engine);
}

/* The server answers the handshake.  What waited for it lies in the output then; nothing ends by the clock. */
static void shake_hands(struct snib__link *link, struct snib__sock *sock)
{
    struct snib__engine *engine = driver.engine;
    uint64_t connection = end_of(sock->fd)->connection;
    for (int turn = 0; link->conn.state != SNIB__CONN_READY; turn++) {
        struct snib__buf *out = snib__link_output(link);
        const char *p;
        if (turn == 8)
            broken("the handshake does not end");
        model_input(server, connection, out->data + out->head, snib__buf_size(out));
        snib__buf_consume(out, snib__buf_size(out));
        size_t n = model_output(server, connection, &p);
        snib__engine_input(engine, link, p, n, snib__now());
    }
    engine->home->clock.refused = true; /* only clock.c wants the time */
    sock->taken = snib__link_appended(link) - snib__link_in_flight(link);
    for (struct snib__op *op = engine->live; op; op = op->live_next)
        snib__timer_cancel(engine, &op->timer_at);
}

void __real_snib__driver_link_up(struct snib__driver *d, struct snib__link *link,
                                 struct snib__sock *sock);
void __wrap_snib__driver_link_up(struct snib__driver *d, struct snib__link *link,
                                 struct snib__sock *sock);
void __wrap_snib__driver_link_up(struct snib__driver *d, struct snib__link *link,
                                 struct snib__sock *sock)
{
    __real_snib__driver_link_up(d, link, sock);
    shake_hands(link, sock);
}

static struct snib__link *command(void)
{
    return snib__engine_link(driver.engine, SNIB__COMMAND);
}

static void on_done(struct snib__driver *d, struct snib__op *op, struct snib__wakes *wakes)
{
    (void)wakes;
    snib__op_free(d->engine, op);
}

static void on_log(struct snib__driver *d, int32_t level, const char *text,
                   struct snib__wakes *wakes)
{
    (void)d, (void)level, (void)text, (void)wakes;
}

static void connect_first(void)
{
    int32_t code;
    int os_error;
    struct snib__way *way = calloc(1, sizeof *way);
    if (!way)
        abort();
    *way = (struct snib__way){.address = address, .timeout = LONG, .tls = &driver.tls};
    *snib__link_way(command()) = way;
    snib__link_want(driver.engine, command(), snib__now());
    snib__engine_take_wish(driver.engine, command());
    struct snib__sock *sock = snib__sock_new(way, snib__now(), &code, &os_error);
    if (!sock || !sock->open)
        broken("there is no connection");
    snib__link_set_transport(command(), sock);
    __wrap_snib__driver_link_up(&driver, command(), sock);
}

static void new_thread(struct thread *t, void (*run)(void))
{
    t->stack = malloc(STACK);
    if (!t->stack || getcontext(&t->context) < 0)
        abort();
    t->context.uc_stack.ss_sp = t->stack;
    t->context.uc_stack.ss_size = STACK;
    makecontext(&t->context, run, 0);
    go(t, BEGINS); /* to its first lock */
}

static struct snib__bell wake = {.refs = 1, .fd = BELL};

static void begin(void)
{
    real_links = true;
    servers[0] = model_new();
    model_set_faults(server, MODEL_NO_CLIENT); /* nor is a former connection ended */
    clients[0].now = 3600 * SECOND;
    strcpy(address.path, "/server");
    struct snib__config config = {.seed = 1,
                                  .first_number = 1,
                                  .seeds = &address,
                                  .seeds_n = 1,
                                  .lease = LONG,
                                  .reply_timeout = LONG,
                                  .patience = LONG,
                                  .try_timeout = LONG,
                                  .recheck = LONG,
                                  .ops_max = 100};
    strcpy(config.uuid, "00000001-0000-8000-8000-000000000000");
    driver = (struct snib__driver){.engine = snib__engine_new(&config),
                                   .connect_timeout = LONG,
                                   .nap = LONG,
                                   .thread_started = true,
                                   .wake = &wake,
                                   .alarm_fd = ALARM,
                                   .alarm_at = SNIB__NEVER,
                                   .done = on_done,
                                   .log = on_log};
    clients[0].engine = driver.engine;
    connect_first();
    for (int i = 0; i < THREADS; i++)
        new_thread(&threads[i], i < CALLERS ? run_caller : run_thread);
}

/* ---- Steps ------------------------------------------------------------------------------------------ */

static struct snib__sock *sock_now(void)
{
    return snib__link_transport(command());
}

/* It is the thread that finds this out. */
static void expire(void)
{
    struct snib__op *op = threads[1].op;
    if (overdue && op && op->serial == overdue && !op->done) {
        op->deadline = snib__now();
        snib__op_arm(driver.engine, op);
    }
    overdue = 0;
    slow = false;
}

/* With the mutex, until it is unlocked.  The thread finds that it may connect, or that a nominee has had its time. */
static void step_go(void)
{
    struct thread *t = thread_at(0);
    bool is_thread = t == &threads[CALLERS];
    if (is_thread && !sock_now())
        clients[0].now += 3 * SECOND;
    if (is_thread && slow)
        clients[0].now += SECOND / 10;
    if (is_thread)
        expire();
    go(t, LOCKS);
}

static void step_send(void)
{
    struct thread *t = thread_at(0);
    int before = t->sent;
    t->sends = arg(1);
    go(t, UNLOCKED);
    same(arg(0), "send() was called", 1, t->sent - before);
}

static void step_recv(void)
{
    struct thread *t = thread_at(0);
    int before = t->received;
    t->recv = word(1)[0];
    go(t, UNLOCKED);
    same(arg(0), "recv() was called", 1, t->received - before);
}

static void step_wakes(void)
{
    struct thread *t = thread_at(0);
    int before = t->sent + t->received;
    go(t, UNLOCKED);
    same(arg(0), "send() or recv() was called", 0, t->sent + t->received - before);
}

static void step_park(void)
{
    go(thread_at(0), PARKS);
}

static void step_woken(void)
{
    struct thread *t = thread_at(0);
    t->interrupted = arg(1);
    if (!t->woken && !t->interrupted)
        differ("nobody has woken the thread");
    go(t, PARKED);
    t->interrupted = false;
}

static void step_poll(void)
{
    overdue = arg(0) && threads[1].op ? threads[1].op->serial : 0;
    slow = arg(1);
    go(&threads[CALLERS], POLLS);
}

static void step_answer(void)
{
    static const char ping[] = "*1\r\n$4\r\nPING\r\n";
    const size_t size = sizeof ping - 1;
    struct snib__sock *sock = sock_now();
    struct end *end = sock ? end_of(sock->fd) : NULL;
    const char *p;
    if (!end || end->to_server_n < size || memcmp(end->to_server, ping, size) != 0)
        differ("the server has nothing to answer");
    model_input(server, end->connection, end->to_server, size);
    end->to_server_n -= size;
    memmove(end->to_server, end->to_server + size, end->to_server_n);
    size_t n = model_output(server, end->connection, &p);
    memcpy(end->to_client + end->to_client_n, p, n);
    end->to_client_n += n;
}

static void step_cut(void)
{
    if (!sock_now())
        differ("there is no connection");
    command()->backoff = 0; /* it has lasted: the pause is shorter than the thread's sleeps */
    end_of(sock_now()->fd)->cut = true;
}

/* ---- What can be observed --------------------------------------------------------------------------- */

static const char *const readers[] = {[SNIB__READER_NOBODY] = "FREE",
                                      [SNIB__READER_CALLER] = "CALLER",
                                      [SNIB__READER_THREAD] = "BACKGROUND",
                                      [SNIB__READER_TRANSIT] = "TRANSIT",
                                      [SNIB__READER_QUEUE] = "a consumer"};
static const char *const words[] = {"PENDING", "ASLEEP", "LEAD", "DONE"};

static void same_roles(const struct snib__sock *sock)
{
    int nominee = 0;
    if (strcmp(word(1), readers[sock->reader]) != 0)
        differ("the reader is %s in the model, and %s in the core", word(1), readers[sock->reader]);
    for (int i = 0; i < CALLERS; i++)
        nominee = sock->nominee && sock->nominee == threads[i].op ? i + 1 : nominee;
    same(0, "the nominee", arg(2), nominee);
    same(0, "somebody writes", arg(3), sock->writing);
    same(0, "the thread waits for room", arg(4), sock->watched);
    same(0, "the thread has seen the end", arg(5), sock->ended);
    same(0, "collected", arg(10), (int64_t)(snib__link_appended(command()) - sock->taken));
    if (!sock->writing) /* or it is being sent */
        same(0, "taken, and not sent yet", arg(11) > 0, snib__sock_unsent(sock));
}

static void same_caller(int index, int inside, const char *says, int parked)
{
    const struct thread *t = &threads[index];
    same(index + 1, "in a call", inside, t->op != NULL);
    same(index + 1, "asleep", parked, t->where == PARKED && !t->woken);
    uint32_t is = t->op ? atomic_load(&t->op->word) : 0;
    if (t->op && strcmp(says, words[is]) != 0)
        differ("the word of caller %d is %s in the model, and %s in the core", index + 1, says,
               words[is]);
}

static void step_is(void)
{
    const struct snib__sock *sock = sock_now();
    int later = 0;
    same(0, "connected", arg(0), sock != NULL);
    if (sock)
        same_roles(sock);
    same(0, "a wake-up is on its way to the thread", arg(6), driver.wake_raised);
    same(0, "the bell rings", arg(7), bell);
    same(0, "the thread is awake", arg(8), driver.sleep_until == 0);
    same(0, "its sleep has no end", arg(9), driver.sleep_until == SNIB__NEVER);
    same(0, "in flight", arg(12), snib__link_in_flight(command()));
    for (uint32_t i = 0; i < driver.engine->home->todo_n; i++)
        later += driver.engine->home->todo[i].subject != NULL;
    same(0, "for the next connection", arg(13), later);
    for (int i = 0; i < CALLERS; i++)
        same_caller(i, arg(14 + 3 * i), word(15 + 3 * i), arg(16 + 3 * i));
}

static const struct step steps[] = {
    {"go", step_go},     {"send", step_send},   {"recv", step_recv}, {"wakes", step_wakes},
    {"park", step_park}, {"woken", step_woken}, {"poll", step_poll}, {"answer", step_answer},
    {"cut", step_cut},   {"is", step_is},       {NULL, NULL}};

const struct replay replay_roles = {"roles", begin, steps};
