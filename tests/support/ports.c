/* ports.c - ports for the servers of tests; ports.py, and go/ports_test.go, follow the same rule.
 *
 * A port that the system gave away and that was closed again may be an outgoing connection's before
 * the server has it: those come and go all the time.  So these are below the system's range, in
 * blocks.  A block belongs to the process that has locked its file, so a server that is down keeps
 * its port.
 */
#define _GNU_SOURCE
#include "support.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

/* BUS: each has a second port, so much higher, for a cluster's bus. */
enum { PORTS_FIRST = 11000, PORTS_BLOCK = 32, PORTS_BLOCKS = 300, BUS = 10000 };

void ports_begin(struct ports *ports)
{
    for (int i = 0; i < PORTS_BLOCKS; i++) {
        int block = (getpid() + i) % PORTS_BLOCKS;
        char path[64];
        snprintf(path, sizeof path, "/tmp/snib-ports-%d-%d", (int)getuid(), block);
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) {
            ports->lock = fd;
            ports->next = PORTS_FIRST + block * PORTS_BLOCK;
            ports->end = ports->next + PORTS_BLOCK;
            return;
        }
        close(fd);
    }
    fail_msg("every block of ports is taken");
}

static bool port_is_free(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    bool is_free = bind(fd, (struct sockaddr *)&at, sizeof at) == 0;
    close(fd);
    return is_free;
}

/* 0: there are no more. */
static int ports_try(struct ports *ports)
{
    while (ports->next < ports->end) {
        int port = ports->next++;
        if (port_is_free(port) && port_is_free(port + BUS))
            return port;
    }
    return 0;
}

int ports_take(struct ports *ports)
{
    int port = ports_try(ports);
    if (port == 0)
        fail_msg("a deployment has no more ports than a block has");
    return port;
}

void ports_end(struct ports *ports)
{
    close(ports->lock);
}

int free_port(void)
{
    static struct ports own;
    if (own.end == 0)
        ports_begin(&own);
    int port = ports_try(&own);
    if (port != 0)
        return port;
    own.next = own.end - PORTS_BLOCK;
    return ports_take(&own);
}
