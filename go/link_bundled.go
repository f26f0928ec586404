//go:build cgo && !snib_system

package snib

// The core is compiled from snib.c, which lies beside this file.  It looks for OpenSSL when it runs.

/*
#cgo CFLAGS: -std=gnu11 -O2 -fvisibility=hidden -DSNIB_STATIC
#cgo LDFLAGS: -lhiredis -luuid -ldl -pthread
*/
import "C"
