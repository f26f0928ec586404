/* model_dispatch.c - from a request to the function that answers it, or to the refusal that a real server would give. */
#include "model_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool model__text_is(model_text text, const char *word)
{
    return text.n == strlen(word) && strncasecmp(text.p, word, text.n) == 0;
}

/* A command's name in two: "client|id" is a word and the one after it. */
struct words {
    const command *cmd;
    const char *more; /* NULL: there is none */
};

#define LETTERS 26
#define WORD_MAX 20 /* no command's first word is as long */
#define ALIKE 8     /* fewer commands begin with the same letter and are as long */

/* All commands by their first letter and the length of the first word. */
static struct words index_of[LETTERS][WORD_MAX][ALIKE];

static void index_commands(void)
{
    const command *tables[] = {model__value_commands,   model__key_commands,
                               model__list_commands,    model__deploy_commands,
                               model__session_commands, model__script_commands};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        for (const command *cmd = tables[i]; cmd->name != NULL; cmd++) {
            const char *bar = strchr(cmd->name, '|');
            size_t length = strcspn(cmd->name, "|"), n = 0;
            struct words *at = length < WORD_MAX ? index_of[cmd->name[0] - 'a'][length] : NULL;
            while (at != NULL && at[n].cmd != NULL) {
                n++;
            }
            if (at == NULL || n + 1 >= ALIKE) { /* the last one ends the list */
                abort();
            }
            at[n] = (struct words){cmd, bar == NULL ? NULL : bar + 1};
        }
    }
}

/* Whether n bytes are this word of lower-case letters, in either case. */
static bool same_letters(const char *text, const char *word, size_t n)
{
    size_t i = 0;
    while (i < n && (text[i] | 32) == word[i]) {
        i++;
    }
    return i == n;
}

static bool has(const model *m, const command *cmd)
{
    return (!(cmd->flags & COMMAND_REDIS_8_4) || m->version == MODEL_REDIS_8_4) &&
           (!(cmd->flags & COMMAND_VALKEY_9_0) || m->version == MODEL_VALKEY_9_0);
}

const command *model__command(const model *m, const model_text *argv, size_t argc)
{
    static bool indexed;
    if (!indexed) {
        index_commands();
        indexed = true;
    }
    size_t n = argv[0].n;
    unsigned letter = n == 0 || n >= WORD_MAX ? LETTERS : (unsigned)((argv[0].p[0] | 32) - 'a');
    if (letter >= LETTERS) {
        return NULL;
    }
    for (const struct words *at = index_of[letter][n]; at->cmd != NULL; at++) {
        if (same_letters(argv[0].p, at->cmd->name, n) &&
            (at->more == NULL || (argc > 1 && model__text_is(argv[1], at->more)))) {
            return has(m, at->cmd) ? at->cmd : NULL;
        }
    }
    return NULL;
}

bool model__arity_fits(const command *cmd, size_t argc)
{
    return cmd->arity >= 0 ? argc == (size_t)cmd->arity : argc >= (size_t)-cmd->arity;
}

static void unknown_command(call *c)
{
    static const char *const containers[][2] = {
        {"client", "CLIENT"}, {"pubsub", "PUBSUB"}, {"script", "SCRIPT"}};
    char arguments[256] = "";
    size_t n = 0;
    for (size_t i = 0; i < sizeof containers / sizeof *containers; i++) {
        if (!model__text_is(c->argv[0], containers[i][0])) {
            continue;
        }
        if (c->argc == 1) {
            model__error(c, "ERR wrong number of arguments for '%s' command", containers[i][0]);
        } else {
            model__error(c, "ERR unknown subcommand '%.*s'. Try %s HELP.", (int)c->argv[1].n,
                         c->argv[1].p, containers[i][1]);
        }
        return;
    }
    for (size_t i = 1; i < c->argc && n < 128; i++) {
        size_t shown = c->argv[i].n < 128 - n ? c->argv[i].n : 128 - n;
        n += (size_t)snprintf(arguments + n, sizeof arguments - n, "'%.*s' ", (int)shown,
                              c->argv[i].p);
    }
    model__error(c, "ERR unknown command '%.*s', with args beginning with: %s",
                 (int)(c->argv[0].n < 128 ? c->argv[0].n : 128), c->argv[0].p, arguments);
}

bool model__strikes(model *m, unsigned faults)
{
    m->struck |= m->faults & faults;
    return (m->faults & faults) != 0;
}

bool model__is_forbidden(model *m, const command *cmd)
{
    static const struct {
        unsigned fault;
        const char *names;
    } rights[] = {{MODEL_NO_PUBLISH, "publish"},
                  {MODEL_NO_SUBSCRIBE, "subscribe"},
                  {MODEL_NO_INFO, "info"},
                  {MODEL_NO_CLIENT, "client|"},
                  {MODEL_NO_EVALSHA, "evalsha"}};
    for (size_t i = 0; i < sizeof rights / sizeof *rights; i++) {
        if (strncmp(cmd->name, rights[i].names, strlen(rights[i].names)) == 0 &&
            model__strikes(m, rights[i].fault)) {
            return true;
        }
    }
    return false;
}

/* Refusals in the order in which the server checks for them. */
static bool refused(call *c, const command *cmd)
{
    model *m = c->m;
    if (!c->from->authenticated && !(cmd->flags & COMMAND_NOAUTH)) {
        model__strikes(m, MODEL_PASSWORD);
        model__error(c, "NOAUTH Authentication required.");
    } else if (model__is_forbidden(m, cmd)) {
        model__error(c, "NOPERM this user has no permissions to run the '%s' command", cmd->name);
    } else if ((cmd->run == model__subscribe || cmd->run == model__publish) &&
               model__strikes(m, MODEL_NO_CHANNELS)) {
        model__error(c, "NOPERM this user has no permissions to access one of the channels used as "
                        "arguments");
    } else if (cmd->flags & COMMAND_GROWS && model__strikes(m, MODEL_OOM)) {
        model__error(c, MODEL_OOM_TEXT);
    } else if ((cmd->flags & COMMAND_WRITE || cmd->run == model__ping) &&
               model__strikes(m, MODEL_MISCONF)) {
        model__error(c, MODEL_MISCONF_TEXT);
    } else if (cmd->flags & COMMAND_WRITE && model__strikes(m, MODEL_NOREPLICAS)) {
        model__error(c, MODEL_NOREPLICAS_TEXT);
    } else if (cmd->flags & COMMAND_WRITE && model__strikes(m, MODEL_READONLY)) {
        model__error(c, MODEL_READONLY_TEXT);
    } else if (c->from->channel_count + c->from->shard_count > 0 &&
               !(cmd->flags & COMMAND_SUBSCRIBED)) {
        model__error(
            c,
            "ERR Can't execute '%s': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / "
            "RESET are allowed in this context",
            cmd->name);
    } else if (!(cmd->flags & COMMAND_LOADING) && model__strikes(m, MODEL_MASTERDOWN)) {
        model__error(c,
                     "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to "
                     "'no'.");
    } else if (!(cmd->flags & COMMAND_LOADING) && model__strikes(m, MODEL_LOADING)) {
        model__error(c, "LOADING Redis is loading the dataset in memory");
    } else if (!(cmd->flags & COMMAND_NOAUTH) && model__strikes(m, MODEL_BUSY)) {
        model__error(c, "BUSY Redis is busy running a script. You can only call SCRIPT KILL or "
                        "SHUTDOWN NOSAVE.");
    } else {
        return false;
    }
    return true;
}

/* A proxy in front of the server reports an error of its own although the server has executed the
 * command. */
static void spoil_answer(call *c, const command *cmd, size_t answered)
{
    static const char *const texts[] = {"ERR upstream failure", "UNAVAILABLE no backend",
                                        "ERR internal error, request aborted"};
    if (c->m->faults & MODEL_ERROR_AFTER && cmd->run == model__evalsha &&
        model__random(c->m, 2) == 0 && model__strikes(c->m, MODEL_ERROR_AFTER)) {
        c->from->out.n = answered;
        model__error(c, "%s", texts[model__random(c->m, 3)]);
    }
}

void model__execute(model *m, connection *from, const model_text *argv, size_t argc)
{
    call c = {m, from, argv, argc, &from->out};
    const command *cmd = model__command(m, argv, argc);
    size_t before = from->out.n;
    m->requests++;
    if (model__answered_else(&c)) {
        ;
    } else if (cmd == NULL) {
        unknown_command(&c);
    } else if (!model__arity_fits(cmd, argc)) {
        model__error(&c, "ERR wrong number of arguments for '%s' command", cmd->name);
    } else if (!refused(&c, cmd)) {
        size_t answered = from->out.n;
        m->writes += (cmd->flags & COMMAND_WRITE) != 0;
        cmd->run(&c);
        spoil_answer(&c, cmd, answered);
    }
    m->refused = from->out.n > before && from->out.p[before] == '-';
    if (m->watcher != NULL) {
        m->watcher(m->watcher_context, from->id, argv, argc);
    }
    if (from->closing) {
        model__shut(from);
    }
}
