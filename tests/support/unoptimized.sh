#!/bin/sh
# A C compiler that does not optimize.  Compiling the core takes a fifth of the time, for checks of what is compiled and
# how it is put together:  CC=tests/support/unoptimized.sh
exec cc "$@" -O0 -U_FORTIFY_SOURCE
