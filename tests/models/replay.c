/* replay.c - reads a model's trace and has its steps taken by the core.
 *
 *     spin -T -DREPLAY -nSEED -uSTEPS NAME.pml | replay NAME
 *
 * Exit 0: no difference, and on stdout how often each step was taken; 1: the core and the model differ; 2: something
 * else is wrong.
 */
#include "replay.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE 512
#define WORDS_MAX 40
#define HISTORY 40

static const struct replay *const replays[] = {
    &replay_cleanup, &replay_failover, &replay_fair, &replay_hold,   &replay_quorum,
    &replay_renewal, &replay_roles,    &replay_rw,   &replay_tenure, &replay_wakeup};

static const struct replay *replay;
static char history[HISTORY][LINE];
static long lines;
static char words_of[LINE];
static char *words[WORDS_MAX];
static int words_n;

static void say_history(void)
{
    for (long i = lines > HISTORY ? lines - HISTORY : 0; i < lines; i++)
        fprintf(stderr, "    %6ld  %s\n", i + 1, history[i % HISTORY]);
}

static _Noreturn void stop(int code, const char *what, const char *format, va_list arguments)
{
    say_history();
    fprintf(stderr, "replay %s: %s, line %ld: ", replay ? replay->model : "?", what, lines);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    exit(code);
}

void differ(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    stop(1, "difference", format, arguments);
}

void broken(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    stop(2, "broken", format, arguments);
}

void same(int client, const char *what, int64_t wanted, int64_t core)
{
    if (wanted != core)
        differ("client %d, %s: the model says %lld, the core %lld", client, what, (long long)wanted,
               (long long)core);
}

const char *word(int index)
{
    if (index + 1 >= words_n)
        broken("the line has no argument %d", index);
    return words[index + 1];
}

int arg(int index)
{
    char *end;
    long value = strtol(word(index), &end, 10);
    if (*end)
        broken("argument %d is no number", index);
    return (int)value;
}

static void split(const char *line)
{
    char *rest = NULL;
    strcpy(words_of, line);
    words_n = 0;
    for (char *at = strtok_r(words_of, " ", &rest); at; at = strtok_r(NULL, " ", &rest)) {
        if (words_n == WORDS_MAX)
            broken("too many words");
        words[words_n++] = at;
    }
}

/* Which step the line is. */
static size_t find_step(void)
{
    for (size_t i = 0; words_n > 0 && replay->steps[i].name; i++)
        if (strcmp(replay->steps[i].name, words[0]) == 0)
            return i;
    broken("unknown step");
}

int main(int argc, char **argv)
{
    static long taken[64];
    char line[LINE];
    for (size_t i = 0; i < sizeof replays / sizeof *replays; i++)
        if (argc == 2 && strcmp(replays[i]->model, argv[1]) == 0)
            replay = replays[i];
    if (!replay) {
        fprintf(stderr, "usage: replay MODEL <TRACE\n");
        return 2;
    }
    alarm(600); /* a step that does not end is a failure, too */
    replay->begin();
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, "@ ", 2) != 0)
            continue; /* Spin's own words */
        strcpy(history[lines++ % HISTORY], line + 2);
        split(line + 2);
        size_t step = find_step();
        taken[step]++;
        replay->steps[step].take();
    }
    world_end();
    for (size_t i = 0; replay->steps[i].name; i++)
        printf("%s %ld\n", replay->steps[i].name, taken[i]);
    return 0;
}
