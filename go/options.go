//go:build cgo

package snib

import (
	"log/slog"
	"time"
)

type clientOptions struct {
	optionValues
	logger *slog.Logger
	logs   bool // logger was given
}

// An Option changes how [Open] makes a client. Most can also stand in the URL's query, ?lease=10s&recheck=500ms,
// by the names that their comments have; one that is given here goes before the URL's.
type Option func(*clientOptions)

// Credentials are the options username and password, taken instead of those in the URL. An empty user name
// means a password alone.
func Credentials(username, password string) Option {
	return func(o *clientOptions) { o.username, o.password = username, password }
}

// Logger is told what happens to the client: connections that come and go, locks that are lost, holds that were
// dropped. Without this option warnings and errors go to slog's default logger; nil means no log at all. A
// handler may take its time and may use this package.
func Logger(logger *slog.Logger) Option {
	return func(o *clientOptions) { o.logger, o.logs = logger, true }
}

type lockOptions struct {
	lease, maxHold time.Duration
	unlimited      bool
	owner          uint64
	owned          bool
	flags          uint32
}

// A LockOption changes how a client makes a lock. One that the kind of lock does not know is reported by
// the first call, as [ErrInvalidOption].
type LockOption func(*lockOptions)

// Lease gives a fixed lease, 100 ms to 24 h: the hold is not renewed and is lost when it ends.
func Lease(d time.Duration) LockOption { return func(o *lockOptions) { o.lease = atLeastTick(d) } }

// MaxHold ends renewal, and makes the hold lost, after d. -1 lifts the client's [DefaultMaxHold].
func MaxHold(d time.Duration) LockOption {
	return func(o *lockOptions) { o.maxHold, o.unlimited = atLeastTick(d), d == -1 }
}

// Owner makes a lock reentrant: while owner (any number but 0) holds it through this client, its further
// calls succeed at once, without a command, and each hold wants its own Unlock.
func Owner(owner uint64) LockOption {
	return func(o *lockOptions) { o.owner, o.owned = owner, true }
}

// FencedTokens gives the holds of a fair lock, or the write holds of an [RW], fencing tokens. They come from
// the same counter as those of [Client.Fenced].
func FencedTokens() LockOption { return func(o *lockOptions) { o.flags |= flagFenced } }

// PreferWriter is for an [RW]: while a writer waits, new readers that are Snibs wait behind it.
func PreferWriter() LockOption { return func(o *lockOptions) { o.flags |= flagPreferWriter } }

// NoQuarantine is for [Quorum]: servers vote at once that may have lost their memory. Only where they
// persist every write before they answer.
func NoQuarantine() LockOption { return func(o *lockOptions) { o.flags |= flagNoQuarantine } }

// atLeastTick keeps the core's "0 is the default" from hiding a duration that was given and is out of
// range: zero and fractions of a millisecond become -1 ms, which the core refuses.
func atLeastTick(d time.Duration) time.Duration {
	if d < time.Millisecond {
		return -time.Millisecond
	}
	return d
}

// optionalTick is atLeastTick for what -1 switches off.
func optionalTick(d time.Duration) time.Duration {
	if d == -1 {
		return -time.Millisecond
	}
	if d < time.Millisecond {
		return -2 * time.Millisecond
	}
	return d
}

// given keeps 0, which the core takes for its default, from hiding a number that was given.
func given(n, zero int32) int32 {
	if n == 0 {
		return zero
	}
	return n
}

// flag is what the core takes for yes and no.
func flag(yes bool) int32 {
	if yes {
		return 1
	}
	return -1
}
