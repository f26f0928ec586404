#include "net/script.h"

#include "net/resp.h"

#include <string.h>

int snib__script_begin(struct snib__buf *out, int script, uint32_t keys, uint32_t argc)
{
    if (snib__resp_begin(out, 3 + argc) < 0)
        return -1;
    /* "$7\r\nEVALSHA\r\n$40\r\n<sha1>\r\n" is the same for every call of a script but for the hash. */
    char *place = snib__buf_reserve(out, 60);
    if (!place)
        return -1;
    memcpy(place, "$7\r\nEVALSHA\r\n$40\r\n", 18);
    memcpy(place + 18, snib__script_texts[script].sha1, 40);
    memcpy(place + 58, "\r\n", 2);
    out->len += 60;
    return snib__resp_arg_int(out, keys);
}
