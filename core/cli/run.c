/* run.c - snib run: hold a lock while a command runs.
 *
 * One thread, one loop: poll() over a signalfd and the queue's descriptor.  The signals are blocked
 * from the start, before the client has a thread, so nothing is ever done in a signal handler.
 *
 *     waiting --lock granted--> running --nothing of COMMAND left--> release, exit with its code
 *        |                         |
 *        | busy, timed out,        | lock lost
 *        | error, signal           v
 *        v                      ending --nothing of COMMAND left--> exit 123
 *       exit
 *
 * COMMAND is the child of a guardian (guard.h), which starts, signals and ends it; this file deals
 * with the lock and the terminal.  COMMAND leads its own process group.  The terminal stays with
 * snib's group, which lets pipelines with a pager work, until COMMAND asks for it (the kernel stops
 * it with SIGTTIN or SIGTTOU); then it is handed over.  If COMMAND is stopped by the terminal, snib
 * stops too, as shells expect; the lock is not renewed then, so the hold is checked before COMMAND
 * is continued.
 */
#include "guard.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define CLOSE_MS 1000 /* for closing the client */
#define SAY_MIN_MS 10 /* between two messages to the guardian that the lock is held */

/* Tells which operation has ended. */
enum token { TOKEN_ACQUIRE = 1, TOKEN_COUNT };

struct run {
    const struct cli *cli;
    snib_client *client;
    snib_lock *lock;
    snib_queue *queue;
    snib_hold *hold;
    struct guard guard;
    sigset_t old_mask;
    int signals;  /* signalfd */
    int terminal; /* -1: none */
    int code;     /* COMMAND's exit code */
    pid_t group;  /* COMMAND's; 0: it was not started, or has ended */
    bool is_started;
    bool is_ended;
    bool is_lost;
    bool has_terminal; /* COMMAND's group has it */
};

/* ---- Signals and the terminal ---------------------------------------------------------------- */

/* Block the signals that the loop handles, and make them readable.  A signal that was ignored when
 * snib started, as with nohup, stays ignored, here and in COMMAND. */
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
    blocked = mask;
    sigaddset(&blocked, SIGTTOU); /* or tcsetpgrp() would stop snib */
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
    if (run->has_terminal && tcgetpgrp(run->terminal) == run->group)
        tcsetpgrp(run->terminal, getpgrp());
}

static void tell_guard(struct run *run, enum guard_word word, int value)
{
    struct guard_message message = {.word = word, .value = value};
    guard_tell(&run->guard, &message);
}

static void continue_command(struct run *run)
{
    if (run->has_terminal && run->group > 0 && is_foreground(run))
        tcsetpgrp(run->terminal, run->group);
    tell_guard(run, GUARD_SIGNAL, SIGCONT);
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

/* ---- The hold and the guardian --------------------------------------------------------------- */

static void on_lost(struct run *run, const char *why)
{
    char text[320];
    if (run->is_lost)
        return;
    run->is_lost = true;
    snprintf(text, sizeof text, "lock lost while the command ran: %s", why);
    cli_tell(run->cli, "lost", text);
    tell_guard(run, GUARD_LOST, 0);
}

static void check_hold(struct run *run)
{
    snib_error err;
    if (run->hold && snib_hold_check(run->hold, &err) == SNIB_LOST)
        on_lost(run, err.text);
}

/* Tell the guardian until when the lock is held; word: GUARD_GO or GUARD_HELD.  Returns the
 * milliseconds until the next such message: while the lock is renewed, there is always much
 * left. */
static int tell_held(struct run *run, enum guard_word word)
{
    int64_t left_ms = snib_hold_remaining_ms(run->hold);
    int64_t token = snib_hold_token(run->hold);
    struct guard_message message = {
        .word = word,
        .token = token > 0 ? token : 0,
        .deadline_ns = left_ms == INT64_MAX ? INT64_MAX : guard_now_ns() + (left_ms + 1) * 1000000};
    if (left_ms > 0) /* else it is lost, and an event will say so */
        guard_tell(&run->guard, &message);
    if (left_ms == INT64_MAX)
        return -1;
    return left_ms / 6 > SAY_MIN_MS ? (int)(left_ms / 6) : SAY_MIN_MS;
}

/* The lock was granted: start COMMAND.  Returns -1, or an exit code after reporting the error. */
static int start_command(struct run *run)
{
    check_hold(run);
    if (run->is_lost)
        return EXIT_LOST;
    run->is_started = true;
    tell_held(run, GUARD_GO);
    return -1;
}

/* COMMAND was not executed. */
static void on_failed(struct run *run, int error)
{
    run->code = error == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_RUNNABLE;
    if (error == 0) {
        on_lost(run, "before it could start");
        run->code = EXIT_LOST;
    } else {
        errno = error;
        cli_fail_errno(run->cli, run->cli->command[0]);
    }
}

static void on_deaf(struct run *run, int pid)
{
    char text[160];
    snprintf(
        text, sizeof text,
        "process %d cannot be killed (it has other privileges): the lock is kept until it ends",
        pid);
    cli_tell(run->cli, "warning", text);
}

/* Handle the guardian's messages.  Returns COMMAND's exit code when no process of it is left, else
 * -1. */
static int take_words(struct run *run)
{
    struct guard_message message;
    int got;
    while ((got = guard_hear(&run->guard, &message)) > 0) {
        if (message.word == GUARD_STARTED) {
            run->group = message.value;
        } else if (message.word == GUARD_FAILED) {
            on_failed(run, message.value);
        } else if (message.word == GUARD_STOPPED) {
            on_stopped(run, message.value);
        } else if (message.word == GUARD_ENDED) {
            take_terminal_back(run);
            run->group = 0;
            run->is_ended = true;
            run->code = message.value;
        } else if (message.word == GUARD_EXPIRED) {
            check_hold(run); /* it may know the reason */
            on_lost(run, "snib was stopped, or too slow, for longer than the lease");
        } else if (message.word == GUARD_DEAF) {
            on_deaf(run, message.value);
        } else if (message.word == GUARD_EMPTY) {
            take_terminal_back(run);
            return run->code;
        }
    }
    if (got == 0)
        return -1;
    take_terminal_back(run);
    cli_tell(run->cli, "error",
             "the guardian of the command was killed, so the command is killed too");
    return EXIT_USAGE;
}

/* ---- The loop -------------------------------------------------------------------------------- */

/* Handle the signals that have arrived.  Returns an exit code if snib is to end, else -1. */
static int take_signals(struct run *run)
{
    struct signalfd_siginfo info;
    int code = -1;
    while (code < 0 && read(run->signals, &info, sizeof info) == sizeof info) {
        int sig = (int)info.ssi_signo;
        if (sig == SIGCONT) {
            check_hold(run);
            continue_command(run);
        } else if (run->is_started) {
            tell_guard(run, GUARD_SIGNAL, sig);
        } else if (sig == SIGTSTP) {
            raise(SIGSTOP);
        } else if (sig != SIGWINCH) {
            code = EXIT_SIGNAL + sig;
        }
    }
    return code;
}

/* Start acquiring.  Returns -1, or an exit code after reporting the error. */
static int acquire(struct run *run)
{
    snib_error err;
    int result = snib_lock_acquire_submit(run->lock, 0, run->cli->wait_ms, run->queue,
                                          TOKEN_ACQUIRE, NULL, &err);
    return result == SNIB_OK ? -1 : cli_fail(run->cli, &err);
}

/* The same, but first set the number of permits if it was never set. */
static int begin(struct run *run)
{
    snib_error err;
    if (run->cli->kind != SNIB_PERMITS)
        return acquire(run);
    int result = snib_permits_count_submit(run->lock, SNIB_COUNT_INIT, run->cli->permits,
                                           run->queue, TOKEN_COUNT, NULL, &err);
    return result == SNIB_OK ? -1 : cli_fail(run->cli, &err);
}

/* An operation succeeded.  Returns an exit code if snib is to end, else -1. */
static int on_done(struct run *run, const snib_event *event)
{
    if (event->token == TOKEN_COUNT)
        return acquire(run);
    run->hold = event->hold;
    return start_command(run);
}

/* Handle the events that have arrived.  Returns an exit code if snib is to end, else -1. */
static int take_events(struct run *run)
{
    snib_event events[4];
    snib_error err;
    int n = snib_queue_drain(run->queue, events, sizeof events / sizeof events[0], &err);
    if (n < 0)
        return cli_fail(run->cli, &err);
    int code = -1;
    for (int i = 0; i < n && code < 0; i++) {
        if (events[i].kind == SNIB_EVENT_LOG) {
            cli_log(run->cli, &events[i]);
        } else if (events[i].kind == SNIB_EVENT_LOST) {
            on_lost(run, snib_reason_text(events[i].reason));
        } else if (events[i].kind == SNIB_EVENT_DONE && events[i].code != SNIB_OK) {
            err = (snib_error){.code = events[i].code, .os_error = events[i].os_error};
            snprintf(err.text, sizeof err.text, "%.*s", (int)sizeof err.text - 1, events[i].text);
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
    struct pollfd fds[3] = {{.fd = run->signals, .events = POLLIN},
                            {.fd = snib_queue_fd(run->queue, NULL), .events = POLLIN},
                            {.fd = run->guard.link, .events = POLLIN}};
    int code = -1;
    while (code < 0) {
        int left_ms = run->is_started && !run->is_lost ? tell_held(run, GUARD_HELD) : -1;
        if (poll(fds, 3, left_ms) < 0 && errno != EINTR)
            return cli_fail_errno(run->cli, "poll");
        code = take_signals(run);
        if (code < 0)
            code = take_events(run);
        if (code < 0)
            code = take_words(run);
    }
    return code;
}

/* Release the lock.  Returns the exit code, which is COMMAND's unless the lock was lost. */
static int finish(struct run *run, int code)
{
    snib_error err;
    int result = snib_hold_check(run->hold, &err);
    if (result == SNIB_OK)
        result = snib_hold_release(run->hold, &err);
    if (result == SNIB_LOST)
        on_lost(run, err.text);
    else if (result !=
             SNIB_OK) /* COMMAND was protected to its end, and the lock ends with its lease */
        cli_tell(run->cli, "warning", err.text);
    return run->is_lost && run->cli->on_loss != ON_LOSS_IGNORE ? EXIT_LOST : code;
}

/* Acquire, run COMMAND, release.  Returns the exit code. */
static int acquire_and_run(struct run *run)
{
    snib_error err;
    if (snib_queue_new(run->client, &run->queue, &err) != SNIB_OK)
        return cli_fail(run->cli, &err);
    if (run->cli->is_verbose)
        snib_client_log(run->client, run->queue, SNIB_LOG_INFO, NULL);
    int code = begin(run);
    if (code < 0)
        code = loop(run);
    guard_end(&run->guard); /* after an internal failure, too, nothing runs without the lock */
    if (run->hold)
        code = finish(run, code);
    take_events(run); /* the remaining log records */
    snib_hold_free(run->hold);
    snib_queue_free(run->queue);
    return code;
}

int cli_run(const struct cli *cli)
{
    struct run run = {.cli = cli};
    if (open_signals(&run) < 0)
        return cli_fail_errno(cli, "signals");
    errno = guard_start(cli, &run.old_mask, &run.guard);
    if (errno != 0)
        return cli_fail_errno(cli, "cannot start the guardian");
    run.terminal = open("/dev/tty", O_RDWR | O_CLOEXEC);
    int code = cli_open(cli, &run.client);
    if (code != 0)
        return code;
    code = cli_open_lock(cli, run.client, cli->kind, &run.lock);
    if (code == 0)
        code = acquire_and_run(&run);
    snib_lock_free(run.lock);
    snib_client_close(run.client, CLOSE_MS, NULL);
    cli_close(cli, run.client);
    return code;
}
