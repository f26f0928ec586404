/* guard.c - see guard.h.
 *
 * One thread, one loop: poll() over the link, a signalfd for SIGCHLD, a timer on the boot clock,
 * and the socket that reports exec.  All signals are blocked, so only SIGKILL ends it and only
 * SIGSTOP stops it.
 *
 *     idle --GO--> starting --exec--> running --COMMAND ended--> rest --nothing left--> exit
 *                     |                  |                         |
 *                     | lost, link closed, snib silent, deadline passed
 *                     v                  v                         v
 *                  SIGKILL            SIGTERM, and SIGKILL after the grace
 *
 * The child becomes COMMAND when snib says EXEC: the terminal can only be lent to a group that there is, and
 * COMMAND may look for it at once.  A child that has not yet become COMMAND is killed immediately: no part of
 * COMMAND may start any more, however long its exec takes.
 *
 * A silent snib.  After a loss that snib tells of, COMMAND has its whole grace.  If snib stands
 * still, nobody tells, and the next holder may have the lock at the deadline.  So with --on-loss
 * term the grace ends by then, and SIGTERM comes before; with kill nothing precedes the deadline,
 * and with ignore nothing happens.  But a snib that is alive must not have its COMMAND ended while
 * the hold is valid, renewed or not.  How long it has been silent tells the two apart:
 *
 * - There is no message "renewed".  At least each time a sixth of what was left has passed, snib
 *   says until when the hold is valid (run.c), and that is later once the hold was renewed.  M is
 *   the most that was ever left: about the lease, or --max-hold if that is shorter.  L is what was
 *   left at the last word.
 * - Silence counts when it has lasted for half of L and for a second (with a short lease
 *   for a quarter of M), but never before the last quarter of M.
 * - A hold that is renewed has an L of about 2/3 M or more, because renewal is due after a third of
 *   the lease.  So snib may stand still for 5/12 M at least and then continue as if nothing had
 *   happened.  If it does not, COMMAND gets SIGTERM when a quarter of M is left, or a little more
 *   than --kill-after if that is less, and SIGKILL after three quarters of it, as when snib is
 *   killed.
 * - A hold at risk is not renewed, nor is one that approaches --max-hold: L shrinks to nothing, but
 *   there are three words in the time after which silence would count, and more at the end.  So
 *   COMMAND runs until snib reports the loss.
 * - If snib is stopped when less than that second was left of such a hold, the silence counts only
 *   after the deadline.  Then COMMAND gets SIGTERM at the deadline and SIGKILL within that second.
 *
 * If this process stood still itself, as when both were frozen or the machine slept, silence means
 * nothing.  So it asks, and snib has a while to answer. */
#include "guard.h"
#include "kin.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define AGAIN_NS (SECOND_NS / 20) /* between two rounds of SIGKILL, until they have lasted for: */
#define DEAF_NS (1LL * SECOND_NS) /* then a process is reported, and this is between two rounds */
#define SILENCE_NS (1LL * SECOND_NS) /* the least that counts, but less with a short lease: */
#define SILENCE_MIN_NS (SECOND_NS / 20)
#define STOPS_MAX 50   /* that a stopped snib is told: the link must have room for the end */
#define REFUSED_MAX 16 /* processes that are remembered because they were refused the terminal */
#define LATE_NS (SECOND_NS / 20) /* a timer that is later shows that this process stood still */

struct ward {
    const struct cli *cli;
    const sigset_t *mask;
    int link;
    int signals;
    int timer;
    int report; /* to what becomes COMMAND; ends when it is executed, or says why it was not; -1: none, or has ended */
    pid_t command; /* leads its group; 0: not forked, or has ended */
    pid_t group;   /* COMMAND's, also when it has ended; 0: not forked */
    pid_t caller;  /* the group of snib, and of a script that called it */
    bool is_executed;
    bool is_told;   /* it was reported why COMMAND could not be run */
    bool is_denied; /* killed before it ran */
    bool is_lost;
    bool is_orphan; /* the link was closed */
    bool is_over;   /* COMMAND has ended: only its rest is left */
    bool is_told_deaf;
    pid_t refused[REFUSED_MAX]; /* children that were refused the terminal; 0: none */
    int stops_n;                /* stops since snib's last word */
    int64_t continued;          /* signals from snib that continue COMMAND */
    int64_t deadline_ns;        /* of the hold */
    int64_t most_ns;            /* that was ever left of it, when snib said so */
    int64_t silent_ns;          /* when snib's silence counts; INT64_MAX: never */
    int64_t kill_ns;            /* when grace ends; INT64_MAX: nothing is being ended */
    int64_t killed_ns;          /* the first SIGKILL; 0: none */
};

/* Between SIGTERM and SIGKILL. */
static int64_t kill_after_ns(const struct ward *ward)
{
    return ward->cli->kill_after_ms * MS_NS;
}

static void say(const struct ward *ward, enum guard_word word, int32_t value)
{
    struct guard_message message = {.word = word, .value = value, .continued = ward->continued};
    ssize_t n = send(ward->link, &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)n; /* snib has ended or is stopped: the link will show it */
}

/* ---- The hold -------------------------------------------------------------------------------- */

static int64_t min_ns(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t max_ns(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The least silence that counts. */
static int64_t patience_ns(const struct ward *ward)
{
    return min_ns(SILENCE_NS, max_ns(SILENCE_MIN_NS, ward->most_ns / 4));
}

/* snib says until when the hold is valid. */
static void on_held(struct ward *ward, int64_t deadline_ns)
{
    int64_t now = cli_now_ns();
    int64_t left_ns = max_ns(deadline_ns - now, 0);
    if (ward->is_lost)
        return; /* COMMAND has been told to end */
    ward->deadline_ns = deadline_ns;
    ward->silent_ns = INT64_MAX;
    if (ward->cli->on_loss != ON_LOSS_TERM || deadline_ns == INT64_MAX)
        return;
    ward->most_ns = max_ns(ward->most_ns, left_ns);
    int64_t ending_ns = min_ns(kill_after_ns(ward) / 3 * 4, ward->most_ns / 4);
    ward->silent_ns = max_ns(deadline_ns - ending_ns, now + max_ns(left_ns / 2, patience_ns(ward)));
}

/* ---- Starting -------------------------------------------------------------------------------- */

/* In the child. */
static _Noreturn void become_command(const struct ward *ward, const struct guard_message *go,
                                     pid_t parent, int report)
{
    struct guard_message exec;
    setpgid(0, 0);
    if (go->value) { /* by these it asks for it; in a shell's $(...) they are ignored, and reading would fail */
        signal(SIGTTIN, SIG_DFL);
        signal(SIGTTOU, SIG_DFL);
    }
    /* If the guardian and snib are both killed, at least COMMAND itself does not stay. */
    if (ward->cli->on_loss != ON_LOSS_IGNORE)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || recv(report, &exec, sizeof exec, 0) != sizeof exec)
        _exit(EXIT_USAGE);
    int error = command_exec(ward->cli, &exec, ward->mask);
    while (send(report, &error, sizeof error, MSG_NOSIGNAL) < 0 && errno == EINTR)
        ;
    _exit(EXIT_NOT_RUNNABLE);
}

/* COMMAND cannot even be forked. */
static void give_up(struct ward *ward, int error)
{
    say(ward, GUARD_FAILED, error);
    ward->is_over = true;
}

static void start(struct ward *ward, const struct guard_message *go)
{
    int report[2];
    pid_t parent = getpid();
    on_held(ward, go->deadline_ns);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, report) != 0) {
        give_up(ward, errno);
        return;
    }
    pid_t pid = fork();
    if (pid == 0) {
        close(report[0]);
        become_command(ward, go, parent, report[1]);
    }
    int error = errno;
    close(report[1]);
    if (pid < 0) {
        close(report[0]);
        give_up(ward, error);
        return;
    }
    setpgid(pid, pid); /* in both processes, because either may run first */
    ward->command = ward->group = pid;
    ward->report = report[0];
    say(ward, GUARD_STARTED, pid);
}

/* The child may become COMMAND. */
static void let_go(struct ward *ward, const struct guard_message *exec)
{
    on_held(ward, exec->deadline_ns);
    ssize_t n = send(ward->report, exec, sizeof *exec, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)n; /* it has ended */
}

/* Check whether COMMAND was executed; report it if it could not be. */
static void look_at_exec(struct ward *ward)
{
    int error = 0;
    ssize_t n = ward->report < 0 ? -1 : recv(ward->report, &error, sizeof error, MSG_DONTWAIT);
    if (n < 0)
        return; /* not yet */
    ward->is_told = n == sizeof error;
    ward->is_executed = !ward->is_told; /* or it was killed before, which makes no difference */
    if (ward->is_told)
        say(ward, GUARD_FAILED, error);
    close(ward->report);
    ward->report = -1;
}

/* ---- Ending ---------------------------------------------------------------------------------- */

/* Returns how many living processes were found in /proc; -1: it cannot be read. */
static int signal_all(const struct ward *ward, int sig, pid_t *out_deaf)
{
    siginfo_t info;
    int living = kin_signal(sig, out_deaf);
    if (ward->group == 0 || (living > 0 && sig != SIGKILL)) /* SIGTERM is sent once */
        return living;
    /* No /proc, or it hides some of them (hidepid): at least COMMAND's group, as long as that has a child of this
     * process, and so is no stranger's. */
    if (waitid(P_PGID, (id_t)ward->group, &info, WEXITED | WNOHANG | WNOWAIT) == 0)
        kill(-ward->group, sig);
    return living;
}

/* Whether there is a child that has not ended. */
static bool has_child(void)
{
    siginfo_t info = {0};
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
}

static void kill_all(struct ward *ward)
{
    pid_t deaf = 0;
    int64_t now = cli_now_ns();
    if (ward->command > 0)
        kill(-ward->command, SIGKILL); /* hits the group as a whole, whatever it forks */
    if (signal_all(ward, SIGKILL, &deaf) == 0 && has_child())
        deaf = GUARD_HIDDEN;
    ward->killed_ns = ward->killed_ns ? ward->killed_ns : now;
    bool is_long = now - ward->killed_ns > DEAF_NS;
    if (deaf && !ward->is_told_deaf && is_long) {
        ward->is_told_deaf = true;
        say(ward, GUARD_DEAF, deaf);
    }
    ward->kill_ns = now + (is_long ? DEAF_NS : AGAIN_NS); /* a round reads all of /proc */
}

/* End everything, by SIGTERM first if there is time. */
static void end_all(struct ward *ward, int64_t grace_ns)
{
    look_at_exec(ward);
    if (ward->command > 0 && !ward->is_executed) {
        kill(ward->command, SIGKILL);
        ward->is_denied = true;
    }
    int64_t kill_ns = cli_now_ns() + grace_ns;
    bool is_begun = ward->kill_ns != INT64_MAX;
    ward->kill_ns = kill_ns < ward->kill_ns ? kill_ns : ward->kill_ns;
    if (grace_ns <= 0) {
        kill_all(ward);
    } else if (!is_begun) {
        signal_all(ward, SIGTERM, NULL);
        signal_all(ward, SIGCONT, NULL); /* a stopped process does not act on it */
    }
}

static void on_lost(struct ward *ward)
{
    if (ward->is_lost)
        return;
    ward->is_lost = true;
    look_at_exec(ward);
    if (ward->cli->on_loss != ON_LOSS_IGNORE || (ward->command > 0 && !ward->is_executed))
        end_all(ward, ward->cli->on_loss == ON_LOSS_TERM ? kill_after_ns(ward) : 0);
}

/* snib tells of the loss: it is not silent. */
static void on_told(struct ward *ward)
{
    ward->silent_ns = INT64_MAX;
    on_lost(ward);
}

/* Nothing renews the lease any more: everything must end before it does. */
static void end_in_time(struct ward *ward)
{
    int64_t grace_ns =
        ward->deadline_ns == INT64_MAX ? INT64_MAX : (ward->deadline_ns - cli_now_ns()) / 4 * 3;
    if (ward->cli->on_loss == ON_LOSS_KILL)
        grace_ns = 0;
    end_all(ward, min_ns(grace_ns, kill_after_ns(ward)));
}

/* The terminal that was lent to COMMAND, which may have passed it on, goes back to the script that called snib: otherwise
 * that could not read any more. */
static void return_terminal(const struct ward *ward)
{
    int terminal = ward->group ? open("/dev/tty", O_RDWR | O_CLOEXEC) : -1;
    if (terminal < 0)
        return;
    pid_t now = tcgetpgrp(terminal);
    if (now == ward->group || (now > 0 && now != ward->caller && !kin_is_others(now)))
        tcsetpgrp(terminal, ward->caller);
    close(terminal);
}

/* snib has ended, and renewal with it. */
static void on_orphaned(struct ward *ward)
{
    ward->is_orphan = true;
    return_terminal(ward);
    look_at_exec(ward);
    if (ward->cli->on_loss == ON_LOSS_IGNORE && (ward->command == 0 || ward->is_executed))
        _exit(0);
    end_in_time(ward);
}

/* The time has come when snib's silence counts. */
static void on_silence(struct ward *ward, int64_t now)
{
    int64_t left_ns = ward->deadline_ns - now;
    bool is_late = now - ward->silent_ns > LATE_NS;
    say(ward, is_late ? GUARD_ASK : GUARD_EXPIRED, 0);
    if (is_late) {
        ward->silent_ns =
            now + (left_ns > 0 ? min_ns(patience_ns(ward), left_ns / 2) : patience_ns(ward));
        return;
    }
    ward->silent_ns = INT64_MAX;
    ward->is_lost = true;
    end_in_time(ward);
}

/* Whether there is something that the hold protects. */
static bool is_watched(const struct ward *ward)
{
    return ward->command > 0 || ward->is_over;
}

static void on_time(struct ward *ward)
{
    uint64_t count;
    ssize_t n = read(ward->timer, &count, sizeof count);
    (void)n; /* the clock decides, not the timer */
    int64_t now = cli_now_ns();
    if (now >= ward->kill_ns)
        kill_all(ward);
    if (now >= ward->deadline_ns && !ward->is_lost && is_watched(ward)) {
        say(ward, GUARD_EXPIRED, 0); /* it answers with GUARD_LOST */
        on_lost(ward);
    }
    if (now >= ward->silent_ns && is_watched(ward))
        on_silence(ward, now);
}

/* ---- Events from COMMAND and from snib ------------------------------------------------------- */

static void on_ended(struct ward *ward, const siginfo_t *info)
{
    bool is_exit = info->si_code == CLD_EXITED;
    look_at_exec(ward);
    ward->command = 0;
    ward->is_over = true;
    if (ward->is_denied)
        say(ward, GUARD_FAILED, 0);
    else if (!ward->is_told)
        say(ward, is_exit ? GUARD_ENDED : GUARD_KILLED, info->si_status);
}

/* COMMAND and what is in its group, which it may have left. */
static void signal_command(const struct ward *ward, int sig)
{
    kill(-ward->command, sig);
    if (getpgid(ward->command) != ward->command)
        kill(ward->command, sig);
}

/* Its place in the list of those that were refused the terminal; pid 0: one that is free.  NULL: there is none. */
static pid_t *find_refused(struct ward *ward, pid_t pid)
{
    for (int i = 0; i < REFUSED_MAX; i++)
        if (ward->refused[i] == pid)
            return &ward->refused[i];
    return NULL;
}

static void forget_refused(struct ward *ward, pid_t pid)
{
    pid_t *place = find_refused(ward, pid);
    if (place)
        *place = 0;
}

/* COMMAND, or what it has left, was stopped because it asked for a terminal that it does not get: it would wait for one
 * for ever, and hold the lock.  If SIGHUP does not end it, it asks again as soon as it is continued, without end: so then
 * everything is ended.  Likewise if there are more such processes than can be remembered. */
static void refuse_terminal(struct ward *ward, pid_t pid)
{
    pid_t *place = find_refused(ward, pid) ? NULL : find_refused(ward, 0);
    if (place && pid == ward->command) {
        signal_command(ward, SIGHUP);
        signal_command(ward, SIGCONT);
    } else if (place) {
        kill(pid, SIGHUP);
        kill(pid, SIGCONT);
    } else if (ward->kill_ns == INT64_MAX) {
        say(ward, GUARD_INSISTS, pid);
        end_all(ward, kill_after_ns(ward));
    }
    if (place)
        *place = pid;
}

/* snib says that COMMAND is such a process. */
static void on_refused(struct ward *ward)
{
    ward->continued++;
    if (ward->command > 0)
        refuse_terminal(ward, ward->command);
}

/* Reap processes that have ended, and note stops.  False: none is left, or the rest may stay. */
static bool reap(struct ward *ward)
{
    siginfo_t info = {0};
    bool was_over = ward->is_over;
    int result;
    while ((result = waitid(P_ALL, 0, &info, WEXITED | WSTOPPED | WNOHANG)) == 0 && info.si_pid) {
        bool is_stop = info.si_code == CLD_STOPPED;
        if (!is_stop)
            forget_refused(ward, info.si_pid);
        if (info.si_pid == ward->command && is_stop && ward->stops_n++ < STOPS_MAX)
            say(ward, GUARD_STOPPED, info.si_status);
        else if (info.si_pid == ward->command && !is_stop)
            on_ended(ward, &info);
        else if (ward->is_over && is_stop &&
                 (info.si_status == SIGTTIN || info.si_status == SIGTTOU))
            refuse_terminal(ward, info.si_pid);
        info.si_pid = 0;
    }
    if (result != 0 && errno == ECHILD && ward->is_over)
        return false;
    if (was_over || !ward->is_over)
        return true;
    bool is_ending = ward->kill_ns != INT64_MAX; /* all of it has time until then */
    if (!is_ending && ward->cli->rest == REST_IGNORE)
        return false;
    if (!is_ending && ward->cli->rest == REST_END)
        end_all(ward, kill_after_ns(ward));
    return true;
}

static void forward(struct ward *ward, int sig)
{
    bool is_request_to_end = sig == SIGTERM || sig == SIGHUP;
    for (int i = 0; i < 1 + is_request_to_end; i++) {
        int next = i == 0 ? sig : SIGCONT; /* a stopped process does not act on it */
        ward->continued += next == SIGCONT;
        if (ward->command > 0)
            signal_command(ward, next);
        else if (ward->is_over)
            signal_all(ward, next, NULL);
    }
    if (sig == SIGTSTP && ward->is_over)
        say(ward, GUARD_STOPPED, sig); /* of which the kernel tells only COMMAND's parent */
}

/* Carry out snib's messages. */
static void listen_to_snib(struct ward *ward)
{
    struct guard_message message;
    ssize_t n;
    while ((n = recv(ward->link, &message, sizeof message, MSG_DONTWAIT)) == sizeof message) {
        ward->stops_n = 0;
        if (message.word == GUARD_GO)
            start(ward, &message);
        else if (message.word == GUARD_EXEC)
            let_go(ward, &message);
        else if (message.word == GUARD_HELD)
            on_held(ward, message.deadline_ns);
        else if (message.word == GUARD_SIGNAL)
            forward(ward, message.value);
        else if (message.word == GUARD_REFUSED)
            on_refused(ward);
        else if (message.word == GUARD_LOST)
            on_told(ward);
    }
    if (n == 0 && !ward->is_orphan)
        on_orphaned(ward);
}

static void set_timer(struct ward *ward)
{
    int64_t next = ward->kill_ns;
    if (is_watched(ward))
        next = min_ns(next, ward->silent_ns);
    if (is_watched(ward) && !ward->is_lost)
        next = min_ns(next, ward->deadline_ns);
    struct itimerspec time = {0};
    if (next != INT64_MAX)
        time.it_value = (struct timespec){next / SECOND_NS, next % SECOND_NS};
    timerfd_settime(ward->timer, TFD_TIMER_ABSTIME, &time, NULL);
}

static _Noreturn void guard_main(struct ward *ward)
{
    sigset_t child;
    kin_adopt();
    setpgid(0, 0);
    prctl(PR_SET_NAME, "lock-guard"); /* killing processes named snib spares this one */
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    ward->signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    ward->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (ward->signals < 0 || ward->timer < 0)
        _exit(EXIT_USAGE); /* snib sees the link close */
    do {
        struct signalfd_siginfo info;
        struct pollfd polls[] = {{.fd = ward->is_orphan ? -1 : ward->link, .events = POLLIN},
                                 {.fd = ward->signals, .events = POLLIN},
                                 {.fd = ward->timer, .events = POLLIN},
                                 {.fd = ward->report, .events = POLLIN}};
        set_timer(ward);
        poll(polls, 4, -1);
        while (read(ward->signals, &info, sizeof info) > 0)
            ;
        if (polls[3].revents)
            look_at_exec(ward);
        listen_to_snib(ward); /* before the clock: only this process may have been stopped */
        on_time(ward);
        if (ward->is_orphan && ward->command == 0 && !ward->is_over)
            break;
    } while (reap(ward));
    say(ward, GUARD_EMPTY, 0);
    _exit(0);
}

/* ---- snib's side ----------------------------------------------------------------------------- */

int guard_start(const struct cli *cli, const sigset_t *mask, struct guard *out)
{
    int links[2];
    sigset_t all;
    sigset_t old;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, links) != 0)
        return errno;
    kin_adopt();
    fflush(NULL);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &old);
    pid_t pid = fork();
    if (pid == 0) {
        struct ward ward = {.cli = cli,
                            .mask = mask,
                            .link = links[1],
                            .report = -1,
                            .caller = getpgrp(),
                            .deadline_ns = INT64_MAX,
                            .silent_ns = INT64_MAX,
                            .kill_ns = INT64_MAX};
        close(links[0]);
        guard_main(&ward);
    }
    int error = errno;
    sigprocmask(SIG_SETMASK, &old, NULL);
    close(links[1]);
    *out = (struct guard){.pid = pid, .link = links[0]};
    if (pid > 0)
        return 0;
    close(links[0]);
    return error;
}

void guard_tell(const struct guard *guard, const struct guard_message *message)
{
    ssize_t n = send(guard->link, message, sizeof *message, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)n; /* if it has ended, the link shows it; if it was stopped, its deadline will end it */
    kill(guard->pid, SIGCONT);
}

int guard_hear(const struct guard *guard, struct guard_message *out)
{
    ssize_t n = recv(guard->link, out, sizeof *out, MSG_DONTWAIT);
    /* It ended with messages unread; its own messages are still there. */
    if (n < 0 && errno == ECONNRESET)
        n = recv(guard->link, out, sizeof *out, MSG_DONTWAIT);
    return n == sizeof *out ? 1 : n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

void guard_end(struct guard *guard, pid_t group)
{
    close(guard->link);
    kill(guard->pid, SIGCONT);
    int status = 0;
    waitpid(guard->pid, &status, 0);
    if (WIFEXITED(status))
        return;
    if (group > 0) /* it was killed: COMMAND is now this process's child */
        kill(-group, SIGKILL);
    kin_end();
}
