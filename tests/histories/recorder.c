/* recorder.c - threads that take the locks of a history, and write down what they were told.
 *
 *     recorder URL LOG word=value...
 *
 * The words and the conversation with the conductor are in recorders.py, the lines of the log in judge/log.go; recorder.py,
 * go/main.go and java/Recorder.java obey the same.
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <snib.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { NAMES_MAX = 64, WORKERS_MAX = 8, LINE = 256 };

static struct {
    const char *me, *kind, *names[NAMES_MAX];
    int names_count, workers, port;
    long lease_ms, fixed_ms, recheck_ms, patience_ms;
} plan;

/* The locks of a name: exclusive or shared, renewed or with a fixed lease. */
static snib_lock *locks[NAMES_MAX][2][2];
static FILE *record;
static _Atomic long holds;

/* One thread: who it is, and its conversation with the conductor. */
struct worker {
    pthread_t thread;
    int name, number, conductor;
    char who[32];
};

/* A hold in use: when a check last found it valid, and whether one has found it lost. */
struct held {
    snib_hold *hold;
    char id[48];
    int64_t checked;
    bool lost;
    int32_t reason;
};

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void must(int code, const snib_error *err)
{
    if (code != SNIB_OK) {
        fprintf(stderr, "%s: %s\n", plan.me, err->text);
        exit(1);
    }
}

/* Say a line to the conductor and read its answer; without one the run is over for everybody. */
static void talk(struct worker *w, char answer[LINE], const char *format, ...)
{
    char line[LINE];
    va_list words;
    va_start(words, format);
    int length = vsnprintf(line, sizeof line, format, words);
    va_end(words);
    if (length >= LINE || write(w->conductor, line, (size_t)length) != length)
        exit(1);
    for (int used = 0;;) {
        ssize_t n = read(w->conductor, answer + used, (size_t)(LINE - 1 - used));
        if (n <= 0)
            exit(1);
        used += (int)n;
        if (answer[used - 1] == '\n') {
            answer[used - 1] = '\0';
            return;
        }
    }
}

/* When the check began if it found the hold valid, otherwise 0. */
static int64_t check(struct held *h)
{
    snib_error err;
    int64_t now = now_ns();
    if (h->lost)
        return 0;
    if (snib_hold_check(h->hold, &err) == SNIB_OK)
        return h->checked = now;
    h->lost = true;
    h->reason = err.reason;
    return 0;
}

/* Read the counter, and write the next number or, as a reader, read it again. */
static void use(struct worker *w, struct held *h, bool shared)
{
    const char *name = plan.names[w->name];
    char answer[LINE], owner[128];
    long long token = snib_hold_token(h->hold), value, result = -1;
    int linger;
    int64_t before = check(h), after = 0;
    if (snib_hold_owner(h->hold, owner, NULL) != SNIB_OK)
        strcpy(owner, "-");
    talk(w, answer, "read %s %s %lld %s\n", name, h->id, token, owner);
    if (sscanf(answer, "%lld %d", &value, &linger) != 2)
        exit(1);
    while (linger && check(h))
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    if (linger)
        talk(w, answer, "lost %s %s\n", name, h->id);
    /* One that knows that it has lost a lock without tokens stops; with a token the resource knows better. */
    if (value >= 0 && (check(h) || token > 0)) {
        if (shared)
            talk(w, answer, "again %s %s %lld\n", name, h->id, token);
        else
            talk(w, answer, "write %s %s %lld %lld\n", name, h->id, token, value + 1);
        result = atoll(answer);
        after = check(h);
    }
    fprintf(record, "use %lld %s %s %s %lld %lld %lld %lld\n", (long long)now_ns(), w->who, name,
            h->id, (long long)before, value, result, (long long)after);
}

static void hold_it(struct worker *w, snib_hold *hold, bool shared)
{
    const char *name = plan.names[w->name];
    struct held h = {.hold = hold, .checked = now_ns()};
    char owner[128];
    snprintf(h.id, sizeof h.id, "%s-%ld", plan.me, ++holds);
    if (snib_hold_owner(hold, owner, NULL) != SNIB_OK)
        strcpy(owner, "-");
    fprintf(record, "grant %lld %s %s %s %lld %s %s\n", (long long)h.checked, w->who, name, h.id,
            (long long)snib_hold_token(hold), shared ? "r" : "x", owner);
    use(w, &h, shared);
    if (h.lost)
        fprintf(record, "lost %lld %s %s %s %lld %s\n", (long long)now_ns(), w->who, name, h.id,
                (long long)h.checked, snib_reason_text(h.reason));
    int64_t asked = now_ns();
    int code = snib_hold_release(hold, NULL);
    fprintf(record, "release %lld %s %s %s %lld %lld %d\n", (long long)now_ns(), w->who, name, h.id,
            (long long)h.checked, (long long)asked, code);
    snib_hold_free(hold);
}

static void *work(void *argument)
{
    struct worker *w = argument;
    const char *name = plan.names[w->name];
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = htons((uint16_t)plan.port)};
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    w->conductor = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(w->conductor, (struct sockaddr *)&where, sizeof where) != 0)
        exit(1);
    snprintf(w->who, sizeof w->who, "%s/%d", plan.me, w->number);
    fprintf(record, "start %lld %s\n", (long long)now_ns(), w->who);
    for (;;) {
        char answer[LINE], mode;
        long wait_ms;
        int fixed;
        talk(w, answer, "turn %s %s\n", name, w->who);
        if (sscanf(answer, "go %ld %c %d", &wait_ms, &mode, &fixed) != 3)
            break;
        snib_hold *hold;
        int64_t asked = now_ns();
        fprintf(record, "ask %lld %s %s %ld\n", (long long)asked, w->who, name, wait_ms);
        int code = snib_lock_acquire(locks[w->name][mode == 'r'][fixed], 0, wait_ms, &hold, NULL);
        if (code == SNIB_OK)
            hold_it(w, hold, mode == 'r');
        else
            fprintf(record, "fail %lld %s %s %lld %d\n", (long long)now_ns(), w->who, name,
                    (long long)asked, code);
    }
    fprintf(record, "end %lld %s\n", (long long)now_ns(), w->who);
    close(w->conductor);
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
        else if (strcmp(word, "kind") == 0)
            plan.kind = value;
        else if (strcmp(word, "names") == 0)
            for (char *rest, *one = strtok_r(value, ",", &rest);
                 one && plan.names_count < NAMES_MAX; one = strtok_r(NULL, ",", &rest))
                plan.names[plan.names_count++] = one;
        else if (strcmp(word, "workers") == 0)
            plan.workers = atoi(value);
        else if (strcmp(word, "conductor") == 0)
            plan.port = atoi(value);
        else
            *(strcmp(word, "lease_ms") == 0     ? &plan.lease_ms
              : strcmp(word, "fixed_ms") == 0   ? &plan.fixed_ms
              : strcmp(word, "recheck_ms") == 0 ? &plan.recheck_ms
                                                : &plan.patience_ms) = atol(value);
    }
}

static int kind_of(bool shared)
{
    if (strcmp(plan.kind, "rw") == 0)
        return shared ? SNIB_READ : SNIB_WRITE;
    return strcmp(plan.kind, "fenced") == 0    ? SNIB_FENCED
           : strcmp(plan.kind, "fair") == 0    ? SNIB_FAIR
           : strcmp(plan.kind, "permits") == 0 ? SNIB_PERMITS
                                               : SNIB_MUTEX;
}

static void make_locks(snib_client *client, int name)
{
    for (int i = 0; i < 4; i++) {
        int shared = i / 2, fixed = i % 2;
        snib_error err;
        snib_lock_options options;
        snib_lock_options_init(&options, sizeof options);
        options.lease_ms = fixed ? plan.fixed_ms : 0;
        must(snib_lock_new(client, kind_of(shared), plan.names[name], strlen(plan.names[name]),
                           &options, &locks[name][shared][fixed], &err),
             &err);
    }
}

int main(int argc, char **argv)
{
    static struct worker workers[NAMES_MAX * WORKERS_MAX];
    if (argc < 3)
        return 2;
    read_plan(argc, argv);
    record = fopen(argv[2], "w");
    if (!record || !plan.me || !plan.kind || plan.names_count == 0 || plan.workers > WORKERS_MAX)
        return 2;
    setvbuf(record, NULL, _IOLBF, 0); /* one that is killed leaves what it wrote */

    snib_error err;
    snib_client *client;
    snib_client_options options;
    snib_client_options_init(&options, sizeof options);
    options.lease_ms = plan.lease_ms;
    options.recheck_ms = plan.recheck_ms;
    options.patience_ms = plan.patience_ms;
    must(snib_client_open(argv[1], &options, &client, &err), &err);
    for (int i = 0; i < plan.names_count; i++)
        make_locks(client, i);

    int n = plan.names_count * plan.workers;
    for (int i = 0; i < n; i++) {
        workers[i].name = i / plan.workers;
        workers[i].number = i;
        pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    }
    for (int i = 0; i < n; i++)
        pthread_join(workers[i].thread, NULL);
    snib_client_free(client);
    return fclose(record);
}
