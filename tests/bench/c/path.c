/* path.c - pairs of lock and unlock, as many as asked for, for a tool that counts their instructions.
 *
 *   path URL PAIRS
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "snib.h"

#define NAMES 10

static snib_error failure;

static void must(int code)
{
    if (code == SNIB_OK)
        return;
    fprintf(stderr, "path: %s\n", failure.text);
    exit(1);
}

int main(int argc, char **argv)
{
    snib_client *client;
    snib_lock *locks[NAMES];
    snib_hold *hold;
    if (argc != 3)
        return 2;
    const int pairs = atoi(argv[2]);
    must(snib_client_open(argv[1], NULL, &client, &failure));
    for (int i = 0; i < NAMES; i++) {
        char name[16];
        snprintf(name, sizeof name, "path:%d", i);
        must(snib_lock_new(client, SNIB_MUTEX, name, strlen(name), NULL, &locks[i], &failure));
    }
    for (int i = 0; i < pairs; i++) {
        must(snib_lock_acquire(locks[i % NAMES], 0, -1, &hold, &failure));
        must(snib_hold_release(hold, &failure));
        snib_hold_free(hold);
    }
    for (int i = 0; i < NAMES; i++)
        snib_lock_free(locks[i]);
    must(snib_client_close(client, -1, &failure));
    snib_client_free(client);
    return 0;
}
