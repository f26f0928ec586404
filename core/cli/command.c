/* command.c - becoming COMMAND: its environment, the last look at the clock, exec. */
#include "guard.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Cut ":password" out of scheme://user:password@... */
static void cut_password(char *url)
{
    char *user = strstr(url, "://");
    if (!user)
        return;
    user += 3;
    char *end = user + strcspn(user, "/?#");
    char *at = end;
    while (at > user && *at != '@')
        at--; /* the last one, as the URL is read */
    char *colon = memchr(user, ':', (size_t)(at - user));
    if (*at == '@' && colon)
        memmove(colon, at, strlen(at) + 1);
}

/* COMMAND's variables in place of inherited ones, and no password.  Returns 0 or errno. */
static int set_environment(const struct cli *cli, int64_t token)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, token);
    if (setenv("SNIB_LOCK", cli->name, 1) != 0 || unsetenv("SNIB_TOKEN") != 0 ||
        (token > 0 && setenv("SNIB_TOKEN", text, 1) != 0))
        return errno;
    const char *url = getenv("SNIB_URL");
    if (cli->keeps_password)
        return 0;
    unsetenv("SNIB_PASSWORD");
    char *copy = url ? strdup(url) : NULL;
    if (url && !copy)
        return ENOMEM;
    if (copy)
        cut_password(copy);
    int error = copy && setenv("SNIB_URL", copy, 1) != 0 ? errno : 0;
    free(copy);
    return error;
}

int command_exec(const struct cli *cli, const struct guard_message *go, const sigset_t *mask)
{
    int error = set_environment(cli, go->token);
    if (error)
        return error;
    if (guard_now_ns() >= go->deadline_ns)
        return 0;
    sigprocmask(SIG_SETMASK, mask, NULL);
    execvp(cli->command[0], cli->command);
    return errno;
}
