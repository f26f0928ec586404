//go:build cgo

package snib

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// A Hold is one successful acquisition. It may be used and unlocked by any goroutine.
type Hold struct {
	client *Client
	handle uint64
	body   *holdBody
	ends   runtime.Cleanup
}

// holdBody is what the client knows of a hold: apart from it, so that a forgotten Hold can be collected.
type holdBody struct {
	mu     sync.Mutex
	lost   chan struct{}
	ctx    context.Context
	cancel context.CancelCauseFunc
	isLost bool
	ended  *Error // set by the first Unlock: what later calls are told
}

// newHold makes the hold of a grant known for its loss.
func (c *Client) newHold(handle uint64) *Hold {
	h := &Hold{client: c, handle: handle, body: &holdBody{}}
	c.mu.Lock()
	c.holds[handle] = append(c.holds[handle], h.body)
	c.mu.Unlock()
	if state, _ := holdState(handle); state == StateLost {
		h.body.lose() // its event may have come before it was known here
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

func (b *holdBody) lose() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isLost || b.ended != nil {
		return
	}
	b.isLost = true
	if b.lost != nil {
		close(b.lost)
	}
	if b.cancel != nil {
		b.cancel(ErrLost)
	}
}

// Lost returns a channel that is closed when the hold is lost. It stays open after an Unlock.
func (h *Hold) Lost() <-chan struct{} {
	b := h.body
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lost == nil {
		b.lost = make(chan struct{})
		if b.isLost {
			close(b.lost)
		}
	}
	return b.lost
}

// Context returns a context that is cancelled when the hold is lost, with the cause [ErrLost], and by
// Unlock, with the cause context.Canceled.
func (h *Hold) Context() context.Context {
	b := h.body
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx == nil {
		b.ctx, b.cancel = context.WithCancelCause(context.Background())
		switch {
		case b.isLost:
			b.cancel(ErrLost)
		case b.ended != nil:
			b.cancel(context.Canceled)
		}
	}
	return b.ctx
}

func (h *Hold) over() *Error {
	h.body.mu.Lock()
	defer h.body.mu.Unlock()
	return h.body.ended
}

// State tells what the hold is worth now, by this machine's clock, and why if it is lost.
func (h *Hold) State() (State, Reason) {
	if h.over() != nil {
		return StateReleased, ReasonNone
	}
	defer runtime.KeepAlive(h)
	return holdState(h.handle)
}

// Check returns nil while the hold is safe. Else the error matches [ErrLost], or [ErrNotHeld] after an Unlock.
func (h *Hold) Check() error {
	if err := h.over(); err != nil {
		return err
	}
	defer runtime.KeepAlive(h)
	if err := checkHold(h.handle); err != nil {
		return err
	}
	return nil
}

// Remaining returns how long the hold is safe as things stand; 0 when it is lost or unlocked. Renewal
// makes it longer again.
func (h *Hold) Remaining() time.Duration {
	if h.over() != nil {
		return 0
	}
	defer runtime.KeepAlive(h)
	return holdRemaining(h.handle)
}

// Token returns the fencing token; 0, since a mutex has none.
func (h *Hold) Token() int64 { return 0 }

// Owner returns the owner as it stands at the server, "<client uuid>:<number>".
func (h *Hold) Owner() string {
	if h.over() != nil {
		return ""
	}
	defer runtime.KeepAlive(h)
	return holdOwner(h.handle)
}

// Unlock gives the lock back and wakes a waiter. The error matches [ErrLost] if it was not held any more,
// and [ErrNotHeld] at the second call. When ctx ends, Unlock stops waiting and the release goes on.
func (h *Hold) Unlock(ctx context.Context) error {
	c, b := h.client, h.body
	b.mu.Lock()
	if b.ended != nil {
		defer b.mu.Unlock()
		return b.ended
	}
	b.ended = makeError(ErrNotHeld, "", 0)
	b.mu.Unlock()
	h.ends.Stop()
	c.drop(h.handle, b)
	err := c.release(ctx, h.handle)
	b.mu.Lock()
	defer b.mu.Unlock()
	if e, ok := err.(*Error); ok && e.Code == ErrLost {
		b.ended, b.isLost = e, true
		if b.lost != nil {
			select {
			case <-b.lost:
			default:
				close(b.lost)
			}
		}
	}
	if b.cancel != nil {
		b.cancel(context.Canceled)
	}
	return err
}

func (c *Client) release(ctx context.Context, handle uint64) error {
	if c.closed.Load() {
		return c.releaseClosed(handle)
	}
	slice := c.slice()
	defer c.inside.Add(-1)
	token, call := c.begin()
	s := startRelease(handle, slice, c.queue, token)
	if s.code != codeAgain {
		c.forget(token)
		return s.err
	}
	_, err := c.await(ctx, s, token, call)
	return err
}

// releaseClosed says what a closed client says of its holds: they are lost.
func (c *Client) releaseClosed(handle uint64) error {
	err := checkHold(handle)
	freeHold(handle)
	if err == nil { // closing at this very moment
		return makeError(ErrClosed, "", 0)
	}
	return err
}
