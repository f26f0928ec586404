/* model_commands.h - random commands for model_check.c. */
#ifndef SNIB_TESTS_MODEL_COMMANDS_H
#define SNIB_TESTS_MODEL_COMMANDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LINKS 4
#define WORDS_MAX 40
#define WORD_BYTES 72

struct command { /* words are text without a NUL */
    size_t n;
    const char *word[WORDS_MAX];
    char room[WORDS_MAX][WORD_BYTES];
    bool timed;     /* the reply has integers of running TTLs or clocks */
    bool unordered; /* the order is that of a hash table and does not count */
    bool loose;     /* only the type counts */
    bool is_script;
    int kills; /* the link whose CLIENT ID it kills; -1: none */
};

void commands_begin(uint64_t seed);
uint64_t commands_draw(uint64_t below);

/* command_make - a random command.  link_ids: the CLIENT ID of each link at the real server. */
void command_make(struct command *c, const long long link_ids[LINKS]);

/* commands_cover_scripts - whether every script of the library is called; if not, says which is missing. */
bool commands_cover_scripts(void);

#endif
