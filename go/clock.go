//go:build cgo

package snib

// #include "bridge.h"
import "C"

import "github.com/snib-lock/snib/go/internal/clock"

func init() {
	clock.Advance = func(ms int64) error {
		var err C.snib_error
		if C.snib_advance_clock(C.int64_t(ms), &err) != C.SNIB_OK {
			return makeError(Code(err.code), C.GoString(&err.text[0]), 0)
		}
		return nil
	}
}
