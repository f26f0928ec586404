//go:build cgo

package snib

import (
	"context"
	"errors"
)

// An RW is a lock that many readers hold, or one writer. Lock and TryLock are the writer's.
type RW struct {
	locker // the writers' side
	reader locker
}

// RW creates a read/write lock; see [Client.Mutex] for names. With an [Owner], a writer may also take the read lock,
// but a reader that asks for the write lock gets [ErrUpgrade], because it would wait for itself.
func (c *Client) RW(name string, options ...LockOption) *RW {
	o := newLockOptions(options)
	rw := &RW{locker: locker{c.newLock(kindWrite, name, o)}}
	o.flags &^= flagFenced | flagPreferWriter // these are for the writers' side only
	rw.reader = locker{c.newLock(kindRead, name, o)}
	rw.lock.reader = rw.reader.lock
	return rw
}

// RLocker returns the readers' side as a separate lock, whose Lock and TryLock are RLock and TryRLock.
func (rw *RW) RLocker() Locker { return rw.reader }

// RLock waits for the lock as a reader; otherwise it is like Lock.
func (rw *RW) RLock(ctx context.Context) (*Hold, error) { return rw.reader.Lock(ctx) }

// TryRLock tries once to get the lock as a reader; the error matches [ErrBusy] while a writer holds it.
func (rw *RW) TryRLock(ctx context.Context) (*Hold, error) { return rw.reader.TryLock(ctx) }

// RDo is [RW.Do] as a reader.
func (rw *RW) RDo(ctx context.Context, work func(context.Context) error) error {
	return rw.reader.Do(ctx, work)
}

// Do is [Mutex.Do] as a writer.
func (rw *RW) Do(ctx context.Context, work func(context.Context) error) error {
	return do(ctx, work, rw.Lock)
}

// Lock waits for the lock as a writer until ctx ends; see [Mutex.Lock].
func (rw *RW) Lock(ctx context.Context) (*Hold, error) { return rw.write(ctx, waitMS(ctx)) }

// TryLock tries once to get the lock as a writer; the error matches [ErrBusy] if other readers or a writer hold it.
func (rw *RW) TryLock(ctx context.Context) (*Hold, error) { return rw.write(ctx, 0) }

// ownOwner marks the owner numbers of writers created without an Owner: Downgrade needs one.
const ownOwner = 1 << 63

func (rw *RW) write(ctx context.Context, wait int64) (*Hold, error) {
	if err := rw.check(ctx); err != nil {
		return nil, err
	}
	owner := rw.owner
	if owner == 0 {
		owner = ownOwner | rw.client.owners.Add(1)
	}
	hold, err := rw.acquire(ctx, wish{owner: owner, waitMS: wait})
	if err == nil {
		hold.owner = owner
	}
	return hold, err
}

// Downgrade turns a write hold of an [RW] into a read hold, with no gap in which another writer could get the lock.
// It unlocks the write hold, whose Context ends; for the server's answer to that it waits as long as [Patience] allows,
// whatever becomes of ctx. After an error the write hold is unchanged, unless it is lost:
// then nothing is held any more.
func (h *Hold) Downgrade(ctx context.Context) (*Hold, error) {
	if h.lock == nil {
		return nil, unmade()
	}
	reader := h.lock.reader
	if reader == nil {
		return nil, h.lock.about(makeError(ErrNotSupported, "only the write hold of a read/write lock can be downgraded", 0))
	}
	if err := h.Check(); err != nil {
		return nil, err
	}
	read, err := reader.acquire(ctx, wish{owner: h.owner})
	if errors.Is(err, ErrBusy) { // another owner has the write lock
		return nil, h.robbed(ctx)
	}
	if err != nil {
		return nil, err
	}
	// An unconfirmed release continues by itself; but a hold that was lost did not protect the downgrade. Only the server's
	// answer can say so, and ctx may be a context of this hold, which the Unlock ends.
	if err := h.Unlock(context.WithoutCancel(ctx)); errors.Is(err, ErrLost) || errors.Is(err, ErrNotHeld) {
		_ = read.Unlock(context.WithoutCancel(ctx))
		return nil, err
	}
	return read, nil
}

// robbed ends a hold whose lock another owner has, although the core does not know it yet. A loss is final, and the work
// must hear of it at once: the server's answer to the release may be as far away as the client's patience allows.
func (h *Hold) robbed(ctx context.Context) *Error {
	loss, known := lossOf(h.handle).(*Error)
	if !known {
		loss = makeError(ErrLost, "", 0)
		loss.Reason = ReasonTaken
	}
	h.mu.Lock()
	if h.unlocked {
		defer h.mu.Unlock()
		return h.ended()
	}
	h.unlocked, h.why = true, h.lock.about(loss) // in one step: a watch that is made from now on begins with the loss
	w := h.watch
	h.mu.Unlock()
	if w != nil {
		h.lock.client.unwatch(h.handle, w)
		w.end(loss)
	}
	_ = h.release(context.WithoutCancel(ctx)) // of what the core has
	return loss
}
