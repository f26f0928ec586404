/* model_lua.c - the model server's scripting: EVAL, EVALSHA, SCRIPT, and redis.* for the scripts.
 *
 * All models of a program share one interpreter, and what it has compiled: a script keeps nothing
 * between two runs, as it cannot set globals.  Which scripts a server has loaded is the model's.
 *
 * A script calls commands through the same table as a client; their RESP2 replies are translated to Lua
 * and the script's result back to RESP2 by the server's rules: nil and false are null, numbers lose
 * their fraction, a table is an error, a status or an array that ends at its first nil.
 */
#include "model_internal.h"

#include <lauxlib.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS 256

typedef struct script {
    struct script *same_sha1, *same_body; /* the next in their buckets */
    size_t number;
    int function; /* its place in the registry */
    char sha1[41];
    size_t n;
    char body[];
} script;

static struct {
    lua_State *lua; /* NULL: no model was made yet */
    int handler;    /* the place of the error handler in the registry */
    model *running;
    size_t count;
    script *by_sha1[BUCKETS], *by_body[BUCKETS];
} shared;

/* An error becomes a table with the place where it was raised. */
static const char handler_text[] =
    "local info = debug.getinfo\n"
    "return function(err)\n"
    "  local at = info(2, 'nSl')\n"
    "  if at and at.what == 'C' then at = info(3, 'nSl') end\n"
    "  if type(err) ~= 'table' then err = {err = 'ERR ' .. tostring(err)} end\n"
    "  if at then err.source = at.source; err.line = at.currentline end\n"
    "  return err\n"
    "end\n";

/* ---- Replies to Lua ----------------------------------------------------------------------------- */

/* The number of ":<number>\r\n", "$<number>\r\n", "*<number>\r\n". */
static long long number_of(const char *reply)
{
    bool negative = reply[1] == '-';
    unsigned long long number = 0;
    for (const char *at = reply + 1 + negative; *at >= '0' && *at <= '9'; at++) {
        number = number * 10 + (unsigned long long)(*at - '0');
    }
    return (long long)(negative ? 0 - number : number);
}

static const char *to_lua(lua_State *lua, const char *reply)
{
    const char *end = strchr(reply, '\r');
    long long number = number_of(reply);
    const char *rest = end + 2;
    switch (*reply) {
    case ':':
        lua_pushnumber(lua, (lua_Number)number);
        break;
    case '$':
        if (number < 0) {
            lua_pushboolean(lua, 0);
        } else {
            lua_pushlstring(lua, rest, (size_t)number);
            rest += number + 2;
        }
        break;
    case '*':
        if (number < 0) {
            lua_pushboolean(lua, 0);
            break;
        }
        lua_newtable(lua);
        for (int i = 1; i <= number; i++) {
            rest = to_lua(lua, rest);
            lua_rawseti(lua, -2, i);
        }
        break;
    default:
        lua_newtable(lua);
        lua_pushlstring(lua, reply + 1, (size_t)(end - reply - 1));
        lua_setfield(lua, -2, *reply == '-' ? "err" : "ok");
    }
    return rest;
}

static bool field_text(lua_State *lua, const char *name, char *out, size_t cap)
{
    lua_pushstring(lua, name);
    lua_rawget(lua, -2);
    bool is_text = lua_type(lua, -1) == LUA_TSTRING;
    if (is_text) {
        snprintf(out, cap, "%s", lua_tostring(lua, -1));
    }
    lua_pop(lua, 1);
    return is_text;
}

/* Converts and pops the value on top of the stack. */
static void from_lua(call *c, lua_State *lua)
{
    char text[1024];
    size_t n;
    const char *p;
    switch (lua_type(lua, -1)) {
    case LUA_TSTRING:
        p = lua_tolstring(lua, -1, &n);
        model__bulk(c, p, n);
        break;
    case LUA_TBOOLEAN:
        if (lua_toboolean(lua, -1)) {
            model__integer(c, 1);
        } else {
            model__null(c);
        }
        break;
    case LUA_TNUMBER:
        model__integer(c, (long long)lua_tonumber(lua, -1));
        break;
    case LUA_TTABLE:
        if (field_text(lua, "err", text, sizeof text)) {
            model__error(c, "%s", text);
        } else if (field_text(lua, "ok", text, sizeof text)) {
            model__status(c, text);
        } else {
            size_t count = 0;
            buffer elements = {0};
            buffer *reply = c->reply;
            c->reply = &elements;
            luaL_checkstack(lua, 4, "nested too deeply");
            for (lua_rawgeti(lua, -1, 1); !lua_isnil(lua, -1);
                 lua_rawgeti(lua, -1, (int)count + 1)) {
                from_lua(c, lua);
                count++;
            }
            lua_pop(lua, 1);
            c->reply = reply;
            model__array(c, count);
            model__append(reply, elements.p, elements.n);
            model__drop(&elements);
        }
        break;
    default:
        model__null(c);
    }
    lua_pop(lua, 1);
}

/* ---- redis.* ------------------------------------------------------------------------------------ */

/* "-CODE text" keeps its code, any other text is an ERR. */
static void push_error(lua_State *lua, const char *text)
{
    const char *space = strchr(text, ' ');
    lua_newtable(lua);
    if (text[0] == '-' && space != NULL) {
        lua_pushstring(lua, text + 1);
    } else {
        lua_pushfstring(lua, "ERR %s", text[0] == '-' ? text + 1 : text);
    }
    lua_setfield(lua, -2, "err");
}

static const char *refusal(model *m, const command *cmd, size_t argc)
{
    if (cmd == NULL) {
        return "ERR Unknown Redis command called from script";
    }
    if (!model__arity_fits(cmd, argc)) {
        return "ERR Wrong number of args calling Redis command from script";
    }
    if (cmd->flags & COMMAND_NOSCRIPT) {
        return "ERR This Redis command is not allowed from script";
    }
    if (cmd->run == model__publish && model__strikes(m, MODEL_NO_CHANNELS)) {
        return "ERR The user executing the script can't publish to the channel mentioned in the "
               "command";
    }
    if (model__is_forbidden(m, cmd)) {
        return "ERR The user executing the script can't run this command or subcommand";
    }
    if (cmd->flags & COMMAND_WRITE && model__strikes(m, MODEL_NOREPLICAS)) {
        return MODEL_NOREPLICAS_TEXT;
    }
    if (cmd->flags & COMMAND_WRITE && model__strikes(m, MODEL_READONLY)) {
        return MODEL_READONLY_TEXT;
    }
    if (cmd->flags & COMMAND_WRITE && model__strikes(m, MODEL_MISCONF)) {
        return MODEL_MISCONF_TEXT;
    }
    if (m->script_oom && !m->script_wrote && cmd->flags & COMMAND_GROWS) {
        model__strikes(m, MODEL_OOM);
        return MODEL_OOM_TEXT;
    }
    return NULL;
}

/* Runs the command on the stack and pushes its reply; true if that is an error. */
static bool call_command(lua_State *lua)
{
    model *m = shared.running;
    model_text few[32], *argv = few;
    int argc = lua_gettop(lua);
    if (argc == 0) {
        push_error(lua, "Please specify at least one argument for this redis lib call");
        return true;
    }
    for (int i = 0; i < argc; i++) {
        if (lua_type(lua, i + 1) == LUA_TNUMBER) {
            char text[64];
            model__number_text(lua_tonumber(lua, i + 1), text);
            lua_pushstring(lua, text);
            lua_replace(lua, i + 1);
        }
        if (lua_type(lua, i + 1) != LUA_TSTRING) {
            push_error(lua, "Lua redis lib command arguments must be strings or integers");
            return true;
        }
    }
    if ((size_t)argc > sizeof few / sizeof *few) {
        argv = lua_newuserdata(lua, (size_t)argc * sizeof *argv);
    }
    for (int i = 0; i < argc; i++) {
        argv[i].p = lua_tolstring(lua, i + 1, &argv[i].n);
    }
    buffer *reply = &m->script_reply;
    call c = {m, m->script->from, argv, (size_t)argc, reply};
    reply->n = 0;
    const command *cmd = model__command(m, argv, (size_t)argc);
    const char *why_not = refusal(m, cmd, (size_t)argc);
    why_not = why_not == NULL ? model__not_here(m, cmd, argv, (size_t)argc) : why_not;
    if (why_not != NULL) {
        model__error(&c, "%s", why_not);
    } else {
        m->script_wrote |= (cmd->flags & COMMAND_WRITE) != 0;
        m->writes += (cmd->flags & COMMAND_WRITE) != 0;
        cmd->run(&c);
    }
    model__append(reply, "", 1);
    to_lua(lua, reply->p);
    return reply->p[0] == '-';
}

static int redis_call(lua_State *lua)
{
    return call_command(lua) ? lua_error(lua) : 1;
}

static int redis_pcall(lua_State *lua)
{
    call_command(lua);
    return 1;
}

static int redis_error_reply(lua_State *lua)
{
    if (lua_gettop(lua) != 1 || lua_type(lua, 1) != LUA_TSTRING) {
        push_error(lua, "wrong number or type of arguments");
        return 1;
    }
    const char *text = lua_tostring(lua, 1);
    push_error(lua, text[0] == '-' ? text : lua_pushfstring(lua, "-%s", text));
    return 1;
}

static int redis_status_reply(lua_State *lua)
{
    if (lua_gettop(lua) != 1 || lua_type(lua, 1) != LUA_TSTRING) {
        push_error(lua, "wrong number or type of arguments");
        return 1;
    }
    lua_newtable(lua);
    lua_pushvalue(lua, 1);
    lua_setfield(lua, -2, "ok");
    return 1;
}

static int redis_replicate_commands(lua_State *lua)
{
    lua_pushboolean(lua, 1);
    return 1;
}

static int missing_global(lua_State *lua)
{
    return luaL_error(lua, "Script attempted to access nonexistent global variable '%s'",
                      lua_tostring(lua, 2));
}

static int new_global(lua_State *lua)
{
    return luaL_error(lua, "Attempt to modify a readonly table");
}

static void open_library(lua_State *lua, const char *name, lua_CFunction open)
{
    lua_pushcfunction(lua, open);
    lua_pushstring(lua, name);
    lua_call(lua, 1, 0);
}

/* ---- The interpreter ---------------------------------------------------------------------------- */

static void open_shared(void)
{
    static const luaL_Reg redis[] = {{"call", redis_call},
                                     {"pcall", redis_pcall},
                                     {"error_reply", redis_error_reply},
                                     {"status_reply", redis_status_reply},
                                     {"replicate_commands", redis_replicate_commands},
                                     {NULL, NULL}};
    lua_State *lua = lua_newstate(model__lua_memory, NULL);
    if (lua == NULL) {
        abort();
    }
    shared.lua = lua;
    lua_gc(lua, LUA_GCSETPAUSE, 150); /* memory that is soon used again is still in a cache */
    open_library(lua, "", luaopen_base);
    open_library(lua, LUA_TABLIBNAME, luaopen_table);
    open_library(lua, LUA_STRLIBNAME, luaopen_string);
    open_library(lua, LUA_MATHLIBNAME, luaopen_math);
    open_library(lua, LUA_DBLIBNAME, luaopen_debug);
    if (luaL_loadbuffer(lua, handler_text, sizeof handler_text - 1, "@handler") != 0) {
        abort();
    }
    lua_call(lua, 0, 1);
    shared.handler = luaL_ref(lua, LUA_REGISTRYINDEX);
    luaL_register(lua, "redis", redis);
    lua_pushnil(lua);
    lua_setglobal(lua, LUA_DBLIBNAME);
    lua_newtable(lua);
    lua_pushcfunction(lua, missing_global);
    lua_setfield(lua, -2, "__index");
    lua_pushcfunction(lua, new_global);
    lua_setfield(lua, -2, "__newindex");
    lua_setmetatable(lua, LUA_GLOBALSINDEX);
    lua_settop(lua, 0);
}

void model__lua_open(model *m)
{
    if (shared.lua == NULL) {
        open_shared();
    }
    m->scripts = NULL;
    m->script_cap = 0;
}

void model__lua_close(model *m)
{
    free(m->scripts);
    model__drop(&m->script_reply);
}

void model__lua_forget(model *m)
{
    if (m->script_cap > 0) {
        memset(m->scripts, 0, m->script_cap * sizeof *m->scripts);
    }
}

/* ---- Scripts ------------------------------------------------------------------------------------ */

static script **bucket_of(const char *sha1)
{
    unsigned at = 0;
    for (int i = 0; i < 4; i++) {
        at = at * 31 + (unsigned char)sha1[i];
    }
    return &shared.by_sha1[at % BUCKETS];
}

/* The script of this sha1 if the server has it; else NULL. */
static const script *find_script(const model *m, const char sha1[41])
{
    const script *found = *bucket_of(sha1);
    while (found != NULL && memcmp(found->sha1, sha1, 41) != 0) {
        found = found->same_sha1;
    }
    return found != NULL && found->number < m->script_cap && m->scripts[found->number] ? found
                                                                                       : NULL;
}

/* Compiles a text that is new to the program.  NULL: an error was sent. */
static script *compile(call *c, model_text body, script **bucket)
{
    lua_State *lua = shared.lua;
    if (luaL_loadbuffer(lua, body.p, body.n, "@user_script") != 0) {
        model__error(c, "ERR Error compiling script (new function): %s", lua_tostring(lua, -1));
        lua_pop(lua, 1);
        return NULL;
    }
    script *made = model__grow(NULL, sizeof *made + body.n);
    *made = (script){.same_body = *bucket,
                     .number = shared.count++,
                     .function = luaL_ref(lua, LUA_REGISTRYINDEX),
                     .n = body.n};
    memcpy(made->body, body.p, body.n);
    model_sha1(body.p, body.n, made->sha1);
    made->same_sha1 = *bucket_of(made->sha1);
    *bucket_of(made->sha1) = made;
    *bucket = made;
    return made;
}

/* The server has the script from now on.  NULL: an error was sent. */
static const script *load_script(call *c, model_text body)
{
    model *m = c->m;
    script **bucket = &shared.by_body[body.n % BUCKETS], *found = *bucket;
    while (found != NULL &&
           (found->n != body.n || (body.n > 0 && memcmp(found->body, body.p, body.n) != 0))) {
        found = found->same_body;
    }
    found = found == NULL ? compile(c, body, bucket) : found;
    if (found == NULL) {
        return NULL;
    }
    if (found->number >= m->script_cap) {
        size_t cap = 2 * found->number + 16;
        m->scripts = model__grow(m->scripts, cap * sizeof *m->scripts);
        memset(m->scripts + m->script_cap, 0, (cap - m->script_cap) * sizeof *m->scripts);
        m->script_cap = cap;
    }
    m->scripts[found->number] = true;
    return found;
}

static void set_global_array(lua_State *lua, const char *name, const model_text *texts, size_t n)
{
    lua_createtable(lua, (int)n, 0);
    for (size_t i = 0; i < n; i++) {
        lua_pushlstring(lua, texts[i].p, texts[i].n);
        lua_rawseti(lua, -2, (int)i + 1);
    }
    lua_pushstring(lua, name);
    lua_insert(lua, -2);
    lua_rawset(lua, LUA_GLOBALSINDEX);
}

static bool key_count(call *c, size_t *out)
{
    long long n;
    if (!model__parse_integer(c->argv[2], &n)) {
        model__error(c, "ERR value is not an integer or out of range");
    } else if (n > (long long)c->argc - 3) {
        model__error(c, "ERR Number of keys can't be greater than number of args");
    } else if (n < 0) {
        model__error(c, "ERR Number of keys can't be negative");
    } else {
        *out = (size_t)n;
        return true;
    }
    return false;
}

static void reply_script_error(call *c, lua_State *lua, const char *sha1)
{
    char text[512], source[128];
    if (!field_text(lua, "err", text, sizeof text)) {
        snprintf(text, sizeof text, "ERR unknown error");
    }
    lua_getfield(lua, -1, "line");
    int line = (int)lua_tointeger(lua, -1);
    lua_pop(lua, 1);
    if (field_text(lua, "source", source, sizeof source)) {
        model__error(c, "%s script: %s, on %s:%d.", text, sha1, source, line);
    } else {
        model__error(c, "%s", text);
    }
    lua_pop(lua, 1);
}

static void run_script(call *c, const script *what, size_t keys)
{
    model *m = c->m;
    lua_State *lua = shared.lua;
    lua_rawgeti(lua, LUA_REGISTRYINDEX, shared.handler);
    lua_rawgeti(lua, LUA_REGISTRYINDEX, what->function);
    set_global_array(lua, "KEYS", c->argv + 3, keys);
    set_global_array(lua, "ARGV", c->argv + 3 + keys, c->argc - 3 - keys);
    shared.running = m;
    m->script = c;
    m->script_wrote = false;
    m->script_oom = (m->faults & MODEL_OOM) != 0;
    if (lua_pcall(lua, 0, 1, -2) != 0) {
        reply_script_error(c, lua, what->sha1);
    } else {
        from_lua(c, lua);
    }
    m->script = NULL;
    lua_settop(lua, 0);
}

static void run_eval(call *c)
{
    size_t keys;
    const script *what = key_count(c, &keys) ? load_script(c, c->argv[1]) : NULL;
    if (what != NULL) {
        run_script(c, what, keys);
    }
}

void model__evalsha(call *c)
{
    char sha1[41] = "";
    size_t keys;
    for (size_t i = 0; i < 40 && c->argv[1].n == 40; i++) {
        char x = c->argv[1].p[i];
        sha1[i] = x >= 'A' && x <= 'Z' ? (char)(x + 'a' - 'A') : x;
    }
    if (c->argv[1].n == 40 && !key_count(c, &keys)) {
        return;
    }
    const script *what = c->argv[1].n == 40 ? find_script(c->m, sha1) : NULL;
    if (what == NULL) {
        model__error(c, "NOSCRIPT No matching script. Please use EVAL.");
        return;
    }
    run_script(c, what, keys);
}

static void run_script_load(call *c)
{
    const script *loaded = load_script(c, c->argv[2]);
    if (loaded != NULL) {
        model__bulk(c, loaded->sha1, 40);
    }
}

static void run_script_exists(call *c)
{
    model__array(c, c->argc - 2);
    for (size_t i = 2; i < c->argc; i++) {
        char sha1[41] = "";
        snprintf(sha1, sizeof sha1, "%.*s", (int)c->argv[i].n, c->argv[i].p);
        model__integer(c, find_script(c->m, sha1) != NULL);
    }
}

static void run_script_flush(call *c)
{
    model__lua_forget(c->m);
    model__status(c, "OK");
}

const command model__script_commands[] = {
    {"eval", run_eval, -3, COMMAND_NOSCRIPT},
    {"evalsha", model__evalsha, -3, COMMAND_NOSCRIPT},
    {"script|exists", run_script_exists, -3, COMMAND_NOSCRIPT},
    {"script|flush", run_script_flush, 2, COMMAND_NOSCRIPT},
    {"script|load", run_script_load, 3, COMMAND_NOSCRIPT},
    {NULL, NULL, 0, 0},
};
