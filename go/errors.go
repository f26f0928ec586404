//go:build cgo

package snib

import (
	"context"
	"syscall"
)

// Code says what an operation came to. Every Code is an error, for errors.Is.
type Code int32

// Error returns the code's sentence.
func (c Code) Error() string { return c.text() }

// Reason says why a hold was lost.
type Reason int32

// The reasons of a loss.
const (
	ReasonNone        Reason = 0
	ReasonExpired     Reason = 1 // a fixed lease ended
	ReasonTaken       Reason = 2 // the server says that somebody else holds the lock
	ReasonDeleted     Reason = 3 // the server says that the lock is gone
	ReasonUnreachable Reason = 4 // the lease could not be renewed in time
	ReasonMaxHold     Reason = 5 // the longest hold allowed is over
	ReasonClosed      Reason = 6 // the client was closed
)

// State is what a hold is worth at a moment.
type State int32

// The states of a hold.
const (
	StateValid    State = 0 // safe
	StateAtRisk   State = 1 // still safe, but renewal is overdue or the connection is down
	StateLost     State = 2 // no longer safe, for ever
	StateReleased State = 3 // given back
)

// Error is what the functions of this package return.
type Error struct {
	Code    Code
	Text    string        // one sentence, the same in every language
	OSError syscall.Errno // 0 if the operating system has no part in it
	Reason  Reason        // of a loss that Context, Check or Unlock report
	context error         // the context's, if it ended the wait
}

func makeError(code Code, text string, os syscall.Errno) *Error {
	if code == ErrInvalidHandle { // of all that makes a handle bad, Go programs can only close the client
		code, text = ErrClosed, ""
	}
	if text == "" {
		text = code.text()
	}
	return &Error{Code: code, Text: text, OSError: os}
}

// contextError is the error of an operation that its context ended.
func contextError(ctx context.Context) *Error {
	code := ErrCancelled
	if ctx.Err() == context.DeadlineExceeded {
		code = ErrTimeout
	}
	err := makeError(code, "", 0)
	err.context = ctx.Err()
	return err
}

// withContext lets a wait that the core timed out match the deadline it was given.
func withContext(ctx context.Context, err error) error {
	if e, ok := err.(*Error); ok && e.Code == ErrTimeout {
		if _, limited := ctx.Deadline(); limited {
			e.context = context.DeadlineExceeded
		}
	}
	return err
}

// Error returns the sentence.
func (e *Error) Error() string { return "snib: " + e.Text }

// Name returns the code's name in the C header, such as SNIB_BUSY.
func (e *Error) Name() string { return e.Code.name() }

// Is reports whether target is the error's code.
func (e *Error) Is(target error) bool { return target == error(e.Code) }

// Unwrap returns the context's error if a context ended the operation, and the operating system's.
func (e *Error) Unwrap() []error {
	var all []error
	if e.context != nil {
		all = append(all, e.context)
	}
	if e.OSError != 0 {
		all = append(all, e.OSError)
	}
	return all
}

// Retryable reports whether the same call may succeed later.
func (e *Error) Retryable() bool { return e.Code.Retryable() }

// MaybeApplied reports whether the server may have done what was asked although the call failed.
func (e *Error) MaybeApplied() bool { return e.Code.MaybeApplied() }
