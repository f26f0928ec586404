/* open.c - clients and locks as the command line and the environment say. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static snib_queue *log_queue; /* with --verbose, of the main client */

static const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

char *cli_address(const char *url)
{
    const char *start = strstr(url, "://");
    start = start ? start + 3 : url;
    const char *at =
        memrchr(start, '@', strcspn(start, "/?#")); /* the last, as in the URL's parser */
    const char *host = at ? at + 1 : start;
    char *address, *out;
    if (asprintf(&address, "%.*s%.*s", (int)(start - url), url, (int)strcspn(host, "?#"), host) < 0)
        abort();
    out = cli_printable(address);
    free(address);
    return out;
}

static int open_with(const struct cli *cli, const char *url, snib_client_options *client_options,
                     snib_client **out_client, snib_error *err)
{
    client_options->lease_ms = cli->lease_ms;
    client_options->username = environment("SNIB_USERNAME");
    client_options->password = environment("SNIB_PASSWORD");
    client_options->password_file = environment("SNIB_PASSWORD_FILE");
    return snib_client_open(url, client_options, out_client, err);
}

int cli_open_at(const struct cli *cli, const char *url, snib_client **out_client)
{
    snib_client_options client_options;
    snib_error err;
    snib_client_options_init(&client_options, sizeof client_options);
    int result = open_with(cli, url, &client_options, out_client, &err);
    return result == SNIB_OK ? 0 : cli_fail(cli, &err);
}

int cli_open_quietly(const struct cli *cli, snib_client **out_client)
{
    return cli_open_at(cli, cli->url, out_client);
}

int cli_open_durable(const struct cli *cli, snib_client **out_client, snib_error *err)
{
    snib_client_options client_options;
    snib_client_options_init(&client_options, sizeof client_options);
    client_options.durability = 1;
    client_options.durability_policy = SNIB_DURABILITY_REPORT;
    return open_with(cli, cli->url, &client_options, out_client, err);
}

int cli_open(const struct cli *cli, snib_client **out_client)
{
    snib_error err;
    int code = cli_open_quietly(cli, out_client);
    if (code != 0)
        return code;
    if (cli->is_verbose &&
        (snib_queue_new(*out_client, &log_queue, &err) != SNIB_OK ||
         snib_client_log(*out_client, log_queue, SNIB_LOG_INFO, &err) != SNIB_OK))
        return cli_fail(cli, &err);
    return 0;
}

void cli_log_so_far(const struct cli *cli)
{
    snib_event records[8];
    int n;
    while (log_queue && (n = snib_queue_drain(log_queue, records, 8, NULL)) > 0)
        for (int i = 0; i < n; i++)
            cli_log(cli, cli->url, &records[i]);
}

void cli_close(const struct cli *cli, snib_client *client)
{
    cli_log_so_far(cli);
    snib_queue_free(log_queue);
    snib_client_free(client);
}

static snib_lock_options options_of_lock(const struct cli *cli)
{
    snib_lock_options lock_options;
    snib_lock_options_init(&lock_options, sizeof lock_options);
    lock_options.flags = cli->flags;
    lock_options.max_hold_ms = cli->max_hold_ms;
    return lock_options;
}

int cli_open_lock(const struct cli *cli, snib_client *client, int32_t kind, const char *name,
                  snib_lock **out_lock)
{
    snib_lock_options lock_options = options_of_lock(cli);
    snib_error err;
    int result = snib_lock_new(client, kind, name, strlen(name), &lock_options, out_lock, &err);
    return result == SNIB_OK ? 0 : cli_fail(cli, &err);
}

int cli_open_all(const struct cli *cli, snib_lock *const *locks, int n, snib_lock **out_lock)
{
    snib_lock_options lock_options = options_of_lock(cli);
    snib_error err;
    int result = snib_multi_new(locks, (uint32_t)n, &lock_options, out_lock, &err);
    return result == SNIB_OK ? 0 : cli_fail(cli, &err);
}

int cli_open_quorum(const struct cli *cli, snib_lock *const *locks, int n, snib_lock **out_lock)
{
    snib_lock_options lock_options = options_of_lock(cli);
    snib_error err;
    int result = snib_quorum_new(locks, (uint32_t)n, &lock_options, out_lock, &err);
    if (result == SNIB_EINVAL) /* two are on the same server */
        return cli_usage(cli, "--url: ", err.text);
    return result == SNIB_OK ? 0 : cli_fail(cli, &err);
}
