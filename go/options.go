//go:build cgo

package snib

import (
	"log/slog"
	"time"
)

type clientOptions struct {
	lease, connectTimeout, replyTimeout, patience, tryTimeout, recheck, maxHold time.Duration
	handoverMax, waitersMax                                                     int32
	username, password                                                          string
	logger                                                                      *slog.Logger
	logs                                                                        bool // logger was given
}

// An Option changes how [Open] makes a client.
type Option func(*clientOptions)

// WatchdogLease sets the lease of renewed holds, 100 ms to 24 h; it is 30 s otherwise.
func WatchdogLease(d time.Duration) Option {
	return func(o *clientOptions) { o.lease = atLeastTick(d) }
}

// ConnectTimeout limits one attempt to connect; it is 3 s otherwise.
func ConnectTimeout(d time.Duration) Option {
	return func(o *clientOptions) { o.connectTimeout = atLeastTick(d) }
}

// ReplyTimeout ends a connection whose reply takes longer; it is 3 s otherwise.
func ReplyTimeout(d time.Duration) Option {
	return func(o *clientOptions) { o.replyTimeout = atLeastTick(d) }
}

// Patience is how long an operation endures an unreachable server; it is 5 s otherwise.
func Patience(d time.Duration) Option { return func(o *clientOptions) { o.patience = atLeastTick(d) } }

// TryTimeout is how long a call that does not wait does: one round trip's patience; it is 1 s otherwise.
func TryTimeout(d time.Duration) Option {
	return func(o *clientOptions) { o.tryTimeout = atLeastTick(d) }
}

// Recheck is how long a waiter sleeps at most before it asks again; it is 3 s otherwise.
func Recheck(d time.Duration) Option { return func(o *clientOptions) { o.recheck = atLeastTick(d) } }

// DefaultMaxHold is the [MaxHold] of locks that name none.
func DefaultMaxHold(d time.Duration) Option {
	return func(o *clientOptions) { o.maxHold = atLeastTick(d) }
}

// Handovers is how often in a row a lock may pass between waiters of this process; 16 otherwise, -1 never.
func Handovers(n int32) Option { return func(o *clientOptions) { o.handoverMax = n } }

// Waiters limits the operations of the client at once; it is 200000 otherwise.
func Waiters(n int32) Option { return func(o *clientOptions) { o.waitersMax = n } }

// Credentials are taken instead of those in the URL. An empty user name means a password alone.
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
