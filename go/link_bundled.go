//go:build cgo && !snib_system

package snib

// The core is compiled from snib.c in this folder.  It looks for OpenSSL at run time.

/*
#cgo CFLAGS: -std=gnu11 -O2 -fvisibility=hidden -DSNIB_STATIC
#cgo LDFLAGS: -lhiredis -luuid -ldl -pthread
*/
import "C"
