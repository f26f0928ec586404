#!/usr/bin/env python3
"""Draw one of several things.

    drawn.py [--all] WORD THING...

Prints one of the things, always the same for the same WORD and things; with --all all of them, a line each.  With the
hash of a commit as WORD, each thing is drawn again and again in the long run.
"""

import random
import sys

every = sys.argv[1:2] == ["--all"]
word, *things = sys.argv[2 if every else 1 :]
if not things:
    sys.exit(f"usage: {__doc__}")
print(*(things if every else [random.Random(f"{word} {things}").choice(things)]), sep="\n")
