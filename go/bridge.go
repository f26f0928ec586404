//go:build cgo

package snib

// bridge.go is the one Go file that calls C.  Nothing of Go's is kept by C after a call, C never
// calls back, and no call blocks but startAcquire and startRelease (for their slice), closeClient
// and listNames.

/*
#cgo noescape bridge_acquire
#cgo nocallback bridge_acquire
#cgo noescape bridge_release
#cgo nocallback bridge_release
#cgo noescape bridge_ask
#cgo nocallback bridge_ask
#cgo noescape snib_hold_check
#cgo nocallback snib_hold_check
#cgo nocallback bridge_drain
#include "bridge.h"
*/
import "C"

import (
	"math"
	"runtime"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

const (
	codeOK    Code = C.SNIB_OK
	codeAgain Code = C.SNIB_AGAIN
)

func (c Code) text() string { return C.GoString(C.snib_code_text(C.int32_t(c))) }

func (c Code) is(flag C.int32_t) bool { return C.snib_code_is(C.int32_t(c), flag) != 0 }

// Retryable reports whether the same call may succeed later.
func (c Code) Retryable() bool { return c.is(C.SNIB_IS_RETRYABLE) }

// MaybeApplied reports whether the server may have done what was asked although the call failed.
func (c Code) MaybeApplied() bool { return c.is(C.SNIB_IS_MAYBE_APPLIED) }

func (r Reason) String() string { return C.GoString(C.snib_reason_text(C.int32_t(r))) }

// BuildID is a hash over the sources of the core; it is the same in every package of one version.
func BuildID() string { return C.GoString(C.snib_build_id()) }

func newError(code C.int32_t, err *C.snib_error) *Error {
	e := &Error{Code: Code(code), Text: C.GoString(&err.text[0]), OSError: syscall.Errno(err.os_error)}
	if e.Code == ErrInvalidHandle { // a Go program has no handle that is bad but for its client's end
		e.Code, e.Text = ErrClosed, ""
	}
	if e.Text == "" {
		e.Text = e.Code.text()
	}
	return e
}

// millis converts an option's duration, which must not become the 0 that means "default" in C.
func millis(what string, code Code, d time.Duration) (C.int64_t, error) {
	if d < time.Millisecond {
		return 0, &Error{Code: code, Text: what + " of " + d.String() + " is out of range"}
	}
	return C.int64_t(d / time.Millisecond), nil
}

// ---- Clients ---------------------------------------------------------------------------------------

func openClient(url string, o *clientOptions) (uint64, error) {
	for _, text := range []string{url, o.username, o.password} {
		if strings.ContainsRune(text, 0) {
			return 0, &Error{Code: ErrInvalidArgument, Text: "a URL, user name or password has a zero byte"}
		}
	}
	var raw C.snib_client_options
	C.snib_client_options_init(&raw, C.sizeof_snib_client_options)
	for _, option := range []struct {
		field *C.int64_t
		name  string
		value *time.Duration
	}{
		{&raw.lease_ms, "a lease", o.lease},
		{&raw.connect_timeout_ms, "a connect timeout", o.connectTimeout},
		{&raw.reply_timeout_ms, "a reply timeout", o.replyTimeout},
		{&raw.patience_ms, "a patience", o.patience},
		{&raw.recheck_ms, "a recheck", o.recheck},
		{&raw.max_hold_ms, "a maximal hold", o.maxHold},
	} {
		if option.value != nil {
			var err error
			if *option.field, err = millis(option.name, ErrInvalidOption, *option.value); err != nil {
				return 0, err
			}
		}
	}
	raw.handover_max = C.int32_t(o.handoverMax)
	raw.waiters_max = C.int32_t(o.waitersMax)
	cURL, username, password := C.CString(url), (*C.char)(nil), (*C.char)(nil)
	defer wipe(cURL)
	if o.login {
		username, password = C.CString(o.username), C.CString(o.password)
		defer wipe(username)
		defer wipe(password)
	}
	raw.username, raw.password = username, password
	var client C.uint64_t
	var err C.snib_error
	if code := C.bridge_open(cURL, &raw, &client, &err); code != C.SNIB_OK {
		return 0, newError(code, &err)
	}
	return uint64(client), nil
}

// wipe frees a C string that may hold a password.
func wipe(text *C.char) {
	clear(unsafe.Slice((*byte)(unsafe.Pointer(text)), C.strlen(text)))
	C.free(unsafe.Pointer(text))
}

func clientID(client uint64) string {
	var id [37]C.char
	C.snib_client_id(cClient(client), &id[0], nil)
	return C.GoString(&id[0])
}

func closeClient(client uint64, timeoutMS int64) error {
	var err C.snib_error
	code := C.int32_t(C.snib_client_close(cClient(client), C.int64_t(timeoutMS), &err))
	if code != C.SNIB_OK {
		return newError(code, &err)
	}
	return nil
}

func freeClient(client uint64) { C.snib_client_free(cClient(client)) }
