#include "driver/login.h"

#include "driver/forks.h"
#include "net/error.h"
#include "net/text.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOGIN_QUOTED 80
#define LOGIN_FRESH                                                                                \
    (10000 * SNIB__MS) /* an answer that nobody waited for; the next attempt is sooner */
#define LOGIN_STACK (64 * 1024)
/* Between the use of an answer and the next question, at least: a source that keeps a token to its end would be asked
 * more and more often, until it says that 0 ms are left. */
#define LOGIN_APART (500 * SNIB__MS)

/* Shared by the thread that answers, the sockets and the client; the last one frees it. */
struct snib__question {
    _Atomic int refs;
    _Atomic uint32_t done; /* a word to park on */
    int bell;
    uint64_t number;
    snib__time asked_at;
    char *username, *file;
    snib_credentials_fn call;
    void *data;
    /* when done */
    snib__time answered_at;
    bool good;
    int os_error;
    char why[SNIB__WORDS_MAX];
    snib_credentials answer;
};

static void login_put(struct snib__question *question)
{
    if (!question || atomic_fetch_sub(&question->refs, 1) != 1)
        return;
    explicit_bzero(&question->answer, sizeof question->answer);
    if (question->bell >= 0)
        snib__sys_close(question->bell);
    free(question->username);
    free(question->file);
    free(question);
}

/* Returns false. */
static bool login_fail(struct snib__question *question, int os_error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static bool login_fail(struct snib__question *question, int os_error, const char *format, ...)
{
    va_list arguments;
    question->os_error = os_error;
    va_start(arguments, format);
    vsnprintf(question->why, sizeof question->why, format, arguments);
    va_end(arguments);
    return false;
}

/* ---- Answering ---- */

/* Read the file directly into the answer, so that there is no other copy of its text. */
static bool login_read(struct snib__question *question)
{
    char quoted[LOGIN_QUOTED];
    char *password = question->answer.password, next;
    struct stat info = {0};
    size_t n = 0;
    ssize_t got = -1;
    snib__quote(quoted, sizeof quoted, question->file, strlen(question->file));
    int fd = open(question->file, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* does not block on a pipe */
    if (fd < 0)
        return login_fail(question, snib__sys_short(errno) ? errno : 0,
                          "the password file %s cannot be read: %s", quoted, strerror(errno));
    bool regular = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
    while (regular && n < SNIB_PASSWORD_MAX &&
           (got = read(fd, password + n, SNIB_PASSWORD_MAX - n)) > 0)
        n += (size_t)got;
    bool more = n == SNIB_PASSWORD_MAX && (got = read(fd, &next, 1)) > 0;
    int error = errno;
    close(fd);
    if (!regular)
        return login_fail(question, 0, "the password file %s is not a regular file", quoted);
    if (got < 0)
        return login_fail(question, error, "the password file %s cannot be read: %s", quoted,
                          strerror(error));
    if (n > 0 && !more && password[n - 1] == '\n')
        n -= n > 1 && password[n - 2] == '\r' ? 2 : 1;
    if (n >= SNIB_PASSWORD_MAX - 1)
        return login_fail(question, 0, "the password file %s has more than %d bytes", quoted,
                          SNIB_PASSWORD_MAX - 2);
    password[n] = 0;
    if (n == 0)
        return login_fail(question, 0, "the password file %s is empty", quoted);
    if (strlen(password) != n)
        return login_fail(question, 0, "the password file %s has a zero byte in it", quoted);
    return true;
}

static bool login_ended(const char *text, size_t cap)
{
    return memchr(text, 0, cap) != NULL;
}

/* Check an answer that the program has filled in. */
static bool login_check(struct snib__question *question, int code)
{
    snib_credentials *answer = &question->answer;
    const char *why = login_ended(answer->why, sizeof answer->why) ? answer->why : "";
    char shown[sizeof question->why / 2];
    snib__text_show(shown, sizeof shown, why, strlen(why));
    if (code != 0 || why[0])
        return login_fail(question, EAGAIN, "there are no credentials%s%s", shown[0] ? ": " : "",
                          shown);
    if (!login_ended(answer->username, sizeof answer->username) ||
        !login_ended(answer->password, sizeof answer->password))
        return login_fail(question, EAGAIN, "the user name or password has no terminating NUL");
    if (answer->password[0] == 0)
        return login_fail(question, EAGAIN, "the credentials have no password");
    if (answer->valid_ms < 0)
        return login_fail(question, EAGAIN, "the credentials have already expired");
    return true;
}

static void login_tell(struct snib__question *question)
{
    if (!question->good)
        explicit_bzero(&question->answer, sizeof question->answer);
    question->answered_at = snib__now();
    atomic_store(&question->done, 1);
    snib__sys_ring(question->bell);
    snib__unpark_all(&question->done);
}

/* Wipe what the program's function may have left on the stack. */
static __attribute__((noinline)) void login_scrub(void)
{
    char below[LOGIN_STACK];
    explicit_bzero(below, sizeof below);
}

static void login_end(struct snib__question *question)
{
    login_scrub();
    login_tell(question);
    login_put(question);
}

/* The program's function did not return, but ended its thread. */
static void login_left(void *question)
{
    login_fail(question, EAGAIN, "the function for credentials ended its thread");
    login_end(question);
}

static int login_call(struct snib__question *question)
{
    int code;
    pthread_cleanup_push(login_left, question);
    code = question->call(question->data, &question->answer);
    pthread_cleanup_pop(0);
    return code;
}

static void *login_main(void *argument)
{
    struct snib__question *question = argument;
    if (question->file) {
        snib__forks_enter(); /* a child is not to inherit the open file */
        question->good = login_read(question);
        snib__forks_leave();
    } else {
        question->good = login_check(question, login_call(question));
    }
    login_end(question);
    return NULL;
}

/* ---- Asking ---- */

static struct snib__question *login_new(const struct snib__logins *logins)
{
    struct snib__question *question = calloc(1, sizeof *question);
    if (!question)
        return NULL;
    atomic_store(&question->refs, 1);
    question->answer.size = sizeof question->answer;
    question->asked_at = snib__now();
    question->number = logins->asked + 1;
    question->call = logins->source == SNIB__LOGIN_CALL ? logins->call : NULL;
    question->data = logins->data;
    question->bell = snib__sys_bell();
    bool good = question->bell >= 0;
    if (good && logins->username)
        good = (question->username = strdup(logins->username)) != NULL;
    if (good && logins->source == SNIB__LOGIN_FILE)
        good = (question->file = strdup(logins->file)) != NULL;
    if (good)
        return question;
    login_put(question);
    return NULL;
}

static int login_start(struct snib__logins *logins, struct snib__question *question)
{
    if (logins->source == SNIB__LOGIN_QUEUE) {
        logins->untold = true;
        return 0;
    }
    atomic_fetch_add(&question->refs, 1);
    int error = snib__sys_thread(login_main, question, 0, NULL);
    if (error)
        atomic_fetch_sub(&question->refs, 1);
    return error;
}

/* How long an answer is valid, from its question on. */
static snib__time login_lifetime(const struct snib__question *question)
{
    int64_t valid_ms = question->answer.valid_ms;
    if (valid_ms <= 0 || valid_ms > INT64_MAX / (int64_t)SNIB__MS / 2)
        return SNIB__NEVER;
    return (snib__time)valid_ms * SNIB__MS;
}

/* Whether its answer is to come, or has come and was not used: between two attempts, where a source that takes longer
 * than an attempt would otherwise never be of use. */
static bool login_serves(const struct snib__question *question)
{
    if (!snib__login_done(question))
        return true;
    snib__time now = snib__now(), lifetime = login_lifetime(question);
    return now < question->answered_at + LOGIN_FRESH &&
           (lifetime == SNIB__NEVER || now < question->asked_at + lifetime);
}

struct snib__question *snib__login_ask(struct snib__logins *logins)
{
    struct snib__question *question = logins->asking;
    if (!question || !login_serves(question)) {
        login_put(question);
        logins->asking = NULL;
        question = login_new(logins);
        int error = question ? login_start(logins, question) : errno;
        if (error) {
            login_put(question);
            errno = error;
            return NULL;
        }
        logins->asked = question->number;
        logins->asking = question;
    }
    atomic_fetch_add(&question->refs, 1);
    return question;
}

/* The client drops an answer after its first use; sockets that share it have references. */
void snib__login_drop(struct snib__logins *logins, struct snib__question **question)
{
    if (*question && *question == logins->asking && snib__login_done(*question)) {
        logins->asking = NULL;
        login_put(*question);
    }
    login_put(*question);
    *question = NULL;
}

int snib__login_bell(const struct snib__question *question)
{
    return question->bell;
}

bool snib__login_done(const struct snib__question *question)
{
    return atomic_load(&question->done) != 0;
}

bool snib__login_result(const struct snib__question *question, const char **out_username,
                        const char **out_password, const char **out_why, int *out_errno)
{
    const char *username = question->answer.username;
    *out_username = username[0] ? username : question->username;
    *out_password = question->answer.password;
    *out_why = question->why;
    *out_errno = question->os_error;
    return question->good;
}

void snib__login_used(struct snib__logins *logins, const struct snib__question *question)
{
    snib__time lifetime = login_lifetime(question);
    if (lifetime == SNIB__NEVER)
        return;
    snib__time at = question->asked_at + lifetime / 5 * 4, soonest = snib__now() + LOGIN_APART;
    at = at > soonest ? at : soonest;
    logins->valid_ms = question->answer.valid_ms;
    if (logins->renew_at == 0 || at < logins->renew_at)
        logins->renew_at = at;
}

void snib__login_answer(struct snib__logins *logins, uint64_t number,
                        const snib_credentials *answer)
{
    struct snib__question *question = logins->asking;
    if (logins->source != SNIB__LOGIN_QUEUE || !question || question->number != number ||
        snib__login_done(question))
        return;
    logins->untold = false;
    if (answer)
        question->answer = *answer;
    question->good = login_check(question, answer ? 0 : -1);
    login_tell(question);
}

uint64_t snib__login_open(const struct snib__logins *logins)
{
    const struct snib__question *question = logins->asking;
    return question && !snib__login_done(question) ? question->number : 0;
}

void snib__logins_end(struct snib__logins *logins)
{
    login_put(logins->renewing);
    login_put(logins->asking);
    logins->asking = logins->renewing = NULL;
}

struct snib__question *snib__login_running(const struct snib__logins *logins)
{
    struct snib__question *question = logins->asking;
    if (!question || !question->call || snib__login_done(question))
        return NULL;
    atomic_fetch_add(&question->refs, 1);
    return question;
}

void snib__login_await(struct snib__question *question)
{
    while (question && !snib__login_done(question))
        snib__park(&question->done, 0, SNIB__NEVER);
    login_put(question);
}
