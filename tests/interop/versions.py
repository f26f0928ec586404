"""The tested versions of Redisson, and the types they have."""

import os

# Newest first: it runs all tests, the others the core set.
VERSIONS = ("4.7.0", "3.52.0", "3.24.3", "3.21.3", "3.15.6")
# Whether to run all tests on deployments, or only some.
ALL = bool(os.environ.get("SNIB_TEST_ALL"))

# The version that introduced a type, if later than the oldest one here.
SINCE = {"fenced": (3, 19, 0)}

JAVA_WAITS = "Snib holds, Java waits"
SNIB_WAITS = "Java holds, Snib waits"
