#!/bin/bash
# A soak: builds the recorders and the judge of tests/histories into $SNIB_BUILD/soak (default build/soak), and starts it.
#
#   run.sh [ARGUMENT...]     of soak.py
#   run.sh --check           what is in `./dev test`: the tests of the soak, which soak for a minute
#
# Requires the core in $SNIB_BUILD/core.  Without a JVM or Maven Redisson takes no part, loudly; with SNIB_NEED_JAVA=1 that
# is a failure.
set -euo pipefail
cd "$(dirname "$0")"
export SNIB_BUILD=${SNIB_BUILD:-$(cd ../.. && pwd)/build}
export PYTHONPYCACHEPREFIX=$SNIB_BUILD/pycache
PATH=$SNIB_BUILD/venv/bin:$SNIB_BUILD/tools:$PATH:/usr/local/go/bin
folder=$SNIB_BUILD/soak
mkdir -p "$folder/java"

go build -C ../histories/judge -o "$folder/judge" .
go build -C ../histories/go -o "$folder/recorder-go" .
gcc -std=gnu11 -O2 -Wall -Wextra -Werror -o "$folder/recorder" ../histories/recorder.c -DSNIB_STATIC -I../../core/include \
    "$SNIB_BUILD/core/libsnib.a" -lhiredis -luuid -lssl -lcrypto -pthread
export SNIB_SOAK_LANGUAGES=c,python,go
if [ -n "${SNIB_NEED_JAVA:-}" ] || { command -v java && command -v mvn; } >/dev/null; then
    ../interop/java/build.sh
    version=$(cd ../interop && python -c 'import versions; print(versions.VERSIONS[0])')
    javac -nowarn -cp "$SNIB_BUILD/interop/$version/dependency/*" -d "$folder/java" ../histories/java/Recorder.java
    SNIB_SOAK_LANGUAGES+=,java
else
    printf 'REDISSON TAKES NO PART: this needs a JVM and Maven\n' >&2
fi
[ "${1:-}" = --check ] || exec python soak.py "$@"
PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 python -m pytest -q -p no:cacheprovider -p pytest_timeout -p xdist.plugin -n 3 .
tail -n 1 "$SNIB_BUILD/logs/soak-minute/report.md"
