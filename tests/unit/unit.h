/* unit.h - cmocka with the headers it forgets to include. */
#ifndef SNIB_UNIT_H
#define SNIB_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#endif
