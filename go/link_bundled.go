//go:build cgo && !snib_system

package snib

// The core is compiled from snib.c, which lies beside this file.

/*
#cgo CFLAGS: -std=gnu11 -O2 -fvisibility=hidden -DSNIB_STATIC
#cgo LDFLAGS: -lhiredis -luuid -pthread
*/
import "C"
