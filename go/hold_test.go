//go:build cgo

package snib_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	snib "github.com/snib-lock/snib/go"
)

// told is everything that a hold reports at one moment.
type told struct {
	state  snib.State
	reason snib.Reason
	err    error
	left   time.Duration
}

func ask(hold *snib.Hold) told {
	var now told
	now.left = hold.Remaining()
	now.err = hold.Check()
	now.state, now.reason = hold.State()
	_, _ = hold.Owner(), hold.Token()
	return now
}

// observe polls a hold until it has ended or stop is closed, and reports every reversal: a lost hold stays lost, an
// unlocked one stays unlocked, and neither has time left.
func observe(hold *snib.Hold, stop <-chan struct{}, wrong func(string)) {
	over := snib.StateValid
	for {
		now := ask(hold)
		lost, unlocked := errors.Is(now.err, snib.ErrLost), errors.Is(now.err, snib.ErrNotHeld)
		switch {
		case now.err != nil && !lost && !unlocked:
			wrong(fmt.Sprint("check: ", now.err))
		case over != snib.StateValid && (now.state != over || now.err == nil || now.left != 0):
			wrong(fmt.Sprintf("was in state %d, now %+v", over, now))
		case (lost || unlocked) && now.state < snib.StateLost:
			wrong(fmt.Sprintf("safe after all: %+v", now))
		}
		if now.state >= snib.StateLost {
			over = now.state
		}
		select {
		case <-stop:
			return
		default:
			runtime.Gosched()
		}
	}
}

// beside runs act while two goroutines observe the hold, and a little longer.
func beside(t *testing.T, hold *snib.Hold, act func(), wrong func(string)) {
	t.Helper()
	stop := make(chan struct{})
	var all sync.WaitGroup
	for range 2 {
		all.Add(1)
		go func() {
			defer all.Done()
			observe(hold, stop, wrong)
		}()
	}
	runtime.Gosched()
	act()
	ask(hold)
	close(stop)
	all.Wait()
}

// While one goroutine unlocks, others see that the hold is safe or that it was unlocked, never that it was lost.
func TestAskingWhileUnlocking(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url())
	mutex := client.Mutex("asked")
	for range rounds(3000) {
		hold := lock(t, mutex)

		beside(t, hold, func() {
			if err := hold.Unlock(background); err != nil {
				t.Error(err)
			}
		}, func(what string) { t.Error(what) })
		if state, reason := hold.State(); state != snib.StateReleased || reason != snib.ReasonNone {
			t.Fatalf("state %d, reason %v of what was unlocked", state, reason)
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	s.clean(t)
}

// A lost hold stays lost, and keeps its reason, while it is unlocked and while its client is closed.
func TestAskingWhileLosing(t *testing.T) {
	s := startServer(t)
	for i := range rounds(60) {
		client := open(t, s.url())
		want, lease := snib.ReasonExpired, 100*time.Millisecond
		if i%3 == 2 {
			want, lease = snib.ReasonClosed, patience
		}
		hold := brief(t, client.Mutex("lost", snib.Lease(lease)))
		beside(t, hold, func() {
			if want == snib.ReasonClosed {
				if err := client.Close(); err != nil {
					t.Error(err)
				}
			} else {
				<-hold.Lost()
			}
			if err := hold.Unlock(background); !errors.Is(err, snib.ErrLost) {
				t.Errorf("unlock: %v", err)
			}
			if i%3 == 1 {
				_ = client.Close()
			}
		}, func(what string) { t.Error(what) })
		var e *snib.Error
		if state, reason := hold.State(); state != snib.StateLost || reason != want {
			t.Errorf("state %d, reason %v instead of %v", state, reason, want)
		}
		if err := hold.Check(); !errors.As(err, &e) || e.Reason != want {
			t.Errorf("check: %v", err)
		}
		_ = client.Close()
		if t.Failed() {
			t.FailNow()
		}
	}
}

// Of a hold that was lost, others see the loss while it is unlocked, also those that did not ask before.
func TestAskingFirstWhileUnlocking(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url())
	holds := make([]*snib.Hold, rounds(500))
	for i := range holds {
		holds[i] = brief(t, client.Mutex(fmt.Sprint("lost ", i), snib.Lease(100*time.Millisecond)))
	}
	await(t, func() bool { return client.Stats().Held == 0 })
	for _, hold := range holds {
		together(3, func(i int) {
			switch i {
			case 0:
				expect(t, "unlock", hold.Unlock(background), snib.ErrLost)
			case 1:
				expect(t, "check", hold.Check(), snib.ErrLost)
			case 2:
				select {
				case <-hold.Lost():
				default:
					t.Error("its channel is open")
				}
			}
		})
	}
}

// All queries of a client and a hold while the client is being closed: they return, without a race.
func TestAskingWhileClosing(t *testing.T) {
	s := startServer(t)
	for range rounds(30) {
		client := open(t, s.url())
		mutex, permits := client.Mutex("busy"), client.Permits("some")
		hold := lock(t, mutex)
		calls := []func(context.Context) error{
			client.Ping,
			func(ctx context.Context) error { _, err := client.List(ctx, ""); return err },
			func(ctx context.Context) error { _, err := client.Describe(ctx, "busy"); return err },
			func(ctx context.Context) error { _, err := mutex.Lock(ctx); return err },
			func(ctx context.Context) error { _, err := mutex.Info(ctx); return err },
			func(ctx context.Context) error { _, err := permits.Available(ctx); return err },
			func(context.Context) error { _, _ = client.Stats(), client.ID(); return nil },
			func(context.Context) error { return client.Mutex("new").ForceRelease(background) },
			func(context.Context) error { ask(hold); return nil },
			func(context.Context) error { hold.Lost(); return nil },
			func(context.Context) error { return hold.Unlock(background) },
			func(context.Context) error { return client.CloseTimeout(patience) },
		}
		together(len(calls), func(i int) {
			err := calls[i](background)
			for _, fine := range []error{nil, snib.ErrClosed, snib.ErrNotHeld, snib.ErrLost} {
				if errors.Is(err, fine) {
					return
				}
			}
			t.Errorf("call %d: %v", i, err)
		})
	}
}

// A holdup is a parent whose Done blocks once it is armed. A context that is cancelled asks for it, to leave its parent.
type holdup struct {
	context.Context
	armed          atomic.Bool
	asked, proceed chan struct{}
}

func (h *holdup) Done() <-chan struct{} {
	if h.armed.CompareAndSwap(true, false) {
		close(h.asked)
		<-h.proceed
	}
	return nil
}

// The cause of a context has the reason of the loss, also if Close is the first to tell it, because the event is late.
func TestCloseKeepsTheReason(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := open(t, s.url(), snib.WatchdogLease(renewed))
	first := lock(t, client.Mutex("first"))
	parent := &holdup{Context: background, asked: make(chan struct{}), proceed: make(chan struct{})}
	first.Context(parent)
	hold := lock(t, client.Mutex("second"))
	inside := hold.Context(background)
	parent.armed.Store(true)
	s.do(t, "DEL", "first")
	soon(t, parent.asked) // from now on no event is delivered
	s.do(t, "DEL", "second")
	await(t, func() bool { return hold.Check() != nil })
	go func() { _ = first.Unlock(background) }() // waits for that, too, and then Close need not tell it
	await(t, func() bool { return client.Watched() == 1 })
	closed := make(chan error, 1)
	go func() { closed <- client.Close() }()
	soon(t, inside.Done())
	close(parent.proceed)
	must(t, soon(t, closed))
	var cause *snib.Error
	if _, reason := hold.State(); !errors.As(context.Cause(inside), &cause) || cause.Reason != reason {
		t.Errorf("the hold says %v, its context %+v", reason, cause)
	}
}

// rounds returns n, or a tenth of it in short test runs.
func rounds(n int) int {
	if testing.Short() {
		return (n + 9) / 10
	}
	return n
}

// A zero Hold, lock and Client return errors.
func TestUnmade(t *testing.T) {
	var hold snib.Hold
	if _, err := hold.Downgrade(background); !errors.Is(err, snib.ErrNotHeld) {
		t.Error(err)
	}
	for _, err := range []error{hold.Check(), hold.Unlock(background)} {
		if !errors.Is(err, snib.ErrNotHeld) || err.Error() != "snib: the hold was not made by a lock" {
			t.Error(err)
		}
	}
	if state, _ := hold.State(); state != snib.StateReleased {
		t.Error(state)
	}
	if hold.Remaining() != 0 || hold.Token() != 0 || hold.Replicas() != 0 || hold.Owner() != "" {
		t.Error("it says something of itself")
	}
	if ctx := hold.Context(background); ctx.Err() == nil {
		t.Error("its context has not ended")
	}
	var mutex snib.Mutex
	if _, err := mutex.Lock(background); !errors.Is(err, snib.ErrInvalidArgument) {
		t.Error(err)
	}
	var client snib.Client
	if _, err := client.Mutex("x").Lock(background); !errors.Is(err, snib.ErrClosed) {
		t.Error(err)
	}
	expect(t, "ping", client.Ping(background), snib.ErrClosed)
	_, err := client.List(background, "")
	expect(t, "list", err, snib.ErrClosed)
	must(t, client.Close())
	if !client.Closed() || client.ID() != "" || client.Stats() != (snib.Stats{}) {
		t.Error("the client says something of itself")
	}
	var group snib.Group
	_, err = group.With(snib.Lease(time.Second)).TryLock(background)
	expect(t, "a group", err, snib.ErrInvalidArgument)
}
