/* Do something that must happen one at a time, across all machines. */
#include <snib.h>

#include <stdio.h>
#include <stdlib.h>

static int fail(const snib_error *err)
{
    fprintf(stderr, "%s: %s\n", snib_code_name(err->code), err->text);
    return 1;
}

int main(void)
{
    snib_client *client = NULL;
    snib_lock *lock = NULL;
    snib_hold *hold = NULL;
    snib_error err;
    const char *url = getenv("SNIB_URL");

    if (snib_client_open(url ? url : "redis://127.0.0.1:6379", NULL, &client, &err) != SNIB_OK ||
        snib_lock_new(client, SNIB_MUTEX, "orders", 6, NULL, &lock, &err) != SNIB_OK ||
        snib_lock_acquire(lock, 0, 2000, &hold, &err) != SNIB_OK) /* waits 2 s at most */
        return fail(&err);

    puts("working"); /* renewed while held; snib_hold_check() says whether it still is */

    if (snib_hold_release(hold, &err) != SNIB_OK)
        return fail(&err); /* SNIB_LOST: it was not held until the end */
    snib_hold_free(hold);
    snib_lock_free(lock);
    snib_client_free(client);
    return 0;
}
