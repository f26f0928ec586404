/* conform.h - what the files of the C interpreter share. */
#ifndef SNIB_TESTS_CONFORM_H
#define SNIB_TESTS_CONFORM_H

#include <hiredis/hiredis.h>
#include <stdbool.h>

#define MEMORY "memory://"

enum { SERVERS_MAX = 8 };

void die(const char *what, const char *detail);

/* Memory servers, by the index of their address.  A build without the test kit has none. */
redisContext *connect_memory(const char *url, int index); /* starts it */
bool memory_is(int index);
void memory_stop(int index);
void memory_fault(int index, const char *name, const char *argument);

#endif
