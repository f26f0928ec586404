#!/bin/bash
# Fencing tokens on real databases: builds the programs in C, Go and Java, then runs the tests.
#
#   run.sh [PYTEST ARGUMENT...]
#
# The programs are in $SNIB_BUILD/fencing (default build/fencing).  Requires the core in
# $SNIB_BUILD/core.
set -euo pipefail
cd "$(dirname "$0")"
export SNIB_BUILD=${SNIB_BUILD:-$(cd ../.. && pwd)/build}
export PYTHONPYCACHEPREFIX=$SNIB_BUILD/pycache
PATH=$SNIB_BUILD/venv/bin:$SNIB_BUILD/tools:$PATH:/usr/local/go/bin
folder=$SNIB_BUILD/fencing
mkdir -p "$folder"

gcc -std=gnu11 -O2 -Wall -Wextra -Werror -o "$folder/c" peer.c -DSNIB_STATIC -I../../core/include \
    -I"$(pg_config --includedir)" "$SNIB_BUILD/core/libsnib.a" -lhiredis -luuid -lssl -lcrypto -lpq -pthread
go build -C go -o "$folder/go" .
../interop/java/build.sh
# The other plugins would only cost time.
exec python -m pytest -q -p no:cacheprovider -p no:anyio -p no:hypothesispytest "$@"
