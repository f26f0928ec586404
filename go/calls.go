//go:build cgo

package snib

import (
	"context"
	"errors"
	"time"
)

// A call is an operation of the core with a waiting goroutine. It is reused after its end.
type call struct {
	place uint32        // its index among the client's calls
	token uint64        // of this use of the call: a number that is used once, and the place; 0: it has ended
	event event         // the result, valid after done
	done  chan struct{} // has room for one
	few   bool          // few calls were under way when it began
}

const (
	spareCalls = 256 // kept by a client for reuse
	fewCalls   = 4   // with more, one reader for all is faster than callers who read for themselves
)

// begin registers a call before its operation starts, because its event may arrive immediately.
func (c *Client) begin() *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	var k *call
	if n := len(c.spare); n > 0 {
		k, c.spare = c.spare[n-1], c.spare[:n-1]
	} else {
		k = c.another()
	}
	c.uses++
	k.token = c.uses<<32 | uint64(k.place)
	c.busy++
	k.few = c.busy <= fewCalls
	return k
}

// another makes a call, in a free place.
func (c *Client) another() *call {
	k := &call{done: make(chan struct{}, 1)}
	if n := len(c.free); n > 0 {
		k.place, c.free = c.free[n-1], c.free[:n-1]
		c.calls[k.place] = k
	} else {
		k.place = uint32(len(c.calls))
		c.calls = append(c.calls, k)
	}
	return k
}

// waiting returns the call with this token, or nil if it has ended.
func (c *Client) waiting(token uint64) *call {
	if place := int(uint32(token)); place < len(c.calls) {
		if k := c.calls[place]; k != nil && k.token == token {
			return k
		}
	}
	return nil
}

// end must follow every begin: it unregisters the call, so a late event finds no waiter.
func (c *Client) end(k *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k.token = 0
	c.busy--
	c.idle.Signal()
	select {
	case <-k.done: // the event of a cancelled operation arrived before this
	default:
	}
	k.event = event{}
	if len(c.spare) < spareCalls {
		c.spare = append(c.spare, k) // it keeps its place
	} else {
		c.calls[k.place] = nil
		c.free = append(c.free, k.place)
	}
}

func (c *Client) deliver(events []event) {
	for i := range events {
		e := &events[i]
		if e.lost {
			c.lose(e.hold, e.reason)
			continue
		}
		c.mu.Lock()
		k := c.waiting(e.token)
		if k != nil {
			k.event = *e
			k.done <- struct{}{} // has room: a call has one event
		}
		c.mu.Unlock()
		if k == nil && e.hold != 0 {
			giveBack(e.hold) // the waiter has gone
		}
	}
}

// A caller may block its thread in C for so many ms: long enough for one answer of a slow server, but C does not notice
// that a context ends.
const (
	longSlice  = 70
	shortSlice = 5
)

// slice returns how long, in ms, a caller may block its thread in C, which is fastest while calls are few, but for one
// caller at a time, because each needs a thread. unblock ends it.
func (c *Client) slice(ctx context.Context, k *call) int64 {
	switch {
	case !k.few || !c.blocks.CompareAndSwap(false, true):
		return 0
	case ctx.Done() == nil:
		return longSlice
	}
	return shortSlice
}

func (c *Client) unblock(slice int64) {
	if slice > 0 {
		c.blocks.Store(false)
	}
}

// lastWord is how long a call past its deadline waits for the core, which has the same deadline and knows more about
// the wait: whether the lock was taken or the server was unreachable.
const lastWord = 100 * time.Millisecond

// await waits for the event of a call that was started. When ctx ends, the core decides: either the operation ends
// cancelled, or it was already done and its result counts. timed says that the core knows ctx's deadline.
func (c *Client) await(ctx context.Context, s started, k *call, timed bool) (event, error) {
	ended := ctx.Done()
	if ended == nil { // a select costs more
		<-k.done
		return k.event, k.event.err()
	}
	select {
	case <-k.done:
		return k.event, k.event.err()
	case <-ended:
	}
	if timed && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		timer := time.NewTimer(lastWord)
		defer timer.Stop()
		select {
		case <-k.done:
			return k.event, k.event.err()
		case <-timer.C:
		}
	}
	if cancelOp(s.op) {
		return event{}, contextError(ctx)
	}
	<-k.done // the event is on its way
	return k.event, k.event.err()
}

// run starts an operation that returns no hold and waits for its answer. changes says that the operation changes
// something on the server, so a cancelled one may have been applied.
func (c *Client) run(ctx context.Context, timed, changes bool, start func(token uint64) started) (event, error) {
	if ctx.Err() != nil {
		return event{}, contextError(ctx)
	}
	if c.closed.Load() || c.events == nil { // or Open did not make the client
		return event{}, makeError(ErrClosed, "", 0)
	}
	k := c.begin()
	defer c.end(k)
	s := start(k.token)
	if s.code != codeAgain {
		return event{}, s.err
	}
	e, err := c.await(ctx, s, k, timed)
	if ended, ok := err.(*Error); ok && changes && ended.context != nil {
		ended.maybe = true
		ended.Text += "; the server may have done what was asked"
	}
	return e, withContext(ctx, err)
}

// longestWait is the core's.
const longestWait = 24 * time.Hour

// ended reports whether a context has ended.
func ended(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return true
	default:
		return false
	}
}

// waitMS returns the wait for the core: until the context's deadline, or without a limit. Beyond the core's longest wait
// only the context limits it.
func waitMS(ctx context.Context) int64 {
	deadline, limited := ctx.Deadline()
	if !limited {
		return -1
	}
	left := time.Until(deadline)
	if left > longestWait { // it may be the longest duration, to which nothing can be added
		return -1
	}
	return max(int64((left+time.Millisecond-1)/time.Millisecond), 1)
}
