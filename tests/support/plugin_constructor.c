/* plugin_constructor.c - a module whose constructor uses the library that another module contains; for unload.c. */
#include <stdlib.h>

int plugin_construct(void);

__attribute__((constructor)) static void construct(void)
{
    if (plugin_construct() != 0)
        abort();
}
