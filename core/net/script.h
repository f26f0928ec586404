/* script.h - the Lua scripts as sent to the server; generated table, see core/lua/embed.cmake. */
#ifndef SNIB__SCRIPT_H
#define SNIB__SCRIPT_H

#include "net/buf.h"
#include "snib_scripts.h"

#include <stdint.h>

/* snib__script_begin - append "EVALSHA sha keys" with room for argc arguments (keys included). */
int snib__script_begin(struct snib__buf *out, int script, uint32_t keys, uint32_t argc);

/* snib__script_spell - replace the hash by the script itself: the command at byte `at` of the
 * buffer becomes an EVAL.  0, or -1 when out of memory (then nothing has changed). */
int snib__script_spell(struct snib__buf *out, size_t at, int script, int publish);

/* How releases are published. */
enum snib__publish { SNIB__CLASSIC, SNIB__SHARDED, SNIB__BOTH };

/* snib__script_of - the variant of a script for that way of publishing. */
const struct snib__script_text *snib__script_of(int script, int publish);

/* snib__script_vary - switch the command at `at` of out, begun by
 * snib__script_begin(), to that variant. */
void snib__script_vary(struct snib__buf *out, size_t at, int script, int publish);

#endif
