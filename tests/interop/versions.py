"""Which Redissons are tested, and what they have."""

import os

# Newest first: it runs everything, the others the core set.
VERSIONS = ("4.7.0", "3.52.0", "3.24.3", "3.21.3", "3.15.6")
# A part of what is done on deployments, or all of it.
ALL = bool(os.environ.get("SNIB_TEST_ALL"))

# When the type came, where that is later than the oldest version here.
SINCE = {"fenced": (3, 19, 0)}

JAVA_WAITS = "Snib holds, Java waits"
SNIB_WAITS = "Java holds, Snib waits"
