#include "driver/sys.h"

#include "driver/forks.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

/* The least for a thread that has the usual stack: what a program sets for its own threads, or `ulimit -s`, may be less than
 * a password file or a certificate takes. */
#define SYS_STACK ((size_t)256 * 1024)

/* syscall() is not a cancellation point, unlike the C library's wrappers of these calls. */

void snib__sys_lock(pthread_mutex_t *mutex)
{
    pthread_mutex_lock(mutex);
}

void snib__sys_unlock(pthread_mutex_t *mutex)
{
    pthread_mutex_unlock(mutex);
}

static int sys_add_tls(struct dl_phdr_info *info, size_t size, void *total)
{
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_TLS)
            *(size_t *)total += info->dlpi_phdr[i].p_memsz + info->dlpi_phdr[i].p_align;
    return 0;
}

/* What the program's thread-local variables take from each thread's stack, at most.  Read once: what is loaded later
 * must make do with a reserve that the C library has added. */
static size_t sys_tls(void)
{
    static _Atomic size_t known;
    size_t total = known;
    if (total == 0) {
        snib__forks_enter();
        dl_iterate_phdr(sys_add_tls, &total);
        snib__forks_leave();
        known = total;
    }
    return total;
}

#ifdef SNIB_OPENSSL_LINKED /* else tls_openssl.c needs it in any case */
extern __typeof__(dlopen) dlopen __attribute__((weak)); /* a static program is linked without it */
#endif

/* The object that an address is in, and its name if that may be unloaded. */
struct sys_object {
    uintptr_t address;
    const char *name;
};

static bool sys_is_in(const struct dl_phdr_info *info, const ElfW(Phdr) * part, uintptr_t address)
{
    return part->p_type == PT_LOAD && address - (info->dlpi_addr + part->p_vaddr) < part->p_memsz;
}

static bool sys_stays(const struct dl_phdr_info *info, const ElfW(Phdr) * part)
{
    if (part->p_type == PT_DYNAMIC)
        for (const ElfW(Dyn) *at = (const void *)(info->dlpi_addr + part->p_vaddr); at->d_tag; at++)
            if (at->d_tag == DT_FLAGS_1)
                return at->d_un.d_val & DF_1_NODELETE;
    return false;
}

static int sys_find(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct sys_object *object = argument;
    bool found = false, stays = false;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        found = found || sys_is_in(info, &info->dlpi_phdr[i], object->address);
        stays = stays || sys_stays(info, &info->dlpi_phdr[i]);
    }
    if (found && !stays && info->dlpi_name[0]) /* the program itself has no name */
        object->name = info->dlpi_name;
    return found;
}

void snib__sys_begin(void)
{
    sys_tls();
}

enum { SYS_MAY_GO, SYS_ASKS, SYS_STAYS };

/* Threads return to this code when the program has freed all, from a lookup for example.  So a module that contains the
 * library is not unloaded, as libsnib.so is not.
 *
 * dlopen() waits for a thread that runs a module's constructors, which may open a client, too.  So no thread waits for the
 * one that asks, nor does a fork; its child, in which the loader's lock may have no owner any longer, does not ask again.
 * But a constructor that waits for a thread which opens the first client still waits for ever, as with any dlopen(). */
void snib__sys_stay(void)
{
    static _Atomic int known;
    int before = SYS_MAY_GO;
    if (atomic_load(&known) != SYS_MAY_GO ||
        !atomic_compare_exchange_strong(&known, &before, SYS_ASKS))
        return;
    struct sys_object own = {.address = (uintptr_t)snib__sys_stay};
    snib__forks_enter(); /* the lock that this takes is another one, which nobody keeps for long */
    dl_iterate_phdr(sys_find, &own);
    snib__forks_leave();
    void *(*volatile open)(const char *, int) = dlopen; /* NULL in some static programs */
    bool stays = !own.name || !open || open(own.name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    atomic_store(&known, stays ? SYS_STAYS : SYS_MAY_GO); /* or else the next call asks again */
}

int snib__sys_thread(void *(*run)(void *), void *argument, size_t stack, pthread_t *out_thread)
{
    pthread_t thread;
    pthread_attr_t attr;
    sigset_t all, old;
    size_t usual = 0, least = (stack ? stack : SYS_STACK) + sys_tls();
    pthread_attr_init(&attr);
    pthread_attr_getstacksize(&attr, &usual);
    if (stack || usual < least)
        pthread_attr_setstacksize(&attr, least);
    if (!out_thread)
        pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(out_thread ? out_thread : &thread, &attr, run, argument);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    return error;
}

void snib__sys_join(pthread_t thread)
{
    int old;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    pthread_join(thread, NULL);
    pthread_setcancelstate(old, NULL);
}

/* ---- descriptors that wake ---- */

struct snib__steps *snib__sys_steps(void)
{
    static _Thread_local struct snib__steps steps;
    return &steps;
}

/* List a new descriptor; -1 with errno.  In a process that has closed its standard descriptors it may be one of these: what
 * any code prints there would go into a connection as commands, and their replies be taken for those of others.  Inside
 * forks.h's calls. */
static int sys_keep(int fd)
{
    int own = fd;
    if (fd >= 0 && fd <= STDERR_FILENO) {
        own = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        int error = errno;
        syscall(SYS_close, fd);
        errno = error;
    }
    return snib__forks_keep(own);
}

int snib__sys_bell(void)
{
    snib__forks_enter();
    int bell = sys_keep(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    snib__forks_leave();
    return bell;
}

void snib__sys_ring(int bell)
{
    uint64_t one = 1;
    syscall(SYS_write, bell, &one, sizeof one); /* at its limit, it is readable all the same */
}

void snib__sys_hush(int bell)
{
    uint64_t count;
    syscall(SYS_read, bell, &count, sizeof count);
}

int snib__sys_set(void)
{
    snib__forks_enter();
    int set = sys_keep(epoll_create1(EPOLL_CLOEXEC));
    snib__forks_leave();
    if (set >= 0)
        fcntl(set, F_SETFL, O_NONBLOCK); /* for loops that ask whether it is */
    return set;
}

int snib__sys_set_add(int set, int fd)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP};
    return epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : errno;
}

void snib__sys_set_remove(int set, int fd)
{
    epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL);
}

int snib__sys_alarm(void)
{
    snib__forks_enter();
    int alarm = sys_keep(timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK));
    snib__forks_leave();
    return alarm;
}

static struct timespec sys_timespec(snib__time ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / 1000000000u),
                             .tv_nsec = (long)(ns % 1000000000u)};
}

void snib__sys_alarm_set(int alarm, snib__time in)
{
    struct itimerspec when = {.it_value = sys_timespec(in == SNIB__NEVER ? 0 : in ? in : 1)};
    timerfd_settime(alarm, 0, &when, NULL);
}

int snib__sys_poll(struct pollfd *polls, uint32_t n, snib__time left)
{
    struct timespec ts = sys_timespec(left == SNIB__NEVER ? 0 : left);
    return (int)syscall(SYS_ppoll, polls, n, left == SNIB__NEVER ? NULL : &ts, NULL, 8);
}

/* ---- standard error ---- */

/* write(), without the signal of a pipe whose readers have gone.  One that was pending before stays so. */
static void sys_write_quietly(int fd, const char *bytes, size_t n)
{
    const struct timespec no_time = {0};
    sigset_t quiet, before, pending;
    sigemptyset(&quiet);
    sigaddset(&quiet, SIGPIPE);
    if (sigpending(&pending) != 0 || pthread_sigmask(SIG_BLOCK, &quiet, &before) != 0)
        return;
    if (syscall(SYS_write, fd, bytes, n) < 0 && errno == EPIPE && !sigismember(&pending, SIGPIPE))
        syscall(SYS_rt_sigtimedwait, &quiet, NULL, &no_time, 8); /* no cancellation point */
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* O_NONBLOCK of the descriptor itself is for all who share it, other processes, too; and that poll() finds room for something
 * says nothing of a line.  So pipes and terminals are opened once more: a pipe also for reading, or a signal could end the
 * process if its last reader goes meanwhile.  A thread's own folder, because the main thread may have ended. */
void snib__sys_print(int fd, const char *line, size_t n)
{
    char path[sizeof "/proc/thread-self/fd/-2147483648"];
    struct stat about;
    if ((fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY || fstat(fd, &about) != 0)
        return;
    if (S_ISSOCK(about.st_mode)) {
        syscall(SYS_sendto, fd, line, n, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
    } else if (S_ISREG(about.st_mode)) {
        syscall(SYS_write, fd, line, n);
    } else {
        int flags = O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
        flags |= S_ISFIFO(about.st_mode) ? O_RDWR : O_WRONLY;
        snprintf(path, sizeof path, "/proc/thread-self/fd/%d", fd);
        int own = (int)syscall(SYS_openat, AT_FDCWD, path, flags);
        struct pollfd room = {.fd = fd, .events = POLLOUT};
        if (own >= 0) {
            syscall(SYS_write, own, line, n);
            syscall(SYS_close, own); /* the child of a fork beside this has that file in any case */
        } else if (snib__sys_poll(&room, 1, 0) == 1 && (room.revents & POLLOUT)) {
            sys_write_quietly(fd, line, n); /* another user's; nearly always there is room */
        }
    }
}

/* ---- sockets ---- */

ssize_t snib__sys_recv(int fd, char *bytes, size_t cap, bool wait)
{
    return syscall(SYS_recvfrom, fd, bytes, cap, wait ? 0 : MSG_DONTWAIT, NULL, NULL);
}

ssize_t snib__sys_send(int fd, const char *bytes, size_t n)
{
    return syscall(SYS_sendto, fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
}

/* Missing replies show that a command link is dead.  For the other links: unacknowledged bytes end
 * a link after 15 s; so does an idle peer that has vanished, at the first probe after that time,
 * which is 10 + 2 x 3 s after its last sign of life. */
static void sys_tune(int fd)
{
    int one = 1, idle = 10, interval = 3, count = 3;
    unsigned unconfirmed_ms = 15000;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unconfirmed_ms, sizeof unconfirmed_ms);
}

/* A port that is free and among those that the kernel gives to connections, on this host: such a connection can be given
 * the port that it goes to, and meets itself.  Nobody listens there, and nobody could while it lasts; it leaves without a
 * trace, so that the server can. */
static int sys_met(int fd)
{
    struct sockaddr_storage own = {0}, peer = {0};
    socklen_t own_n = sizeof own, peer_n = sizeof peer;
    const struct linger at_once = {.l_onoff = 1};
    if (getsockname(fd, (struct sockaddr *)&own, &own_n) != 0 ||
        getpeername(fd, (struct sockaddr *)&peer, &peer_n) != 0 || own_n != peer_n ||
        memcmp(&own, &peer, own_n) != 0)
        return 0;
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    return ECONNREFUSED;
}

int snib__sys_connect(const struct sockaddr *address, socklen_t n, int *out_fd)
{
    snib__forks_enter();
    int fd = sys_keep(socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    snib__forks_leave();
    if (fd < 0)
        return errno;
    if (address->sa_family != AF_UNIX)
        sys_tune(fd);
    *out_fd = fd;
    int error = syscall(SYS_connect, fd, address, n) == 0 ? sys_met(fd) : errno;
    if (error && error != EINPROGRESS)
        snib__sys_close(fd);
    return error;
}

int snib__sys_connected(int fd)
{
    int error = 0;
    socklen_t n = sizeof error;
    struct sockaddr_storage peer;
    socklen_t peer_n = sizeof peer;
    struct pollfd writable = {.fd = fd, .events = POLLOUT};
    int ready = snib__sys_poll(&writable, 1, 0);
    if (ready == 0)
        return EINPROGRESS;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n);
    if (ready < 0 && !error && getpeername(fd, (struct sockaddr *)&peer, &peer_n) != 0)
        return EINPROGRESS; /* it cannot be polled: see snib__driver_poll() */
    return error ? error : sys_met(fd);
}

void snib__sys_may_block(int fd)
{
    struct timeval nap = {.tv_usec = SNIB__SOCK_NAP_MS * 1000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &nap, sizeof nap);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
}

void snib__sys_shutdown(int fd)
{
    shutdown(fd, SHUT_RDWR);
}

void snib__sys_close(int fd)
{
    snib__forks_enter();
    snib__forks_drop(fd); /* first: the number may be another's as soon as it is closed */
#ifdef __SANITIZE_THREAD__
    close(fd); /* the sanitizer sees it, and so knows that the number may be reused */
#else
    syscall(SYS_close, fd);
#endif
    snib__forks_leave();
}

/* Not with AI_ADDRCONFIG, which leaves out the loopback addresses of a family if the host has no others of it: an address
 * that cannot be reached costs little, because the next one is tried at once. */
int snib__sys_resolve(const char *host, const char *port, bool numeric, struct addrinfo **out)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICSERV | (numeric ? AI_NUMERICHOST : 0)};
    snib__forks_enter();
    snib__forks_lookup(true);
    int result = getaddrinfo(host, port, &hints, out);
    snib__forks_lookup(false);
    snib__forks_leave();
    return result;
}

void snib__sys_resolve_free(struct addrinfo *addresses)
{
    freeaddrinfo(addresses);
}
