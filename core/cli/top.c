/* top.c - snib top: the locks of a server, those with the most waiting processes first, again and again.
 *
 *     searching --all keys, or enough for now--> asking --all locks, or enough--> asking for holders --> shown
 *         ^                                                                                                |
 *         +------------------------------------------ interval --------------------------------------------+
 *
 * Everything is asked without waiting, so that keys, signals and the window's size are heeded at any time.  What one
 * refresh asks for is bounded, whatever the server has: the search continues in the next one, and locks are asked about
 * in turn.  Only --once asks for everything, as snib list does.
 *
 * The server has no history.  That a lock has changed hands shows in holders that were not there before, and in its
 * last token; what began and ended in between is not seen. */
#include "top.h"
#include "signals.h"
#include "terminal.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STEPS_MAX 30  /* of the search in one refresh, of about 100 keys each */
#define SEARCH_MS 500 /* and about how long they may take */
#define ASKED_MAX 300 /* locks in one refresh */
#define WINDOW 32     /* questions under way, unless the URL's waiters_max is less */

#define TOKEN_SEARCH LOCKS_MAX /* other tokens are indices of `turn` */

/* ---- Questions ------------------------------------------------------------------------------- */

void top_fail(struct top *top, int32_t code, const char *text)
{
    top->failures_n++;
    top->err.code = code;
    snprintf(top->err.text, sizeof top->err.text, "%s", text);
    top->told = top->err;
}

bool top_postpone(struct top *top, int result)
{
    if (result != SNIB_ELIMIT || top->open_n == 0)
        return false;
    top->window = top->open_n;
    top->turn_at--;
    return true;
}

static void search(struct top *top)
{
    const char *pattern = top->cli->name ? top->cli->name : "";
    snib_error err;
    if (snib_client_list_submit(top->client, pattern, strlen(pattern), top->cursor, top->queue,
                                TOKEN_SEARCH, NULL, &err) == SNIB_OK)
        top->open_n++;
    else
        top_fail(top, err.code, err.text);
}

static void begin_refresh(struct top *top)
{
    top->refresh++;
    top->phase = SEARCHING;
    top->begun_ns = top->heard_ns = cli_now_ns();
    top->err.code = SNIB_OK;
    top->steps_n = 0;
    top->answers_n = top->failures_n = 0;
    top->is_from_start = top->cursor == 0;
    top->is_complete = false;
    if (top->is_from_start)
        top_begin_search(top);
    search(top);
}

/* Ask about the locks whose turn it is. */
static void begin_asking(struct top *top)
{
    top->phase = ASKING;
    top->turn_at = 0;
    top_sort_turn(top);
    if (top->turn_n > ASKED_MAX && !top->cli->is_once)
        top->turn_n = ASKED_MAX;
}

/* Ask about the next lock. */
static void ask(struct top *top)
{
    size_t i = top->turn_at++;
    struct lock *lock = top->turn[i];
    snib_error err;
    int result = snib_client_describe_submit(top->client, lock->name, strlen(lock->name),
                                             top->queue, i, NULL, &err);
    top->open_n += result == SNIB_OK;
    if (result == SNIB_ENAME)
        top_take_description(top, lock, result, NULL);
    else if (result != SNIB_OK && !top_postpone(top, result))
        top_fail(top, err.code, err.text);
}

/* Some names, and where the search continues. */
static void hear_names(struct top *top, const snib_texts *texts)
{
    top_add_names(top, texts);
    top->cursor = texts->cursor;
    if (top->cursor == 0)
        top_end_search(top);
    top->is_complete = top->is_from_start && top->cursor == 0;
    bool is_enough = !top->cli->is_once && (++top->steps_n == STEPS_MAX ||
                                            cli_now_ns() - top->begun_ns > SEARCH_MS * MS_NS);
    if (top->cursor == 0 || is_enough)
        begin_asking(top);
    else
        search(top);
}

/* No names: the next refresh goes on with the next node of a cluster, since the others may answer, or begins again. */
static void miss_names(struct top *top, const snib_event *event)
{
    top_fail(top, event->code, event->text);
    top->cursor = (uint64_t)event->count;
    top->is_broken = true;
    begin_asking(top);
}

static void hear_description(struct top *top, size_t i, const snib_texts *texts)
{
    static struct description description;
    cli_read_description(texts, &description);
    top_take_description(top, top->turn[i], SNIB_OK, &description);
    top->answers_n++;
}

static void on_event(struct top *top, const snib_event *event)
{
    bool is_search = event->token == TOKEN_SEARCH;
    if (event->kind != SNIB_EVENT_DONE)
        return;
    top->open_n--;
    top->heard_ns = cli_now_ns();
    if (top->phase == ASKING_HOLDERS) {
        top_hear_holder(top, event);
    } else if (event->code == SNIB_OK && is_search) {
        top->answers_n++;
        hear_names(top, event->texts);
    } else if (event->code == SNIB_OK) {
        hear_description(top, event->token, event->texts);
    } else if (is_search) {
        miss_names(top, event);
    } else {
        top_fail(top, event->code, event->text);
        top->turn[event->token]->asked = top->refresh; /* it has had its turn */
    }
    if (event->code == SNIB_OK)
        snib_texts_free(event->texts);
}

/* ---- The loop -------------------------------------------------------------------------------- */

static void settle(struct top *top)
{
    top_choose(top);
    top->was_complete = top->is_complete;
    top->was_full = top->is_full;
    if (top->answers_n > 0)
        top->shown_at = time(NULL);
    top->told = top->err;
    top->told_n = top->answers_n > 0 ? top->failures_n : 0;
}

/* Show what was heard.  Returns -1, or the exit code when this was all. */
static int end_refresh(struct top *top)
{
    const struct cli *cli = top->cli;
    bool is_first = top->shown_at == 0;
    top->phase = SHOWN;
    top->next_ns = cli_now_ns() + cli->interval_ms * MS_NS;
    settle(top);
    if (top->err.code != SNIB_OK && (cli->is_once || top->shown_at == 0)) {
        int code = cli_fail(cli, &top->err);
        return top->stats ? stats_end(top, code) : code;
    }
    if (top->stats)
        return stats_end(top, 0);
    if (cli->is_json) {
        top_print_json(top);
    } else if (cli->is_once) {
        char *lines = top_lines(top, INT_MAX, INT_MAX, false);
        top_put(lines, strlen(lines));
        free(lines);
    } else if (is_first) {
        terminal_open();
        top->has_screen = true;
    }
    if (cli->is_once)
        return 0;
    return ferror(stdout) ? EXIT_USAGE : -1; /* main() reports it */
}

/* Ask what is to be asked now.  As end_refresh(). */
static int ask_more(struct top *top)
{
    if (top->phase == SHOWN && cli_now_ns() >= top->next_ns)
        begin_refresh(top);
    while (top->phase == ASKING && top->turn_at < top->turn_n && top->open_n < top->window &&
           top->failures_n <= WINDOW)
        ask(top);
    if (top->phase == ASKING && top->open_n == 0) {
        top_choose(top);
        top_begin_holders(top);
    }
    while (top->phase == ASKING_HOLDERS && top->turn_at < top->turn_n && top->open_n < top->window)
        top_ask_holder(top);
    return top->phase != SHOWN && top->open_n == 0 ? end_refresh(top) : -1;
}

static int hear(struct top *top)
{
    snib_event events[WINDOW];
    snib_error err;
    int n = snib_queue_drain(top->queue, events, WINDOW, &err);
    if (n < 0) {
        terminal_close();
        return cli_fail(top->cli, &err);
    }
    for (int i = 0; i < n; i++)
        on_event(top, &events[i]);
    snib_queue_cork(top->queue);
    int code = ask_more(top);
    snib_queue_uncork(top->queue);
    return code;
}

/* Returns -1, or the exit code. */
static int on_signal(struct top *top, int sig)
{
    if (sig == SIGTSTP) {
        terminal_close();
        signals_stop(getpid(), SIGTSTP);
    }
    if (top->has_screen && (sig == SIGTSTP || sig == SIGCONT))
        terminal_open();
    if (sig == 0 || sig == SIGTSTP || sig == SIGCONT || sig == SIGWINCH)
        return -1;
    return top->cli->is_once ? EXIT_SIGNAL + sig : 0;
}

/* Returns -1, or the exit code. */
static int take_keys(const struct top *top)
{
    int key = 0;
    while (top->has_screen && (key = terminal_key()) > 0)
        if (key == 'q' || key == 'Q')
            return 0;
    return key < 0 ? 0 : -1;
}

static bool ends_well; /* see on_end() */

/* A signal has come while output blocks: its reader stalls. */
static void on_end(int sig)
{
    terminal_close();
    if (!ends_well)
        signals_die_of_key(sig);
    _exit(ends_well ? 0 : EXIT_SIGNAL + sig);
}

/* Until there is something to do in any case. */
static int left_ms(const struct top *top)
{
    int64_t left_ns = top->phase == SHOWN ? top->next_ns - cli_now_ns() : SECOND_NS;
    return left_ns > 0 ? (int)(left_ns / MS_NS) + 1 : 0;
}

static int loop(struct top *top, int signals)
{
    struct pollfd fds[3] = {{.fd = signals, .events = POLLIN},
                            {.fd = snib_queue_fd(top->queue, NULL), .events = POLLIN},
                            {.fd = -1, .events = POLLIN}};
    begin_refresh(top);
    int code = -1;
    while (code < 0) {
        fds[2].fd = top->has_screen ? terminal_fd() : -1;
        if (poll(fds, 3, left_ms(top)) < 0 && errno != EINTR) {
            terminal_close();
            return cli_fail_errno(top->cli, "poll");
        }
        enum phase phase = top->phase;
        code = hear(top);
        int sig = code < 0 ? signals_next(signals, 0) : 0;
        if (code < 0)
            code = on_signal(top, sig);
        if (code < 0)
            code = take_keys(top);
        bool is_news = phase != SHOWN && top->phase == SHOWN;
        bool is_late = top->phase != SHOWN &&
                       (top->err.code != SNIB_OK || cli_now_ns() - top->heard_ns >= SECOND_NS);
        if (code < 0 && (sig || is_news || is_late))
            top_draw(top);
        if (!top->has_screen)
            cli_log_so_far(top->cli);
    }
    return code;
}

int top_run(const struct cli *cli, struct stats *stats)
{
    static const int handled[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH};
    static struct top top;
    sigset_t old_mask;
    snib_error err;
    int signals = signals_open(handled, sizeof handled / sizeof handled[0], &old_mask);
    if (signals < 0)
        return cli_fail_errno(cli, "signals");
    signals_on_end(on_end);
    ends_well = !cli->is_once;
    top.cli = cli;
    top.stats = stats;
    top.window = WINDOW;
    top.address = cli_address(cli->url);
    int code = cli_open(cli, &top.client);
    if (code != 0)
        return code;
    if (snib_queue_new(top.client, &top.queue, &err) != SNIB_OK)
        code = cli_fail(cli, &err);
    else
        code = loop(&top, signals);
    terminal_close();
    snib_queue_free(top.queue);
    cli_close(cli, top.client);
    signals_die_of_key(code - EXIT_SIGNAL);
    return code;
}

int cli_top(const struct cli *cli)
{
    if (!cli->is_once && !cli->is_json && !terminal_usable())
        return cli_usage(cli,
                         isatty(STDOUT_FILENO)
                             ? "TERM names no terminal with a cursor: add --once or --json"
                             : "standard output is not a terminal: add --once or --json",
                         NULL);
    return top_run(cli, NULL);
}
