//go:build cgo && snib_system

package snib

// The core is an installed libsnib, found by pkg-config.

/*
#cgo CFLAGS: -std=gnu11 -O2
#cgo pkg-config: snib
*/
import "C"
