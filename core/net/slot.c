/* slot.c - see slot.h. */
#include "net/slot.h"

#include <string.h>

/* One nibble at a time: the table needs 32 bytes, and keys are short. */
static uint16_t slot_crc16(const char *bytes, size_t n)
{
    static const uint16_t table[16] = {0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5,
                                       0x60c6, 0x70e7, 0x8108, 0x9129, 0xa14a, 0xb16b,
                                       0xc18c, 0xd1ad, 0xe1ce, 0xf1ef};
    uint16_t crc = 0;
    for (size_t i = 0; i < n; i++) {
        uint8_t byte = (uint8_t)bytes[i];
        crc = (uint16_t)(crc << 4 ^ table[(crc >> 12 ^ byte >> 4) & 15]);
        crc = (uint16_t)(crc << 4 ^ table[(crc >> 12 ^ byte) & 15]);
    }
    return crc;
}

uint16_t snib__slot(const char *key, size_t n)
{
    const char *open = memchr(key, '{', n);
    const char *close = open ? memchr(open, '}', n - (size_t)(open - key)) : NULL;
    if (close && close > open + 1) {
        key = open + 1;
        n = (size_t)(close - key);
    }
    return slot_crc16(key, n) % SNIB__SLOTS;
}
