//go:build cgo

package snib_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	snib "github.com/snib-lock/snib/go"
)

// pool is what semaphores and permits have in common.
type pool interface {
	Acquire(context.Context, int) (*snib.Hold, error)
	TryAcquire(context.Context, int) (*snib.Hold, error)
	Init(context.Context, int) (bool, error)
	Add(context.Context, int) (int, error)
	Available(context.Context) (int, error)
	Info(context.Context) (snib.Info, error)
	ForceRelease(context.Context) error
}

var pools = []struct {
	kind  string
	make  func(*snib.Client, string) pool
	stays []string // keys that stay at the end, for the name "pool"
}{
	{"semaphore", func(c *snib.Client, n string) pool { return c.Semaphore(n) }, []string{"pool"}},
	{"permits", func(c *snib.Client, n string) pool { return c.Permits(n) }, []string{"pool"}},
}

// number checks the answer of a counter.
func number(t testing.TB, what string, want int) func(int, error) {
	return func(got int, err error) {
		t.Helper()
		if err != nil || got != want {
			t.Errorf("%s: %d, %v instead of %d", what, got, err, want)
		}
	}
}

func initialize(t testing.TB, p interface {
	Init(context.Context, int) (bool, error)
}, n int) {
	t.Helper()
	if done, err := p.Init(background, n); err != nil || !done {
		t.Fatalf("init: %v, %v", done, err)
	}
}

func TestPools(t *testing.T) {
	for _, k := range pools {
		t.Run(k.kind, func(t *testing.T) {
			s := startServer(t)
			client, rival := open(t, s.url()), open(t, s.url())
			mine, other := k.make(client, "pool"), k.make(rival, "pool")
			_, err := mine.TryAcquire(background, 1)
			if err == nil {
				t.Error("a permit of a pool that has no number")
			}
			initialize(t, mine, 5)
			if again, err := other.Init(background, 9); err != nil || again {
				t.Errorf("second init: %v, %v", again, err)
			}
			number(t, "available", 5)(other.Available(background))
			two, err := mine.Acquire(background, 2)
			must(t, err)
			must(t, two.Check())
			if two.Remaining() < 25*time.Second || two.Token() != 0 {
				t.Errorf("remaining %v, token %d", two.Remaining(), two.Token())
			}
			number(t, "after two", 3)(mine.Available(background))
			info, err := other.Info(background)
			must(t, err)
			if info.Count != 3 {
				t.Errorf("info %+v", info)
			}
			_, err = other.TryAcquire(background, 4)
			expect(t, "four of three", err, snib.ErrBusy)
			short, cancel := context.WithTimeout(background, 30*time.Millisecond)
			defer cancel()
			_, err = other.Acquire(short, 4)
			expect(t, "a short wait", err, snib.ErrTimeout)
			four := locking(func(ctx context.Context) (*snib.Hold, error) { return other.Acquire(ctx, 4) })
			await(t, func() bool { return rival.Stats().Waiting == 1 })
			must(t, two.Unlock(background))
			hold := soon(t, four)
			number(t, "after four", 1)(mine.Available(background))
			expect(t, "second unlock", two.Unlock(background), snib.ErrNotHeld)
			number(t, "after it", 1)(mine.Available(background))
			must(t, hold.Unlock(background))
			number(t, "in the end", 5)(mine.Available(background))
			must(t, mine.ForceRelease(background))
			expect(t, "force again", mine.ForceRelease(background), snib.ErrNotHeld)
			s.clean(t)
		})
	}
}

func TestPoolsLimit(t *testing.T) {
	for _, k := range pools {
		t.Run(k.kind, func(t *testing.T) {
			s := startServer(t)
			clients := []*snib.Client{open(t, s.url()), open(t, s.url())}
			initialize(t, k.make(clients[0], "pool"), 3)
			var inside atomic.Int32
			together(10, func(i int) {
				p := k.make(clients[i%2], "pool")
				for range 10 {
					n := 1 + i%3
					hold, err := p.Acquire(background, n)
					if err != nil {
						t.Error(err)
						return
					}
					if now := inside.Add(int32(n)); now > 3 {
						t.Errorf("%d of 3", now)
					}
					inside.Add(-int32(n))
					if err := hold.Unlock(background); err != nil {
						t.Error(err)
					}
				}
			})
			number(t, "in the end", 3)(k.make(clients[0], "pool").Available(background))
			s.clean(t, k.stays...)
		})
	}
}

func TestPoolsGrow(t *testing.T) {
	for _, k := range pools {
		t.Run(k.kind, func(t *testing.T) {
			s := startServer(t)
			client := open(t, s.url())
			p := k.make(client, "pool")
			initialize(t, p, 1)
			hold, err := p.Acquire(background, 1)
			must(t, err)
			second := locking(func(ctx context.Context) (*snib.Hold, error) { return p.Acquire(ctx, 1) })
			await(t, func() bool { return client.Stats().Waiting == 1 })
			number(t, "one more", 1)(p.Add(background, 1))
			must(t, soon(t, second).Unlock(background))
			number(t, "two less", -1)(p.Add(background, -2))
			must(t, hold.Unlock(background))
			number(t, "none", 0)(p.Available(background))
			_, err = p.TryAcquire(background, 1)
			if err == nil {
				t.Error("a permit of none")
			}
			s.clean(t, k.stays...)
		})
	}
}

func TestBadNumbers(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url())
	for _, k := range pools {
		p := k.make(client, "pool")
		for _, n := range []int{0, -1, 1001, 1 << 31, 1 << 32, 1<<32 + 1, math.MaxInt64, math.MinInt64} {
			_, err := p.Acquire(background, n)
			expect(t, k.kind+": acquire", err, snib.ErrPermits)
			_, err = p.TryAcquire(background, n)
			expect(t, k.kind+": try", err, snib.ErrPermits)
		}
		for _, n := range []int{-1, 1 << 31, math.MaxInt64, math.MinInt64} {
			_, err := p.Init(background, n)
			expect(t, k.kind+": init", err, snib.ErrPermits)
		}
		_, err := p.Add(background, 0)
		expect(t, k.kind+": add", err, snib.ErrPermits)
		for _, n := range []int{math.MaxInt64, math.MinInt64} {
			_, err = p.Add(background, n)
			expect(t, k.kind+": add", err, snib.ErrPermits)
		}
	}
	for _, n := range []int{0, -1, 1 << 31, math.MinInt64} {
		_, err := client.Semaphore("pool").PutBack(background, n)
		expect(t, "put back", err, snib.ErrPermits)
		_, err = client.Latch("gate").Init(background, n)
		expect(t, "latch", err, snib.ErrPermits)
	}
	for _, n := range []int{-1, 1 << 31} {
		_, err := client.Permits("pool").Set(background, n)
		expect(t, "set", err, snib.ErrPermits)
	}
	if keys := s.do(t, "EVAL", countKeys, "0"); keys != "0" {
		t.Errorf("%s keys", keys)
	}
	_, err := client.Semaphore("a{b").Available(background)
	expect(t, "name", err, snib.ErrInvalidName)
	expect(t, "name", client.Latch("").Wait(background), snib.ErrInvalidName)
	_, err = client.Latch("gate", snib.Owner(1)).Count(background)
	expect(t, "owner", err, snib.ErrInvalidOption)
	s.do(t, "HSET", "hash", "a", "b")
	_, err = client.Semaphore("hash").TryAcquire(background, 1)
	expect(t, "semaphore of another type", err, snib.ErrWrongType)
	_, err = client.Permits("hash").TryAcquire(background, 1)
	expect(t, "permits of another type", err, snib.ErrWrongType)
	_, err = client.Latch("hash").CountDown(background)
	expect(t, "latch of another type", err, snib.ErrWrongType)
	must(t, client.Close())
	_, err = client.Permits("pool").Acquire(background, 1)
	expect(t, "closed client", err, snib.ErrClosed)
	expect(t, "closed client's latch", client.Latch("gate").Wait(background), snib.ErrClosed)
}

func TestSemaphoreWithoutHolds(t *testing.T) {
	s := startServer(t)
	semaphore := open(t, s.url()).Semaphore("pool")
	initialize(t, semaphore, 3)
	number(t, "put back", 5)(semaphore.PutBack(background, 2))
	number(t, "drain", 5)(semaphore.Drain(background))
	number(t, "drain again", 0)(semaphore.Drain(background))
	_, err := semaphore.TryAcquire(background, 1)
	expect(t, "try", err, snib.ErrBusy)
	s.clean(t, "pool")
}

func TestPermitsKnowTheirNumber(t *testing.T) {
	s := startServer(t)
	permits := open(t, s.url()).Permits("pool")
	_, err := permits.TryAcquire(background, 1) // somebody may set it yet
	expect(t, "no number", err, snib.ErrBusy)
	initialize(t, permits, 4)
	hold, err := permits.Acquire(background, 3)
	must(t, err)
	number(t, "total", 4)(permits.Total(background))
	_, err = permits.TryAcquire(background, 5)
	expect(t, "more than there are", err, snib.ErrPermits)
	_, err = permits.Acquire(background, 5) // it would wait for ever
	expect(t, "waiting for more than there are", err, snib.ErrPermits)
	number(t, "set", 3)(permits.Set(background, 6))
	number(t, "total", 6)(permits.Total(background))
	must(t, hold.Unlock(background))
	number(t, "in the end", 6)(permits.Available(background))
	s.clean(t, "pool")
}

// The permits of a dead process become free with their lease; a hold of permits is lost like any other.
func TestPermitsHaveALease(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := open(t, s.url(), snib.WatchdogLease(renewed))
	initialize(t, client.Permits("pool"), 2)
	fixed := brief(t, client.Permits("pool", snib.Lease(150*time.Millisecond)))
	back, err := client.Permits("pool").Acquire(background, 2)
	must(t, err)
	if state, reason := fixed.State(); state != snib.StateLost || reason != snib.ReasonExpired {
		t.Errorf("state %v, reason %v", state, reason)
	}
	before := client.Stats().Renewals
	await(t, func() bool { return client.Stats().Renewals >= before+4 })
	must(t, back.Check())
	must(t, client.Permits("pool").ForceRelease(background))
	soon(t, back.Lost())
	expect(t, "unlock", back.Unlock(background), snib.ErrLost)
	s.clean(t)
}

// The permits of a dropped hold become free with their lease. Those of a semaphore have none: they stay taken.
func TestDroppedPermits(t *testing.T) {
	t.Parallel()
	for _, k := range pools {
		s := startServer(t)
		client := open(t, s.url(), snib.WatchdogLease(renewed))
		p := k.make(client, "pool")
		initialize(t, p, 1)
		_, err := p.Acquire(background, 1)
		must(t, err)
		await(t, func() bool {
			runtime.GC()
			return client.Stats().Held == 0
		})
		number(t, k.kind+" after the collection", 0)(p.Available(background))
		if k.kind == "semaphore" {
			number(t, "put back", 1)(client.Semaphore("pool").PutBack(background, 1))
		}
		await(t, func() bool {
			n, err := p.Available(background)
			return err == nil && n == 1
		})
		s.clean(t, k.stays...)
	}
}

func TestCancelledAcquireTakesNothing(t *testing.T) {
	for _, k := range pools {
		s := startServer(t)
		client := open(t, s.url())
		p := k.make(client, "pool")
		initialize(t, p, 3)
		together(8, func(worker int) {
			for i := range 50 {
				ctx, cancel := context.WithCancel(background)
				timer := time.AfterFunc(time.Duration(i*worker%30)*10*time.Microsecond, cancel)
				if hold, err := p.Acquire(ctx, 2); err == nil {
					if err := hold.Unlock(background); err != nil {
						t.Error(err)
					}
				} else if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				timer.Stop()
				cancel()
			}
		})
		await(t, func() bool {
			n, err := p.Available(background)
			return err == nil && n == 3
		})
		s.clean(t, k.stays...)
	}
}

func TestLatch(t *testing.T) {
	s := startServer(t)
	client, rival := open(t, s.url()), open(t, s.url())
	mine, other := client.Latch("gate"), rival.Latch("gate")
	must(t, mine.Wait(background)) // never set: open
	number(t, "never set", 0)(mine.Count(background))
	number(t, "down from nothing", 0)(mine.CountDown(background))
	initialize(t, mine, 2)
	if again, err := other.Init(background, 9); err != nil || again {
		t.Errorf("second init: %v, %v", again, err)
	}
	short, cancel := context.WithTimeout(background, 30*time.Millisecond)
	defer cancel()
	if err := mine.Wait(short); !errors.Is(err, snib.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("wait: %v", err)
	}
	through := make(chan error, 4)
	for i := range 4 {
		go func() { through <- []*snib.Latch{mine, other}[i%2].Wait(background) }()
	}
	await(t, func() bool { return client.Stats().Waiting == 2 && rival.Stats().Waiting == 2 })
	number(t, "down", 1)(other.CountDown(background))
	number(t, "count", 1)(mine.Count(background))
	select {
	case err := <-through:
		t.Errorf("through at 1: %v", err)
	default:
	}
	number(t, "down again", 0)(mine.CountDown(background))
	for range 4 {
		must(t, soon(t, through))
	}
	must(t, other.Wait(background))
	s.clean(t)
}

func TestForcedLatchOpens(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url())
	latch := client.Latch("gate")
	initialize(t, latch, 2)
	through := make(chan error, 1)
	go func() { through <- latch.Wait(background) }()
	await(t, func() bool { return client.Stats().Waiting == 1 })
	must(t, latch.ForceRelease(background))
	must(t, soon(t, through))
	s.clean(t)
}
