/* hold.c - snib hold: hold a lock until a signal asks for its release.
 *
 *     waiting --lock granted--> holding --signal--> release, exit 0
 *        |                         |
 *        | busy, timed out,        | lock lost
 *        | error, signal           v
 *        v                      exit 123
 *       exit
 *
 * There is no command, and so no guardian.  If this process is killed or stopped, the lock ends with its lease. */
#include "signals.h"
#include "take.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

/* The lock was granted. */
static void tell_held(const struct take *take)
{
    char *names = cli_names(take->cli, ", ");
    char *text;
    char with[48] = "";
    int64_t token = snib_hold_token(take->hold);
    if (token > 0)
        snprintf(with, sizeof with, ", token %" PRId64, token);
    if (asprintf(&text, "holding %s%s, until Ctrl-C or SIGTERM", names, with) < 0)
        abort();
    if (!take->cli->is_quiet)
        cli_tell_held(take->cli, text, token);
    free(text);
    free(names);
}

/* The next signal that asks to end; 0: none. */
static int next_signal(struct take *take, int signals)
{
    sigset_t pending;
    sigpending(&pending); /* it may be behind others, and the loss is not to be told before */
    if (sigismember(&pending, SIGCONT) == 1)
        take_continued(take);
    int sig = signals_next(signals, 0);
    return sig == SIGCONT ? signals_next(signals, 0) : sig;
}

/* Wait for the lock, then for a signal.  Returns the exit code; out_sig: what ended the wait, else as it was. */
static int loop(struct take *take, int signals, int *out_sig)
{
    struct pollfd fds[2] = {{.fd = signals, .events = POLLIN},
                            {.fd = take_fd(take), .events = POLLIN}};
    bool is_told = false;
    int code = -1;
    while (code < 0) {
        if (poll(fds, 2, take_left_ms(take)) < 0 && errno != EINTR)
            return cli_fail_errno(take->cli, "poll");
        int sig = next_signal(take, signals);
        code = take_look(take);
        if (take->is_lost)
            code = EXIT_LOST;
        else if (code < 0 && sig && take->hold)
            code = 0;
        else if (code < 0 && sig)
            code = EXIT_SIGNAL + (*out_sig = sig);
        else if (take->hold && !is_told)
            tell_held(take);
        is_told = take->hold;
    }
    return code;
}

/* Release the lock.  Returns the exit code. */
static int finish(struct take *take, int signals)
{
    snib_error err;
    int result = take_release(take, signals, &err);
    if (result == SNIB_OK)
        return 0;
    return result == SNIB_LOST ? EXIT_LOST : cli_fail(take->cli, &err);
}

int cli_hold(const struct cli *cli)
{
    static const int handled[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGCONT};
    struct take take;
    sigset_t old_mask;
    int signals = signals_open(handled, sizeof handled / sizeof handled[0], &old_mask);
    if (signals < 0)
        return cli_fail_errno(cli, "signals");
    int code = take_open(&take, cli);
    int sig = 0;
    if (code < 0)
        code = loop(&take, signals, &sig);
    if (take.hold && code == 0)
        code = finish(&take, signals);
    take_close(&take);
    signals_die_of_key(sig);
    return code;
}
