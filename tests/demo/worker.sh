#!/bin/sh
# The buyer in the shell: every purchase is a separate process under `snib run`.
set -eu

# The wall clock, converted to CLOCK_BOOTTIME, which no command prints in microseconds.
now_us() { echo $(($(date +%s%N) / 1000 - DEMO_BOOT_US)); }

# shellcheck disable=SC2153
log() { printf '{"event":"%s","by":0,"at":%s,%s}\n' "$@" >>"$DEMO_LOG"; }

shop() { redis-cli -s "$DEMO_SHOP" "$@"; }

# Read the stock, think, write it back: wrong without a lock.  Ends with 9 when sold out.
buy() {
    got=$(now_us)
    log got "$got" "\"wait\":$((got - ASKED_US))"
    stock=$(shop GET stock)
    [ "$stock" -gt 0 ] || { log gave "$(now_us)" '"bought":0'; exit 9; }
    sleep "0.00$DEMO_THINK_MS"
    shop SET stock $((stock - 1)) >/dev/null
    shop INCR sold >/dev/null
    log gave "$(now_us)" '"bought":1'
}

if [ "${1:-}" = buy ]; then
    buy
    exit
fi
while ASKED_US=$(now_us) && [ "$ASKED_US" -lt "$DEMO_END_US" ]; do
    export ASKED_US
    status=0
    if [ -n "$DEMO_LOCK" ]; then
        "$DEMO_SNIB" run "$DEMO_LOCK" --lease "${DEMO_LEASE_MS}ms" -- "$0" buy || status=$?
    else
        "$0" buy || status=$?
    fi
    case $status in
    0) ;;
    9) exit 0 ;; # sold out
    123) log lost "$(now_us)" '"why":"snib run ended with 123"' ;;
    *) exit "$status" ;;
    esac
done
