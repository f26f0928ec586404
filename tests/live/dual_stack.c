/* dual_stack.c - a name with several addresses, of one or of both families, some of which are dead: they refuse, or
 * never reply.  In a network namespace with its own hosts file; the tests are skipped where that is
 * not permitted, and those of both families where there is no IPv6. */
#define _GNU_SOURCE
#include "../support/support.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PORT = 6399, CONNECT_MS = 2000 };

/* Packets to an absent neighbour at the other end of the cable vanish. */
#define SILENT_4 "10.99.0.2"
#define SILENT_6 "fd99::2"

static struct server server;
static bool isolated, ipv6;
static char hosts[64];

static bool isolate(void)
{
    static const char setup[] =
        "ip link set lo up && ip link add silent type veth peer name hole && "
        "ip addr add 10.99.0.1/24 dev silent && ip link set silent up && ip link set hole up && "
        "for n in 2 3 4 5 6; do "
        "ip neigh add 10.99.0.$n lladdr 02:00:00:00:00:99 dev silent; done";
    snprintf(hosts, sizeof hosts, "/tmp/snib-hosts-XXXXXX");
    int fd = mkstemp(hosts);
    assert_true(fd >= 0);
    close(fd);
    return unshare(CLONE_NEWNET | CLONE_NEWNS) == 0 &&
           mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 && system(setup) == 0 &&
           mount(hosts, "/etc/hosts", NULL, MS_BIND, NULL) == 0;
}

/* The same with the other family; false: there is none. */
static bool add_ipv6(void)
{
    return system("ip -6 addr show dev lo | grep -q ::1 && "
                  "ip addr add fd99::1/64 dev silent nodad && for n in 2 3 4 5 6; do "
                  "ip neigh add fd99::$n lladdr 02:00:00:00:00:99 dev silent; done") == 0;
}

static int world_new(void **state)
{
    (void)state;
    char port[8];
    isolated = isolate();
    ipv6 = isolated && add_ipv6();
    snprintf(port, sizeof port, "%d", PORT);
    if (isolated)
        server_start(&server, "--port", port, "--bind", "127.0.0.1", ipv6 ? "::1" : NULL, NULL);
    return 0;
}

static void needs_a_network(void)
{
    if (!isolated)
        skip_because("a network of its own is not permitted here");
}

static void needs_both_families(void)
{
    needs_a_network();
    if (!ipv6)
        skip_because("there is no IPv6 here");
}

static void listen_everywhere(void)
{
    freeReplyObject(
        redisCommand(server.admin, "CONFIG SET bind %s", ipv6 ? "127.0.0.1 ::1" : "127.0.0.1"));
}

static int world_free(void **state)
{
    (void)state;
    server_stop(&server);
    unlink(hosts);
    return 0;
}

/* Gives "both" these addresses, in the file's order. */
static void name(const char *const *addresses)
{
    FILE *file = fopen(hosts, "w");
    assert_non_null(file);
    for (; *addresses; addresses++)
        fprintf(file, "%s both\n", *addresses);
    assert_int_equal(fclose(file), 0);
}

#define NAME(...) name((const char *[]){__VA_ARGS__, NULL})

static snib_client *open_both(int64_t patience_ms)
{
    char url[64];
    snib_client_options options;
    snib_client *client = NULL;
    snib_client_options_init(&options, sizeof options);
    options.connect_timeout_ms = CONNECT_MS;
    options.patience_ms = patience_ms;
    options.lease_ms = 6000;
    snprintf(url, sizeof url, "redis://both:%d", PORT);
    EXPECT(snib_client_open(url, &options, &client, err), SNIB_OK);
    return client;
}

/* Connects at the first attempt, so a dead address does not use up another's time. */
static void connects(void)
{
    int64_t start = now_ms();
    snib_client *client = open_both(60000);
    must_release(must_acquire(must_lock(client, "x"), -1));
    int64_t took = now_ms() - start;
    print_message("          after %d ms\n", (int)took);
    assert_true(took < patient_ms(CONNECT_MS));
    assert_int_equal(must_stats(client).reconnects, 0);
    snib_client_free(client);
}

static void one_is_dead(void **state)
{
    (void)state;
    needs_a_network();
    NAME(SILENT_4, "127.0.0.1");
    connects();
    NAME("10.99.0.1", "127.0.0.1"); /* nothing listens there */
    connects();
    NAME("10.98.0.1", "127.0.0.1"); /* no route */
    connects();
}

static void one_of_both_families_is_dead(void **state)
{
    (void)state;
    needs_both_families();
    NAME("127.0.0.1", "::1");
    connects();
    NAME(SILENT_6, "127.0.0.1");
    connects();
    NAME("::1", SILENT_4);
    connects();
    NAME("fd99::1", "127.0.0.1"); /* nothing listens there */
    connects();
    NAME("10.99.0.1", "::1");
    connects();
    NAME("fd98::1", "::1", "10.98.0.1"); /* no route */
    connects();
}

static void most_are_dead(void **state)
{
    (void)state;
    needs_a_network();
    NAME(SILENT_4, "10.99.0.3", "10.99.0.4", "10.99.0.5", "10.99.0.6", "127.0.0.1");
    connects();
}

static void most_of_both_families_are_dead(void **state)
{
    (void)state;
    needs_both_families();
    NAME(SILENT_6, "fd99::3", "fd99::4", SILENT_4, "10.99.0.3", "10.99.0.4", "127.0.0.1");
    connects();
    NAME(SILENT_4, "10.99.0.3", "10.99.0.4", "10.99.0.5", "10.99.0.6", "::1");
    connects();
}

/* The next connection starts with the address that worked, and uses another once that is dead. */
static void die_in_turn(const char *const alive[2])
{
    NAME(alive[0], alive[1]);
    snib_client *client = open_both(60000);
    snib_lock *lock = must_lock(client, "x");
    snib_hold *hold = must_acquire(lock, -1);
    for (int i = 0; i < 4; i++) {
        uint64_t before = must_stats(client).reconnects;
        server_do(&server, "CONFIG SET bind %s", alive[i % 2]);
        server_do(&server, "CLIENT KILL TYPE normal SKIPME yes");
        AWAIT(must_stats(client).reconnects > before, 4000);
        EXPECT(snib_hold_check(hold, err), SNIB_OK);
    }
    listen_everywhere();
    must_release(hold);
    snib_lock_free(lock);
    snib_client_free(client);
}

static void one_dies(void **state)
{
    (void)state;
    needs_a_network();
    die_in_turn((const char *const[]){"127.0.0.1", "127.0.0.2"});
}

static void one_of_both_families_dies(void **state)
{
    (void)state;
    needs_both_families();
    die_in_turn((const char *const[]){"127.0.0.1", "::1"});
}

/* The name is looked up again at each attempt. */
static void until_one_lives(const char *const *dead, const char *const *then)
{
    snib_hold *hold = NULL;
    snib_error error = {0};
    name(dead);
    snib_client *client = open_both(100);
    snib_lock *lock = must_lock(client, "x");
    int64_t start = now_ms();
    assert_int_equal(snib_lock_acquire(lock, 0, -1, &hold, &error), SNIB_ECONNECT);
    assert_non_null(strstr(error.text, "both:6399"));
    assert_true(now_ms() - start < patient_ms(CONNECT_MS));
    name(then);
    AWAIT(snib_lock_acquire(lock, 0, -1, &hold, &error) == SNIB_OK, 10000);
    must_release(hold);
    snib_lock_free(lock);
    snib_client_free(client);
}

static void all_are_dead(void **state)
{
    (void)state;
    needs_a_network();
    until_one_lives((const char *const[]){SILENT_4, "10.99.0.3", NULL},
                    (const char *const[]){"192.0.2.1", "127.0.0.1", NULL});
}

static void all_of_both_families_are_dead(void **state)
{
    (void)state;
    needs_both_families();
    until_one_lives((const char *const[]){SILENT_6, SILENT_4, NULL},
                    (const char *const[]){"192.0.2.1", "::1", NULL});
}

static int listen_at(const char *address, int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = inet_addr(address)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 64) == 0)
        return fd;
    close(fd);
    return -1;
}

/* The first address connects and says nothing more, like a server that is stopped: the next one is used. */
static void one_only_connects(void **state)
{
    (void)state;
    needs_a_network();
    server_do(&server, "CONFIG SET bind 127.0.0.2");
    int mute = listen_at("127.0.0.1", PORT);
    assert_true(mute >= 0);
    NAME("127.0.0.1", "127.0.0.2");
    snib_client *client = open_both(60000);
    snib_lock *lock = must_lock(client, "x");
    for (int i = 0; i < 3; i++) {
        must_release(must_acquire(lock, -1));
        server_do(&server, "CLIENT KILL TYPE normal SKIPME yes");
    }
    snib_lock_free(lock);
    snib_client_free(client);
    close(mute);
    listen_everywhere();
}

static bool give_ports(const char *range)
{
    FILE *file = fopen("/proc/sys/net/ipv4/ip_local_port_range", "w");
    if (!file)
        return false;
    bool good = fputs(range, file) >= 0;
    return fclose(file) == 0 && good;
}

/* The server's port is one that the kernel gives to connections, and the server is down: a connection that meets itself is
 * none, and is not in the server's way. */
static void meets_itself(void **state)
{
    (void)state;
    enum { FREE_PORT = 6500 };
    int fd;
    needs_a_network();
    if (!give_ports("6500 6500"))
        skip_because("the range of ports may not be set here");
    snib_client_options options;
    snib_client *client = NULL;
    snib_error error = {0};
    snib_hold *hold = NULL;
    snib_client_options_init(&options, sizeof options);
    options.patience_ms = 500;
    EXPECT(snib_client_open("redis://127.0.0.1:6500", &options, &client, err), SNIB_OK);
    assert_int_equal(snib_lock_acquire(must_lock(client, "x"), 0, -1, &hold, &error),
                     SNIB_ECONNECT);
    print_message("          %s\n", error.text);
    assert_int_equal(error.os_error, ECONNREFUSED);
    AWAIT((fd = listen_at("127.0.0.1", FREE_PORT)) >= 0, 10000);
    close(fd);
    snib_client_free(client);
    assert_true(give_ports("32768 60999"));
}

/* A host that has addresses of one family only, besides its loopback ones: names of the loopback interface, as localhost, may
 * have the other. */
static void host_of_one_family(void **state)
{
    (void)state;
    needs_both_families();
    assert_int_equal(system("ip addr del 10.99.0.1/24 dev silent"), 0);
    NAME("127.0.0.1");
    connects();
    NAME("10.98.0.1", "127.0.0.1", "::1"); /* no route */
    connects();
    assert_int_equal(system("ip addr add 10.99.0.1/24 dev silent && ip -6 addr flush dev silent"),
                     0);
    NAME("::1");
    connects();
    NAME("fd98::1", "127.0.0.1");
    connects();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_is_dead),        cmocka_unit_test(one_of_both_families_is_dead),
        cmocka_unit_test(most_are_dead),      cmocka_unit_test(most_of_both_families_are_dead),
        cmocka_unit_test(one_dies),           cmocka_unit_test(one_of_both_families_dies),
        cmocka_unit_test(all_are_dead),       cmocka_unit_test(all_of_both_families_are_dead),
        cmocka_unit_test(one_only_connects),  cmocka_unit_test(meets_itself),
        cmocka_unit_test(host_of_one_family),
    };
    return cmocka_run_group_tests(tests, world_new, world_free);
}
