//go:build cgo

package snib

import (
	"context"
	"time"
)

// A Doer runs work under a lock, see [Mutex.Do]. Every kind of lock is one, and so are permits and semaphores, with one
// permit. Code that takes a Doer can be tested without a server, with a [DoerFunc]. Under a fake [HoldFrom] returns nil.
type Doer interface {
	Do(ctx context.Context, work func(context.Context) error) error
}

// A DoerFunc is a function as a [Doer]: a fake, or a form of Do with another name such as [RW.RDo].
type DoerFunc func(ctx context.Context, work func(context.Context) error) error

// Do calls f.
func (f DoerFunc) Do(ctx context.Context, work func(context.Context) error) error {
	return f(ctx, work)
}

// Held is what code under a lock needs of its [Hold]. Code that takes Held can be tested with a fake.
type Held interface {
	Check() error
	Remaining() time.Duration
	Token() int64
	Owner() string
	Lost() <-chan struct{}
	Context(parent context.Context) context.Context
	Extend(ctx context.Context, lease time.Duration) error
	Unlock(ctx context.Context) error
}

var (
	_ Doer = Locker(nil)
	_ Doer = (*Mutex)(nil)
	_ Doer = (*RW)(nil)
	_ Doer = (*Group)(nil)
	_ Doer = (*Permits)(nil)
	_ Doer = (*Semaphore)(nil)
	_ Held = (*Hold)(nil)
)
