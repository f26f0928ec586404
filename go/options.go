//go:build cgo

package snib

import "time"

type clientOptions struct {
	lease, connectTimeout, replyTimeout, patience, recheck, maxHold time.Duration
	handoverMax, waitersMax                                         int32
	username, password                                              string
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

type lockOptions struct {
	lease, maxHold time.Duration
	unlimited      bool
}

// A LockOption changes how [Client.Mutex] makes a lock.
type LockOption func(*lockOptions)

// Lease gives a fixed lease, 100 ms to 24 h: the hold is not renewed and is lost when it ends.
func Lease(d time.Duration) LockOption { return func(o *lockOptions) { o.lease = atLeastTick(d) } }

// MaxHold ends renewal, and makes the hold lost, after d. -1 lifts the client's [DefaultMaxHold].
func MaxHold(d time.Duration) LockOption {
	return func(o *lockOptions) { o.maxHold, o.unlimited = atLeastTick(d), d == -1 }
}

// atLeastTick keeps the core's "0 is the default" from hiding a duration that was given and is out of
// range: zero and fractions of a millisecond become -1 ms, which the core refuses.
func atLeastTick(d time.Duration) time.Duration {
	if d < time.Millisecond {
		return -time.Millisecond
	}
	return d
}
