/* worker.c - threads that take and give back few locks in a loop, and write down what they were told.
 *
 * The words of the command line and of the log are in load.py; worker.py and go/main.go obey the same.
 */
#include <pthread.h>
#include <snib.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { NAMES_MAX = 16, THREADS_MAX = 64 };

static struct {
    const char *me, *names[NAMES_MAX];
    int names_count, threads, kind;
    long wait_ms, lease_ms, hold_ms, think_ms, check_ms, patience_ms;
} plan = {.me = "c",
          .threads = 4,
          .kind = SNIB_FENCED,
          .wait_ms = 10000,
          .hold_ms = 20,
          .think_ms = 5,
          .check_ms = 1};

static FILE *record;
static snib_lock *locks[NAMES_MAX];
static _Atomic bool over;
static _Atomic long holds;

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void nap_us(long us)
{
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&t, NULL);
}

static void must(int code, const snib_error *err)
{
    if (code != SNIB_OK) {
        fprintf(stderr, "%s: %s\n", plan.me, err->text);
        exit(1);
    }
}

/* Work under the lock, asking every check_ms whether it is still there; when it last was. */
static int64_t work(snib_hold *hold, unsigned *seed, int *code, snib_error *err)
{
    int64_t end = now_ns() + 1000000LL * (rand_r(seed) % (int)(plan.hold_ms + 1)), checked = 0;
    for (;;) {
        int64_t now = now_ns();
        *code = snib_hold_check(hold, err);
        if (*code != SNIB_OK || now >= end)
            return *code == SNIB_OK ? now : checked;
        checked = now;
        nap_us(1000 * plan.check_ms);
    }
}

static void hold_it(const char *who, const char *name, snib_hold *hold, unsigned *seed)
{
    char id[48];
    int code;
    snib_error err;
    snprintf(id, sizeof id, "%s-%ld", plan.me, ++holds);
    int64_t got = now_ns();
    fprintf(record, "grant %lld %s %s %s %lld\n", (long long)got, who, name, id,
            (long long)snib_hold_token(hold));
    int64_t checked = work(hold, seed, &code, &err);
    checked = checked ? checked : got;
    if (code != SNIB_OK)
        fprintf(record, "lost %lld %s %s %s %lld %s\n", (long long)now_ns(), who, name, id,
                (long long)checked, snib_reason_text(err.reason));
    int64_t asked = now_ns();
    int ended = snib_hold_release(hold, &err);
    fprintf(record, "release %lld %s %s %s %lld %lld %d\n", (long long)now_ns(), who, name, id,
            (long long)checked, (long long)asked, ended);
    snib_hold_free(hold);
}

static void *worker(void *number)
{
    char who[32];
    unsigned seed = (unsigned)getpid() * 64 + (unsigned)(intptr_t)number;
    snprintf(who, sizeof who, "%s/%d", plan.me, (int)(intptr_t)number);
    fprintf(record, "start %lld %s\n", (long long)now_ns(), who);
    while (!over) {
        int i = rand_r(&seed) % plan.names_count;
        snib_hold *hold;
        snib_error err;
        int64_t asked = now_ns();
        fprintf(record, "ask %lld %s %s %ld\n", (long long)asked, who, plan.names[i], plan.wait_ms);
        int code = snib_lock_acquire(locks[i], 0, plan.wait_ms, &hold, &err);
        if (code == SNIB_OK)
            hold_it(who, plan.names[i], hold, &seed);
        else
            fprintf(record, "fail %lld %s %s %lld %d\n", (long long)now_ns(), who, plan.names[i],
                    (long long)asked, code);
        nap_us(1000L * (code == SNIB_OK ? plan.think_ms : plan.think_ms + 10));
    }
    fprintf(record, "end %lld %s\n", (long long)now_ns(), who);
    return NULL;
}

static void read_plan(int argc, char **argv)
{
    for (int i = 3; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (!value)
            exit(2);
        *value++ = '\0';
        const char *word = argv[i];
        if (strcmp(word, "me") == 0)
            plan.me = value;
        else if (strcmp(word, "threads") == 0)
            plan.threads = atoi(value);
        else if (strcmp(word, "kind") == 0)
            plan.kind = strcmp(value, "fenced") == 0 ? SNIB_FENCED
                        : strcmp(value, "fair") == 0 ? SNIB_FAIR
                                                     : SNIB_MUTEX;
        else if (strcmp(word, "names") == 0)
            for (char *rest, *one = strtok_r(value, ",", &rest);
                 one && plan.names_count < NAMES_MAX; one = strtok_r(NULL, ",", &rest))
                plan.names[plan.names_count++] = one;
        else
            *(strcmp(word, "wait_ms") == 0    ? &plan.wait_ms
              : strcmp(word, "lease_ms") == 0 ? &plan.lease_ms
              : strcmp(word, "hold_ms") == 0  ? &plan.hold_ms
              : strcmp(word, "think_ms") == 0 ? &plan.think_ms
              : strcmp(word, "check_ms") == 0 ? &plan.check_ms
                                              : &plan.patience_ms) = atol(value);
    }
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    read_plan(argc, argv);
    record = fopen(argv[2], "w");
    if (!record || plan.names_count == 0 || plan.threads > THREADS_MAX)
        return 2;
    setvbuf(record, NULL, _IOLBF, 0); /* one that is killed leaves what it wrote */

    snib_error err;
    snib_client *client;
    snib_client_options options;
    snib_client_options_init(&options, sizeof options);
    if (plan.lease_ms)
        options.lease_ms = plan.lease_ms;
    if (plan.patience_ms)
        options.patience_ms = plan.patience_ms;
    must(snib_client_open(argv[1], &options, &client, &err), &err);
    for (int i = 0; i < plan.names_count; i++)
        must(snib_lock_new(client, plan.kind, plan.names[i], strlen(plan.names[i]), NULL, &locks[i],
                           &err),
             &err);

    pthread_t threads[THREADS_MAX];
    for (intptr_t i = 0; i < plan.threads; i++)
        pthread_create(&threads[i], NULL, worker, (void *)i);
    char byte;
    while (read(0, &byte, 1) > 0) /* until whoever started it ends it, or ends */
        ;
    over = true;
    for (int i = 0; i < plan.threads; i++)
        pthread_join(threads[i], NULL);
    snib_client_free(client);
    return fclose(record);
}
