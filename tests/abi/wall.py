"""The wall: core/locks, core/engine and core/net know no thread, socket, clock or randomness.

    wall.py OBJECT...   the compiled files of those folders

Any symbol that they need and do not define themselves must be on the short list below, so no system call, lock or clock,
and nothing of the core's other folders, can slip in unnoticed.  Prints one closing line and exits with 0, or names the offending symbols.
"""

import re
import subprocess
import sys

MEMORY = "malloc calloc realloc free qsort memchr memcmp memcpy memmem memmove memset explicit_bzero strdup"
TEXT = "snprintf vsnprintf strchr strrchr strcmp strcspn strerror strlen strncmp strnlen strstr strtol strtoll strtoull"
PROTOCOL = "redisReaderCreateWithFunctions redisReaderFeed redisReaderFree redisReaderGetReply"
ALLOWED = set(f"{MEMORY} {TEXT} {PROTOCOL}".split())
# Symbols that compilers and sanitizers add.
ADDED = re.compile(r"_GLOBAL_OFFSET_TABLE_|__stack_chk_fail|__(asan|ubsan|tsan|sanitizer)_.*|__tls_get_addr")


def needs(objects):
    listing = subprocess.run(["nm", "-u", *objects], check=True, capture_output=True, text=True).stdout
    for line in listing.splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == "U":
            yield re.sub(r"__(\w+)_chk$", r"\1", words[1]) if words[1] != "__stack_chk_fail" else words[1]


def defined(objects):
    listing = subprocess.run(["nm", "--defined-only", *objects], check=True, capture_output=True, text=True).stdout
    return {words[2] for line in listing.splitlines() if len(words := line.split()) == 3}


def main(objects):
    folders = {folder for folder in ("engine", "locks", "net") if any(f"/core/{folder}/" in o for o in objects)}
    if len(folders) < 3:
        sys.exit(f"wall: objects of {sorted(folders)} only")
    strangers = sorted(
        name
        for name in set(needs(objects)) - defined(objects)
        if name not in ALLOWED and not ADDED.fullmatch(name)
    )
    if strangers:
        sys.exit(f"wall: core/engine, core/locks or core/net call {', '.join(strangers)}")
    print(f"wall: {len(objects)} objects call nothing but memory, text and hiredis' reader")


main(sys.argv[1:])
