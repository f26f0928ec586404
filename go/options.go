//go:build cgo

package snib

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"
)

type clientOptions struct {
	optionValues
	logger *slog.Logger
	logs   bool // logger was given
	login  func(context.Context) (Login, error)
	noPing bool
}

// An Option changes how [Open] creates a client. Most can also be given in the URL's query,
// ?lease=10s&recheck=500ms, under the names in their comments; an Option takes precedence over the URL's.
type Option func(*clientOptions)

// Credentials are the options username and password, used instead of those in the URL. An empty one is not given: then
// that of the URL counts, if there is one.
func Credentials(username, password string) Option {
	return func(o *clientOptions) { o.username, o.password = unlessEmpty(username), unlessEmpty(password) }
}

// A Login is a client's user name and password, see [LoginBy]. The core wipes its copy after use; Go's strings stay
// until they are collected.
type Login struct {
	Username string // "": the one from the options or the URL, if any
	Password string
	// Valid is how long the password is valid, counted from the request; 0: it has no known end. After four fifths of
	// that time the function is called again, and all connections log in again.
	Valid time.Duration
}

// String does not show the password.
func (l Login) String() string { return fmt.Sprintf("{%s *** %v}", l.Username, l.Valid) }

// GoString does not show the password.
func (l Login) GoString() string {
	return fmt.Sprintf("snib.Login{Username:%q, Password:\"***\", Valid:%d}", l.Username, int64(l.Valid))
}

// Format does not show the password, whatever the verb.
func (l Login) Format(f fmt.State, verb rune) {
	if verb == 'v' && f.Flag('#') {
		_, _ = io.WriteString(f, l.GoString())
		return
	}
	_, _ = io.WriteString(f, l.String())
}

// LogValue does not show the password.
func (l Login) LogValue() slog.Value { return slog.StringValue(l.String()) }

// MarshalText does not show the password, nor do encodings that use it, such as JSON.
func (l Login) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// Logger sets the logger for the client's events: connections that open and close, locks that are lost, holds that
// were dropped. Without this option warnings and errors go to slog's default logger; nil disables the log. A
// handler may be slow and may use this package; but Close waits up to a second for one that does not return.
func Logger(logger *slog.Logger) Option {
	return func(o *clientOptions) { o.logger, o.logs = logger, true }
}

// NoPing has [Open] send nothing, like its counterparts in C and Python: it succeeds although the server is down, and the
// first operation connects. The clients of a [Quorum] need it, because a minority of their servers may be down.
func NoPing() Option { return func(o *clientOptions) { o.noPing = true } }

type lockOptions struct {
	lease, maxHold time.Duration
	owner          uint64
	owned          bool
	flags          uint32
}

// A LockOption changes how a client creates a lock. The first call on the lock reports an option that does not
// fit its kind, as [ErrInvalidOption].
type LockOption func(*lockOptions)

// Lease gives a fixed lease, 100 ms to 24 h: the hold is not renewed and is lost when it ends.
func Lease(d time.Duration) LockOption { return func(o *lockOptions) { o.lease = atLeastTick(d) } }

// MaxHold ends renewal, and makes the hold lost, after d. -1 lifts the client's [DefaultMaxHold].
func MaxHold(d time.Duration) LockOption {
	return func(o *lockOptions) { o.maxHold = optionalTick(d) }
}

// Owner makes a lock reentrant: while owner (any number but 0) holds it through this client, further calls with
// the same owner succeed immediately, without a command, and each hold needs its own Unlock.
func Owner(owner uint64) LockOption {
	return func(o *lockOptions) { o.owner, o.owned = owner, true }
}

// FencedTokens gives the holds of a fair lock, or the write holds of an [RW], fencing tokens. They come from
// the same counter as those of [Client.Fenced].
func FencedTokens() LockOption { return func(o *lockOptions) { o.flags |= flagFenced } }

// PreferWriter is for an [RW]: while a writer waits, new readers that use Snib wait behind it.
func PreferWriter() LockOption { return func(o *lockOptions) { o.flags |= flagPreferWriter } }

// NoQuarantine is for [Quorum]: servers that may have lost their memory vote immediately. Use it only where they
// persist every write before they answer.
func NoQuarantine() LockOption { return func(o *lockOptions) { o.flags |= flagNoQuarantine } }

// atLeastTick keeps a given duration that is out of range from becoming 0, the core's default: zero and fractions of a
// millisecond become -1 ms, which the core refuses.
func atLeastTick(d time.Duration) time.Duration {
	if d < time.Millisecond {
		return -time.Millisecond
	}
	return d
}

// optionalTick is like atLeastTick, for options that -1 switches off.
func optionalTick(d time.Duration) time.Duration {
	if d == -1 {
		return -time.Millisecond
	}
	if d < time.Millisecond {
		return -2 * time.Millisecond
	}
	return d
}

// given keeps a given 0 from being taken for the core's default.
func given(n, zero int32) int32 {
	if n == 0 {
		return zero
	}
	return n
}

// flag returns the core's number for yes or no.
func flag(yes bool) int32 {
	if yes {
		return 1
	}
	return -1
}
