/* latch.c - snib latch: show a count-down latch, set it, count it down, wait for it.
 *
 * Whatever was asked for, the latch's count is printed: it is what the next step of a script depends on. */
#include "cli.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define COUNT_MAX INT32_MAX
#define SLICE_MS 100 /* between two looks for log records */

enum verb { SHOW, SET, DOWN, WAIT };

/* Read the words after the name.  Returns 0, or an exit code after reporting the error. */
static int read_words(const struct cli *cli, enum verb *out_verb, int64_t *out_n)
{
    static const char *const verbs[] = {"", "set", "down", "wait"};
    const char *word = cli->names_n > 1 ? cli->names[1] : "";
    const char *number = cli->names_n > 2 ? cli->names[2] : "";
    int verb = 0;
    while (verb <= WAIT && strcmp(verbs[verb], word) != 0)
        verb++;
    if (verb > WAIT || (verb == SHOW && cli->names_n > 1))
        return cli_usage(cli, "latch NAME is followed by set N, down, wait or nothing, not ", word);
    *out_verb = (enum verb)verb;
    *out_n = verb == SET ? cli_read_number(number, 1, COUNT_MAX) : 0;
    if (*out_n < 0 && cli->names_n > 2)
        return cli_usage(cli, "latch NAME set needs a number from 1 to 2147483647, not ", number);
    if (*out_n < 0)
        return cli_usage(
            cli, "latch NAME set needs a number from 1 to 2147483647, such as latch NAME set 3",
            NULL);
    if (verb != SET && cli->names_n > 2)
        return cli_usage(cli, "too many arguments: ", number);
    if (verb != WAIT && cli->wait_ms >= 0)
        return cli_usage(cli, "--wait goes with latch NAME wait", NULL);
    if (verb != WAIT && cli->busy_code >= 0)
        return cli_usage(cli, "--busy-code goes with latch NAME wait", NULL);
    return 0;
}

static void print(const struct cli *cli, enum verb verb, int64_t count, bool is_set)
{
    if (!cli->is_json) {
        printf("%" PRId64 "\n", count);
        return;
    }
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "name", cli->name);
    cli_add_number(object, "count", count);
    if (verb == SET)
        cJSON_AddBoolToObject(object, "set", is_set);
    cli_print_json(object);
}

/* Wait until it is open, and report meanwhile what is to be logged.  Returns the result. */
static int wait_open(const struct cli *cli, snib_lock *latch, snib_error *err)
{
    snib_event event = {.size = sizeof event};
    snib_op *op;
    int result = snib_latch_wait_submit(latch, cli->wait_ms, NULL, 0, &op, err);
    if (result != SNIB_OK)
        return result;
    while ((result = snib_op_wait(op, cli->is_verbose ? SLICE_MS : -1, &event, err)) == SNIB_AGAIN)
        cli_log_so_far(cli);
    if (result != SNIB_OK)
        return result;
    *err = (snib_error){.code = event.code, .os_error = event.os_error};
    cli_copy(err->text, sizeof err->text, event.text);
    return event.code;
}

/* Do it.  Returns the exit code. */
static int act(const struct cli *cli, snib_lock *latch, enum verb verb, int64_t n)
{
    static const int32_t changes[] = {
        [SHOW] = 0, [SET] = SNIB_COUNT_INIT, [DOWN] = SNIB_COUNT_DOWN};
    int64_t value = 0; /* after the wait */
    snib_error err;
    int result = SNIB_OK;
    if (verb == WAIT)
        result = wait_open(cli, latch, &err);
    else if (verb != SHOW)
        result = snib_latch_count(latch, changes[verb], n, &value, &err);
    bool is_set = verb == SET && result == SNIB_OK && value == 1;
    if (is_set)
        value = n;
    else if (result == SNIB_OK && (verb == SHOW || verb == SET))
        result = snib_latch_count(latch, SNIB_COUNT_GET, 0, &value, &err);
    if (result != SNIB_OK)
        return cli_fail(cli, &err);
    print(cli, verb, value, is_set);
    return verb == SET && !is_set ? EXIT_SET_BEFORE : 0;
}

int cli_latch(const struct cli *cli)
{
    snib_client *client;
    snib_lock *latch;
    enum verb verb = SHOW;
    int64_t n = 0;
    int code = read_words(cli, &verb, &n);
    if (code == 0)
        code = cli_open(cli, &client);
    if (code != 0)
        return code;
    code = cli_open_lock(cli, client, SNIB_LATCH, cli->name, &latch);
    if (code == 0) {
        code = act(cli, latch, verb, n);
        snib_lock_free(latch);
    }
    cli_close(cli, client);
    return code;
}
