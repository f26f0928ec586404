/* ledger.c - what each story of a hand-fed engine costs, exactly, and that its lists are sound.
 *
 * A story checks what it is about.  Beside that, an engine in virtual time sends exactly the same
 * commands, wants exactly the same wake-ups and ends everything in exactly the same way each time.
 * This file stands between the tests and the engine (ld --wrap, see CMakeLists.txt), and after each
 * call it
 *
 *   - checks the engine's own lists and counts (tests/sim/engine_check.c);
 *   - adds to a digest: the commands written to each link, the wishes to connect and to close, the
 *     next deadline, the statistics, how much the engine keeps, each hold's phase and end,
 *     results with their words, and log records.
 *
 * The digest of each test, with counts that a reader can follow, is a line of ledger/PROGRAM.txt.
 * A line that has changed is not a fault in itself: the engine does something else than before, or
 * the test does.  If that is intended, SNIB_LEDGER=write has the program write its lines anew, and
 * the change is part of the commit; SNIB_LEDGER=show prints every step, for a comparison of two.
 *
 * Scripts count by their names, and the library's version not at all.  With a sanitizer, another C
 * library or pointers of another size nothing is compared, and the rest is checked all the same.
 */
#include "ledger.h"

#include "unit.h"

#include "engine/ask.h"
#include "engine/internal.h"
#include "net/script.h"
#include "sim/engine_check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINKS_MAX 64
#define CHECKED_MAX 1024 /* gates and channels times operations, with which every call is checked */
#define FAILED 99        /* exit code: every test passes, and the ledger differs */

/* Elsewhere the library's words for errors are others, or memory comes in other pieces. */
#if defined SNIB_LEDGER_EXACT && defined __GLIBC__ && UINTPTR_MAX == UINT64_MAX
#define COMPARES true
#else
#define COMPARES false
#endif

/* The lines of a program. */
struct line {
    char name[96], text[192];
};

static struct {
    uint64_t digest;
    uint32_t calls, commands, connects, closes, wakes, results, records;
    uint64_t memory; /* the most that the engine counted */
    snib__time deadline;
} sum;
static struct line lines[128];
static uint32_t lines_n;
static bool shows;

/* ---- The digest --------------------------------------------------------------------------------- */

static void add(const void *bytes, size_t n)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i < n; i++)
        sum.digest = (sum.digest ^ at[i]) * 0x100000001b3u;
}

static void add_number(const char *what, uint64_t value)
{
    unsigned char bytes[8]; /* the same on every machine */
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(value >> 8 * i);
    add(bytes, sizeof bytes);
    if (shows)
        fprintf(stderr, " %s=%" PRIu64, what, value);
}

static void add_text(const char *text, size_t n)
{
    add_number("length", n);
    add(text, n);
    if (shows)
        fprintf(stderr, " \"%.*s\"", (int)n, text);
}

/* ---- What is written to the links ------------------------------------------------------------------ */

static struct {
    const struct snib__link *link;
    size_t size;
    bool connect, close;
} before[LINKS_MAX];
static uint32_t before_n;

static void note_links(const struct snib__engine *e)
{
    before_n = 0;
    for (const struct snib__link *link = e->links; link && before_n < LINKS_MAX;
         link = link->next) {
        before[before_n].link = link;
        before[before_n].connect = link->connect;
        before[before_n].close = link->close;
        before[before_n++].size = snib__buf_size(&link->conn.out);
    }
}

static void add_word(const char *word, size_t n, const char *verb, long at)
{
    if (strncmp(verb, "SCRIPT", 6) == 0 || (strncmp(verb, "CLIENT", 6) == 0 && at > 2))
        return; /* a script's text, the version */
    if (n == 40)
        for (uint64_t i = 0; i < COUNT(snib__script_texts); i++)
            if (memcmp(snib__script_texts[i].sha1, word, n) == 0) {
                add_number("script", i);
                return;
            }
    add_text(word, n);
}

/* The commands that have been appended since. */
static void add_commands(const char *at, const char *end)
{
    while (at < end && *at == '*') {
        char *next;
        long n = strtol(at + 1, &next, 10);
        const char *verb = NULL;
        next += 2;
        for (long i = 0; i < n; i++) {
            size_t length = (size_t)strtol(next + 1, &next, 10);
            next += 2;
            verb = verb ? verb : next;
            add_word(next, length, verb, i);
            next += length + 2;
        }
        at = next;
        sum.commands++;
    }
}

static void add_link(const struct snib__link *link, uint32_t place)
{
    const struct snib__buf *out = &link->conn.out;
    size_t had = 0, has = snib__buf_size(out);
    bool connect = false, close = false;
    for (uint32_t i = 0; i < before_n; i++)
        if (before[i].link == link) {
            had = before[i].size;
            connect = before[i].connect;
            close = before[i].close;
        }
    if (has < had)
        had = 0; /* another connection's */
    if (has > had) {
        add_number("to", place);
        add_commands(out->data + out->head + had, out->data + out->len);
    }
    if (link->connect != connect || link->close != close) {
        add_number("wish", place * 4 + link->connect * 2u + link->close);
        sum.connects += link->connect && !connect;
        sum.closes += link->close && !close;
    }
}

/* ---- What the engine is like ---------------------------------------------------------------------- */

static void add_holds(const struct snib__engine *e)
{
    for (uint32_t i = 0; i < e->gates_cap; i++)
        for (const struct snib__gate *gate = e->gates[i]; gate; gate = gate->next)
            for (const struct snib__hold *hold = snib__gate_first(gate); hold;
                 hold = snib__gate_next(gate, hold)) {
                add_number("hold", hold->number);
                add_number("phase", hold->phase * 16u + hold->reason);
                add_number("users", (uint64_t)hold->users << 32 | hold->count);
                if (hold->phase == SNIB__HELD)
                    add_number("end", snib__hold_end(hold));
            }
}

static void add_stats(const snib_client_stats_data *stats)
{
    const uint64_t *at = &stats->acquisitions;
    size_t n = (sizeof *stats - offsetof(snib_client_stats_data, acquisitions)) / sizeof *at;
    for (size_t i = 0; i < n; i++)
        if (at[i])
            add_number("counter", i << 56 ^ at[i]);
}

static void begin_call(const struct snib__engine *e, const char *name)
{
    note_links(e);
    sum.calls++;
    if (shows)
        fprintf(stderr, "\n%s", name);
}

static void end_call(const struct snib__engine *e)
{
    uint32_t place = 0;
    for (const struct snib__link *link = e->links; link; link = link->next, place++)
        add_link(link, place);
    snib__time deadline = snib__engine_deadline(e);
    sum.wakes += deadline != sum.deadline;
    sum.deadline = deadline;
    add_number("deadline", deadline);
    add_number("moves", e->moves);
    add_number("gates", e->gates_n);
    add_number("channels", e->chans_n);
    add_number("timers", e->heap_n);
    add_number("paused", e->paused_n);
    add_number("releasing", e->releasing);
    sum.memory = e->memory > sum.memory ? e->memory : sum.memory;
    uint64_t effort = (uint64_t)(e->gates_n + e->chans_n) * (e->live_n + 1);
    if (sum.calls % (effort / CHECKED_MAX + 1))
        return; /* it would take long */
    add_stats(&e->stats);
    add_holds(e);
    const char *flaw = engine_flaw(e);
    if (flaw)
        fail_msg("the engine's structures: %s", flaw);
}

/* ---- The calls ------------------------------------------------------------------------------------- */

#define WRAP(type, name, parameters, arguments)                                                    \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters                                                                  \
    {                                                                                              \
        begin_call(e, #name);                                                                      \
        type result_ = __real_##name arguments;                                                    \
        end_call(e);                                                                               \
        return result_;                                                                            \
    }
#define WRAP_VOID(name, parameters, arguments)                                                     \
    void __real_##name parameters;                                                                 \
    void __wrap_##name parameters;                                                                 \
    void __wrap_##name parameters                                                                  \
    {                                                                                              \
        begin_call(e, #name);                                                                      \
        __real_##name arguments;                                                                   \
        end_call(e);                                                                               \
    }

WRAP_VOID(snib__engine_tick, (struct snib__engine * e, snib__time now), (e, now))
WRAP_VOID(snib__engine_input,
          (struct snib__engine * e, struct snib__link *link, const char *bytes, size_t n,
           snib__time now),
          (e, link, bytes, n, now))
WRAP_VOID(snib__engine_link_up, (struct snib__engine * e, struct snib__link *link, snib__time now),
          (e, link, now))
WRAP_VOID(snib__engine_link_down,
          (struct snib__engine * e, struct snib__link *link, int32_t code, int error,
           snib__time now),
          (e, link, code, error, now))
WRAP(struct snib__op *, snib__engine_acquire,
     (struct snib__engine * e, struct snib__gate *gate, const struct snib__acquire *how,
      snib__time now, int32_t *out_code),
     (e, gate, how, now, out_code))
WRAP(struct snib__op *, snib__engine_release,
     (struct snib__engine * e, struct snib__hold *hold, snib__time now, int32_t *out_code),
     (e, hold, now, out_code))
WRAP(bool, snib__engine_cancel, (struct snib__engine * e, struct snib__op *op, snib__time now),
     (e, op, now))
#define WRAP_ASK(name, parameters, arguments) WRAP(struct snib__op *, name, parameters, arguments)
WRAP_ASK(snib__engine_info,
         (struct snib__engine * e, struct snib__gate *gate, snib__time now, int32_t *out_code),
         (e, gate, now, out_code))
WRAP_ASK(snib__engine_force,
         (struct snib__engine * e, struct snib__gate *gate, snib__time now, int32_t *out_code),
         (e, gate, now, out_code))
WRAP_ASK(snib__engine_ping,
         (struct snib__engine * e, snib__time wait, snib__time now, int32_t *out_code),
         (e, wait, now, out_code))
WRAP_ASK(snib__engine_count,
         (struct snib__engine * e, struct snib__gate *gate, int32_t what, int64_t n, snib__time now,
          int32_t *out_code),
         (e, gate, what, n, now, out_code))
WRAP_ASK(snib__engine_describe,
         (struct snib__engine * e, const char *name, size_t n, size_t cap, snib__time now,
          int32_t *out_code),
         (e, name, n, cap, now, out_code))
WRAP_ASK(snib__engine_identity,
         (struct snib__engine * e, const char *owner, size_t n, size_t cap, snib__time now,
          int32_t *out_code),
         (e, owner, n, cap, now, out_code))
WRAP_ASK(snib__engine_server,
         (struct snib__engine * e, int32_t what, size_t cap, snib__time now, int32_t *out_code),
         (e, what, cap, now, out_code))
WRAP_ASK(snib__engine_list,
         (struct snib__engine * e, uint64_t cursor, const char *pattern, size_t n, size_t cap,
          snib__time now, int32_t *out_code),
         (e, cursor, pattern, n, cap, now, out_code))
WRAP_ASK(snib__engine_load,
         (struct snib__engine * e, int32_t kind, uint64_t cursor, size_t cap, snib__time now,
          int32_t *out_code),
         (e, kind, cursor, cap, now, out_code))
WRAP_VOID(snib__engine_board,
          (struct snib__engine * e, const char *notes, size_t n, snib__time now),
          (e, notes, n, now))
WRAP_VOID(snib__hold_fix,
          (struct snib__engine * e, struct snib__hold *hold, snib__time lease, snib__time now),
          (e, hold, lease, now))
WRAP_VOID(snib__engine_close, (struct snib__engine * e, snib__time now), (e, now))
WRAP_VOID(snib__hold_drop, (struct snib__engine * e, struct snib__hold *hold, snib__time now),
          (e, hold, now))
WRAP_VOID(snib__hold_abandon, (struct snib__engine * e, struct snib__hold *hold, snib__time now),
          (e, hold, now))

int __real_snib__engine_take_wish(struct snib__engine *e, struct snib__link *link);
int __wrap_snib__engine_take_wish(struct snib__engine *e, struct snib__link *link);
int __wrap_snib__engine_take_wish(struct snib__engine *e, struct snib__link *link)
{
    if (!link->connect && !link->close) /* most often */
        return __real_snib__engine_take_wish(e, link);
    begin_call(e, "snib__engine_take_wish");
    int wish = __real_snib__engine_take_wish(e, link);
    end_call(e);
    return wish;
}

/* A caller's event says what the operation does, nothing of what its memory held before. */
static void check_event(const struct snib__op *op)
{
    snib_event event, expected = {0};
    memset(&event, 0x5a, sizeof event);
    snib__op_event(op, &event);
    if (op->code == SNIB_OK && op->answer)
        expected = *op->answer;
    expected.size = sizeof event;
    expected.kind = SNIB_EVENT_DONE;
    expected.code = op->code;
    expected.reason = op->reason;
    expected.os_error = op->os_error;
    if (memcmp(&event, &expected, offsetof(snib_event, text)) != 0)
        fail_msg("the event of a result is not what the operation says");
    assert_string_equal(event.text, expected.text);
}

struct snib__op *__real_snib__engine_take_done(struct snib__engine *e);
struct snib__op *__wrap_snib__engine_take_done(struct snib__engine *e);
struct snib__op *__wrap_snib__engine_take_done(struct snib__engine *e)
{
    struct snib__op *op = __real_snib__engine_take_done(e);
    if (!op)
        return NULL;
    check_event(op);
    sum.results++;
    add_number("result", op->serial);
    add_number("code", (uint64_t)(int64_t)op->code);
    add_number("cause", (uint64_t)(int64_t)op->cause);
    add_number("errno", (uint64_t)op->os_error);
    add_number("flags", op->reason * 4u + op->waited * 2u + op->unconfirmed);
    add_text(op->words ? op->words : "", op->words ? strlen(op->words) : 0);
    add_text(op->where ? op->where : "", op->where ? strlen(op->where) : 0);
    add_number("token",
               op->code == SNIB_OK && op->hold ? (uint64_t)snib__hold_fencing(op->hold) : 0);
    if (op->answer) {
        add_number("answer", (uint64_t)op->answer->count);
        add_number("answer", (uint64_t)op->answer->remaining_ms);
        add_number("answer", (uint64_t)op->answer->waiting);
        add_number("answer", (uint64_t)op->answer->mine * 2u + (uint64_t)op->answer->held);
        add_text(op->answer->text, strlen(op->answer->text));
    }
    if (op->asked) {
        const snib_texts *texts = op->asked->texts;
        add_number("cursor", op->asked->cursor);
        add_text(texts ? texts->text : "", texts ? texts->used : 0);
    }
    return op;
}

void __real_snib__engine_log(struct snib__engine *e, int32_t level, const char *format, ...);
void __wrap_snib__engine_log(struct snib__engine *e, int32_t level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void __wrap_snib__engine_log(struct snib__engine *e, int32_t level, const char *format, ...)
{
    char text[sizeof e->log[0].text];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    sum.records++;
    add_number("record", (uint64_t)level);
    add_text(text, strlen(text));
    __real_snib__engine_log(e, level, "%s", text);
}

/* ---- Memory ---------------------------------------------------------------------------------------- */

static int blocks; /* allocated and not freed, by the test and by the core */
static uint32_t refuse_in;

void ledger_refuse(uint32_t n)
{
    refuse_in = n;
}

static bool is_refused(void)
{
    return refuse_in > 0 && --refuse_in == 0;
}

void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_malloc(size_t n)
{
    void *block = is_refused() ? NULL : __real_malloc(n);
    blocks += block != NULL;
    return block;
}

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
    void *block = is_refused() ? NULL : __real_calloc(n, size);
    blocks += block != NULL;
    return block;
}

void *__real_realloc(void *old, size_t n);
void *__wrap_realloc(void *old, size_t n);
void *__wrap_realloc(void *old, size_t n)
{
    void *block = is_refused() ? NULL : __real_realloc(old, n);
    blocks += block && !old;
    return block;
}

char *__wrap_strdup(const char *text);
char *__wrap_strdup(const char *text)
{
    char *copy = __wrap_malloc(strlen(text) + 1);
    return copy ? strcpy(copy, text) : NULL;
}

void __real_free(void *block);
void __wrap_free(void *block);
void __wrap_free(void *block)
{
    blocks -= block != NULL;
    __real_free(block);
}

/* The engine frees what it has allocated. */
static uint32_t engines;
static int blocks_at_first;

struct snib__engine *__real_snib__engine_new(const struct snib__config *config);
struct snib__engine *__wrap_snib__engine_new(const struct snib__config *config);
struct snib__engine *__wrap_snib__engine_new(const struct snib__config *config)
{
    if (engines++ == 0)
        blocks_at_first = blocks;
    return __real_snib__engine_new(config);
}

void __real_snib__engine_free(struct snib__engine *e);
void __wrap_snib__engine_free(struct snib__engine *e);
void __wrap_snib__engine_free(struct snib__engine *e)
{
    if (e)
        add_number("held", e->stats.held);
    __real_snib__engine_free(e);
    engines -= e != NULL;
    if (e && engines == 0 && blocks != blocks_at_first)
        fail_msg("the engine has left %d blocks of memory", blocks - blocks_at_first);
}

/* ---- The tests -------------------------------------------------------------------------------------- */

static void story(void **state)
{
    const struct CMUnitTest *own = *state;
    void *inner = own->initial_state;
    memset(&sum, 0, sizeof sum);
    engines = 0;
    sum.digest = 0xcbf29ce484222325u;
    shows = getenv("SNIB_LEDGER") && strcmp(getenv("SNIB_LEDGER"), "show") == 0;
    if (shows)
        fprintf(stderr, "\n== %s", own->name);
    if (own->setup_func)
        assert_int_equal(own->setup_func(&inner), 0);
    own->test_func(&inner);
    if (own->teardown_func)
        assert_int_equal(own->teardown_func(&inner), 0);
    if (sum.calls == 0)
        return; /* it is about something else */
    assert_true(lines_n < COUNT(lines));
    struct line *line = &lines[lines_n++];
    snprintf(line->name, sizeof line->name, "%s", own->name);
    snprintf(line->text, sizeof line->text,
             "calls=%u commands=%u connects=%u closes=%u wakes=%u results=%u records=%u "
             "memory=%" PRIu64 " digest=%016" PRIx64,
             sum.calls, sum.commands, sum.connects, sum.closes, sum.wakes, sum.results, sum.records,
             sum.memory, sum.digest);
}

/* ledger/NAME.txt of the program unit_NAME. */
static FILE *open_lines(const char *mode)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s.txt", SNIB_LEDGER_FOLDER,
             program_invocation_short_name + strlen("unit_"));
    return fopen(path, mode);
}

static void write_lines(void)
{
    if (lines_n == 0)
        return;
    FILE *file = open_lines("w");
    assert_non_null(file);
    for (uint32_t i = 0; i < lines_n; i++)
        fprintf(file, "%s: %s\n", lines[i].name, lines[i].text);
    fclose(file);
}

/* How many tests cost something else than their lines say. */
static uint32_t compare_lines(void)
{
    char known[512], name[128];
    uint32_t differ = 0;
    FILE *file = open_lines("r");
    for (uint32_t i = 0; i < lines_n; i++) {
        size_t n = (size_t)snprintf(name, sizeof name, "%s: ", lines[i].name);
        bool found = false;
        if (file)
            rewind(file);
        while (file && !found && fgets(known, sizeof known, file))
            found = strncmp(known, name, n) == 0;
        known[found ? strcspn(known, "\n") : 0] = 0;
        if (found && strcmp(known + n, lines[i].text) == 0)
            continue;
        differ++;
        print_error("%s has changed what the engine does:\n  before: %s\n  now:    %s\n",
                    lines[i].name, found ? known + n : "not in the ledger", lines[i].text);
    }
    if (file)
        fclose(file);
    if (differ)
        print_error("If that is intended: SNIB_LEDGER=write, see tests/unit/ledger/ledger.c\n");
    return differ;
}

int __real__cmocka_run_group_tests(const char *group, const struct CMUnitTest *tests, size_t n,
                                   CMFixtureFunction setup, CMFixtureFunction teardown);
int __wrap__cmocka_run_group_tests(const char *group, const struct CMUnitTest *tests, size_t n,
                                   CMFixtureFunction setup, CMFixtureFunction teardown);
int __wrap__cmocka_run_group_tests(const char *group, const struct CMUnitTest *tests, size_t n,
                                   CMFixtureFunction setup, CMFixtureFunction teardown)
{
    static struct CMUnitTest wrapped[COUNT(lines)];
    const char *wanted = getenv("SNIB_LEDGER");
    assert_true(n <= COUNT(wrapped));
    for (size_t i = 0; i < n; i++)
        wrapped[i] = (struct CMUnitTest){
            .name = tests[i].name, .test_func = story, .initial_state = (void *)&tests[i]};
    int failed = __real__cmocka_run_group_tests(group, wrapped, n, setup, teardown);
    if (failed)
        return failed;
    if (wanted && strcmp(wanted, "write") == 0)
        write_lines();
    else if (COMPARES && compare_lines() > 0)
        return FAILED;
    return 0;
}
