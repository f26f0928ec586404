/* terminal.c - see terminal.h.  A few sequences that all terminals of the last decades know. */
#include "terminal.h"

#include "cli.h"
#include "signals.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

#define ENTER "\033[?1049h\033[?25l\033[?7l" /* alternate screen, no cursor, no wrapping */
#define LEAVE "\033[?7h\033[?25h\033[?1049l"
#define STALL_MS 100 /* then the terminal takes no more */
#define ELLIPSIS "\xe2\x80\xa6"

static struct termios before; /* the modes to restore */
static bool has_modes;        /* standard input is a terminal, too */
static bool is_open;

bool terminal_usable(void)
{
    const char *kind = getenv("TERM");
    return isatty(STDOUT_FILENO) && kind && *kind && strcmp(kind, "dumb") != 0;
}

/* Write all, as far as the terminal takes it, and as long as no signal ends this. */
static void put_all(const char *text, size_t n)
{
    signals_admit(true);
    while (n > 0) {
        ssize_t done = write(STDOUT_FILENO, text, n);
        if (done < 0 && errno != EINTR)
            break;
        text += done > 0 ? done : 0;
        n -= done > 0 ? (size_t)done : 0;
    }
    signals_admit(false);
}

/* Whether another process group has the terminal, as after a command that ends with &. */
static bool is_background(void)
{
    pid_t group = tcgetpgrp(STDOUT_FILENO);
    return group > 0 && group != getpgrp();
}

void terminal_open(void)
{
    static bool is_registered;
    struct termios modes;
    while (is_background() && signals_stop(0, SIGTTOU))
        ;
    if (!is_registered)
        atexit(terminal_close);
    is_registered = true;
    if (!is_open)
        has_modes = tcgetattr(STDIN_FILENO, &before) == 0;
    is_open = true;
    if (has_modes) {
        modes = before;
        modes.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        modes.c_iflag &=
            ~(tcflag_t)IXON; /* Ctrl-S would block the next write, and with it all signals */
        tcsetattr(STDIN_FILENO, TCSANOW, &modes);
    }
    put_all(ENTER, sizeof ENTER - 1);
}

void terminal_close(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    if (!is_open)
        return;
    is_open = false;
    if (poll(&out, 1, STALL_MS) > 0)
        put_all(LEAVE, sizeof LEAVE - 1);
    if (has_modes)
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
}

void terminal_size(int *out_columns, int *out_rows)
{
    struct winsize size = {0};
    ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    *out_columns = size.ws_col > 0 ? size.ws_col : 80;
    *out_rows = size.ws_row > 0 ? size.ws_row : 24;
}

int terminal_fd(void)
{
    return has_modes ? STDIN_FILENO : -1;
}

int terminal_key(void)
{
    struct pollfd fd = {.fd = STDIN_FILENO, .events = POLLIN};
    unsigned char key;
    if (!has_modes || poll(&fd, 1, 0) <= 0)
        return 0;
    ssize_t n = read(STDIN_FILENO, &key, 1);
    if (n == 1)
        return key;
    return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

void terminal_show(const char *lines, int rows)
{
    char *text;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    if (!out)
        abort();
    fputs("\033[H", out);
    for (const char *at = lines, *end; *at && rows-- > 0; at = end + 1) {
        end = strchr(at, '\n');
        bool is_last = rows == 0 || end[1] == '\0';
        bool is_reverse = *at == '\r';
        /* Erased before it is written: at the end of a full line that would erase its last character. */
        fprintf(out, "%s%s%.*s\033[m%s", is_last ? "\033[J" : "\033[K", is_reverse ? "\033[7m" : "",
                (int)(end - at) - is_reverse, at + is_reverse, is_last ? "" : "\r\n");
    }
    fclose(out);
    put_all(text, n);
    free(text);
}

/* Columns of a character; -1: it is not shown. */
static int width_of(wchar_t c)
{
    return cli_turns(c) ? -1 : wcwidth(c);
}

/* The next character at *at, and the columns it takes; NUL at the end. */
static wchar_t next_character(const char **at, int *out_width)
{
    mbstate_t state = {0};
    wchar_t c = L'?';
    size_t n = mbrtowc(&c, *at, MB_LEN_MAX, &state);
    bool is_broken = n == (size_t)-1 || n == (size_t)-2;
    *at += is_broken ? 1 : n;
    *out_width = is_broken ? -1 : c ? width_of(c) : 0;
    if (*out_width >= 0)
        return c;
    *out_width = 1;
    return L'?';
}

/* The columns of a whole text. */
static int width_of_text(const char *text)
{
    int sum = 0, width = 0;
    while (next_character(&text, &width))
        sum += width;
    return sum;
}

void terminal_put(FILE *out, const char *text, int columns, bool is_padded)
{
    bool is_cut = width_of_text(text) > columns;
    int used = 0, width = 0, room = columns - is_cut;
    wchar_t c;
    while ((c = next_character(&text, &width)) && used + width <= room) {
        fprintf(out, "%lc", (wint_t)c);
        used += width;
    }
    if (is_cut && columns > 0)
        used += fputs(ELLIPSIS, out) >= 0;
    for (; is_padded && used < columns; used++)
        putc(' ', out);
}
