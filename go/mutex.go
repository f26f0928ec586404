//go:build cgo

package snib

import (
	"context"
	"runtime"
	"time"
)

// A Mutex names one lock. It is cheap, and safe for use by many goroutines: each Lock that succeeds
// brings a [Hold] of its own, and a second Lock waits for the first hold's Unlock.
type Mutex struct {
	client *Client
	handle uint64
	owner  uint64
	err    error // of its making, told by every call
}

// Mutex names a lock: 1 to 512 bytes of UTF-8 without control characters; braces, if any, form one hash
// tag as in "{tenant}orders". A bad name or option is reported by the first call.
func (c *Client) Mutex(name string, options ...LockOption) *Mutex {
	return c.newMutex(name, 0, options)
}

// Reentrant is Mutex with an owner: while owner (any number but 0) holds the lock through this client,
// its further calls of Lock succeed at once, without a command, and each hold wants its own Unlock.
func (c *Client) Reentrant(name string, owner uint64, options ...LockOption) *Mutex {
	m := c.newMutex(name, owner, options)
	if owner == 0 && m.err == nil {
		m.err = makeError(ErrInvalidArgument, "the owner of a reentrant lock must not be 0", 0)
	}
	return m
}

func (c *Client) newMutex(name string, owner uint64, options []LockOption) *Mutex {
	m := &Mutex{client: c, owner: owner}
	if c.closed.Load() {
		m.err = makeError(ErrClosed, "", 0)
		return m
	}
	var o lockOptions
	for _, option := range options {
		option(&o)
	}
	m.handle, m.err = newLock(c.handle, name, &o)
	if m.err == nil {
		runtime.AddCleanup(m, freeLock, m.handle)
	}
	return m
}

// Lock waits for the lock until ctx ends. When ctx has ended the wait, the error matches the context's
// and [ErrTimeout] or [ErrCancelled], and the caller will not own the lock through this call.
func (m *Mutex) Lock(ctx context.Context) (*Hold, error) { return m.lock(ctx, waitMS(ctx)) }

// TryLock is one try; the error matches [ErrBusy] if somebody else holds the lock.
func (m *Mutex) TryLock(ctx context.Context) (*Hold, error) { return m.lock(ctx, 0) }

func (m *Mutex) lock(ctx context.Context, wait int64) (*Hold, error) {
	c := m.client
	if err := m.check(ctx); err != nil {
		return nil, err
	}
	token, call := c.begin()
	slice := c.slice()
	s := startAcquire(m.handle, m.owner, wait, slice, c.queue, token)
	c.unblock(slice)
	runtime.KeepAlive(m)
	if s.code != codeAgain {
		c.forget(token)
	}
	switch s.code {
	case codeOK:
		return c.newHold(ctx, s.hold), nil
	case codeAgain:
		e, err := c.await(ctx, s, token, call)
		if err != nil {
			return nil, withContext(ctx, err)
		}
		return c.newHold(ctx, e.hold), nil
	}
	return nil, withContext(ctx, s.err)
}

func (m *Mutex) check(ctx context.Context) error {
	if m.err != nil {
		return m.err
	}
	if m.client.closed.Load() {
		return makeError(ErrClosed, "", 0)
	}
	if ctx.Err() != nil {
		return contextError(ctx)
	}
	return nil
}

// Info is what the server says of a lock.
type Info struct {
	Held      bool
	Mine      bool          // held through this client
	Owner     string        // "<client uuid>:<number>"; "" if free
	Count     int64         // hold count on the wire
	Remaining time.Duration // until the lease ends
	Waiting   int64         // processes subscribed to its wake-ups; -1 unknown
}

// Info asks the server who holds the lock.
func (m *Mutex) Info(ctx context.Context) (Info, error) {
	if err := m.check(ctx); err != nil {
		return Info{}, err
	}
	e, err := m.client.ask(ctx, askInfo, m.handle)
	runtime.KeepAlive(m)
	if err != nil {
		return Info{}, err
	}
	return Info{Held: e.held, Mine: e.mine, Owner: e.text, Count: e.count, Remaining: e.remaining, Waiting: e.waiting}, nil
}

// ForceRelease deletes the lock whoever holds it and wakes the waiters. The error matches [ErrNotHeld] if
// there was nothing. A holder that is a Snib is told at its next renewal.
func (m *Mutex) ForceRelease(ctx context.Context) error {
	if err := m.check(ctx); err != nil {
		return err
	}
	_, err := m.client.ask(ctx, askForceRelease, m.handle)
	runtime.KeepAlive(m)
	return err
}
