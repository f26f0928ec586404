/* credentials.c - credentials through a queue, without calling a function of the program.
 *
 * A C function may be called from any thread.  A Python or Go function may be, too, but on a thread
 * that the runtime does not know, a call at the wrong moment ends badly: while an interpreter shuts
 * down, the thread would wait for ever, or the process would abort.  So in these languages a thread
 * or goroutine of their own drains a queue and answers.
 */
#include "api/objects.h"

#include <string.h>

void snib__client_ask(struct snib__driver *driver, struct snib__wakes *wakes)
{
    struct snib__client *client =
        (struct snib__client *)driver; /* the driver is its first member */
    uint64_t number = snib__login_open(&driver->logins);
    if (!client->login_queue)
        return; /* the request waits for one */
    driver->logins.untold = false;
    if (number)
        snib__queue_push_question(client->login_queue, number, wakes);
}

void snib__client_unask(struct snib__client *client, const struct snib__queue *queue)
{
    struct snib__logins *logins = &client->driver.logins;
    if (client->login_queue != queue)
        return;
    client->login_queue = NULL;
    snib__login_answer(logins, snib__login_open(logins), NULL);
}

static int credentials_unasked(snib_error *err)
{
    return snib__fail(err, SNIB_EINVAL, 0,
                      "the client does not ask for credentials; open it with ask_credentials");
}

int snib_client_credentials(snib_client *handle, snib_queue *queue_handle, snib_error *err)
{
    int32_t code;
    struct snib__queue *queue = NULL;
    struct snib__client *client = snib__client_enter(handle, err, &code);
    if (!client)
        return code;
    if (queue_handle && !(queue = snib__queue_enter(queue_handle, err, &code))) {
        snib__handle_put(handle);
        return code;
    }
    struct snib__logins *logins = &client->driver.logins;
    code = SNIB_OK;
    if (!queue) {
        code = snib__fail_null(err, "queue");
    } else if (queue->client != client) {
        code = snib__fail_queue(err);
    } else if (logins->source != SNIB__LOGIN_QUEUE) {
        code = credentials_unasked(err);
    } else {
        snib__driver_enter(&client->driver);
        client->login_queue = queue;
        logins->untold = snib__login_open(logins) != 0;
        snib__driver_leave(&client->driver);
    }
    if (queue)
        snib__handle_put(queue_handle);
    snib__handle_put(handle);
    return code;
}

static bool credentials_end(const snib_credentials *answer)
{
    return answer->size == sizeof *answer && answer->reserved == 0 &&
           memchr(answer->why, 0, sizeof answer->why) &&
           memchr(answer->username, 0, sizeof answer->username) &&
           memchr(answer->password, 0, sizeof answer->password);
}

int snib_client_login(snib_client *handle, uint64_t token, const snib_credentials *answer,
                      snib_error *err)
{
    int32_t code;
    struct snib__client *client = snib__client_enter(handle, err, &code);
    if (!client)
        return code;
    struct snib__logins *logins = &client->driver.logins;
    code = SNIB_OK;
    if (logins->source != SNIB__LOGIN_QUEUE) {
        code = credentials_unasked(err);
    } else if (answer && !credentials_end(answer)) {
        code = snib__fail(
            err, SNIB_EINVAL, 0,
            "the credentials have no size, a non-zero reserved field or an unterminated text");
    } else {
        snib__driver_enter(&client->driver);
        snib__login_answer(logins, token, answer);
        snib__driver_leave(&client->driver);
    }
    snib__handle_put(handle);
    return code;
}
