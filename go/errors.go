//go:build cgo

package snib

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

// Code is the result of an operation. Every Code is an error, for errors.Is.
type Code int32

// Error returns the code's sentence.
func (c Code) Error() string { return c.text() }

// Name returns the code's name in the C header, such as SNIB_BUSY.
func (c Code) Name() string { return c.name() }

// Reason says why a hold was lost.
type Reason int32

// The reasons of a loss.
const (
	ReasonNone        Reason = 0
	ReasonExpired     Reason = 1 // a fixed lease ended
	ReasonTaken       Reason = 2 // the server says that another owner holds the lock
	ReasonDeleted     Reason = 3 // the server says that the lock is gone
	ReasonUnreachable Reason = 4 // the lease could not be renewed in time
	ReasonMaxHold     Reason = 5 // the longest hold allowed is over
	ReasonClosed      Reason = 6 // the client was closed
	ReasonFailover    Reason = 7 // another server took over, and does not know the hold
)

// State is the state of a hold at a moment.
type State int32

// The states of a hold. One is at risk while a renewal is overdue, the connection is down, a server that was restarted
// or took over has not confirmed it yet, or the server's clock has jumped since its lease began; one of a lock of
// several clients while too few members are free of such a doubt.
const (
	StateValid    State = 0 // safe
	StateAtRisk   State = 1 // still safe, but in doubt
	StateLost     State = 2 // no longer safe, for ever
	StateReleased State = 3 // released by the program
)

// String returns the state in words, such as "at risk".
func (s State) String() string {
	switch s {
	case StateValid:
		return "valid"
	case StateAtRisk:
		return "at risk"
	case StateLost:
		return "lost"
	case StateReleased:
		return "released"
	}
	return "unknown"
}

// Error is what the functions of this package return.
type Error struct {
	Code    Code
	Name    string        // the lock's; "" if no lock is involved
	Kind    string        // the lock's: mutex, fair, read, write, fenced, spin, plain, semaphore, permits, latch, multi, quorum
	Reason  Reason        // of a loss
	Server  string        // the server's own words, without secrets, if it answered
	Text    string        // one sentence: what happened, to which lock, at which server, and the server's own words
	OSError syscall.Errno // 0 if it is no error of the operating system
	context error         // the context's, if it ended the wait
	maybe   bool          // cancelled after it may have been applied
	unlock  bool          // of an Unlock
}

func makeError(code Code, text string, os syscall.Errno) *Error {
	if code == ErrInvalidHandle { // the only way for a Go program to invalidate a handle is to close the client
		code, text = ErrClosed, ""
	}
	if text == "" {
		text = code.text()
	}
	return &Error{Code: code, Text: text, OSError: os}
}

// toldError makes an Error from what the core reports.
//
// server is where the server's own words begin in text; 0: there are none.
func toldError(code Code, text string, server int, os syscall.Errno) *Error {
	e := makeError(code, text, os)
	if e.Text == text && 0 < server && server < len(text) {
		e.Server = text[server:]
	}
	return e
}

// contextError is the error of an operation that ended because its context did.
func contextError(ctx context.Context) *Error {
	code, text := ErrCancelled, "the context was cancelled before the operation was done"
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		code, text = ErrTimeout, "the context's deadline came before the operation was done"
	}
	err := makeError(code, text, 0)
	err.context = ctx.Err()
	return err
}

// withContext makes a core error match the error of ctx if that has ended meanwhile, and otherwise its deadline, which the
// core was given or which has passed although nobody has told ctx yet.
func withContext(ctx context.Context, err error) error {
	e, ok := err.(*Error)
	if !ok || e.context != nil {
		return err
	}
	if e.context = ctx.Err(); e.context != nil {
		return err
	}
	if end, limited := ctx.Deadline(); limited && (e.Code == ErrTimeout || time.Until(end) <= 0) {
		e.context = context.DeadlineExceeded
	}
	return err
}

// alsoUnlocked joins the errors of work under a lock and of its Unlock. A loss is reported once.
func alsoUnlocked(work, unlock error) error {
	var told, lost *Error
	switch {
	case unlock == nil:
		return work
	case work == nil:
		return afterWork(unlock)
	case errors.As(work, &told) && errors.As(unlock, &lost) && told.Code == ErrLost && lost.Code == ErrLost && told.Name == lost.Name:
		return work
	}
	return fmt.Errorf("%w; %w", work, unlock)
}

// afterWork tells the error of an Unlock from that of a wait, after which the caller may try again.
func afterWork(unlock error) error {
	if e, ok := unlock.(*Error); ok && e.Code != ErrLost && e.Code != ErrNotHeld {
		e.Text += "; the work was done, only the unlock failed"
	}
	return unlock
}

// Error returns the sentence.
func (e *Error) Error() string { return "snib: " + e.Text }

// Is reports whether target is the error's code, or [ErrUnreachable] for an [ErrNotConnected].
func (e *Error) Is(target error) bool {
	return target == error(e.Code) || (e.Code == ErrNotConnected && target == error(ErrUnreachable))
}

// Unwrap returns the context's error, if a context ended the operation, and the operating system's error.
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

// Retryable reports whether the same call may succeed later, with a context that has not ended. It is false for an Unlock,
// which is not called again (the client itself repeats what can be repeated), and so for a Do whose work was done.
func (e *Error) Retryable() bool { return !e.unlock && e.Code.Retryable() }

// MaybeApplied reports whether the server may have carried out the request although the call failed. A change of a number
// that is repeated then may count twice; what a call for a lock may have got is given back.
func (e *Error) MaybeApplied() bool { return e.maybe || e.Code.MaybeApplied() }
