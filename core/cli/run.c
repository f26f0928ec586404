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
 * with the lock and the terminal.  COMMAND leads its own process group.  If snib is in the foreground,
 * and nobody else is in its group, the terminal is lent to COMMAND before it is executed: programs
 * such as wget and git only look whether they have it, and are silent without it.  Otherwise it
 * stays with snib's group, which lets pipelines with a pager work, until COMMAND asks for it (the
 * kernel stops it with SIGTTIN or SIGTTOU); then it is lent to COMMAND.  While it is lent, its keys
 * send signals to COMMAND's group alone, which has to stand for snib's:
 *
 * - What stops COMMAND stops snib's whole group, and the terminal is taken back first.  So the shell
 *   sees the job stop, whatever else is in it: a script that called snib, a pipeline, or another
 *   snib, whose COMMAND this one is.
 * - What the keys end COMMAND by ends snib's whole group.
 * - When COMMAND has ended, the terminal is taken back from whatever group of its descendants has
 *   it, with the modes that it had if COMMAND was killed.
 *
 * While the terminal is not lent, the whole group gets the keys' signals anyway, and what stops
 * COMMAND stops only snib; except a request for the terminal in the background, for which the kernel
 * stops the whole group, too.
 *
 * While it is lent, another process of snib's group may ask for it, such as a pager: the kernel sends the
 * whole group SIGTTIN or SIGTTOU.  After that stop it is not lent again before COMMAND asks again, or the
 * pager would stop the group by each of its requests.
 *
 * While snib is stopped the lock is not renewed, so the hold is checked before COMMAND is continued.
 * If it cannot stop, because no shell could continue it (process 1, or an orphaned process group),
 * COMMAND is continued; but if it asked for a terminal that nobody can give it, it gets SIGHUP, and is
 * ended if it asks again.  SIGSTOP stops even an orphaned group, so for that signal snib looks first
 * whether its group is one: then COMMAND stays stopped, and the lock is renewed.
 */
#include "guard.h"
#include "kin.h"
#include "signals.h"
#include "take.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <termios.h>
#include <unistd.h>

#define SAY_MIN_MS 10 /* between two messages to the guardian that the lock is held */
#define LOST_MS 1000  /* ... that it is lost */

struct run {
    const struct cli *cli;
    struct take take; /* the lock */
    struct guard guard;
    sigset_t old_mask;
    int signals;          /* signalfd */
    int terminal;         /* -1: none */
    struct termios modes; /* before COMMAND had it */
    int code;             /* COMMAND's exit code */
    pid_t group;          /* COMMAND's; 0: it was not started, or has ended */
    int64_t continued;    /* signals to the guardian that continue COMMAND */
    int forwarded;        /* the last SIGINT or SIGQUIT that was forwarded */
    bool had_terminal;    /* when it was forwarded: then it came from no key */
    int key;              /* the signal of a key that is to end snib; 0: none */
    pid_t key_to;         /* and its whole group: 0, or only snib: its pid */
    bool is_started;
    bool wants_terminal; /* COMMAND has asked for it, or gets it unasked */
    bool is_lent;        /* it was given to COMMAND's group, and not taken back */
};

/* ---- Signals and the terminal ---------------------------------------------------------------- */

static int open_signals(struct run *run)
{
    static const int handled[] = {SIGTERM, SIGINT,  SIGHUP,  SIGQUIT, SIGUSR1, SIGUSR2,
                                  SIGTSTP, SIGCONT, SIGTTIN, SIGTTOU, SIGWINCH};
    run->signals = signals_open(handled, sizeof handled / sizeof handled[0], &run->old_mask);
    return run->signals;
}

static bool is_foreground(const struct run *run)
{
    return run->terminal >= 0 && tcgetpgrp(run->terminal) == getpgrp();
}

/* Lend the terminal to COMMAND if it wants it and it is there to be lent. */
static void lend_terminal(struct run *run)
{
    if (!run->wants_terminal || run->group == 0 || !is_foreground(run))
        return;
    tcgetattr(run->terminal, &run->modes);
    run->is_lent = tcsetpgrp(run->terminal, run->group) == 0;
}

/* Whether the terminal that was lent is a shell's by now, which took it when the script that called snib was killed.  But
 * COMMAND may have passed it on to a group of its own, as a shell does. */
static bool is_taken_away(const struct run *run)
{
    pid_t now = tcgetpgrp(run->terminal);
    return now > 0 && now != run->group && now != getpgrp() && kin_is_others(now);
}

/* Whether COMMAND has it: it was lent, or taken without asking, as by a program that ignores SIGTTOU. */
static bool has_terminal(const struct run *run)
{
    if (run->is_lent)
        return !is_taken_away(run);
    return run->terminal >= 0 && run->group > 0 && tcgetpgrp(run->terminal) == run->group;
}

static void take_terminal_back(struct run *run, bool is_killed)
{
    bool has = has_terminal(run);
    run->is_lent = false;
    if (!has)
        return;
    tcsetpgrp(run->terminal, getpgrp());
    if (is_killed) /* so it could not restore them */
        tcsetattr(run->terminal, TCSANOW, &run->modes);
}

static void tell_guard(struct run *run, enum guard_word word, int value)
{
    struct guard_message message = {.word = word, .value = value};
    bool is_continued = value == SIGCONT || value == SIGTERM || value == SIGHUP; /* see forward() */
    run->continued += word == GUARD_REFUSED || (word == GUARD_SIGNAL && is_continued);
    guard_tell(&run->guard, &message);
}

static void continue_command(struct run *run)
{
    /* If it was snib that was stopped, a shell may have the terminal. */
    run->is_lent = run->is_lent && tcgetpgrp(run->terminal) == run->group;
    lend_terminal(run);
    tell_guard(run, GUARD_SIGNAL, SIGCONT);
}

/* Whether SIGSTOP would stop snib for ever.  Process 1 it does not stop, and COMMAND is continued, as after Ctrl-Z. */
static bool is_stopped_for_ever(void)
{
    return !signals_is_first() && kin_is_orphaned();
}

/* COMMAND was stopped by sig. */
static void on_stopped(struct run *run, int sig)
{
    bool is_request = sig == SIGTTIN || sig == SIGTTOU;
    bool has = has_terminal(run);
    bool is_all = has || is_request;
    run->wants_terminal = run->wants_terminal || is_all;
    if (run->terminal < 0 || (sig == SIGSTOP && (!has || is_stopped_for_ever())))
        return;
    if (is_request && is_foreground(run)) {
        continue_command(run);
        return;
    }
    take_terminal_back(run, false);
    if (signals_stop(is_all ? 0 : getpid(), sig))
        return; /* SIGCONT is there to be read */
    if (is_request)
        tell_guard(run, GUARD_REFUSED, 0);
    else
        continue_command(run);
}

/* Another process of the group asked for the terminal that COMMAND has, and the kernel stops the group. */
static void on_request_of_others(struct run *run, int sig)
{
    run->wants_terminal = false;
    signals_stop(getpid(), sig);
}

/* A key has ended COMMAND or the wait; to: what it ends besides, 0, the whole group, or only snib. */
static void note_key(struct run *run, int sig, pid_t to)
{
    if (sig != SIGINT && sig != SIGQUIT)
        return;
    run->key = sig;
    run->key_to = to;
}

/* COMMAND has ended; killed_by: the signal that ended it, or 0. */
static void on_ended(struct run *run, int code, int killed_by)
{
    bool has = has_terminal(run);
    bool is_forwarded = killed_by == run->forwarded && has == run->had_terminal;
    bool is_key = has ? !is_forwarded : is_forwarded && is_foreground(run);
    if (is_key)
        note_key(run, killed_by, has ? 0 : getpid()); /* the others have got it */
    take_terminal_back(run, killed_by != 0 || run->take.is_lost);
    run->group = 0;
    run->code = killed_by ? EXIT_SIGNAL + killed_by : code;
}

/* ---- The hold and the guardian --------------------------------------------------------------- */

/* Tell the guardian of a loss, again and again: that continues it if it was stopped meanwhile. */
static void pass_loss_on(struct run *run)
{
    if (run->take.is_lost)
        tell_guard(run, GUARD_LOST, 0);
}

/* Tell the guardian until when the lock is held; word: GUARD_GO, GUARD_EXEC or GUARD_HELD.  Returns the
 * milliseconds that are left; 0: nothing was told, because the hold is over or about to be. */
static int64_t tell_held(struct run *run, enum guard_word word)
{
    int64_t now = cli_now_ns(); /* first: snib may be stopped between any two calls */
    int64_t left_ms = snib_hold_remaining_ms(run->take.hold);
    int64_t token = snib_hold_token(run->take.hold);
    struct guard_message message = {
        .word = word,
        .value = is_foreground(run),
        .token = token > 0 ? token : 0,
        .deadline_ns = left_ms == INT64_MAX ? INT64_MAX : now + (left_ms + 1) * MS_NS};
    if (left_ms <= 0) /* an event will say so */
        return 0;
    if (word == GUARD_EXEC && token > 0)
        snib_hold_owner(run->take.hold, message.owner, NULL);
    guard_tell(&run->guard, &message);
    return left_ms;
}

/* The same while COMMAND runs.  Returns the milliseconds until the next such message: while the
 * lock is renewed, there is always much left. */
static int keep_telling(struct run *run)
{
    int64_t left_ms = tell_held(run, GUARD_HELD);
    if (left_ms == INT64_MAX)
        return -1;
    return left_ms / 6 > SAY_MIN_MS ? (int)(left_ms / 6) : SAY_MIN_MS;
}

/* The lock was granted: start COMMAND.  Returns -1, or an exit code after reporting the error. */
static int start_command(struct run *run)
{
    /* A script that called snib, or a pager, could not use it meanwhile. */
    run->wants_terminal = is_foreground(run) && kin_is_alone();
    run->is_started = !run->take.is_lost && tell_held(run, GUARD_GO) > 0;
    if (!run->is_started) {
        take_lose_unused(&run->take);
        return EXIT_LOST;
    }
    run->take.is_used = true;
    return -1;
}

/* The child that becomes COMMAND is there, and waits. */
static void on_forked(struct run *run, pid_t group)
{
    run->group = group;
    if (run->take.is_lost) /* which the guardian is told */
        return;
    lend_terminal(run);
    tell_held(run, GUARD_EXEC);
}

/* COMMAND was not executed. */
static void on_failed(struct run *run, int error)
{
    run->code = error == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_RUNNABLE;
    run->take.is_used = false;
    if (error == 0) {
        take_lose_unused(&run->take);
        run->code = EXIT_LOST;
    } else {
        errno = error;
        cli_fail_errno(run->cli, run->cli->command[0]);
    }
}

static void on_deaf(struct run *run, int pid)
{
    char text[160], what[80];
    if (pid == GUARD_HIDDEN)
        snprintf(what, sizeof what, "a process that /proc does not show cannot be killed");
    else
        snprintf(what, sizeof what, "process %d cannot be killed (it has other privileges)", pid);
    snprintf(text, sizeof text, "%s: %s", what,
             run->take.is_lost ? "it continues without the lock"
                               : "the lock is kept until it ends");
    cli_tell(run->cli, "warning", text);
}

static void on_insisting(struct run *run, int pid)
{
    char text[160];
    snprintf(text, sizeof text,
             "process %d asks again for a terminal that it cannot have, so all that runs under the "
             "lock is ended",
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
            on_forked(run, message.value);
        } else if (message.word == GUARD_FAILED) {
            on_failed(run, message.value);
        } else if (message.word == GUARD_STOPPED) {
            if (message.continued == run->continued) /* else it has been continued since */
                on_stopped(run, message.value);
            return -1; /* if snib was stopped, its SIGCONT comes first */
        } else if (message.word == GUARD_ENDED) {
            on_ended(run, message.value, 0);
        } else if (message.word == GUARD_KILLED) {
            on_ended(run, 0, message.value);
        } else if (message.word == GUARD_EXPIRED) {
            take_check(&run->take); /* it may know the reason */
            take_lose(&run->take,
                      "snib was stopped, or too slow, until the lease was about to end");
        } else if (message.word == GUARD_DEAF) {
            on_deaf(run, message.value);
        } else if (message.word == GUARD_INSISTS) {
            on_insisting(run, message.value);
        } else if (message.word == GUARD_EMPTY) {
            return run->code;
        }
    }
    if (got == 0)
        return -1;
    cli_tell(run->cli, "error",
             "the guardian of the command was killed, so the command is killed too");
    return EXIT_USAGE;
}

/* ---- The loop -------------------------------------------------------------------------------- */

/* Handle the signals that have arrived.  Returns an exit code if snib is to end, else -1. */
static int take_signals(struct run *run)
{
    int code = -1;
    int sig;
    while (code < 0 && (sig = signals_next(run->signals, run->guard.pid)) != 0) {
        if (sig == SIGCONT) {
            take_continued(&run->take);
            pass_loss_on(run);
            continue_command(run);
        } else if (sig == SIGTSTP && signals_is_first()) {
            continue; /* no shell could continue it */
        } else if (sig == SIGTTIN || sig == SIGTTOU) {
            on_request_of_others(run, sig);
        } else if (run->is_started) {
            if (sig == SIGINT || sig == SIGQUIT) {
                run->forwarded = sig;
                run->had_terminal = has_terminal(run);
            }
            tell_guard(run, GUARD_SIGNAL, sig);
        } else if (sig == SIGTSTP) {
            signals_stop(getpid(), SIGTSTP);
        } else if (sig != SIGWINCH) {
            code = EXIT_SIGNAL + sig;
            if (is_foreground(run))
                note_key(run, sig, getpid());
        }
    }
    return code;
}

/* Look at the lock.  Returns an exit code if snib is to end, else -1. */
static int look_at_lock(struct run *run)
{
    int code = take_look(&run->take);
    if (code < 0 && run->take.hold && !run->is_started)
        code = start_command(run);
    return code;
}

/* Wait for the lock, then for the command.  Returns the exit code. */
static int loop(struct run *run)
{
    struct pollfd fds[3] = {{.fd = run->signals, .events = POLLIN},
                            {.fd = take_fd(&run->take), .events = POLLIN},
                            {.fd = run->guard.link, .events = POLLIN}};
    int code = -1;
    while (code < 0) {
        int left_ms = !run->is_started    ? take_left_ms(&run->take)
                      : run->take.is_lost ? LOST_MS
                                          : keep_telling(run);
        if (poll(fds, 3, left_ms) < 0 && errno != EINTR)
            return cli_fail_errno(run->cli, "poll");
        code = take_signals(run);
        if (code < 0)
            code = look_at_lock(run);
        if (code < 0)
            code = take_words(run);
        pass_loss_on(run);
    }
    return code;
}

/* Release the lock.  Returns the exit code, which is COMMAND's unless the lock was lost. */
static int finish(struct run *run, int code)
{
    snib_error err;
    int result = take_release(&run->take, run->signals, &err);
    /* COMMAND was protected to its end, and the lock ends with its lease. */
    if (result != SNIB_OK && result != SNIB_LOST)
        cli_tell(run->cli, "warning", err.text);
    return run->take.is_lost && run->cli->on_loss != ON_LOSS_IGNORE ? EXIT_LOST : code;
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
    if (run.terminal >= 0)
        tcgetattr(run.terminal, &run.modes);
    int code = take_open(&run.take, cli);
    if (code < 0)
        code = loop(&run);
    guard_end(&run.guard,
              run.group); /* after an internal failure, too, nothing runs without the lock */
    take_terminal_back(&run, true);
    if (run.take.hold)
        code = finish(&run, code);
    take_close(&run.take);
    if (run.key && code == EXIT_SIGNAL + run.key)
        signals_die(run.key_to, run.key);
    return code;
}
