#include "net/script.h"

#include "net/resp.h"

#include <stdio.h>
#include <string.h>

#define SCRIPT_HASHED 60 /* bytes of "$7\r\nEVALSHA\r\n$40\r\n<sha1>\r\n" */

int snib__script_begin(struct snib__buf *out, int script, uint32_t keys, uint32_t argc)
{
    if (snib__resp_begin(out, 3 + argc) < 0)
        return -1;
    char *place = snib__buf_reserve(out, SCRIPT_HASHED + 7);
    if (!place)
        return -1;
    /* Only the hash differs between scripts, and most have one key. */
    memcpy(place, "$7\r\nEVALSHA\r\n$40\r\n", 18);
    memcpy(place + 18, snib__script_texts[script].sha1, 40);
    memcpy(place + 58, "\r\n$1\r\n1\r\n", 9);
    out->len += keys == 1 ? SCRIPT_HASHED + 7 : SCRIPT_HASHED;
    return keys == 1 ? 0 : snib__resp_arg_int(out, keys);
}

int snib__script_spell(struct snib__buf *out, size_t at, int script, int publish)
{
    const struct snib__script_text *text = snib__script_of(script, publish);
    char head[48];
    size_t head_n =
        (size_t)snprintf(head, sizeof head, "$4\r\nEVAL\r\n$%zu\r\n", (size_t)text->length);
    size_t more = head_n + text->length + 2 - SCRIPT_HASHED;
    if (!snib__buf_reserve(out, more))
        return -1;
    char *start = out->data + out->head + at, *end = out->data + out->len;
    char *hashed = (char *)memchr(start, '\n', (size_t)(end - start)) + 1; /* after "*N\r\n" */
    memmove(hashed + SCRIPT_HASHED + more, hashed + SCRIPT_HASHED,
            (size_t)(end - hashed) - SCRIPT_HASHED);
    memcpy(hashed, head, head_n);
    memcpy(hashed + head_n, text->text, text->length);
    memcpy(hashed + head_n + text->length, "\r\n", 2);
    out->len += more;
    return 0;
}

const struct snib__script_text *snib__script_of(int script, int publish)
{
    const struct snib__script_text *text = publish == SNIB__SHARDED ? &snib__script_sharded[script]
                                           : publish == SNIB__BOTH  ? &snib__script_both[script]
                                                                    : &snib__script_texts[script];
    return text->text ? text : &snib__script_texts[script];
}

void snib__script_vary(struct snib__buf *out, size_t at, int script, int publish)
{
    char *command = out->data + out->head + at;
    char *sha1 = (char *)memchr(command, '\n', 16) + 1 + 18; /* after the number of arguments */
    memcpy(sha1, snib__script_of(script, publish)->sha1, 40);
}
