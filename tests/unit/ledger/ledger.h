/* ledger.h - for tests whose calls ledger.c adds up. */
#ifndef SNIB_UNIT_LEDGER_H
#define SNIB_UNIT_LEDGER_H

#include <stdint.h>

/* Refuse the n-th allocation from now on, and only that; 0: none. */
void ledger_refuse(uint32_t n);

#endif
