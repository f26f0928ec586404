//go:build cgo

package snib_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	snib "github.com/snib-lock/snib/go"
)

// ship is a program's function: it ships orders under a lock.
func ship(ctx context.Context, lock snib.Doer, orders ...string) error {
	return lock.Do(ctx, func(ctx context.Context) error {
		for _, order := range orders {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			fmt.Println("shipped", order)
		}
		return nil
	})
}

// always is a lock that is always free.
func always(ctx context.Context, work func(context.Context) error) error { return work(ctx) }

// A program is tested with locks of the test's own, which need no server: one that is free, one that is held by another
// process, and one that is lost before the work has begun.
func Example_fake() {
	ctx := context.Background()
	held := func(context.Context, func(context.Context) error) error { return snib.ErrTimeout }
	lost := func(ctx context.Context, work func(context.Context) error) error {
		ctx, lose := context.WithCancelCause(ctx)
		lose(snib.ErrLost)
		return errors.Join(snib.ErrLost, work(ctx))
	}
	fmt.Println(ship(ctx, snib.DoerFunc(always), "a", "b"))
	fmt.Println(errors.Is(ship(ctx, snib.DoerFunc(held), "a", "b"), snib.ErrTimeout))
	fmt.Println(errors.Is(ship(ctx, snib.DoerFunc(lost), "a", "b"), snib.ErrLost))
	// Output:
	// shipped a
	// shipped b
	// <nil>
	// true
	// true
}

// Every kind of lock is a Doer; what Do does under another name becomes one.
func ExampleDoerFunc() {
	ctx := context.Background()
	client, _ := snib.Open(ctx, address)
	defer client.Close()
	fmt.Println(ship(ctx, client.Mutex("order"), "a"))
	fmt.Println(ship(ctx, snib.DoerFunc(client.RW("orders").RDo), "b"))
	// Output:
	// shipped a
	// <nil>
	// shipped b
	// <nil>
}

// fakeHold is a hold of the test's own. What the code under test does not call may be left out.
type fakeHold struct {
	snib.Held
	token int64
	lost  error
}

func (h *fakeHold) Check() error { return h.lost }
func (h *fakeHold) Token() int64 { return h.token }

func (h *fakeHold) Extend(_ context.Context, lease time.Duration) error {
	fmt.Println("a lease of", lease)
	return h.lost
}

// write is a program's function: it writes with the token of a hold, and has a minute for it.
func write(hold snib.Held) error {
	if err := hold.Check(); err != nil {
		return err
	}
	if err := hold.Extend(context.Background(), time.Minute); err != nil {
		return err
	}
	fmt.Println("written with token", hold.Token())
	return nil
}

func ExampleHeld() {
	fmt.Println(write(&fakeHold{token: 7}))
	fmt.Println(errors.Is(write(&fakeHold{lost: snib.ErrLost}), snib.ErrLost))

	ctx := context.Background()
	client, _ := snib.Open(ctx, address)
	defer client.Close()
	hold, _ := client.Fenced("first of its name").Lock(ctx)
	fmt.Println(write(hold), hold.Unlock(ctx))
	// Output:
	// a lease of 1m0s
	// written with token 7
	// <nil>
	// true
	// written with token 1
	// <nil> <nil>
}
