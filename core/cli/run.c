/* run.c - snib run: hold a lock while a command runs.
 *
 * One thread, one loop: poll() over a signalfd and the queue's descriptor.  The signals are blocked
 * from the start, before the client has a thread, so nothing is ever done in a signal handler.
 *
 *     waiting --lock granted--> running --COMMAND ended--> release, exit with its code
 *        |                         |
 *        | busy, timed out,        | lock lost
 *        | error, signal           v
 *        v                      ending --COMMAND ended--> exit 123
 *       exit
 *
 * COMMAND leads a process group of its own, so that on a loss all of it is ended and not just its
 * shell.  The terminal stays with snib's group, which lets pipelines with a pager work, until
 * COMMAND asks for it (the kernel stops it with SIGTTIN or SIGTTOU); then it is handed over.  If
 * COMMAND is stopped by the terminal, snib stops too, as shells expect; nobody renews the lock
 * then, so before COMMAND is continued the hold is checked.
 */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define GRACE_MS 5000 /* between SIGTERM and SIGKILL */
#define CLOSE_MS 1000 /* for telling the server that we go */

/* What an operation's end is about. */
enum token { TOKEN_ACQUIRE = 1, TOKEN_COUNT };

struct run {
    const struct cli *cli;
    snib_client *client;
    snib_lock *lock;
    snib_queue *queue;
    snib_hold *hold;
    sigset_t old_mask;
    int signals;                                   /* signalfd */
    int terminal;                                  /* -1: none */
    pid_t child;                                   /* 0: not running */
    int64_t kill_at_ms;                            /* when grace ends; 0: no such time */
    char lock_variable[sizeof "SNIB_LOCK=" + 512]; /* a name has 512 bytes at most */
    char token_variable[sizeof "SNIB_TOKEN=" + 20];
    bool is_lost;
    bool has_terminal; /* COMMAND's group has it */
};

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- Signals and the terminal ---------------------------------------------------------------- */

/* Block what the loop handles and make it readable.  A signal that was ignored when snib started,
 * as nohup does, stays ignored, here and in COMMAND. */
static int open_signals(struct run *run)
{
    static const int handled[] = {SIGTERM, SIGINT,  SIGHUP,  SIGQUIT, SIGUSR1,
                                  SIGUSR2, SIGTSTP, SIGCONT, SIGWINCH};
    sigset_t mask;
    sigset_t blocked;
    sigemptyset(&mask);
    for (size_t i = 0; i < sizeof handled / sizeof handled[0]; i++) {
        struct sigaction old;
        if (sigaction(handled[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaddset(&mask, handled[i]);
    }
    signal(SIGCHLD, SIG_DFL);
    sigaddset(&mask, SIGCHLD);
    blocked = mask;
    sigaddset(&blocked, SIGTTOU); /* or tcsetpgrp() would stop us */
    if (sigprocmask(SIG_BLOCK, &blocked, &run->old_mask) != 0)
        return -1;
    return run->signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
}

static bool is_foreground(const struct run *run)
{
    return run->terminal >= 0 && tcgetpgrp(run->terminal) == getpgrp();
}

static void take_terminal_back(struct run *run)
{
    if (run->has_terminal && tcgetpgrp(run->terminal) == run->child)
        tcsetpgrp(run->terminal, getpgrp());
}

static void continue_command(struct run *run)
{
    if (run->has_terminal && is_foreground(run))
        tcsetpgrp(run->terminal, run->child);
    kill(-run->child, SIGCONT);
}

/* COMMAND was stopped by sig. */
static void on_stopped(struct run *run, int sig)
{
    bool wants_terminal = sig == SIGTTIN || sig == SIGTTOU;
    if (wants_terminal && is_foreground(run)) {
        run->has_terminal = true;
        continue_command(run);
    } else if (run->terminal >= 0 && (wants_terminal || sig == SIGTSTP)) {
        take_terminal_back(run);
        raise(SIGSTOP);
    }
}

/* ---- The command ----------------------------------------------------------------------------- */

/* In the child: only async-signal-safe calls, for the client may have had a thread. */
static _Noreturn void become_command(const struct run *run, char **environment, pid_t parent,
                                     int report)
{
    setpgid(0, 0);
    /* Whoever kills snib with SIGKILL must not leave COMMAND running without the lock. */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(EXIT_USAGE);
    sigprocmask(SIG_SETMASK, &run->old_mask, NULL);
    execvpe(run->cli->command[0], run->cli->command, environment);
    int error = errno;
    while (write(report, &error, sizeof error) < 0 && errno == EINTR)
        ;
    _exit(EXIT_NOT_RUNNABLE);
}

/* Our environment with COMMAND's two variables, the token only if there is one.  A new array, to be
 * freed, because the client's threads may be reading the old one.  NULL when out of memory. */
static char **make_environment(struct run *run)
{
    int64_t token = snib_hold_token(run->hold);
    size_t n = 0;
    while (environ[n])
        n++;
    char **out = calloc(n + 3, sizeof *out);
    if (!out)
        return NULL;
    size_t used = 0;
    snprintf(run->lock_variable, sizeof run->lock_variable, "SNIB_LOCK=%s", run->cli->name);
    out[used++] = run->lock_variable;
    snprintf(run->token_variable, sizeof run->token_variable, "SNIB_TOKEN=%" PRId64, token);
    if (token > 0)
        out[used++] = run->token_variable;
    for (size_t i = 0; i < n; i++) {
        bool is_ours = strncmp(environ[i], "SNIB_LOCK=", 10) == 0 ||
                       strncmp(environ[i], "SNIB_TOKEN=", 11) == 0;
        if (!is_ours)
            out[used++] = environ[i];
    }
    return out;
}

/* Start COMMAND.  Returns 0 or an exit code that has been told. */
static int start_command(struct run *run)
{
    int report[2];
    int error = 0;
    pid_t parent = getpid();
    char **environment = make_environment(run);
    if (!environment || pipe2(report, O_CLOEXEC) != 0) {
        free(environment);
        return cli_fail_errno(run->cli, "cannot start the command");
    }
    fflush(NULL);
    run->child = fork();
    if (run->child == 0)
        become_command(run, environment, parent, report[1]);
    int fork_error = errno;
    close(report[1]);
    free(environment);
    if (run->child < 0) {
        run->child = 0;
        close(report[0]);
        errno = fork_error;
        return cli_fail_errno(run->cli, "cannot start the command");
    }
    setpgid(run->child, run->child); /* also here, so that it is done whoever runs first */
    ssize_t n;
    while ((n = read(report[0], &error, sizeof error)) < 0 && errno == EINTR)
        ;
    close(report[0]);
    if (n != sizeof error)
        return 0;
    waitpid(run->child, NULL, 0);
    run->child = 0;
    errno = error;
    cli_fail_errno(run->cli, run->cli->command[0]);
    return error == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_RUNNABLE;
}

/* Look what became of COMMAND.  Returns its exit code once it ended, else -1. */
static int reap_command(struct run *run)
{
    siginfo_t info = {0};
    int how = WEXITED | WSTOPPED | WNOHANG;
    if (run->child == 0 || waitid(P_PID, (id_t)run->child, &info, how | WNOWAIT) != 0 ||
        info.si_pid == 0)
        return -1;
    if (info.si_code == CLD_STOPPED) {
        waitid(P_PID, (id_t)run->child, &info, WSTOPPED | WNOHANG);
        on_stopped(run, info.si_status);
        return -1;
    }
    /* Until it is reaped its number is surely ours, so the rest of its group can be ended now. */
    if (run->is_lost && run->cli->on_loss != ON_LOSS_IGNORE)
        kill(-run->child, SIGKILL);
    take_terminal_back(run);
    waitid(P_PID, (id_t)run->child, &info, WEXITED);
    run->child = 0;
    return info.si_code == CLD_EXITED ? info.si_status : EXIT_SIGNAL + info.si_status;
}

/* ---- Loss ------------------------------------------------------------------------------------ */

static void on_lost(struct run *run, const char *why)
{
    char text[320];
    if (run->is_lost)
        return;
    run->is_lost = true;
    snprintf(text, sizeof text, "lock lost while the command ran: %s", why);
    cli_tell(run->cli, "lost", text);
    if (run->child == 0 || run->cli->on_loss == ON_LOSS_IGNORE)
        return;
    kill(-run->child, run->cli->on_loss == ON_LOSS_KILL ? SIGKILL : SIGTERM);
    kill(-run->child, SIGCONT);
    run->kill_at_ms = now_ms() + GRACE_MS;
}

static void check_hold(struct run *run)
{
    snib_error err;
    if (run->hold && snib_hold_check(run->hold, &err) == SNIB_LOST)
        on_lost(run, err.text);
}

/* ---- The loop -------------------------------------------------------------------------------- */

/* Take all signals that came.  Returns an exit code if snib is to end, else -1. */
static int take_signals(struct run *run)
{
    struct signalfd_siginfo info;
    int code = -1;
    while (code < 0 && read(run->signals, &info, sizeof info) == sizeof info) {
        int sig = (int)info.ssi_signo;
        if (sig == SIGCHLD) {
            code = reap_command(run);
        } else if (sig == SIGCONT) {
            check_hold(run);
            if (run->child > 0)
                continue_command(run);
        } else if (run->child > 0) {
            kill(-run->child, sig);
        } else if (sig == SIGTSTP) {
            raise(SIGSTOP);
        } else if (sig != SIGWINCH) {
            code = EXIT_SIGNAL + sig;
        }
    }
    return code;
}

/* Begin to acquire.  Returns -1, or an exit code, told. */
static int acquire(struct run *run)
{
    snib_error err;
    int result = snib_lock_acquire_submit(run->lock, 0, run->cli->wait_ms, run->queue,
                                          TOKEN_ACQUIRE, NULL, &err);
    return result == SNIB_OK ? -1 : cli_fail(run->cli, &err);
}

/* The same, but permits want a number first, unless they have one. */
static int begin(struct run *run)
{
    snib_error err;
    if (run->cli->kind != SNIB_PERMITS)
        return acquire(run);
    int result = snib_permits_count_submit(run->lock, SNIB_COUNT_INIT, run->cli->permits,
                                           run->queue, TOKEN_COUNT, NULL, &err);
    return result == SNIB_OK ? -1 : cli_fail(run->cli, &err);
}

/* An operation ended well.  Returns an exit code if snib is to end, else -1. */
static int on_done(struct run *run, const snib_event *event)
{
    if (event->token == TOKEN_COUNT)
        return acquire(run);
    run->hold = event->hold;
    int code = start_command(run);
    return code == 0 ? -1 : code;
}

/* Take all events that came.  Returns an exit code if snib is to end, else -1. */
static int take_events(struct run *run)
{
    snib_event events[4];
    snib_error err;
    int n = snib_queue_drain(run->queue, events, sizeof events / sizeof events[0], &err);
    if (n < 0)
        return cli_fail(run->cli, &err);
    int code = -1;
    for (int i = 0; i < n && code < 0; i++) {
        if (events[i].kind == SNIB_EVENT_LOST) {
            on_lost(run, snib_reason_text(events[i].reason));
        } else if (events[i].kind == SNIB_EVENT_DONE && events[i].code != SNIB_OK) {
            err = (snib_error){.code = events[i].code, .os_error = events[i].os_error};
            snprintf(err.text, sizeof err.text, "%s", events[i].text);
            code = cli_fail(run->cli, &err);
        } else if (events[i].kind == SNIB_EVENT_DONE) {
            code = on_done(run, &events[i]);
        }
    }
    return code;
}

/* Wait for the lock, then for the command.  Returns the exit code. */
static int loop(struct run *run)
{
    struct pollfd fds[2] = {{.fd = run->signals, .events = POLLIN},
                            {.fd = snib_queue_fd(run->queue, NULL), .events = POLLIN}};
    int code = -1;
    while (code < 0) {
        int64_t left = run->kill_at_ms ? run->kill_at_ms - now_ms() : -1;
        if (run->kill_at_ms && left <= 0) {
            kill(-run->child, SIGKILL);
            run->kill_at_ms = 0;
            left = -1;
        }
        if (poll(fds, 2, (int)left) < 0 && errno != EINTR)
            return cli_fail_errno(run->cli, "poll");
        code = take_signals(run);
        if (code < 0)
            code = take_events(run);
    }
    return code;
}

/* Give the lock back.  Returns the exit code, which is the command's unless the lock was lost. */
static int finish(struct run *run, int code)
{
    snib_error err;
    check_hold(run);
    int result = run->is_lost ? SNIB_LOST : snib_hold_release(run->hold, &err);
    if (result == SNIB_LOST) {
        if (!run->is_lost)
            on_lost(run, err.text);
        return run->cli->on_loss == ON_LOSS_IGNORE ? code : EXIT_LOST;
    }
    if (result != SNIB_OK) /* the command was protected to its end, and the lease ends the lock */
        cli_tell(run->cli, "warning", err.text);
    return code;
}

int cli_run(const struct cli *cli)
{
    struct run run = {.cli = cli};
    snib_error err;
    if (open_signals(&run) < 0)
        return cli_fail_errno(cli, "signals");
    int code = cli_open(cli, &run.client);
    if (code != 0)
        return code;
    code = cli_open_lock(cli, run.client, cli->kind, &run.lock);
    if (code != 0) {
        snib_client_free(run.client);
        return code;
    }
    run.terminal = open("/dev/tty", O_RDWR | O_CLOEXEC);
    code =
        snib_queue_new(run.client, &run.queue, &err) == SNIB_OK ? begin(&run) : cli_fail(cli, &err);
    if (code < 0)
        code = loop(&run);
    if (run.child > 0) /* a failure of our own: nothing runs unwatched */
        kill(-run.child, SIGKILL);
    if (run.hold)
        code = finish(&run, code);
    snib_hold_free(run.hold);
    snib_queue_free(run.queue);
    snib_lock_free(run.lock);
    snib_client_close(run.client, CLOSE_MS, NULL);
    snib_client_free(run.client);
    return code;
}
