/* slot.h - the slot of a key in a cluster: CRC16 (XMODEM) of its hash tag, or of all of it, modulo 16384. */
#ifndef SNIB__SLOT_H
#define SNIB__SLOT_H

#include <stddef.h>
#include <stdint.h>

#define SNIB__SLOTS 16384

/* snib__slot - as CLUSTER KEYSLOT says it: what stands between the first opening brace and the first closing
 * one after it, unless that is nothing, decides alone. */
uint16_t snib__slot(const char *key, size_t n);

#endif
