#!/bin/bash
# Tests against real Redisson: builds what is missing, runs the tests, compares the table in
# docs/redisson.md with the results.
# After a change: tests/interop/table.py build/interop.json writes the table.
#
#   run.sh [PYTEST ARGUMENT...]
#
# Sentinels, clusters and TLS are tested in part; SNIB_TEST_ALL=1: every kind in every language.  SNIB_TEST_HALF=WORD: of
# each test half of the cases, drawn by the word.
#
# The jars, the classes and the Go program are in $SNIB_BUILD/interop (default build/interop) and
# are rebuilt only when their sources change.  Without a JVM or Maven the tests against Redisson are
# skipped, loudly, as are those in Go and those against redsync and redislock without Go; with SNIB_NEED_JAVA=1 that is a
# failure.  What is our own and does not compile always is one.
set -euo pipefail
cd "$(dirname "$0")"
BUILD=${SNIB_BUILD:-$PWD/../../build}
mkdir -p "$BUILD/interop"
BUILD=$(cd "$BUILD" && pwd)
export SNIB_BUILD=$BUILD PYTHONPYCACHEPREFIX=$BUILD/pycache
PATH=$BUILD/venv/bin:$BUILD/tools:$PATH:/usr/local/go/bin

say() { printf '%s\n' "$*" >&2; }

# built LOG FOLDER SOURCE... -- COMMAND...: run COMMAND unless FOLDER has these very sources.
built() {
    local log=$1 folder=$2 sources=() sum
    shift 2
    while [ "$1" != -- ]; do sources+=("$1"); shift; done
    shift
    sum=$(cat "${sources[@]}" | sha256sum)
    [ -e "$folder" ] && [ "$(cat "$folder.sum" 2>/dev/null)" = "$sum" ] && return
    rm -f "$folder.sum"
    "$@" >"$log" 2>&1 || { tail -n 20 "$log" >&2; return 1; }
    printf '%s\n' "$sum" >"$folder.sum"
}

if command -v java >/dev/null && command -v mvn >/dev/null; then
    java/build.sh || say "Redisson's side could not be built"
else
    say "REDISSON WILL NOT BE TESTED: this needs a JVM and Maven"
fi
if command -v go >/dev/null; then
    built "$BUILD/interop/gopeer.log" "$BUILD/interop/gopeer" go/go.mod go/go.sum go/main.go -- \
        go build -C go -o "$BUILD/interop/gopeer" . || say "redsync and redislock could not be built"
    # Go itself detects changes.
    go build -C ../conformance/go -o "$BUILD/interop/conform-go" .
else
    say "REDSYNC AND REDISLOCK WILL NOT BE TESTED: this needs Go"
fi

rm -f "$BUILD/interop.json"
status=0
# Several at once, because most tests wait; those that share a client of Redisson or a deployment stay together.
# Each process would load and rewrite the other plugins, which these tests do not use.
PYTHONPATH=../support python -m pytest -q -p no:cacheprovider -p no:anyio -p no:hypothesispytest -p halves -n 3 --dist loadgroup --max-worker-restart 0 "$@" || status=$?
# docs/redisson.md must match the results; a subset of the tests is not compared.
if [ $# = 0 ] && [ $status = 0 ] && [ -s "$BUILD/interop.json" ]; then
    python table.py --check ${SNIB_TEST_ALL:+--all} ${SNIB_TEST_HALF:+--half} "$BUILD/interop.json"
fi
exit $status
