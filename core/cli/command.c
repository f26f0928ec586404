/* command.c - becoming COMMAND: its environment, the last check of the clock, exec. */
#include "guard.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Remove the secret options from ?name=value&name=value. */
static void cut_options(char *query)
{
    static const char *const secrets[] = {
#define DURATION(name)
#define COUNT(name)
#define CHOICE(name)
#define TEXT(name)
#define PATH(name)
#define SECRET(name) #name "=",
#define X(name, field, kind, state, min, max, standard, words, text) kind(name)
#include "../api/options.def"
#undef X
    };
    char *item = query;
    while (item && *item) { /* at its ? or & */
        char *end = item + 1 + strcspn(item + 1, "&");
        bool is_secret = false;
        for (size_t i = 0; i < sizeof secrets / sizeof secrets[0]; i++)
            is_secret = is_secret || strncmp(item + 1, secrets[i], strlen(secrets[i])) == 0;
        if (!is_secret) {
            item = end;
            continue;
        }
        memmove(item, end, strlen(end) + 1);
        if (item == query && *item == '&')
            *item = '?';
    }
}

/* Remove the password from scheme://user:password@... and from the options. */
static void cut_password(char *url)
{
    char *user = strstr(url, "://");
    if (!user)
        return;
    user += 3;
    char *end = user + strcspn(user, "/?#");
    char *last = strrchr(user, '@');
    bool is_socket = *end == '/' && (end == user || end[-1] == '@'); /* whose path may have an @ */
    if (last && last >= end && !is_socket) { /* refused, and still so without the password */
        memmove(user, last, strlen(last) + 1);
        end = user + strcspn(user, "/?#");
    }
    char *at = end;
    while (at > user && *at != '@')
        at--; /* the last @, as in the URL's parser */
    char *colon = memchr(user, ':', (size_t)(at - user));
    char *rest = at + (colon == user); /* without a user the @ would be alone, and is refused */
    if (*at == '@' && colon)
        memmove(colon, rest, strlen(rest) + 1);
    cut_options(strchr(user, '?'));
}

/* Set COMMAND's variables in place of inherited ones, and remove passwords.  Returns 0 or errno. */
static int set_environment(const struct cli *cli, const struct guard_message *exec)
{
    char token[24];
    char *names = cli_names(cli, "\n");
    int told = setenv("SNIB_LOCK", names, 1);
    free(names);
    snprintf(token, sizeof token, "%" PRId64, exec->token);
    if (told != 0 || unsetenv("SNIB_TOKEN") != 0 || unsetenv("SNIB_OWNER") != 0)
        return errno;
    if (exec->token > 0 &&
        (setenv("SNIB_TOKEN", token, 1) != 0 || setenv("SNIB_OWNER", exec->owner, 1) != 0))
        return errno;
    const char *url = getenv("SNIB_URL");
    if (cli->keeps_password)
        return 0;
    unsetenv("SNIB_PASSWORD");
    unsetenv("SNIB_PASSWORD_FILE");
    char *copy = url ? strdup(url) : NULL;
    if (url && !copy)
        return ENOMEM;
    if (copy)
        cut_password(copy);
    int error = copy && setenv("SNIB_URL", copy, 1) != 0 ? errno : 0;
    free(copy);
    return error;
}

int command_exec(const struct cli *cli, const struct guard_message *exec, const sigset_t *mask)
{
    int error = set_environment(cli, exec);
    if (error)
        return error;
    if (cli_now_ns() >= exec->deadline_ns)
        return 0;
    sigprocmask(SIG_SETMASK, mask, NULL);
    execvp(cli->command[0], cli->command);
    return errno;
}
