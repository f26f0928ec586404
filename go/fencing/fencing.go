// Package fencing lets the resource behind a lock refuse an outdated holder.
//
// A lease can end while its holder is paused. No lock service can stop the holder then, but the resource
// can. The holder sends the token of its hold with each request, and the resource accepts no token that is
// smaller than the greatest it has seen:
//
//	hold, err := client.Fenced("orders").Lock(ctx)
//	err = fence.Accept(hold.Token(), hold.Owner()) // where the orders are
//
// A new hold shows its token before it reads what its writes depend on, too: until then the resource still accepts the
// hold before it, whose late write would change what has been read.
//
// [Fence] does this in the memory of a service, [AcceptSQL] in a database, [RedisAccept] in Redis. Tables, hashes and
// statements are the same as in the C and Python packages, so holders in all languages can protect the same row.
// The package does not depend on the lock's client.
package fencing

import (
	"errors"
	"sync"
)

var (
	// ErrStale says that the resource has accepted the token of a newer hold: stop working under the old one.
	ErrStale = errors.New("fencing: the token is stale: a newer hold has been accepted")
	// ErrNoToken says that the hold belongs to a lock without fencing tokens.
	ErrNoToken = errors.New("fencing: a token must be greater than 0; take a fenced lock")
)

// A Mark is the greatest token that a resource has accepted, and the token's owner. The zero Mark is that of a
// resource that has seen no token.
type Mark struct {
	Token int64
	Owner string
}

// Check returns nil if next may follow seen: a greater token, or the same token of the same owner. Equal tokens of
// two owners mean that the counter was lost, and only the first is accepted.
func Check(seen, next Mark) error {
	switch {
	case next.Token <= 0:
		return ErrNoToken
	case next.Token < seen.Token, next.Token == seen.Token && next.Owner != seen.Owner:
		return ErrStale
	}
	return nil
}

// A Fence guards one resource in the memory of the service that owns it. The zero Fence is ready for use by
// many goroutines.
type Fence struct {
	mu   sync.Mutex
	seen Mark
}

// Accept records the token, or returns [ErrStale] or [ErrNoToken] and changes nothing.
func (f *Fence) Accept(token int64, owner string) error {
	return f.Do(token, owner, func() error { return nil })
}

// Do accepts the token and runs change, while no other token can be accepted.
func (f *Fence) Do(token int64, owner string, change func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := Mark{token, owner}
	if err := Check(f.seen, next); err != nil {
		return err
	}
	f.seen = next
	return change()
}

// Seen returns the greatest token accepted so far, to be stored together with the resource.
func (f *Fence) Seen() Mark {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen
}

// Restore makes the fence continue from a stored mark; an older mark changes nothing.
func (f *Fence) Restore(mark Mark) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if mark.Token > f.seen.Token {
		f.seen = mark
	}
}
