//go:build cgo

package snib

import (
	"context"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Client is one connection set to one server. It is safe for use by many goroutines.
type Client struct {
	handle uint64
	queue  uint64
	blocks atomic.Bool   // a caller blocks in C at this moment
	tokens atomic.Uint64 // of operations
	owners atomic.Uint64 // given to writers, see RW
	fd     *os.File      // the queue's descriptor, for the runtime's poller
	polled chan struct{} // closed when the poller has returned
	closed atomic.Bool

	mu    sync.Mutex
	idle  *sync.Cond             // a call has ended
	calls map[uint64]chan event  // by token; an event whose token is not here was given up
	holds map[uint64][]*holdBody // by the core's handle, for losses
}

// Open makes a client and asks the server for a sign of life, so that a wrong address or password shows
// here. The URL is redis://[user[:password]@]host[:port][/database] or unix://[user[:password]@]/path[?db=n].
func Open(ctx context.Context, url string, options ...Option) (*Client, error) {
	var o clientOptions
	for _, option := range options {
		option(&o)
	}
	handle, err := openClient(url, &o)
	if err != nil {
		return nil, err
	}
	c := &Client{handle: handle, polled: make(chan struct{}), calls: map[uint64]chan event{}, holds: map[uint64][]*holdBody{}}
	c.idle = sync.NewCond(&c.mu)
	queue, fd, err := newQueue(handle)
	if err != nil {
		freeClient(handle)
		return nil, err
	}
	c.queue = queue
	c.fd = os.NewFile(uintptr(fd), "snib queue")
	go c.poll()
	if err := c.Ping(ctx); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// ID returns the client's UUID, the first part of the owners it writes.
func (c *Client) ID() string { return clientID(c.handle) }

// Close releases every hold, ends every operation with [ErrClosed] and stops the core's thread. It waits
// for the releases as long as the client's [Patience] lasts. A second Close does nothing.
func (c *Client) Close() error { return c.closeWithin(-1) }

// CloseTimeout is Close with a limit of its own.
func (c *Client) CloseTimeout(d time.Duration) error { return c.closeWithin(max(0, d.Milliseconds())) }

func (c *Client) closeWithin(ms int64) error {
	if !c.closed.CompareAndSwap(false, true) {
		return nil
	}
	err := closeClient(c.handle, ms)
	c.mu.Lock()
	for len(c.calls) > 0 { // their events are in the queue: the poller brings them
		c.idle.Wait()
	}
	left := slices.Collect(maps.Keys(c.holds))
	c.mu.Unlock()
	for _, hold := range left {
		c.lose(hold, ReasonClosed)
	}
	_ = c.fd.Close() // wakes the poller, which then returns
	<-c.polled
	freeQueue(c.queue)
	freeClient(c.handle)
	return err
}

// Ping asks the server for an answer.
func (c *Client) Ping(ctx context.Context) error {
	_, err := c.ask(ctx, func(token uint64) started {
		return startAsk(askPing, c.handle, waitMS(ctx), c.queue, token)
	})
	return err
}

// List returns the names, sorted, of the locks that match a pattern as in Redis' SCAN; "" means all.
func (c *Client) List(ctx context.Context, pattern string) ([]string, error) {
	seen := map[string]bool{}
	var all []string
	for cursor := uint64(0); ; {
		type step struct {
			names []string
			next  uint64
		}
		s, err := aside(ctx, func() (s step, err error) {
			s.names, s.next, err = listStep(c.handle, pattern, cursor)
			return s, err
		})
		if err != nil {
			return nil, err
		}
		for _, name := range s.names {
			if !seen[name] { // a scan may show a key twice
				seen[name] = true
				all = append(all, name)
			}
		}
		if cursor = s.next; cursor == 0 {
			slices.Sort(all)
			return all, nil
		}
	}
}

// aside runs a call that may block for the client's patience; ctx may be shorter.
func aside[T any](ctx context.Context, run func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var r result
	if ctx.Err() != nil {
		return r.value, contextError(ctx)
	}
	done := make(chan result, 1)
	go func() {
		value, err := run()
		done <- result{value, err}
	}()
	select {
	case r = <-done:
		return r.value, r.err
	case <-ctx.Done():
		return r.value, contextError(ctx)
	}
}

// ---- Events -------------------------------------------------------------------------------------

// poll hands out the core's events until the descriptor is closed. It sleeps in the runtime's poller,
// without a thread.
func (c *Client) poll() {
	defer close(c.polled)
	buffer := newDrainBuffer()
	defer buffer.free()
	raw, err := c.fd.SyscallConn()
	if err != nil {
		return
	}
	var events [batch]event
	// "Not ready" sends the goroutine to sleep until the core writes the descriptor again, which it does
	// whenever an empty queue gets an event. Read returns when the descriptor is closed.
	_ = raw.Read(func(uintptr) bool {
		for n := batch; n == batch; {
			n = buffer.drain(c.queue, &events)
			c.deliver(events[:n])
		}
		return false
	})
}

func (c *Client) deliver(events []event) {
	for i := range events {
		e := &events[i]
		if e.lost {
			c.lose(e.hold, e.reason)
			continue
		}
		c.mu.Lock()
		call, known := c.calls[e.token]
		if known {
			call <- *e // has room for it; inside the mutex, so that give-up finds it or prevents it
			delete(c.calls, e.token)
			c.idle.Signal()
		}
		c.mu.Unlock()
		if !known && e.hold != 0 {
			freeHold(e.hold) // granted to nobody: given back
		}
	}
}

// begin registers a call before it is started, since its event may come at once.
func (c *Client) begin() (token uint64, call chan event) {
	token, call = c.tokens.Add(1), make(chan event, 1)
	c.mu.Lock()
	c.calls[token] = call
	c.mu.Unlock()
	return token, call
}

// forget gives up a call: if its event still comes, what it brings is given back.
func (c *Client) forget(token uint64) {
	c.mu.Lock()
	delete(c.calls, token)
	c.idle.Signal()
	c.mu.Unlock()
}

// slice is how long, in ms, a caller may block its thread in C: for one answer of a slow server, for that is
// fastest, but one caller at a time, for each needs a thread. It ends with unblock.
func (c *Client) slice() int64 {
	if c.blocks.CompareAndSwap(false, true) {
		return 70
	}
	return 0
}

func (c *Client) unblock(slice int64) {
	if slice > 0 {
		c.blocks.Store(false)
	}
}

// await waits for the event of a started operation. A context that ends it wins only if the core says so.
func (c *Client) await(ctx context.Context, s started, token uint64, call chan event) (event, error) {
	select {
	case e := <-call:
		return e, e.err()
	case <-ctx.Done():
	}
	cancelOp(s.op)
	c.forget(token)
	select {
	case e := <-call: // delivered before it was forgotten
		if e.hold != 0 {
			freeHold(e.hold)
		}
	default:
	}
	return event{}, contextError(ctx)
}

// ask starts an operation that brings no hold and waits for its answer.
func (c *Client) ask(ctx context.Context, start func(token uint64) started) (event, error) {
	if ctx.Err() != nil {
		return event{}, contextError(ctx)
	}
	if c.closed.Load() {
		return event{}, makeError(ErrClosed, "", 0)
	}
	token, call := c.begin()
	s := start(token)
	if s.code != codeAgain {
		c.forget(token)
		return event{}, s.err
	}
	e, err := c.await(ctx, s, token, call)
	return e, withContext(ctx, err)
}

// waitMS is the wait for the core: until the context's deadline, or without a limit. The core knows no
// longer wait than a day; beyond that the context ends it alone.
func waitMS(ctx context.Context) int64 {
	deadline, limited := ctx.Deadline()
	if !limited {
		return -1
	}
	ms := int64((time.Until(deadline) + time.Millisecond - 1) / time.Millisecond)
	if ms > 86400000 {
		return -1
	}
	return max(ms, 1)
}
