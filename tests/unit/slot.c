/* slot.c - slots, as given by a server's CLUSTER KEYSLOT. */
#include "unit.h"

#include "net/slot.h"

#include <string.h>

static void slots_are_those_of_the_server(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        uint16_t slot;
    } known[] = {
        {"", 0},
        {"a", 15495},
        {"foo", 12182},
        {"123456789", 12739}, /* 0x31c3, the check value of CRC16/XMODEM */
        {"{user1000}.following", 3443},
        {"{user1000}.followers", 3443},
        {"user1000", 3443},
        {"foo{}{bar}", 8363},
        {"foo{{bar}}zap", 4015},
        {"{bar", 4015},
        {"foo{bar}{zap}", 5061},
        {"bar", 5061},
        {"redisson_lock__channel:{bar}", 5061},
    };
    for (size_t i = 0; i < COUNT(known); i++)
        if (snib__slot(known[i].key, strlen(known[i].key)) != known[i].slot)
            fail_msg("%s: %u", known[i].key, snib__slot(known[i].key, strlen(known[i].key)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_are_those_of_the_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
