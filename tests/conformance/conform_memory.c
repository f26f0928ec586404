/* conform_memory.c - the memory servers of the C interpreter. */
#include "conform.h"

#ifdef CONFORM_MEMORY
#include <snib_testing.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static snib_memory *memories[SERVERS_MAX];

/* Start it and connect to it, as the library does. */
redisContext *connect_memory(const char *url, int index)
{
    snib_error error;
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    struct stat ids;
    if (snib_memory_start(url + strlen(MEMORY), &memories[index], &error) != SNIB_OK)
        die("memory server", error.text);
    if (stat("/proc/self/ns/pid", &ids) != 0)
        die("memory server", "no namespace of process ids");
    int n = snprintf(to.sun_path + 1, sizeof to.sun_path - 1, "snib-memory/%u/%d/%s",
                     (unsigned)ids.st_ino, (int)getpid(), url + strlen(MEMORY));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, length) != 0)
        die("memory server", url);
    return redisConnectFd(fd);
}

bool memory_is(int index)
{
    return memories[index] != NULL;
}

void memory_stop(int index)
{
    snib_memory_stop(memories[index]);
    memories[index] = NULL;
}

void memory_fault(int index, const char *name, const char *argument)
{
    snib_error error;
    if (snib_memory_fault(memories[index], name, argument, &error) != SNIB_OK)
        die("memory server", error.text);
}
#else
redisContext *connect_memory(const char *url, int index)
{
    (void)index;
    die("built without the test kit", url);
    return NULL;
}

bool memory_is(int index)
{
    (void)index;
    return false;
}

void memory_stop(int index)
{
    (void)index;
}

void memory_fault(int index, const char *name, const char *argument)
{
    (void)index, (void)name, (void)argument;
}
#endif
