//go:build cgo

package snib

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"
)

// A Hold is one successful acquisition, of a lock or of permits. It may be used and unlocked by any goroutine.
//
// It lasts until it is unlocked or its client is closed. If a hold is dropped without either, together with its
// Contexts, the garbage collector does not release it, because code may still work under it: renewal ends, the
// lease runs out on the server, and a log record names the lock, see [Logger]. A context that is derived from one of its
// Contexts and has not ended keeps the hold, even if nothing uses it any more: cancel what you derive.
type Hold struct {
	lock   *lock
	handle uint64
	token  int64
	owner  uint64 // of a write hold, for Downgrade
	actor  uint64 // who acquired it, for a client with the option Debug; otherwise 0

	mu       sync.Mutex
	unlocked bool
	why      *Error  // the loss, once this side knows of it; it is final
	watch    *watch  // what to notify of the end; nil: nothing
	keeper   *keeper // nil when an Unlock has started the release
}

// A keeper ends the renewal of a hold that was dropped: only the hold refers to it, so the garbage collector finds both
// at the same time. To register an object with the collector and to take it out again costs more than the rest of what
// Go does for a hold, so a keeper is registered once and serves one hold after another.
type keeper struct {
	lock   *lock // of the hold that it serves; nil: of none
	handle uint64
	watch  *watch
}

var keepers = sync.Pool{New: func() any {
	k := new(keeper)
	runtime.SetFinalizer(k, (*keeper).dropped)
	return k
}}

// newHold wraps a grant. It must be called immediately, so that no grant leaks.
func (l *lock) newHold(handle uint64, token int64, actor uint64) *Hold {
	k := keepers.Get().(*keeper)
	k.lock, k.handle = l, handle
	return &Hold{lock: l, handle: handle, token: token, actor: actor, keeper: k}
}

// dropped is called by the garbage collector.
func (k *keeper) dropped() {
	if k.lock == nil { // a spare one
		return
	}
	if k.watch != nil {
		k.lock.client.unwatch(k.handle, k.watch)
		k.watch.end(makeError(ErrLost, "it was dropped without an Unlock, so it is not renewed any more", 0))
	}
	abandonHold(k.handle)
}

// unmade returns the error for a Hold that no lock created, such as new(Hold).
func unmade() *Error { return makeError(ErrNotHeld, "the hold was not made by a lock", 0) }

// over returns what ended the hold, as far as this side knows: its loss or its Unlock.
func (h *Hold) over() *Error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ended()
}

// ended is over, for a caller that has the mutex.
func (h *Hold) ended() *Error {
	switch {
	case h.lock == nil:
		return unmade()
	case h.why != nil:
		return h.why
	case !h.unlocked:
		return nil
	case h.keeper != nil: // the Unlock that is about to start the release does not know yet whether the hold was lost
		if err := checkHold(h.handle); err != nil && err.Code == ErrLost {
			h.why = h.lock.about(err)
			return h.why
		}
	}
	return h.lock.about(makeError(ErrNotHeld, "", 0))
}

// check asks the core. An Unlock or a loss seen by another goroutine takes precedence, because it takes the handle
// away.
func (h *Hold) check() *Error {
	if err := h.over(); err != nil {
		return err
	}
	err := checkHold(h.handle)
	runtime.KeepAlive(h)
	if err == nil {
		return nil
	}
	h.mu.Lock()
	if err.Code == ErrLost && h.why == nil && !h.unlocked {
		h.why = h.lock.about(err)
	}
	h.mu.Unlock()
	if over := h.over(); over != nil {
		return over
	}
	return h.lock.about(err)
}

// Check returns nil while the hold is safe, by this machine's clock at the moment of the call. Otherwise the
// error matches [ErrLost] and says why, or [ErrNotHeld] after an Unlock.
func (h *Hold) Check() error {
	if err := h.check(); err != nil {
		return err
	}
	return nil
}

// State returns the state of the hold now, by this machine's clock, and the reason if it is lost.
func (h *Hold) State() (State, Reason) {
	state := StateLost
	if h.over() == nil {
		state = holdState(h.handle)
		runtime.KeepAlive(h)
	}
	if state == StateValid || state == StateAtRisk {
		return state, ReasonNone
	}
	err := h.check()
	switch {
	case err == nil:
		return StateValid, ReasonNone
	case err.Code == ErrNotHeld:
		return StateReleased, ReasonNone
	}
	return StateLost, err.Reason
}

// Remaining returns how long the hold is safe without another renewal; 0 when it is lost or unlocked. Each renewal
// extends it. Permits of a semaphore have no lease: for them it is the longest duration.
func (h *Hold) Remaining() time.Duration {
	if h.over() != nil {
		return 0
	}
	defer runtime.KeepAlive(h)
	return holdRemaining(h.handle)
}

// Token returns the fencing token, greater than that of every earlier hold of the name; 0 if the lock has
// none, see [Client.Fenced] and [FencedTokens]. Package fencing checks tokens.
func (h *Hold) Token() int64 { return h.token }

// Replicas returns how many replicas had the grant when it was made, of a lock of several clients the fewest that had a
// member's; 0 without [Durability], and after an Unlock.
func (h *Hold) Replicas() int {
	if err := h.over(); err != nil && err.Code == ErrNotHeld { // another hold of its owner may have the handle
		return 0
	}
	defer runtime.KeepAlive(h)
	return max(0, holdReplicas(h.handle))
}

// Owner returns the owner as the server stores it, "<client uuid>:<number>"; "" after an Unlock. A hold without a token
// that another waiter of this process got directly from this one may have the same. If the lock is of several clients, or
// of members that one command cannot take, no server has this text: each member has its own.
func (h *Hold) Owner() string {
	if err := h.over(); err != nil && err.Code == ErrNotHeld {
		return ""
	}
	defer runtime.KeepAlive(h)
	return holdOwner(h.handle)
}

// Unlock releases the lock, or all permits of the hold, and wakes a waiter.
//
// The error matches [ErrLost] if the lock was no longer held, and [ErrNotHeld] on a second call. If ctx ends,
// or has already ended, Unlock stops waiting and returns an error that matches the context's, while the release
// continues in the background. A context that comes from [Hold.Context] of this hold is one that has ended, because
// Unlock cancels it first.
func (h *Hold) Unlock(ctx context.Context) error {
	_ = ctx.Err() // without a context it panics before anything has changed
	w, over := h.leave()
	if over != nil {
		return over
	}
	if w != nil {
		h.lock.client.unwatch(h.handle, w)
		w.end(lossOf(h.handle))
	}
	err := h.release(ctx)
	if err == nil {
		return nil
	}
	var e *Error
	switch {
	case !errors.As(err, &e):
	case h.lock.about(e).Code == ErrLost:
		h.mu.Lock()
		h.why = e // later calls report the loss too
		w = h.watch
		h.mu.Unlock()
		if w != nil {
			w.found(e)
		}
	default:
		e.unlock = true
	}
	return err
}

// Extend gives the hold another lease, counted from now: a fixed one of 100 ms to 24 h, which nothing renews, or with
// 0 the client's lease, renewed from now on. The hold never ends earlier than it would have, except that a longer fixed
// lease counts no more once the client's is renewed instead.
//
// The error matches [ErrLost] if the hold was lost, [ErrNotHeld] after an Unlock, [ErrInvalidLease] for a quorum lock by
// more than the lease that it was made for, and [ErrNotSupported] for permits of a semaphore, or where a broken connection
// could not be ended at the server and a request that was left on it may shorten the lease. After any other error, and that
// one, the hold keeps the lease that it had, although the server may have the longer one.
func (h *Hold) Extend(ctx context.Context, lease time.Duration) error {
	if err := h.check(); err != nil {
		return err
	}
	defer runtime.KeepAlive(h)
	ms := int64(0)
	if lease != 0 {
		ms = atLeastTick(lease).Milliseconds()
	}
	c := h.lock.client
	_, err := c.run(ctx, false, true, func(token uint64) started {
		return startAsk(askExtend, h.handle, ms, c.events.queue, token)
	})
	if err == nil {
		return nil
	}
	if over := h.check(); over != nil { // the loss, or an Unlock meanwhile
		return over
	}
	return h.lock.fail(err)
}

// leave marks the hold as unlocked and returns its watch; later calls return the error of over.
func (h *Hold) leave() (*watch, *Error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lock != nil && !h.unlocked {
		h.unlocked = true
		return h.watch, nil
	}
	return nil, h.ended()
}

// left notes that the release was started, or that there is none because the hold was lost. Until then other goroutines
// ask the core, which still knows a lost hold.
func (h *Hold) left(s started) {
	h.mu.Lock()
	if s.code == ErrLost && h.why == nil {
		h.why, _ = h.lock.fail(s.err).(*Error)
	}
	*h.keeper = keeper{}
	keepers.Put(h.keeper)
	h.keeper = nil
	h.mu.Unlock()
	if s.code == ErrLost {
		freeHold(h.handle)
	}
}

// release releases the hold and frees the handle. With a context that has ended it never waits, so that the result does
// not depend on timing.
func (h *Hold) release(ctx context.Context) error {
	c := h.lock.client
	if ctx.Err() != nil {
		s := startRelease(h.handle, 0, 0, 0)
		h.left(s)
		if s.code != codeAgain && s.code != codeOK {
			return s.err
		}
		return unconfirmed(contextError(ctx))
	}
	k := c.begin()
	defer c.end(k)
	slice := c.slice(ctx, k)
	s := startRelease(h.handle, slice, c.events.queue, k.token)
	c.unblock(slice)
	h.left(s)
	if s.code != codeAgain {
		return s.err
	}
	_, err := c.await(ctx, s, k, false)
	if e, ok := err.(*Error); ok && e.context != nil {
		return unconfirmed(e)
	}
	return err
}

func unconfirmed(err *Error) *Error {
	err.Text += "; the release continues in the background"
	err.maybe = true
	return err
}
