/* main.c - the snib command: its arguments and its help. */
#include "cli.h"
#include "signals.h"

#include <fcntl.h>
#include <getopt.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "usage: snib run NAME... [KIND] [--fenced] [--wait TIME] [--busy-code N] [--lease TIME]\n"
    "                [--max-hold TIME] [--on-loss term|kill|ignore] [--rest end|wait|ignore]\n"
    "                [--kill-after TIME] [--keep-password] -- COMMAND ARG...\n"
    "       snib hold NAME... [KIND] [--fenced] [--wait TIME] [--busy-code N] [--lease TIME]\n"
    "                [--max-hold TIME]\n"
    "       snib info NAME\n"
    "       snib list [PATTERN]\n"
    "       snib top [PATTERN] [--interval TIME] [--limit N] [--once]\n"
    "       snib stats [PATTERN] [--limit N] [--output FILE]\n"
    "       snib release --force [KIND] NAME\n"
    "       snib latch NAME [set N | down | wait [--wait TIME] [--busy-code N]]\n"
    "       snib doctor [PREFIX]\n"
    "       snib acl PREFIX [KIND]\n"
    "       snib scripts [--kind KIND]...\n"
    "       snib plan [KIND] [--locks N] [--rate N] [--clients N] [--contended PERCENT]\n"
    "                [--waiters N] [--lease TIME] [--shards N] [--replicas N [--durable]]\n"
    "                [--quorum N] [--server-speed N]\n"
    "\n"
    "  run      run COMMAND while holding the lock NAME, with SNIB_LOCK in its environment;\n"
    "           several names: all of these locks, or none\n"
    "  hold     hold the lock NAME until Ctrl-C, SIGTERM, SIGHUP or SIGQUIT\n"
    "  info     show what NAME is, its holders and its waiters\n"
    "  list     list the locks that exist now with their kinds; PATTERN as in Redis's SCAN,\n"
    "           such as 'orders:*'\n"
    "  top      show the locks that exist, those with the most waiting processes first, until q "
    "or\n"
    "           Ctrl-C\n"
    "  stats    print the locks that exist, their holders and waiting processes, in Prometheus'\n"
    "           text format\n"
    "  release  delete the lock NAME, regardless of its holder\n"
    "  latch    print the count of the latch NAME; set: make it N if it is 0; down: count down by\n"
    "           one; wait: wait until it is 0\n"
    "  doctor   inspect the server and try each kind of lock, on names that begin with PREFIX;\n"
    "           say what this means for the locks, and what to change\n"
    "  acl      print the rules for a user who may use locks whose names begin with PREFIX\n"
    "  scripts  load Snib's scripts into the server, all or those of each --kind, for users who "
    "may\n"
    "           run them (EVALSHA) but not load or send them (SCRIPT LOAD, EVAL)\n"
    "  plan     print what so many locks cost their server and their clients, and how many "
    "servers\n"
    "           they need; asks no server\n"
    "\n"
    "KIND is what the lock is; at most one:\n"
    "  --fair          first come, first served across all processes\n"
    "  --read          one of many readers\n"
    "  --write         the only writer, and no reader\n"
    "  --permits N     one of N permits; sets N if it was never set; release, acl and\n"
    "                  plan: without N\n"
    "  --spin          like Redisson's spin lock: waiters poll, a release sends no message\n"
    "  --plain         a string, like the locks of redis-py, redsync, redislock and node-redlock\n"
    "  --semaphore, --latch  release and acl only\n"
    "Without KIND, run and hold take a mutex, and release deletes what it finds.\n"
    "A NAME that begins with - follows --: snib info -- -x; snib run -- -x -- COMMAND\n"
    "\n"
    "  --fenced        SNIB_TOKEN in COMMAND's environment: a number greater than any earlier\n"
    "                  holder's, and SNIB_OWNER; for a mutex, --fair and --write\n"
    "  --wait TIME     wait this long: 10s, 1.5s, 500ms, 1h30m; 0 tries once; default: no limit\n"
    "  --busy-code N   exit with N instead of 121 and 122 if the lock is not free in time\n"
    "  --lease TIME    if snib or its machine dies, the lock is free after this time;\n"
    "                  default: the URL's lease, else 30s\n"
    "  --max-hold TIME the lock counts as lost after this time; default: the URL's\n"
    "                  max_hold, else no limit\n"
    "  --on-loss WHAT  if the lock is lost while COMMAND runs: term (SIGTERM, later SIGKILL; the\n"
    "                  default), kill (SIGKILL) or ignore\n"
    "  --rest WHAT     processes that COMMAND leaves running: end (SIGTERM, later SIGKILL, then\n"
    "                  release the lock; the default), wait (hold the lock until they end by\n"
    "                  themselves) or ignore (they continue without the lock)\n"
    "  --kill-after TIME  from that SIGTERM to SIGKILL; 0: SIGKILL at once; default 5s\n"
    "  --keep-password leave SNIB_PASSWORD and the password of SNIB_URL in COMMAND's environment\n"
    "  --force         required by release\n"
    "  --interval TIME between two refreshes of top; default 2s\n"
    "  --limit N       top: show at most N locks; stats: give figures of at most N, and only\n"
    "                  totals of the others; default 1000\n"
    "  --once          top: print what there is now, and end\n"
    "  --output FILE   stats: write to FILE, which is replaced in one step\n"
    "  --kind KIND     scripts: mutex, fair, fenced, read, write, permits, spin, plain, semaphore "
    "or\n"
    "                  latch; may be repeated\n"
    "  --locks N       plan: locks that are held at a time, for longer than a third of the lease\n"
    "  --rate N        plan: locks that are taken and released per second\n"
    "  --clients N     plan: clients, such as processes; default 1\n"
    "  --contended PERCENT  plan: share of --rate that has to wait for another client\n"
    "  --waiters N     plan: waits of a client for a lock, at a time\n"
    "  --shards N      plan: masters of a cluster; default 1: no cluster\n"
    "  --replicas N    plan: replicas of each master\n"
    "  --durable       plan: grants wait for replicas, as with the option durability\n"
    "  --quorum N      plan: quorum locks on N servers\n"
    "  --server-speed N  plan: speed of a core of your server; 1: as fast as the one measured\n"
    "  --url URL       the server; default $SNIB_URL, else redis://127.0.0.1:6379;\n"
    "                  $SNIB_USERNAME, $SNIB_PASSWORD and $SNIB_PASSWORD_FILE\n"
    "                  replace the URL's user name and password;\n"
    "                  run, hold: three or more for a quorum lock, held on most of these servers;\n"
    "                  scripts: one or more\n"
    "  --json          print JSON; top: a line at each refresh; run, hold, stats: only messages\n"
    "  -q, --quiet     do not say that the lock is waited for, not free, or held\n"
    "  -v, --verbose   report on stderr what happens to the connection and to the holds\n"
    "  -h, --help, --version\n"
    "\n"
    "exit codes: run returns COMMAND's, or 128+N if signal N ended it; hold and top return 0 "
    "after\n"
    "a signal; run and hold 128+N if signal N came before the lock was granted.  snib's own:\n"
    "    1  release: nothing was held; latch set: it was set already; doctor: something should be\n"
    "       changed; plan: more servers are needed\n"
    "  121  --wait 0 was given and the lock is held\n"
    "  122  the wait ended before the lock was free\n"
    "  123  the lock was lost while COMMAND ran (not with --on-loss ignore), or while it was held\n"
    "  124  the server is unreachable or answered with an error\n"
    "  125  bad arguments, or an internal failure of snib\n"
    "  126  COMMAND cannot be run\n"
    "  127  COMMAND was not found\n";

enum option_id {
    OPTION_WAIT = 256,
    OPTION_LEASE,
    OPTION_MAX_HOLD,
    OPTION_BUSY_CODE,
    OPTION_ON_LOSS,
    OPTION_REST,
    OPTION_KILL_AFTER,
    OPTION_KEEP_PASSWORD,
    OPTION_FENCED,
    OPTION_FAIR, /* the first kind */
    OPTION_READ,
    OPTION_WRITE,
    OPTION_PERMITS,
    OPTION_SPIN,
    OPTION_PLAIN,
    OPTION_SEMAPHORE,
    OPTION_LATCH, /* the last kind */
    OPTION_FORCE,
    OPTION_INTERVAL, /* the first of top */
    OPTION_LIMIT,
    OPTION_ONCE, /* the last of top */
    OPTION_OUTPUT,
    OPTION_LOCKS, /* the first of plan's numbers */
    OPTION_CLIENTS,
    OPTION_RATE,
    OPTION_CONTENDED,
    OPTION_WAITERS,
    OPTION_SHARDS,
    OPTION_REPLICAS,
    OPTION_QUORUM,
    OPTION_SERVER_SPEED, /* the last */
    OPTION_DURABLE,
    OPTION_KIND, /* of scripts */
    OPTION_URL,
    OPTION_JSON,
    OPTION_QUIET,
    OPTION_VERBOSE,
    OPTION_HELP,
    OPTION_VERSION
};

static struct option options[] = {
    {"wait", required_argument, NULL, OPTION_WAIT},
    {"lease", required_argument, NULL, OPTION_LEASE},
    {"max-hold", required_argument, NULL, OPTION_MAX_HOLD},
    {"busy-code", required_argument, NULL, OPTION_BUSY_CODE},
    {"on-loss", required_argument, NULL, OPTION_ON_LOSS},
    {"rest", required_argument, NULL, OPTION_REST},
    {"kill-after", required_argument, NULL, OPTION_KILL_AFTER},
    {"keep-password", no_argument, NULL, OPTION_KEEP_PASSWORD},
    {"fenced", no_argument, NULL, OPTION_FENCED},
    {"fair", no_argument, NULL, OPTION_FAIR},
    {"read", no_argument, NULL, OPTION_READ},
    {"write", no_argument, NULL, OPTION_WRITE},
    {"permits", required_argument, NULL, OPTION_PERMITS}, /* release: none, see take_command() */
    {"spin", no_argument, NULL, OPTION_SPIN},
    {"plain", no_argument, NULL, OPTION_PLAIN},
    {"semaphore", no_argument, NULL, OPTION_SEMAPHORE},
    {"latch", no_argument, NULL, OPTION_LATCH},
    {"force", no_argument, NULL, OPTION_FORCE},
    {"interval", required_argument, NULL, OPTION_INTERVAL},
    {"limit", required_argument, NULL, OPTION_LIMIT},
    {"once", no_argument, NULL, OPTION_ONCE},
    {"output", required_argument, NULL, OPTION_OUTPUT},
    {"locks", required_argument, NULL, OPTION_LOCKS},
    {"clients", required_argument, NULL, OPTION_CLIENTS},
    {"rate", required_argument, NULL, OPTION_RATE},
    {"contended", required_argument, NULL, OPTION_CONTENDED},
    {"waiters", required_argument, NULL, OPTION_WAITERS},
    {"shards", required_argument, NULL, OPTION_SHARDS},
    {"replicas", required_argument, NULL, OPTION_REPLICAS},
    {"quorum", required_argument, NULL, OPTION_QUORUM},
    {"server-speed", required_argument, NULL, OPTION_SERVER_SPEED},
    {"durable", no_argument, NULL, OPTION_DURABLE},
    {"kind", required_argument, NULL, OPTION_KIND},
    {"url", required_argument, NULL, OPTION_URL},
    {"json", no_argument, NULL, OPTION_JSON},
    {"quiet", no_argument, NULL, OPTION_QUIET},
    {"verbose", no_argument, NULL, OPTION_VERBOSE},
    {"help", no_argument, NULL, OPTION_HELP},
    {"version", no_argument, NULL, OPTION_VERSION},
    {0},
};

#define STATS_LIMIT 1000 /* a time series for each figure of each lock */

#define BIT(option) (UINT64_C(1) << ((option)-256))
#define RUN_OPTIONS (BIT(OPTION_KEEP_PASSWORD + 1) - BIT(OPTION_WAIT))
#define KIND_OPTIONS (BIT(OPTION_LATCH + 1) - BIT(OPTION_FENCED))
#define COMMAND_ONLY                                                                               \
    (BIT(OPTION_ON_LOSS) | BIT(OPTION_REST) | BIT(OPTION_KILL_AFTER) | BIT(OPTION_KEEP_PASSWORD))
#define RELEASE_ONLY (BIT(OPTION_SEMAPHORE) | BIT(OPTION_LATCH) | BIT(OPTION_FORCE))
#define TOP_OPTIONS (BIT(OPTION_ONCE + 1) - BIT(OPTION_INTERVAL))
#define PLAN_OPTIONS (BIT(OPTION_DURABLE + 1) - BIT(OPTION_LOCKS))
#define EVERYWHERE (BIT(OPTION_VERSION + 1) - BIT(OPTION_URL))

/* A command and the options it knows. */
static const struct command {
    const char *name;
    int (*run)(const struct cli *cli);
    bool needs_name;
    int names_max;
    uint64_t options;
} commands[] = {
    {"run", cli_run, true, CLI_NAMES_MAX,
     EVERYWHERE | RUN_OPTIONS | (KIND_OPTIONS & ~RELEASE_ONLY)},
    {"hold", cli_hold, true, CLI_NAMES_MAX,
     EVERYWHERE | (RUN_OPTIONS & ~COMMAND_ONLY) | (KIND_OPTIONS & ~RELEASE_ONLY)},
    {"info", cli_info, true, 1, EVERYWHERE},
    {"list", cli_list, false, 1, EVERYWHERE},
    {"top", cli_top, false, 1, EVERYWHERE | TOP_OPTIONS},
    {"stats", cli_stats, false, 1, EVERYWHERE | BIT(OPTION_LIMIT) | BIT(OPTION_OUTPUT)},
    {"release", cli_release, true, 1, EVERYWHERE | KIND_OPTIONS | RELEASE_ONLY},
    {"latch", cli_latch, true, 3, EVERYWHERE | BIT(OPTION_WAIT) | BIT(OPTION_BUSY_CODE)},
    {"doctor", cli_doctor, false, 1, EVERYWHERE},
    {"acl", cli_acl, true, 1,
     EVERYWHERE | (KIND_OPTIONS & ~BIT(OPTION_FORCE)) | BIT(OPTION_SEMAPHORE) | BIT(OPTION_LATCH)},
    {"plan", cli_plan, false, 0,
     (EVERYWHERE & ~BIT(OPTION_URL)) | PLAN_OPTIONS | (KIND_OPTIONS & ~RELEASE_ONLY) |
         BIT(OPTION_LEASE)},
    {"scripts", cli_scripts, false, 0, EVERYWHERE | BIT(OPTION_KIND)},
};

/* Whether the command takes a lock and holds it. */
static bool is_taking(const struct command *command)
{
    return command->run == cli_run || command->run == cli_hold;
}

/* ---- Arguments ------------------------------------------------------------------------------- */

/* Read one of three words.  -1 if it is none of them. */
static int read_word(const char *text, const char *const words[3])
{
    for (int i = 0; i < 3; i++)
        if (strcmp(text, words[i]) == 0)
            return i;
    return -1;
}

static int take_on_loss(const char *value, struct cli *cli)
{
    static const char *const words[] = {"term", "kill", "ignore"};
    int word = read_word(value, words);
    cli->on_loss = (enum cli_on_loss)word;
    return word >= 0 ? 0 : cli_usage(cli, "--on-loss needs term, kill or ignore, not ", value);
}

static int take_rest(const char *value, struct cli *cli)
{
    static const char *const words[] = {"end", "wait", "ignore"};
    int word = read_word(value, words);
    cli->rest = (enum cli_rest)word;
    return word >= 0 ? 0 : cli_usage(cli, "--rest needs end, wait or ignore, not ", value);
}

static const char *option_name(int id)
{
    size_t i = 0;
    while (options[i].val != id)
        i++;
    return options[i].name;
}

/* Take an option whose value is a time. */
static int take_time(int id, const char *value, struct cli *cli)
{
    const struct {
        int id;
        int64_t *to, min_ms;
        const char *min;
    } times[] = {{OPTION_WAIT, &cli->wait_ms, 0, "0"},
                 {OPTION_LEASE, &cli->lease_ms, 100, "100ms"},
                 {OPTION_MAX_HOLD, &cli->max_hold_ms, 1, "1ms"},
                 {OPTION_KILL_AFTER, &cli->kill_after_ms, 0, "0"},
                 {OPTION_INTERVAL, &cli->interval_ms, 100, "100ms"}};
    size_t i = 0;
    char text[96];
    while (times[i].id != id)
        i++;
    int64_t ms = cli_read_ms(value);
    *times[i].to = ms;
    if (ms >= times[i].min_ms && ms <= CLI_TIME_MAX_MS)
        return 0;
    snprintf(text, sizeof text, "--%s needs a time from %s to 24h, such as 1.5s or 1m30s, not ",
             option_name(id), times[i].min);
    return cli_usage(cli, text, value);
}

/* Take an option that selects the lock's kind. */
static int take_kind(int id, struct cli *cli)
{
    static const int32_t kinds[] = {SNIB_FAIR, SNIB_READ,  SNIB_WRITE,     SNIB_PERMITS,
                                    SNIB_SPIN, SNIB_PLAIN, SNIB_SEMAPHORE, SNIB_LATCH};
    int32_t kind = kinds[id - OPTION_FAIR];
    if (cli->kind && cli->kind != kind)
        return cli_usage(cli, "a lock has only one kind, so do not add --", option_name(id));
    cli->kind = kind;
    return 0;
}

/* Take one more URL.  Returns 0, or an exit code after reporting the error. */
static int take_url(const char *value, struct cli *cli)
{
    static const char too_many[] = "a quorum has at most 15 servers, so this --url is too many: ";
    if (cli->urls_n == CLI_URLS_MAX)
        return cli_usage(cli, too_many, value);
    cli->urls[cli->urls_n++] = value;
    cli->url = cli->urls[0];
    cli->has_url = true;
    return 0;
}

/* Take one option.  Returns 0, or an exit code after reporting the error. */
static int take_option(int id, const char *value, struct cli *cli)
{
    if (id >= OPTION_LOCKS && id <= OPTION_SERVER_SPEED)
        return plan_take(id - OPTION_LOCKS, value, cli);
    switch (id) {
    case OPTION_WAIT:
    case OPTION_LEASE:
    case OPTION_MAX_HOLD:
    case OPTION_KILL_AFTER:
    case OPTION_INTERVAL:
        return take_time(id, value, cli);
    case OPTION_BUSY_CODE:
        cli->busy_code = (int)cli_read_number(value, 0, 255);
        return cli->busy_code >= 0
                   ? 0
                   : cli_usage(cli, "--busy-code needs a number from 0 to 255, not ", value);
    case OPTION_ON_LOSS:
        return take_on_loss(value, cli);
    case OPTION_REST:
        return take_rest(value, cli);
    case OPTION_KEEP_PASSWORD:
        cli->keeps_password = true;
        return 0;
    case OPTION_FENCED:
        cli->flags = SNIB_LOCK_FENCED;
        return 0;
    case OPTION_PERMITS:
        cli->permits = value ? cli_read_number(value, 1, INT32_MAX) : 0;
        if (cli->permits < 0)
            return cli_usage(cli, "--permits needs a number from 1 to 2147483647, not ", value);
        return take_kind(id, cli);
    case OPTION_FAIR:
    case OPTION_READ:
    case OPTION_WRITE:
    case OPTION_SPIN:
    case OPTION_PLAIN:
    case OPTION_SEMAPHORE:
    case OPTION_LATCH:
        return take_kind(id, cli);
    case OPTION_KIND:
        return scripts_take_kind(value, cli);
    case OPTION_FORCE:
        cli->is_forced = true;
        return 0;
    case OPTION_LIMIT:
        cli->limit = cli_read_number(value, 1, INT32_MAX);
        return cli->limit > 0
                   ? 0
                   : cli_usage(cli, "--limit needs a number from 1 to 2147483647, not ", value);
    case OPTION_OUTPUT:
        cli->output = value;
        return 0;
    case OPTION_ONCE:
        cli->is_once = true;
        return 0;
    case OPTION_DURABLE:
        cli->is_durable = true;
        return 0;
    case OPTION_URL:
        return take_url(value, cli);
    case OPTION_JSON:
        cli->is_json = true;
        return 0;
    case OPTION_QUIET:
        cli->is_quiet = true;
        return 0;
    case OPTION_VERBOSE:
        cli->is_verbose = true;
        return 0;
    default:
        return 0;
    }
}

/* Report the option that getopt_long() did not take; id: what it returned.  Returns an exit code. */
static int refuse_option(int id, char **argv, const struct cli *cli)
{
    char text[64];
    if (optopt >= 256) {
        snprintf(text, sizeof text, "--%s %s", option_name(optopt),
                 id == ':' ? "needs a value" : "takes no value");
        return cli_usage(cli, text, NULL);
    }
    if (optopt) {
        snprintf(text, sizeof text, "-%c", optopt);
        return cli_usage(cli, "unknown or ambiguous option: ", text);
    }
    const char *word = argv[optind - 1];
    char *name = strndup(word, strcspn(word, "=")); /* the value may be a secret */
    if (!name)
        abort();
    int code = cli_usage(cli, "unknown or ambiguous option: ", name);
    free(name);
    return code;
}

/* Take the first argument, the command.  Returns 0, or an exit code after reporting the error. */
static int take_command(const char *name, const struct cli *cli, const struct command **out)
{
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(commands[i].name, name) == 0)
            *out = &commands[i];
    if (!*out)
        return cli_usage(cli, "no such command: ", name);
    for (struct option *option = options; option->name; option++)
        if (option->val == OPTION_PERMITS && !is_taking(*out))
            option->has_arg = no_argument;
    return 0;
}

/* Take an argument that is neither the command nor an option.  Returns 0, or an exit code after reporting the error. */
static int take_name(const char *name, const struct command *command, struct cli *cli)
{
    if (cli->names_n == command->names_max)
        return cli_usage(cli, "too many arguments: ", name);
    cli->names[cli->names_n++] = name;
    return 0;
}

/* Take what follows --, `rest`: COMMAND, or names if there are none yet, up to another -- and COMMAND.  For run the first
 * such name begins with -, because what else stands there is COMMAND, and its name was forgotten, or was empty in a
 * script; and so it does where a name is optional.  Returns 0, or an exit code after reporting the error. */
static int take_rest_of_line(char **rest, const struct command *command, struct cli *cli)
{
    bool lacks_name = command->needs_name && command->run != cli_run;
    bool has_names = cli->names_n == 0 && *rest && (lacks_name || **rest == '-');
    for (; has_names && *rest && strcmp(*rest, "--") != 0; rest++) {
        int code = take_name(*rest, command, cli);
        if (code != 0)
            return code;
    }
    if (has_names && *rest)
        rest++;
    cli->command = *rest ? rest : NULL;
    return 0;
}

/* Determine the lock's kind from all options.  Returns 0, or an exit code after reporting the
 * error. */
static int settle_kind(struct cli *cli, const struct command *command)
{
    bool is_fenced = cli->flags & SNIB_LOCK_FENCED;
    if (is_fenced && cli->kind == 0) {
        cli->kind = SNIB_FENCED;
        cli->flags = 0;
    } else if (is_fenced && cli->kind != SNIB_FAIR && cli->kind != SNIB_WRITE) {
        return cli_usage(cli, "--fenced goes with --fair, --write or no kind", NULL);
    } else if (cli->kind == 0 && is_taking(command)) {
        cli->kind = SNIB_MUTEX;
    }
    return 0;
}

/* Check that several --url make a quorum.  Returns 0, or an exit code after reporting the error. */
static int check_quorum(const struct cli *cli, const struct command *command)
{
    if (!is_taking(command))
        return cli_usage(cli, "only run, hold and scripts take more than one --url, not ",
                         command->name);
    if (cli->urls_n == 2)
        return cli_usage(cli, "a quorum has 3 to 15 servers: add a third --url, or give one", NULL);
    if (cli->names_n > 1)
        return cli_usage(
            cli,
            "several --url make a quorum of one lock, but this is a second name: ", cli->names[1]);
    if (cli->kind || cli->flags)
        return cli_usage(
            cli, "several --url make a quorum of mutexes, so do not add a kind or --fenced", NULL);
    return 0;
}

/* Check that the command takes what was given.  Returns 0, or an exit code after reporting the
 * error. */
static int check(const struct cli *cli, const struct command *command, uint64_t given)
{
    char text[64];
    for (const struct option *option = options; option->name; option++) {
        if (!(given & BIT(option->val) & ~command->options))
            continue;
        snprintf(text, sizeof text, "--%s cannot be used with ", option->name);
        return cli_usage(cli, text, command->name);
    }
    if (command->run == cli_release && !cli->is_forced)
        return cli_usage(cli, "release requires --force", NULL);
    if (command->needs_name && !cli->name)
        return cli_usage(cli,
                         command->run == cli_acl ? "a prefix of names is missing after "
                                                 : "a lock's name is missing after ",
                         command->name);
    if (command->run == cli_doctor && cli->name && strstr(cli->name, "://"))
        return cli_usage(cli, "name the server by --url, not as an argument of ", command->name);
    if (cli->is_once && given & BIT(OPTION_INTERVAL))
        return cli_usage(cli, "--interval cannot be used with --once", NULL);
    if (cli->names_n > 1 && cli->flags & SNIB_LOCK_FENCED)
        return cli_usage(cli,
                         "--fenced is for one lock, but this is a second name: ", cli->names[1]);
    if (cli->urls_n > 1 && command->run != cli_scripts) {
        int code = check_quorum(cli, command);
        if (code != 0)
            return code;
    }
    if (command->run == cli_run && !cli->command)
        return cli_usage(cli, "a command is missing; write it after --, or use snib hold NAME",
                         NULL);
    if (command->run == cli_hold && cli->command)
        return cli_usage(cli, "hold runs no command; use run NAME -- COMMAND", NULL);
    if (command->run != cli_run && cli->command)
        return cli_usage(cli, "only run takes a command after --, not ", command->name);
    return 0;
}

/* Let no socket take the place of a standard descriptor that is missing, where messages are written.  Reading and
 * writing fail as they did, and COMMAND does not inherit it. */
static void fill_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)!open("/dev/null", (fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
}

/* If the output could not be written, the exit code says so. */
static int finish(const struct cli *cli, int code)
{
    bool is_bad = fflush(stdout) != 0 || ferror(stdout);
    return is_bad ? cli_fail_errno(cli, "standard output") : code;
}

static void on_end(int sig)
{
    _exit(EXIT_SIGNAL + sig);
}

int main(int argc, char **argv)
{
    const char *url = getenv("SNIB_URL");
    struct cli cli = {.url = url && *url ? url : "redis://127.0.0.1:6379",
                      .has_url = url && *url,
                      .wait_ms = -1,
                      .kill_after_ms = 5000,
                      .interval_ms = 2000,
                      .busy_code = -1};
    const struct command *command = NULL;
    uint64_t given = 0;
    int id;
    fill_descriptors();
    if (signals_is_first()) /* the kernel sends it only what it handles */
        signals_on_end(on_end);
    setlocale(LC_CTYPE, "C.UTF-8");
    opterr = 0;
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        cli.is_json = cli.is_json || strcmp(argv[i], "--json") == 0; /* for earlier errors, too */
    while ((id = getopt_long(argc, argv, "-:vqh", options, NULL)) != -1) {
        int code = 0;
        if (id == '?' || id == ':')
            return refuse_option(id, argv, &cli);
        id = id == 'h' ? OPTION_HELP : id == 'q' ? OPTION_QUIET : id == 'v' ? OPTION_VERBOSE : id;
        if (id == OPTION_HELP) {
            fputs(help, stdout);
            return finish(&cli, 0);
        }
        if (id == OPTION_VERSION) {
            printf("snib %s (%s)\n", snib_version_string(), snib_build_id());
            return finish(&cli, 0);
        }
        if (id != 1)
            code = take_option(id, optarg, &cli);
        else if (!command)
            code = take_command(optarg, &cli, &command);
        else
            code = take_name(optarg, command, &cli);
        if (code != 0)
            return code;
        if (id >= 256)
            given |= BIT(id);
    }
    if (!command)
        return cli_usage(&cli,
                         "a command is missing: run, hold, info, list, top, stats, release, latch, "
                         "doctor, acl, scripts or plan",
                         NULL);
    int code = take_rest_of_line(argv + optind, command, &cli);
    if (code != 0)
        return code;
    cli.name = cli.names[0];
    if (cli.limit == 0)
        cli.limit = command->run == cli_stats ? STATS_LIMIT : INT32_MAX;
    code = check(&cli, command, given);
    if (code == 0)
        code = settle_kind(&cli, command);
    if (code == 0)
        code = command->run(&cli);
    return finish(&cli, code);
}
