//go:build cgo

package snib

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Client holds the connections to one deployment. It is safe for use by many goroutines.
type Client struct {
	handle    uint64
	id        string
	address   string // where its locks are, for the links of package snibotel
	events    *pump
	records   *pump // of the log, if there is one
	questions *pump // requests for credentials, if a function provides them
	endLogins context.CancelFunc
	blocks    atomic.Bool   // a caller is blocking in C
	owners    atomic.Uint64 // the last one given to a writer, see RW
	closed    atomic.Bool
	released  chan struct{} // closed when the first Close has waited for the releases

	patience time.Duration
	debug    bool // the option Debug

	mu      sync.Mutex
	idle    *sync.Cond // signalled when a call has ended
	busy    int        // calls under way
	uses    uint64     // of calls until now
	calls   []*call    // those under way and the spare ones, each in its place; the first is not used, so no token is 0
	free    []uint32   // other places without a call
	spare   []*call
	watches map[uint64][]*watch // by the core's handle for a hold
}

// Open creates a client and pings the server, so that a wrong address or password is noticed here. It fails if the server
// is down; [NoPing] leaves the ping out, as the clients of a [Quorum] need. The URL is
// redis://[user[:password]@]host[:port][/database], unix://[user[:password]@]/path,
// redis+sentinel://host1,host2/service or redis+cluster://host1,host2, with TLS rediss:// and so on.
// ?name=value&name=value may follow with options, and db=n for the database.
// "" means SNIB_URL from the environment, with SNIB_USERNAME, SNIB_PASSWORD or
// SNIB_PASSWORD_FILE if set, or else redis://127.0.0.1:6379.
func Open(ctx context.Context, url string, options ...Option) (*Client, error) {
	_ = ctx.Err() // without a context it panics before there is a client
	var o clientOptions
	for _, option := range options {
		option(&o)
	}
	handle, err := openClient(url, &o)
	if err != nil {
		return nil, err
	}
	c := &Client{handle: handle, id: clientID(handle), address: addressOf(url), released: make(chan struct{}),
		calls: make([]*call, 1), watches: map[uint64][]*watch{}}
	c.patience, c.debug = clientSettings(handle)
	c.owners.Store(rand.Uint64()) // so that no program's own numbers are the same, such as negative ones
	c.idle = sync.NewCond(&c.mu)
	if c.events, err = newPump(handle); err != nil {
		freeClient(handle)
		return nil, err
	}
	go c.events.run(c.deliver)
	if err = c.logAs(&o); err == nil {
		err = c.loginBy(o.login)
	}
	if err == nil {
		err = c.greet(ctx, &o)
	}
	if err != nil {
		_ = c.CloseTimeout(0) // there is nothing to release, so it is not to queue behind closes that wait for that
		return nil, err
	}
	return c, nil
}

// greet pings the server, unless an option says that it may be down.
func (c *Client) greet(ctx context.Context, o *clientOptions) error {
	switch {
	case !o.noPing:
		return c.Ping(ctx)
	case ctx.Err() != nil:
		return contextError(ctx)
	}
	return nil
}

// ID returns the client's UUID, the first part of the owners it writes.
func (c *Client) ID() string { return c.id }

// Close releases every hold, ends every operation with [ErrClosed] and stops the core's thread. It waits
// for the releases as long as the client's [Patience] lasts. So does a second Close, and does nothing else.
func (c *Client) Close() error { return c.closeWithin(-1) }

// CloseTimeout is Close with an explicit time limit, of a day at most.
func (c *Client) CloseTimeout(d time.Duration) error {
	return c.closeWithin(min(max(0, d), longestWait).Milliseconds())
}

func (c *Client) closeWithin(ms int64) error {
	limit := millis(ms)
	if ms < 0 {
		limit = c.patience
	}
	first := c.closed.CompareAndSwap(false, true)
	switch {
	case c.events == nil: // Open did not make the client
		return nil
	case !first:
		return c.awaitClose(limit)
	}
	err := c.closeInTurn(ms, limit)
	close(c.released)
	c.mu.Lock()
	for c.busy > 0 { // their events are in the queue, and the poller delivers them
		c.idle.Wait()
	}
	left := slices.Collect(maps.Keys(c.watches))
	c.mu.Unlock()
	for _, hold := range left {
		c.lose(hold, ReasonClosed)
	}
	c.events.stop()
	<-c.events.done
	c.endQuestions()
	c.endLog()
	freeClient(c.handle)
	return err
}

// Closed reports whether the client is closed, or about to be.
func (c *Client) Closed() bool { return c.closed.Load() }

// awaitClose waits for the releases of the first Close, because the program may end when this one returns.
func (c *Client) awaitClose(limit time.Duration) error {
	select {
	case <-c.released:
		return nil
	default:
	}
	select {
	case <-c.released:
		return nil
	case <-time.After(limit):
		return makeError(ErrTimeout, "another Close still waits for releases", 0)
	}
}

// closers limits how many closes may block a thread in C at once.
var closers = make(chan struct{}, 10)

// closeInTurn waits for its turn, up to the time limit. A client whose turn does not come in time is closed anyway, but
// its releases are not confirmed.
func (c *Client) closeInTurn(ms int64, limit time.Duration) error {
	began := time.Now()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case closers <- struct{}{}:
		defer func() { <-closers }()
	default:
		select {
		case closers <- struct{}{}:
			defer func() { <-closers }()
			ms = max(0, (limit - time.Since(began)).Milliseconds())
		case <-timer.C:
			ms = 0
		}
	}
	return closeClient(c.handle, ms)
}

// Ping checks that the server answers.
func (c *Client) Ping(ctx context.Context) error {
	_, err := c.run(ctx, true, false, func(token uint64) started {
		return startAsk(askPing, c.handle, waitMS(ctx), c.events.queue, token)
	})
	return err
}

// List returns the names, sorted, of the locks that match a pattern as in Redis' SCAN; "" means all.
// Semaphores, latches, permits that are all free and plain locks of other programs are not among them: nothing tells
// them from other data.
func (c *Client) List(ctx context.Context, pattern string) ([]string, error) {
	var all []string
	for cursor := uint64(0); ; {
		e, err := c.run(ctx, false, false, func(token uint64) started {
			return startList(c.handle, pattern, cursor, c.events.queue, token)
		})
		if err != nil {
			return nil, err
		}
		all = append(all, e.texts...)
		if cursor = e.cursor; cursor == 0 {
			slices.Sort(all)
			return slices.Compact(all), nil // a scan may show a key twice
		}
	}
}
