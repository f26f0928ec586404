#!/bin/sh
# Use the Go package from a module outside this tree, in both ways a program gets it: a
# replace directive, and a module proxy that serves a zip of it.  Build, vet, vendor, run under the
# race detector, look for leaked goroutines, link it statically and with an installed core, and check the error of a build
# without cgo.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/snib-outside-XXXXXX")
trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT
module=github.com/snib-lock/snib/go
version=v0.1.0
export GOFLAGS=-modcacherw GOWORK=off

# Each of the ways compiles the core anew, and shows that it is all there; how it is when optimized others show.
compiler=$(go env CC)
printf '#!/bin/sh\nexec %s "$@" -O0\n' "$compiler" >"$work/cc"
chmod +x "$work/cc"
export CC="$work/cc"

fail() {
    echo "outside: $*" >&2
    exit 1
}

program() { # folder: a module that needs only the package from this tree
    mkdir -p "$1"
    cp "$root"/tests/go/program.go.txt "$1/main.go"
    cp "$root"/tests/go/program_test.go.txt "$1/main_test.go"
    cd "$1"
    go mod init example.org/outside >/dev/null 2>&1
}

verify() { # how: everything a user does with the module in the current folder
    go mod tidy >/dev/null 2>&1 || go mod tidy
    go build -o program . || fail "$1: go build"
    go vet ./... || fail "$1: go vet"
    go test -race -count=1 ./... >test.log 2>&1 || { cat test.log; fail "$1: go test -race"; }
    go mod vendor
    for file in snib.c snib.h bridge.h; do
        test -f "vendor/$module/$file" || fail "$1: go mod vendor left out $file"
    done
    go build -mod=vendor -o vendored . || fail "$1: go build -mod=vendor"
    test "$(./vendored)" = "$(./program)" || fail "$1: the vendored core is another"
    test "$(./program)" = "$core" || fail "$1: core $(./program) instead of $core; run bindings/amalgamate.py"
    exported=$(nm -D --defined-only program | grep -cE ' (snib_|snib__|redis)' || true)
    test "$exported" = 0 || fail "$1: the program exports $exported symbols of the core"
}

core=$(cmake -DDIR="$root/core" -P "$root/cmake/build_id.cmake")

program "$work/replaced"
go mod edit -require="$module@$version" -replace="$module=$root/go"
verify replace

# Programs have flags of their own for all C code.
CGO_CFLAGS="-Wall -Werror" go build -o strict . 2>strict.log || { cat strict.log; fail "go build with -Wall -Werror"; }

# OpenSSL would crash in a static program, which is told so instead.
go build -ldflags '-linkmode external -extldflags -static' -o static . 2>static.log || { cat static.log; fail "static: go build"; }
told=$(./static rediss://127.0.0.1:1 2>&1) || fail "static: TLS ends the program: $told"
case $told in
*"TLS needs OpenSSL"*statically*) ;;
*) fail "static: $told" ;;
esac

# OpenSSL is looked for when TLS is used: where it cannot be loaded, that is said, and all else works.
mkdir "$work/none"
: >"$work/none/libcrypto.so.3"
told=$(LD_LIBRARY_PATH="$work/none" ./program rediss://127.0.0.1:1 2>&1) || fail "no OpenSSL: TLS ends the program: $told"
case $told in
*"TLS needs OpenSSL 3 (libssl.so.3), which could not be loaded"*) ;;
*) fail "no OpenSSL: $told" ;;
esac
test "$(LD_LIBRARY_PATH="$work/none" ./program)" = "$core" || fail "no OpenSSL: nothing works"

# With the tag the core is an installed library, which must be of the version that the package is written for.
for part in configure build install; do
    case $part in
    configure) set -- -S "$root" -B "$work/core" -DSNIB_CLI=OFF -DSNIB_TESTS=OFF -DCMAKE_INSTALL_LIBDIR=lib ;;
    build) set -- --build "$work/core" ;;
    install) set -- --install "$work/core" --prefix "$work/installed" ;;
    esac
    cmake "$@" >core.log 2>&1 || { cat core.log; fail "system: $part"; }
done
installed() { # arguments of the program
    LD_LIBRARY_PATH="$work/installed/lib" ./system "$@" 2>&1 || fail "system: $*"
}
export PKG_CONFIG_PATH="$work/installed/lib/pkgconfig"
go build -tags snib_system -o system . || fail "system: go build"
test "$(installed)" = "$core" || fail "system: another core"
readelf -d system | grep -q 'NEEDED.*libsnib\.so' || fail "system: the core is not the library's"
told=$(installed redis://127.0.0.1:1?patience=1ms)
case $told in
*"127.0.0.1:1"*) ;;
*) fail "system: $told" ;;
esac
cp -R "$root/go" "$work/later"
sed -i 's/define SNIB_VERSION_STRING .*/define SNIB_VERSION_STRING "0.2.0"/' "$work/later/snib.h"
go mod edit -replace="$module=$work/later"
go build -mod=mod -tags snib_system -o system . || fail "system: go build for another version"
told=$(installed redis://127.0.0.1:1)
case $told in
*"the installed libsnib is "*", this package is written for 0.2.0") ;;
*) fail "system: another version: $told" ;;
esac
go mod edit -replace="$module=$root/go"

# The layout of https://go.dev/ref/mod#goproxy-protocol in a folder.
proxy=$work/proxy/$module/@v
mkdir -p "$proxy" "$work/zip/$module@$version"
cp "$root"/go/*.go "$root"/go/*.[ch] "$root/go/go.mod" "$work/zip/$module@$version/"
for folder in fencing internal/clock internal/place snibtest; do
    mkdir -p "$work/zip/$module@$version/$folder"
    cp "$root/go/$folder"/* "$work/zip/$module@$version/$folder/"
done
(cd "$work/zip" && cmake -E tar cf "$proxy/$version.zip" --format=zip "$module@$version")
cp "$root/go/go.mod" "$proxy/$version.mod"
echo "$version" >"$proxy/list"
echo "{\"Version\":\"$version\",\"Time\":\"2026-01-01T00:00:00Z\"}" >"$proxy/$version.info"
program "$work/fetched"
cache=$(go env GOMODCACHE)
upstream=$(go env GOPROXY)
export GOMODCACHE="$work/cache" GONOSUMDB="$module"
export GOPROXY="file://$work/proxy,file://$cache/cache/download,$upstream"
go get "$module@$version" >/dev/null 2>&1 || fail "proxy: go get"
verify proxy

# Exactly one error, and it is a sentence.
if CGO_ENABLED=0 go build -o /dev/null . 2>nocgo.log; then
    fail "a build without cgo must not succeed"
fi
grep -q 'undefined: snib_requires_CGO_ENABLED_1_and_a_C_compiler' nocgo.log || {
    cat nocgo.log
    fail "a build without cgo does not say what it needs"
}
test "$(grep -c undefined nocgo.log)" = 1 || { cat nocgo.log; fail "more than one complaint"; }

# The same for another system, where there is no C compiler for it either.
if GOOS=darwin CGO_ENABLED=0 go build -o /dev/null . 2>darwin.log; then
    fail "a build for another system must not succeed"
fi
grep -q 'undefined: snib_runs_on_Linux_only' darwin.log || {
    cat darwin.log
    fail "a build for another system does not say that there is none"
}
test "$(grep -c undefined darwin.log)" = 1 || { cat darwin.log; fail "more than one complaint"; }

echo "outside: replace, proxy, vendor, race, leaks, strict, static, no OpenSSL, system, no cgo and no Linux: core $core"
