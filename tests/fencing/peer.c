/* peer.c - a C program that protects a row of PostgreSQL by a fenced lock; test_languages.py says what it does.
 *
 *     peer REDIS_URL POSTGRES_URL
 *
 * Commands on standard input, one answer each: lock, write TOKEN OWNER, unlock, run ROUNDS.
 */
#include <libpq-fe.h>
#include <snib.h>
#include <snib_fencing.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static snib_lock *lock;
static snib_hold *hold;
static PGconn *database;
static snib_error err;

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

/* Execute a statement; the number of rows that it changed. */
static int execute(const char *statement, const char *const *values, int n)
{
    PGresult *result = PQexecParams(database, statement, n, NULL, values, NULL, NULL, 0);
    if (PQresultStatus(result) != PGRES_COMMAND_OK && PQresultStatus(result) != PGRES_TUPLES_OK)
        fail(statement, PQerrorMessage(database));
    int changed = atoi(PQcmdTuples(result));
    PQclear(result);
    return changed;
}

/* Read, add one, write; so a write that came between would be seen as a number that is missing. */
static void add_one(void)
{
    char text[32];
    PGresult *result = PQexec(database, "SELECT number FROM stock WHERE item = 'book'");
    snprintf(text, sizeof text, "%d", atoi(PQgetvalue(result, 0, 0)) + 1);
    PQclear(result);
    const char *values[] = {text};
    (void)execute("UPDATE stock SET number = $1::int WHERE item = 'book'", values, 1);
}

static int write_row(const char *token, const char *owner)
{
    const char *values[] = {"stock", token, owner};
    (void)execute("BEGIN", NULL, 0);
    int accepted = execute(SNIB_FENCE_ACCEPT, values, 3);
    if (accepted)
        add_one();
    (void)execute(accepted ? "COMMIT" : "ROLLBACK", NULL, 0);
    return accepted;
}

static void acquire(char token[32], char owner[128])
{
    if (snib_lock_acquire(lock, 0, -1, &hold, &err) != SNIB_OK ||
        snib_hold_owner(hold, owner, &err) != SNIB_OK)
        fail("acquire", err.text);
    snprintf(token, 32, "%lld", (long long)snib_hold_token(hold));
}

static const char *release(void)
{
    int code = snib_hold_release(hold, &err);
    snib_hold_free(hold);
    return code == SNIB_OK ? "ok" : code == SNIB_LOST ? "lost" : err.text;
}

int main(int argc, char **argv)
{
    char line[256], token[32], owner[128];
    snib_client *client = NULL;
    if (argc != 3)
        fail("peer", "REDIS_URL POSTGRES_URL");
    if (snib_client_open(argv[1], NULL, &client, &err) != SNIB_OK ||
        snib_lock_new(client, SNIB_FENCED, "row", 3, NULL, &lock, &err) != SNIB_OK)
        fail("open", err.text);
    database = PQconnectdb(argv[2]);
    if (PQstatus(database) != CONNECTION_OK)
        fail("connect", PQerrorMessage(database));
    while (fgets(line, sizeof line, stdin)) {
        int rounds = 0, refused = 0;
        if (sscanf(line, "run %d", &rounds) == 1) {
            while (rounds-- > 0) {
                acquire(token, owner);
                refused += !write_row(token, owner);
                (void)release();
            }
            printf("refused %d\n", refused);
        } else if (sscanf(line, "write %31s %127s", token, owner) == 2) {
            puts(write_row(token, owner) ? "ok" : "stale");
        } else if (strcmp(line, "lock\n") == 0) {
            acquire(token, owner);
            printf("%s %s\n", token, owner);
        } else {
            puts(release());
        }
        fflush(stdout);
    }
    snib_client_free(client);
    PQfinish(database);
    return 0;
}
