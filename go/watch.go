//go:build cgo

package snib

import (
	"context"
	"slices"
	"sync"
)

// A watch notifies the Lost channel and the contexts of a hold when the hold ends. The client refers to the watch, so
// it must not refer to the Hold, which could then never be collected. (A context of the hold's refers to its children,
// and they to the Hold, until they end.) A hold whose Lost and Context were never called
// has none.
type watch struct {
	lock *lock

	mu       sync.Mutex
	over     bool
	cause    error         // why the hold ended; nil: unlocked
	lost     chan struct{} // closed when the hold is lost
	contexts map[*context.CancelCauseFunc]struct{}
}

// watched returns the hold's watch, which the first call creates.
func (h *Hold) watched() *watch {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watch != nil {
		return h.watch
	}
	w := &watch{lock: h.lock, lost: make(chan struct{}), contexts: map[*context.CancelCauseFunc]struct{}{}}
	h.watch = w
	switch over := h.ended(); {
	case over != nil && over.Code == ErrLost:
		w.end(over)
	case over != nil:
		w.end(nil)
	default:
		h.keeper.watch = w
		h.lock.client.watch(h.handle, w)
		if err := lossOf(h.handle); err != nil { // its event may have arrived before the watch was registered
			w.end(err)
		}
	}
	return w
}

// lossOf returns the loss of a hold, or nil if it is not lost.
func lossOf(handle uint64) error {
	if err := checkHold(handle); err != nil && err.Code == ErrLost {
		return err
	}
	return nil
}

func (c *Client) watch(handle uint64, w *watch) {
	c.mu.Lock()
	c.watches[handle] = append(c.watches[handle], w) // a re-entered hold has several
	c.mu.Unlock()
}

func (c *Client) unwatch(handle uint64, w *watch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := slices.DeleteFunc(c.watches[handle], func(other *watch) bool { return other == w })
	if len(left) == 0 {
		delete(c.watches, handle)
	} else {
		c.watches[handle] = left
	}
}

// lose notifies all watches of a hold that it is lost. If the core knows a reason, it is that one: Close may be the first to
// notify of an earlier loss.
func (c *Client) lose(handle uint64, reason Reason) {
	c.mu.Lock()
	watches := slices.Clone(c.watches[handle])
	c.mu.Unlock()
	for _, w := range watches {
		err := checkHold(handle)
		if err == nil || err.Code != ErrLost { // unlocked meanwhile
			err = makeError(ErrLost, "", 0)
			err.Reason = reason
		}
		w.end(err)
	}
}

// end reports a loss, or an Unlock if loss is nil; later calls have no effect.
func (w *watch) end(loss error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	w.over = true
	if e, lost := loss.(*Error); lost {
		w.cause = w.lock.about(e)
		close(w.lost)
	}
	for cancel := range w.contexts {
		(*cancel)(w.cause)
	}
	w.contexts = nil
}

// found reports a loss that only the release has shown. The contexts have ended before it.
func (w *watch) found(loss *Error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cause == nil {
		w.cause = loss
		close(w.lost)
	}
}

// add makes a context end with the hold, and returns a function to call when the context has ended otherwise.
func (w *watch) add(cancel context.CancelCauseFunc) (remove func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		cancel(w.cause)
		return func() {}
	}
	w.contexts[&cancel] = struct{}{}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.contexts, &cancel)
	}
}

// Lost returns a channel that is closed when the hold is lost, even if only its Unlock finds that out, and when it is
// dropped, see [Hold]. It stays open after a release.
func (h *Hold) Lost() <-chan struct{} { return h.watched().lost }

// Context returns a context for the work that is done under the hold. It has parent's values and is cancelled
//
//   - with parent, with the same cause;
//   - when the hold is lost, with the loss as its cause: an [*Error] with the lock's name and the reason,
//     which matches [ErrLost];
//   - by Unlock, with the cause context.Canceled, before the lock is released.
//
// A context that is in use keeps the hold in use, too, and so does one that is derived from it, until it has ended. Call Context once for
// each piece of work: the resources of a context are freed when it ends.
func (h *Hold) Context(parent context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
	context.AfterFunc(ctx, h.watched().add(cancel))
	return holdContext{ctx, h}
}

// holdContext keeps the hold alive as long as its context is in use.
type holdContext struct {
	context.Context
	hold *Hold
}

type holdKey struct{}

func (c holdContext) Value(key any) any {
	if key == (holdKey{}) {
		return c.hold
	}
	return c.Context.Value(key)
}

// HoldFrom returns the hold whose [Hold.Context] ctx is derived from, the innermost if there are several, or nil if
// there is none. Work that [Mutex.Do] runs can use it to get its fencing token.
func HoldFrom(ctx context.Context) *Hold {
	hold, _ := ctx.Value(holdKey{}).(*Hold)
	return hold
}

// do runs work under the hold that acquire returns.
func do(ctx context.Context, work func(context.Context) error, acquire func(context.Context) (*Hold, error)) (err error) {
	if work == nil {
		return makeError(ErrInvalidArgument, "the work function is nil", 0)
	}
	hold, err := acquire(ctx)
	if err != nil {
		return err
	}
	defer func() { // also when work panics
		err = alsoUnlocked(err, hold.Unlock(context.WithoutCancel(ctx)))
	}()
	return work(hold.Context(ctx))
}
