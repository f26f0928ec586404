//go:build cgo

package snib

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// A Hold is one successful acquisition, of a lock or of permits. It may be used and unlocked by any goroutine. One that is dropped
// without an Unlock, together with its Context, is given back when the garbage collector finds it.
type Hold struct {
	client *Client
	handle uint64
	token  int64
	owner  uint64 // of a write hold, for Downgrade
	reader *lock  // of a write hold: the other side
	body   *holdBody
	ends   runtime.Cleanup
}

// holdBody is what the client knows of a hold: apart from it, so that a forgotten Hold can be collected.
type holdBody struct {
	mu     sync.Mutex
	parent context.Context // whose values ctx has
	ctx    context.Context // with its cancel function: made when asked for
	cancel context.CancelCauseFunc
	lost   chan struct{} // made when asked for
	why    *Error        // of the loss
	ended  *Error        // set by the first Unlock: what later calls are told
}

// newHold makes the hold of a grant known for its loss.
func (c *Client) newHold(ctx context.Context, handle uint64, token int64) *Hold {
	h := &Hold{client: c, handle: handle, token: token, body: &holdBody{parent: ctx}}
	c.mu.Lock()
	c.holds[handle] = append(c.holds[handle], h.body)
	c.mu.Unlock()
	if state, reason := holdState(handle); state == StateLost {
		c.lose(handle, reason) // its event may have come before it was known here
	}
	h.ends = runtime.AddCleanup(h, c.abandoned, abandonedHold{handle, h.body})
	return h
}

type abandonedHold struct {
	handle uint64
	body   *holdBody
}

// abandoned gives back a hold that was collected without an Unlock.
func (c *Client) abandoned(a abandonedHold) {
	c.drop(a.handle, a.body)
	a.body.end()
	freeHold(a.handle)
}

func (c *Client) drop(handle uint64, body *holdBody) {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := slices.DeleteFunc(c.holds[handle], func(b *holdBody) bool { return b == body })
	if len(left) == 0 {
		delete(c.holds, handle)
	} else {
		c.holds[handle] = left
	}
}

// lose tells all acquisitions of a hold that it is lost.
func (c *Client) lose(handle uint64, reason Reason) {
	c.mu.Lock()
	bodies := slices.Clone(c.holds[handle])
	c.mu.Unlock()
	if len(bodies) == 0 {
		return
	}
	why := checkHold(handle)
	if why == nil || why.Code != ErrLost { // freed meanwhile
		why = makeError(ErrLost, "", 0)
	}
	why.Reason = reason
	for _, body := range bodies {
		body.lose(why)
	}
}

func (b *holdBody) lose(why *Error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.why != nil || b.ended != nil {
		return
	}
	b.why = why
	if b.lost != nil {
		close(b.lost)
	}
	if b.cancel != nil {
		b.cancel(ErrLost)
	}
}

// end is for the first Unlock; it reports whether this was it.
func (b *holdBody) end() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended != nil {
		return false
	}
	b.ended = makeError(ErrNotHeld, "", 0)
	if b.cancel != nil {
		b.cancel(nil)
	}
	return true
}

// Lost returns a channel that is closed when the hold is lost. It stays open after an Unlock.
func (h *Hold) Lost() <-chan struct{} {
	b := h.body
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lost == nil {
		b.lost = make(chan struct{})
		if b.why != nil {
			close(b.lost)
		}
	}
	return b.lost
}

// Context returns a context with the values of the one that the lock was asked for with, but without its
// end. It is cancelled when the hold is lost, with the cause [ErrLost] ([Hold.Check] knows why), and by
// Unlock, with the cause context.Canceled, before the lock is given back.
func (h *Hold) Context() context.Context {
	b := h.body
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx == nil {
		b.ctx, b.cancel = context.WithCancelCause(context.WithoutCancel(b.parent))
		switch {
		case b.why != nil:
			b.cancel(ErrLost)
		case b.ended != nil:
			b.cancel(nil)
		}
	}
	return holdContext{b.ctx, h}
}

// holdContext keeps the hold as long as somebody uses its context.
type holdContext struct {
	context.Context
	hold *Hold
}

// over returns what ended the hold, as far as this side knows: its Unlock or its loss.
func (h *Hold) over() (unlocked, lost *Error) {
	h.body.mu.Lock()
	defer h.body.mu.Unlock()
	return h.body.ended, h.body.why
}

// State tells what the hold is worth now, by this machine's clock, and why if it is lost.
func (h *Hold) State() (State, Reason) {
	switch unlocked, lost := h.over(); {
	case unlocked != nil && unlocked.Code == ErrNotHeld:
		return StateReleased, ReasonNone
	case unlocked != nil:
		return StateLost, unlocked.Reason
	case lost != nil:
		return StateLost, lost.Reason
	}
	defer runtime.KeepAlive(h)
	return holdState(h.handle)
}

// Check returns nil while the hold is safe, by this machine's clock at the moment of the call. Else the
// error matches [ErrLost] and says why, or [ErrNotHeld] after an Unlock.
func (h *Hold) Check() error {
	switch unlocked, lost := h.over(); {
	case unlocked != nil:
		return unlocked
	case lost != nil:
		return lost
	}
	defer runtime.KeepAlive(h)
	if err := checkHold(h.handle); err != nil {
		_, err.Reason = holdState(h.handle)
		return err
	}
	return nil
}

// Remaining returns how long the hold is safe as things stand; 0 when it is lost or unlocked. Renewal
// makes it longer again. Permits of a semaphore have no lease.
func (h *Hold) Remaining() time.Duration {
	if unlocked, lost := h.over(); unlocked != nil || lost != nil {
		return 0
	}
	defer runtime.KeepAlive(h)
	return holdRemaining(h.handle)
}

// Token returns the fencing token, greater than that of every earlier hold of the name; 0 if the lock has
// none, see [Client.Fenced] and [FencedTokens]. Package fencing has what checks it.
func (h *Hold) Token() int64 { return h.token }

// Owner returns the owner as it stands at the server, "<client uuid>:<number>".
func (h *Hold) Owner() string {
	if unlocked, _ := h.over(); unlocked != nil {
		return ""
	}
	defer runtime.KeepAlive(h)
	return holdOwner(h.handle)
}

// Unlock gives the lock, or all permits of the hold, back and wakes a waiter. The error matches [ErrLost] if it was not held any more,
// and [ErrNotHeld] at the second call. When ctx ends, Unlock stops waiting and the release goes on.
func (h *Hold) Unlock(ctx context.Context) error {
	c, b := h.client, h.body
	if !b.end() {
		unlocked, _ := h.over()
		return unlocked
	}
	h.ends.Stop()
	c.drop(h.handle, b)
	err := c.release(ctx, h.handle)
	if err == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.why != nil { // a client that is closed could only say so
		err = b.why
	}
	if e, ok := err.(*Error); ok && e.Code == ErrLost {
		b.ended = e // a loss stays one
	}
	return err
}

func (c *Client) release(ctx context.Context, handle uint64) error {
	token, call := c.begin()
	slice := c.slice()
	s := startRelease(handle, slice, c.queue, token)
	c.unblock(slice)
	if s.code != codeAgain {
		c.forget(token)
		return s.err
	}
	_, err := c.await(ctx, s, token, call)
	return err
}
