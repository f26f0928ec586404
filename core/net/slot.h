/* slot.h - a key's cluster slot: CRC16 (XMODEM) of its hash tag or all of it, modulo 16384. */
#ifndef SNIB__SLOT_H
#define SNIB__SLOT_H

#include <stddef.h>
#include <stdint.h>

#define SNIB__SLOTS 16384

/* snib__slot - as CLUSTER KEYSLOT: the bytes between the first opening brace and the first closing
 * brace after it, if there are any, decide alone. */
uint16_t snib__slot(const char *key, size_t n);

#endif
