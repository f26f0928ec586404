#!/bin/bash
# Histories of locks, recorded in C, Python, Go and Java, and judged with Porcupine: tests the judge, builds the recorders,
# tests the one in Python, and records.
#
#   run.sh [ARGUMENT...]       of run.py; by default 50 histories, with SNIB_TEST_ALL=1 2,000
#
# The programs are in $SNIB_BUILD/histories (default build/histories).  Requires the core in $SNIB_BUILD/core.  Without a JVM
# or Maven Redisson takes no part, loudly; with SNIB_NEED_JAVA=1 that is a failure.
set -euo pipefail
cd "$(dirname "$0")"
export SNIB_BUILD=${SNIB_BUILD:-$(cd ../.. && pwd)/build}
export PYTHONPYCACHEPREFIX=$SNIB_BUILD/pycache
PATH=$SNIB_BUILD/venv/bin:$SNIB_BUILD/tools:$PATH:/usr/local/go/bin
folder=$SNIB_BUILD/histories
mkdir -p "$folder/java"

go -C judge vet .
go -C judge test -count=1 .
go build -C judge -o "$folder/judge" .
go build -C go -o "$folder/recorder-go" .
gcc -std=gnu11 -O2 -Wall -Wextra -Werror -o "$folder/recorder" recorder.c -DSNIB_STATIC -I../../core/include \
    "$SNIB_BUILD/core/libsnib.a" -lhiredis -luuid -lssl -lcrypto -pthread
PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 python -m pytest -q -p no:cacheprovider -p pytest_timeout test_recorder.py
languages=c,python,go histories=50
[ -z "${SNIB_TEST_ALL:-}" ] || histories=2000
if [ -n "${SNIB_NEED_JAVA:-}" ] || { command -v java && command -v mvn; } >/dev/null; then
    ../interop/java/build.sh
    version=$(cd ../interop && python -c 'import versions; print(versions.VERSIONS[0])')
    javac -nowarn -cp "$SNIB_BUILD/interop/$version/dependency/*" -d "$folder/java" java/Recorder.java
    languages+=,java
else
    printf 'REDISSON TAKES NO PART: this needs a JVM and Maven\n' >&2
fi
exec python run.py --languages "$languages" --histories "$histories" "$@"
