/* core.c - the whole core in one input: bytes from the server, ticks of the clock and calls of the program.
 *
 * The first byte chooses the world.  In one, the input itself is the server: it answers each request well,
 * wrongly, late or never, and may send any bytes at any time.  In the other, two clients share a model of a
 * server (core/testing/model_server.h), which answers truthfully with faults that the input chooses; there, a
 * hold that counts as safe must be at the server.
 */
#include "calls.h"
#include "replies.h"

#include "../../core/testing/model_server.h"
#include "../sim/engine_check.h"

#include <errno.h>

#define EPOCH_NS 1700000000000000000ull
#define PARTIES 2
#define GATES 12
#define REPLY_MAX 8192

struct world {
    struct party party[PARTIES];
    unsigned parties;
    model *model; /* NULL: the input is the server */
    int64_t step_ns;
    bool tampered; /* the server's data were changed behind the clients' backs */
    bool refusing; /* the server accepts no connections */
    struct input in;
};

static struct world world;

/* ---- The world ---------------------------------------------------------------------------------- */

static const struct call_lock gates[GATES] = {
    {SNIB_MUTEX, "m", 1},   {SNIB_MUTEX, "n", 1},  {SNIB_FAIR, "f", 1},
    {SNIB_READ, "rw", 2},   {SNIB_WRITE, "rw", 2}, {SNIB_FENCED, "t", 1},
    {SNIB_SPIN, "s", 1},    {SNIB_PLAIN, "p", 1},  {SNIB_SEMAPHORE, "c", 1},
    {SNIB_PERMITS, "e", 1}, {SNIB_LATCH, "l", 1},  {SNIB__MULTI, "mm\0ft\0wrw", 10}};

static void hung_up(struct pipe *pipe)
{
    if (world.model && pipe->server)
        model_close(world.model, pipe->server);
}

static void begin(const uint8_t head[STEP])
{
    static const snib__time leases[] = {30, 1, 10, 3};
    memset(&world, 0, sizeof world);
    bool has_model = head[0] & 1;
    world.parties = has_model ? PARTIES : 1;
    world.model = has_model ? model_new() : NULL;
    for (unsigned i = 0; i < world.parties; i++) {
        struct snib__config config = party_config();
        config.seed = head[3] + 1u;
        config.uuid[35] = (char)('1' + i);
        config.lease = leases[head[1] % 4] * SECOND;
        config.handover_max = head[1] & 4 ? 0 : 16;
        config.tenure = !(head[3] & 1);
        config.lanes = head[1] & 8 ? 3 : 0;
        config.identity = head[2] & 1 ? "host h\npid 1\n" : NULL;
        config.scatter = head[1] & 16;
        if (!has_model && head[1] & 32) {
            config.durability = head[1] & 64 ? 1 : SNIB_DURABILITY_MAJORITY;
            config.durability_policy =
                head[1] & 128 ? SNIB_DURABILITY_REPORT : SNIB_DURABILITY_REFUSE;
            config.durability_timeout = config.lease / 4;
        }
        party_begin(&world.party[i], &config);
        world.party[i].hung_up = hung_up;
        calls_gates(&world.party[i], gates, GATES);
    }
}

static snib__time now(void)
{
    return world.party[0].now;
}

static void pass(snib__time span)
{
    for (unsigned i = 0; i < world.parties; i++)
        party_pass(&world.party[i], span);
    if (world.model)
        model_time(world.model, EPOCH_NS + now() + (uint64_t)world.step_ns);
}

/* ---- The truth ---------------------------------------------------------------------------------- */

/* Whether the key has an entry of this client: the owner may be any of its numbers, because a hold may be
 * handed over within it. */
static bool owns(const struct party *p, const char *name, size_t n)
{
    model_key key;
    model_text field, value;
    if (!model_key_find(world.model, 0, name, n, &key))
        return false;
    for (size_t i = 0; i < key.fields; i++)
        if (model_field_at(world.model, 0, name, n, i, &field, &value) &&
            ((field.n > 36 && memcmp(field.p, p->e->config.uuid, 36) == 0) ||
             (value.n > 36 && memcmp(value.p, p->e->config.uuid, 36) == 0)))
            return true;
    return false;
}

static void check_owned(const struct party *p, const struct snib__gate *gate)
{
    if (gate->kind->kind != SNIB__MULTI) {
        MUST(owns(p, gate->name, gate->name_len));
        return;
    }
    for (const char *at = gate->name, *end = at + gate->name_len; at < end;) {
        size_t n = strnlen(at + 1, (size_t)(end - at - 1));
        MUST(owns(p, at + 1, n));
        at += n + 2;
    }
}

static void check_truth(void)
{
    for (unsigned i = 0; i < world.parties && world.model && !world.tampered; i++)
        for (unsigned j = 0; j < PARTY_HOLDS; j++) {
            const struct party *p = &world.party[i];
            const struct snib__hold *hold = p->holds[j].hold;
            int kind = hold && hold->phase == SNIB__HELD ? hold->gate->kind->kind : 0;
            if (kind != 0 && kind != SNIB_PERMITS && kind != SNIB_SEMAPHORE &&
                p->now < snib__hold_end(hold))
                check_owned(p, hold->gate);
        }
}

/* ---- The network -------------------------------------------------------------------------------- */

static void connect_pipe(struct party *p, struct pipe *pipe)
{
    if (pipe->state != PIPE_CONNECTING)
        return;
    if (world.refusing) {
        party_down(p, pipe, SNIB_EUNREACHABLE, ECONNREFUSED);
        return;
    }
    if (world.model)
        pipe->server = model_connect(world.model);
    party_up(p, pipe);
}

/* The first commands of a link reach the model. */
static bool carry(struct party *p, struct pipe *pipe, unsigned most)
{
    struct command command;
    unsigned n = 0;
    for (; n < most && pipe->server && party_command(p, pipe, &command); n++) {
        const struct snib__buf *out = snib__link_output(pipe->link);
        model_input(world.model, pipe->server, out->data + out->head, command.bytes);
        party_took(p, pipe, &command);
    }
    return n > 0;
}

static bool fetch(struct party *p, struct pipe *pipe)
{
    const char *bytes;
    size_t n = pipe->server ? model_output(world.model, pipe->server, &bytes) : 0;
    if (n > 0)
        party_send(pipe, bytes, n);
    if (pipe->server && !model_is_open(world.model, pipe->server) &&
        snib__buf_size(&pipe->pending) == 0) {
        party_down(p, pipe, SNIB_EUNREACHABLE, ECONNRESET);
        return true;
    }
    return n > 0;
}

/* The input's server answers the next request; how: 0 well. */
static bool reply(struct party *p, struct pipe *pipe, unsigned how)
{
    char out[REPLY_MAX];
    struct command command;
    if (!party_command(p, pipe, &command))
        return false;
    size_t n = how == 0   ? party_reply(p, pipe, &command, "standalone", out, sizeof out)
               : how == 1 ? reply_any(&world.in, NULL, out, sizeof out)
                          : reply_error(how, out, sizeof out);
    party_took(p, pipe, &command);
    party_send(pipe, out, n);
    return true;
}

static bool serve_pipe(struct party *p, struct pipe *pipe)
{
    bool more = pipe->state == PIPE_CONNECTING;
    connect_pipe(p, pipe);
    if (pipe->state != PIPE_UP)
        return more;
    if (world.model) {
        more |= carry(p, pipe, 100);
        more |= fetch(p, pipe);
    } else {
        more |= reply(p, pipe, 0);
    }
    return more | (party_deliver(p, pipe, PARTY_PENDING) > 0);
}

/* Everything that can happen now does. */
static void settle(void)
{
    bool more = true;
    for (unsigned rounds = 0; more; rounds++) {
        MUST(rounds < 2000); /* no messages without end */
        more = false;
        for (unsigned i = 0; i < world.parties; i++) {
            struct party *p = &world.party[i];
            party_wishes(p);
            for (unsigned j = 0; j < PARTY_PIPES && p->pipes[j].link; j++)
                more |= serve_pipe(p, &p->pipes[j]);
            if (snib__engine_deadline(p->e) <= p->now) {
                party_tick(p);
                more = true;
            }
        }
    }
    check_truth();
}

/* Time passes as in a calm world. */
static void run(snib__time span, unsigned events)
{
    snib__time until = now() + span;
    settle();
    while (now() < until && events-- > 0) {
        snib__time next = until;
        for (unsigned i = 0; i < world.parties; i++) {
            snib__time at = party_next(&world.party[i]);
            next = at < next ? at : next;
        }
        pass(next > now() ? next - now() : SNIB__MS);
        settle();
    }
}

/* ---- Disturbances of the model ------------------------------------------------------------------ */

static void disturb(unsigned what, unsigned which)
{
    const char *name = gates[which % (GATES - 1)].name;
    size_t n = gates[which % (GATES - 1)].n;
    if (what % 9 < 7) /* the others leave the locks alone */
        world.tampered = true;
    switch (what % 9) {
    case 0:
        model_restart(world.model);
        return;
    case 1:
        model_flush_keys(world.model);
        return;
    case 2:
        model_delete(world.model, 0, name, n);
        return;
    case 3:
        model_put_string(world.model, 0, name, n, "foreign");
        return;
    case 4:
        world.step_ns += ((int64_t)which - 128) * (int64_t)SECOND;
        pass(0);
        return;
    case 5:
        model_put_string(world.model, 0, "c", 1, "3");
        model_put_string(world.model, 0, "e", 1, "3");
        return;
    case 6:
        model_put_string(world.model, 0, "redisson_lock_token:{t}", 23, "9223372036854775806");
        return;
    case 7:
        model_restart_with_data(world.model);
        return;
    default:
        model_flush_scripts(world.model);
    }
}

/* ---- The program -------------------------------------------------------------------------------- */

/* Any message on a gate's channel, or the confirmation of its subscription. */
static void say(struct party *p, const uint8_t step[STEP])
{
    static const char *const texts[] = {
        "0",  "1", "2", "", "1:30000:1", "2:3000:1700000000000", "9223372036854775807:1:1",
        "-1", "x"};
    static const char *const verbs[] = {"message", "subscribe", "unsubscribe", "smessage"};
    char out[REPLY_MAX], channel[SNIB__CHANNEL_MAX];
    struct snib__gate *gate = p->gates[step[1] % GATES];
    const char *verb = verbs[step[2] % 4], *text = texts[step[3] % 9];
    if (!gate->kind->channel)
        return;
    size_t n = gate->kind->channel(channel, p->e, gate, 0);
    int used = snprintf(out, sizeof out, "*3\r\n$%zu\r\n%s\r\n$%zu\r\n%.*s\r\n", strlen(verb), verb,
                        n, (int)n, channel);
    if (step[2] % 4 == 1 || step[2] % 4 == 2)
        used += snprintf(out + used, sizeof out - (size_t)used, ":1\r\n");
    else
        used +=
            snprintf(out + used, sizeof out - (size_t)used, "$%zu\r\n%s\r\n", strlen(text), text);
    for (unsigned i = 0; i < PARTY_PIPES && p->pipes[i].link; i++)
        if (snib__link_kind(p->pipes[i].link) == SNIB__PUBSUB)
            party_send(&p->pipes[i], out, (size_t)used);
}

static void on_wire(struct party *p, const uint8_t step[STEP])
{
    size_t n;
    const char *bytes;
    struct pipe *pipe = party_pipe(p, step[1]);
    switch (pipe ? step[0] % 32 : 32) {
    case 16:
        connect_pipe(p, pipe);
        return;
    case 17:
        party_down(p, pipe, step[2] & 1 ? SNIB_EUNREACHABLE : SNIB_ERESOLVE, step[3]);
        return;
    case 18:
        if (world.model)
            carry(p, pipe, step[2]);
        else
            reply(p, pipe, step[2]);
        return;
    case 19:
        if (world.model)
            fetch(p, pipe);
        else
            reply(p, pipe, 1);
        return;
    case 20:
        party_deliver(p, pipe, step[2]);
        return;
    case 21:
        party_deliver(p, pipe, PARTY_PENDING);
        return;
    case 22:
        bytes = take_data(&world.in, step[2] % 32, &n);
        if (!world.model)
            party_send(pipe, bytes, n);
        return;
    default:
        return;
    }
}

static void at_server(struct party *p, const uint8_t step[STEP])
{
    if (!world.model) {
        say(p, step);
        return;
    }
    switch (step[0] % 32) {
    case 24:
        disturb(step[1], step[2]);
        return;
    case 25:
        model_set_faults(world.model, step[1] & 16 ? 0 : 1u << step[1] % 16);
        return;
    case 26:
        world.refusing = step[1] & 1;
        return;
    default:
        return;
    }
}

static void step_on(const uint8_t step[STEP])
{
    struct party *p = &world.party[(step[0] >> 5) % world.parties];
    if (step[0] % 32 < CALLS) {
        world.tampered |= calls_step(p, GATES, step);
        return;
    }
    switch (step[0] % 32) {
    case 10:
        pass(calls_span(step[1]));
        return;
    case 11:
        pass(party_next(p) - p->now < 100000 * SECOND ? party_next(p) - p->now : 0);
        party_tick(p);
        return;
    case 12:
    case 13:
        settle();
        return;
    case 14:
        run(calls_span(step[1]), step[2]);
        return;
    case 15:
        party_tick(p);
        return;
    case 24:
    case 25:
    case 26:
        at_server(p, step);
        return;
    default:
        on_wire(p, step);
    }
}

/* In a calm world nothing stays of what nobody wants any more. */
static void end_calmly(void)
{
    world.refusing = false;
    if (world.model)
        model_set_faults(world.model, 0);
    for (unsigned i = 0; i < world.parties; i++)
        calls_leave_all(&world.party[i]);
    run(200 * SECOND, 10000);
    for (unsigned i = 0; i < world.parties; i++) {
        struct party *p = &world.party[i];
        for (unsigned j = 0; j < PARTY_HOLDS; j++) /* whose releases have ended now */
            MUST(!p->holds[j].hold);
        for (unsigned j = 0; j < GATES; j++) {
            snib__gate_put(p->e, p->gates[j]);
            p->gates[j] = NULL;
        }
        const char *remains = engine_remains(p->e);
        if (remains)
            fuzz_broken(remains, __FILE__, __LINE__);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t head[STEP], step[STEP];
    struct input in = {data, size};
    if (!take_step(&in, head))
        return 0;
    begin(head);
    pass(0);
    world.in = in;
    while (take_step(&world.in, step)) {
        step_on(step);
        check_truth();
    }
    if (head[0] & 2 && world.model)
        end_calmly();
    for (unsigned i = 0; i < world.parties; i++)
        party_end(&world.party[i]);
    if (world.model)
        model_free(world.model);
    return 0;
}
