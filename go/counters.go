//go:build cgo

package snib

import (
	"context"
	"runtime"
)

// tally reads or changes the number of a counter.
func (l *lock) tally(ctx context.Context, what tally, n int) (int, error) {
	if err := l.check(ctx); err != nil {
		return 0, err
	}
	defer runtime.KeepAlive(l)
	changes := what != tallyGet && what != tallyTotal
	e, err := l.client.run(ctx, false, changes, func(token uint64) started {
		return startCount(l.kind, l.handle, what, int64(n), l.client.events.queue, token)
	})
	return int(e.count), l.fail(err)
}

// pool is a number of permits.
type pool struct{ *lock }

// Acquire waits for n permits at once, 1 to 1000, until ctx ends. The hold owns them all, and its Unlock releases
// them all. Of [Permits] whose number is set, the error matches [ErrPermits] if there are fewer than n, held and free
// together; a [Semaphore] does not know how many are held, and waits.
func (p pool) Acquire(ctx context.Context, n int) (*Hold, error) {
	return p.acquire(ctx, wish{count: permits(n), waitMS: waitMS(ctx)})
}

// TryAcquire tries once; the error matches [ErrBusy] if fewer than n permits are free.
func (p pool) TryAcquire(ctx context.Context, n int) (*Hold, error) {
	return p.acquire(ctx, wish{count: permits(n)})
}

// Do is [Mutex.Do] with one permit.
func (p pool) Do(ctx context.Context, work func(context.Context) error) error {
	return p.DoN(ctx, 1, work)
}

// DoN is [Mutex.Do] with n permits, 1 to 1000.
func (p pool) DoN(ctx context.Context, n int, work func(context.Context) error) error {
	return do(ctx, work, func(ctx context.Context) (*Hold, error) { return p.Acquire(ctx, n) })
}

// Init sets the number of permits unless it is already set, and reports whether it did. Without it there are no permits.
func (p pool) Init(ctx context.Context, n int) (bool, error) {
	done, err := p.tally(ctx, tallyInit, n)
	return done == 1, err
}

// Add changes the number of permits by n, which may be negative, and returns how many are free then.
func (p pool) Add(ctx context.Context, n int) (int, error) { return p.tally(ctx, tallyAdd, n) }

// Available returns how many permits are free now.
func (p pool) Available(ctx context.Context) (int, error) { return p.tally(ctx, tallyGet, 0) }

// A Semaphore is a number of permits without owners or leases: if a process dies, its permits stay taken until they are
// put back. [Permits] are safer.
type Semaphore struct{ pool }

// Semaphore creates a semaphore; see [Client.Mutex] for names.
func (c *Client) Semaphore(name string, options ...LockOption) *Semaphore {
	return &Semaphore{pool{c.newLock(kindSemaphore, name, newLockOptions(options))}}
}

// PutBack adds n permits that no hold owns to the free ones, and returns the new number.
func (s *Semaphore) PutBack(ctx context.Context, n int) (int, error) {
	return s.tally(ctx, tallyRelease, n)
}

// Drain takes all free permits permanently and returns how many there were.
func (s *Semaphore) Drain(ctx context.Context) (int, error) { return s.tally(ctx, tallyDrain, 0) }

// Permits are a number of permits, each with a lease: if a process dies, its permits become free when the lease ends.
type Permits struct{ pool }

// Permits creates a number of permits; see [Client.Mutex] for names.
func (c *Client) Permits(name string, options ...LockOption) *Permits {
	return &Permits{pool{c.newLock(kindPermits, name, newLockOptions(options))}}
}

// Set sets the total number of permits to n, including those that are held, and returns how many are free now.
func (p *Permits) Set(ctx context.Context, n int) (int, error) { return p.tally(ctx, tallySet, n) }

// Total returns the number of permits, held and free together.
func (p *Permits) Total(ctx context.Context) (int, error) { return p.tally(ctx, tallyTotal, 0) }

// Lock acquires one permit, so that Permits can be a member of a [Multi].
func (p *Permits) Lock(ctx context.Context) (*Hold, error) { return p.Acquire(ctx, 1) }

// TryLock tries once to acquire one permit.
func (p *Permits) TryLock(ctx context.Context) (*Hold, error) { return p.TryAcquire(ctx, 1) }

func (p *Permits) self() *lock { return p.lock }

// A Latch is a count; waiters wait until it is 0.
type Latch struct{ *lock }

// Latch creates a latch; see [Client.Mutex] for names.
func (c *Client) Latch(name string, options ...LockOption) *Latch {
	return &Latch{c.newLock(kindLatch, name, newLockOptions(options))}
}

// Init sets the count, at least 1, unless it is already set, and reports whether it did.
func (l *Latch) Init(ctx context.Context, n int) (bool, error) {
	done, err := l.tally(ctx, tallyInit, n)
	return done == 1, err
}

// CountDown counts down by one and returns what is left. At 0 the waiters are woken.
func (l *Latch) CountDown(ctx context.Context) (int, error) { return l.tally(ctx, tallyDown, 0) }

// Count returns what is left to count down.
func (l *Latch) Count(ctx context.Context) (int, error) { return l.tally(ctx, tallyGet, 0) }

// Wait returns when the count is 0 or ctx ends. A latch that was never set counts as 0.
func (l *Latch) Wait(ctx context.Context) error {
	_, _, err := l.grant(ctx, wish{waitMS: waitMS(ctx)})
	return err
}
