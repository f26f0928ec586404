//go:build cgo

package snib_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	snib "github.com/snib-lock/snib/go"
)

var background = context.Background()

func TestLockAndUnlock(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url())
	mutex := client.Mutex("orders")
	hold := lock(t, mutex)
	must(t, hold.Check())
	if left := hold.Remaining(); left < 25*time.Second || left > 30*time.Second {
		t.Errorf("remaining %v", left)
	}
	if owner := s.do(t, "HGET", "orders", hold.Owner()); owner != "1" {
		t.Errorf("count on the wire %q", owner)
	}
	if !strings.HasPrefix(hold.Owner(), client.ID()+":") {
		t.Errorf("owner %q of client %q", hold.Owner(), client.ID())
	}
	info, err := mutex.Info(background)
	must(t, err)
	if !info.Held || !info.Mine || info.Owner != hold.Owner() || info.Count != 1 {
		t.Errorf("info %+v", info)
	}
	names, err := client.List(background, "ord*")
	must(t, err)
	if len(names) != 1 || names[0] != "orders" {
		t.Errorf("list %q", names)
	}
	if _, err := mutex.TryLock(background); !errors.Is(err, snib.ErrBusy) {
		t.Errorf("try: %v", err)
	}
	ctx := hold.Context(background)
	must(t, hold.Unlock(background))
	if <-ctx.Done(); context.Cause(ctx) != context.Canceled {
		t.Errorf("cause %v", context.Cause(ctx))
	}
	if err := hold.Unlock(background); !errors.Is(err, snib.ErrNotHeld) {
		t.Errorf("second unlock: %v", err)
	}
	if err := mutex.ForceRelease(background); !errors.Is(err, snib.ErrNotHeld) {
		t.Errorf("force: %v", err)
	}
	if state, _ := hold.State(); state != snib.StateReleased || hold.Remaining() != 0 {
		t.Errorf("state %v", state)
	}
	if stats := client.Stats(); stats.Acquisitions != 1 || stats.Releases != 1 || stats.Held != 0 {
		t.Errorf("stats %+v", stats)
	}
	s.clean(t)
}

func TestExclusion(t *testing.T) {
	s := startServer(t)
	clients := []*snib.Client{open(t, s.url()), open(t, s.url())}
	var inside, passed atomic.Int32
	together(32, func(i int) {
		mutex := clients[i%2].Mutex("hot")
		for range 25 {
			hold, err := mutex.Lock(background)
			if err != nil {
				t.Error(err)
				return
			}
			if inside.Add(1) != 1 {
				t.Error("two inside")
			}
			inside.Add(-1)
			passed.Add(1)
			if err := hold.Unlock(background); err != nil {
				t.Error(err)
			}
		}
	})
	if passed.Load() != 800 {
		t.Errorf("%d of 800", passed.Load())
	}
	s.clean(t)
}

func TestReentrant(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url())
	mine, other := client.Reentrant("deep", 7), client.Reentrant("deep", 8)
	outer := lock(t, mine)
	commands := client.Stats().Commands
	var inner []*snib.Hold
	for range 10 {
		inner = append(inner, lock(t, mine))
	}
	for _, hold := range inner {
		must(t, hold.Unlock(background))
	}
	if n := client.Stats().Commands - commands; n != 0 {
		t.Errorf("%d commands for re-entry", n)
	}
	if _, err := other.TryLock(background); !errors.Is(err, snib.ErrBusy) {
		t.Errorf("other owner: %v", err)
	}
	must(t, outer.Unlock(background))
	must(t, lock(t, other).Unlock(background))
	if _, err := client.Reentrant("deep", 0).Lock(background); !errors.Is(err, snib.ErrInvalidArgument) {
		t.Errorf("owner 0: %v", err)
	}
	s.clean(t)
}

func TestContexts(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url())
	mutex := client.Mutex("ctx")
	hold := lock(t, mutex)
	short, cancel := context.WithTimeout(background, 50*time.Millisecond)
	defer cancel()
	_, err := mutex.Lock(short)
	if !errors.Is(err, snib.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("deadline: %v", err)
	}
	cancelled, cancel := context.WithCancel(background)
	time.AfterFunc(20*time.Millisecond, cancel)
	_, err = mutex.Lock(cancelled)
	if !errors.Is(err, snib.ErrCancelled) || !errors.Is(err, context.Canceled) {
		t.Errorf("cancel: %v", err)
	}
	if _, err = mutex.Lock(cancelled); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before: %v", err)
	}
	must(t, hold.Unlock(background))
	s.clean(t)
}

// A cancel at any moment leaves nothing behind.
func TestCancelAtEveryMoment(t *testing.T) {
	s := startServer(t)
	client, rival := open(t, s.url()), open(t, s.url())
	runs := 10000
	if testing.Short() {
		runs = 1000
	}
	together(20, func(worker int) {
		random := rand.New(rand.NewSource(int64(worker)))
		for i := range runs / 20 {
			name := fmt.Sprintf("moment:%d", random.Intn(10))
			ctx, cancel := context.WithCancel(background)
			timer := time.AfterFunc(time.Duration(random.Intn(300))*time.Microsecond, cancel)
			from := client
			if i%2 == 0 {
				from = rival
			}
			if hold, err := from.Mutex(name).Lock(ctx); err == nil {
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
	s.clean(t)
	for _, c := range []*snib.Client{client, rival} {
		if stats := c.Stats(); stats.Held != 0 || stats.Waiting != 0 {
			t.Errorf("%d held, %d waiting: %+v", stats.Held, stats.Waiting, stats)
		}
	}
}

func TestTenThousandWaitersNeedNoThreads(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url())
	mutex := client.Mutex("crowd")
	hold := lock(t, mutex)
	const waiters = 10000
	before := threads(t)
	ctx, cancel := context.WithCancel(background)
	finished := make(chan error, waiters)
	for range waiters {
		go func() {
			_, err := mutex.Lock(ctx)
			finished <- err
		}()
	}
	await(t, func() bool { return client.Stats().Waiting == waiters })
	// Go starts some on a busy machine, for goroutines that are ready while a call into C takes its time.
	if grown := threads(t) - before; grown > waiters/100 {
		t.Errorf("%d more threads", grown)
	}
	cancel()
	for range waiters {
		if err := <-finished; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	must(t, hold.Unlock(background))
	s.clean(t)
}

// The server stops: the hold is lost before the lease can end, and its context is cancelled.
func TestLostWhenTheServerStops(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := open(t, s.url(), snib.WatchdogLease(renewed), snib.Patience(time.Second))
	var holds []*snib.Hold
	var ends []time.Time
	for i := range 10 {
		holds = append(holds, lock(t, client.Mutex(fmt.Sprint("stop:", i))))
	}
	before := client.Stats().Renewals
	for i := range holds {
		asked := time.Now()
		var left int
		fmt.Sscan(s.do(t, "PTTL", fmt.Sprint("stop:", i)), &left)
		ends = append(ends, asked.Add(time.Duration(left)*time.Millisecond))
	}
	s.halt(t)
	last := time.Now().Add(renewed) // the latest end that a renewal may have set
	for i, hold := range holds {
		time.Sleep(time.Until(ends[i]))
		err := hold.Check()
		if err == nil && client.Stats().Renewals != before {
			time.Sleep(time.Until(last))
			err = hold.Check()
		}
		if !errors.Is(err, snib.ErrLost) {
			t.Errorf("at the lease's end: %v", err)
		}
		work := hold.Context(background)
		<-work.Done()
		if !errors.Is(context.Cause(work), snib.ErrLost) {
			t.Errorf("cause %v", context.Cause(work))
		}
		if _, reason := hold.State(); reason != snib.ReasonUnreachable {
			t.Errorf("reason %v", reason)
		}
		<-hold.Lost()
	}
	must(t, s.cmd.Process.Signal(syscall.SIGCONT))
	for _, hold := range holds {
		if err := hold.Unlock(background); !errors.Is(err, snib.ErrLost) {
			t.Errorf("unlock: %v", err)
		}
	}
	s.clean(t)
}

func TestLostByReason(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := open(t, s.url(), snib.WatchdogLease(renewed))
	check := func(hold *snib.Hold, want snib.Reason) {
		t.Helper()
		select {
		case <-hold.Lost():
		case <-time.After(patience):
			t.Fatal("never lost")
		}
		if state, reason := hold.State(); state != snib.StateLost || reason != want {
			t.Errorf("state %d, reason %v instead of %v", state, reason, want)
		}
		if err := hold.Check(); !errors.Is(err, snib.ErrLost) || !strings.Contains(err.Error(), want.String()) {
			t.Errorf("check: %v", err)
		}
		if err := hold.Unlock(background); !errors.Is(err, snib.ErrLost) {
			t.Errorf("unlock: %v", err)
		}
	}
	hold := lock(t, client.Mutex("deleted"))
	s.do(t, "DEL", "deleted")
	check(hold, snib.ReasonDeleted)
	hold = lock(t, client.Mutex("taken"))
	s.do(t, "DEL", "taken")
	s.do(t, "HSET", "taken", "somebody", "1")
	check(hold, snib.ReasonTaken)
	s.do(t, "DEL", "taken")
	check(brief(t, client.Mutex("fixed", snib.Lease(100*time.Millisecond))), snib.ReasonExpired)
	check(lock(t, client.Mutex("long", snib.MaxHold(150*time.Millisecond))), snib.ReasonMaxHold)
	hold = lock(t, client.Mutex("closed"))
	must(t, client.Close())
	check(hold, snib.ReasonClosed)
	s.clean(t)
}

// The work is told to stop before another client can get the lock.
func TestUnlockEndsTheContextFirst(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url())
	hold := lock(t, client.Mutex("orders"))
	work := hold.Context(background)
	s.halt(t)
	result := make(chan error, 1)
	go func() { result <- hold.Unlock(background) }()
	<-work.Done()
	select {
	case err := <-result:
		t.Errorf("unlocked by a server that stands still: %v", err)
	default:
	}
	must(t, s.cmd.Process.Signal(syscall.SIGCONT))
	must(t, <-result)
}

func TestListEndsWithItsContext(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url())
	s.halt(t)
	ctx, cancel := context.WithTimeout(background, 50*time.Millisecond) // far less than the client's patience
	defer cancel()
	if _, err := client.List(ctx, ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("list: %v", err)
	}
	must(t, s.cmd.Process.Signal(syscall.SIGCONT))
}

func TestUnlockStopsWaitingWithItsContext(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url())
	hold := lock(t, client.Mutex("slow"))
	s.halt(t)
	ctx, cancel := context.WithTimeout(background, 100*time.Millisecond)
	defer cancel()
	if err := hold.Unlock(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("unlock: %v", err)
	}
	must(t, s.cmd.Process.Signal(syscall.SIGCONT))
	s.clean(t) // the release has continued
}

func TestBadInput(t *testing.T) {
	s := startServer(t, "--requirepass", "canary-password")
	fine := "unix://:canary-password@" + s.path
	client := open(t, fine)
	expect := func(what string, err error, want snib.Code) {
		t.Helper()
		expect(t, what, err, want)
		if err != nil && strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: the password is in %q", what, err)
		}
	}
	for _, name := range []string{"", strings.Repeat("x", 513), "\xff", "a\x00b", "a\nb", "a{b", "{}a", "a}b{c}"} {
		_, err := client.Mutex(name).Lock(background)
		expect(fmt.Sprintf("name %.20q", name), err, snib.ErrInvalidName)
		_, err = client.Mutex(name).Info(background)
		expect("info of a bad name", err, snib.ErrInvalidName)
	}
	for _, lease := range []time.Duration{0, -1, -time.Second, time.Microsecond, 99 * time.Millisecond, 25 * time.Hour, 1<<63 - 1} {
		_, err := client.Mutex("x", snib.Lease(lease)).Lock(background)
		expect(fmt.Sprint("lease ", lease), err, snib.ErrInvalidLease)
		_, err = snib.Open(background, fine, snib.WatchdogLease(lease))
		expect(fmt.Sprint("watchdog lease ", lease), err, snib.ErrInvalidLease)
	}
	_, err := client.Mutex("x", snib.MaxHold(-5)).Lock(background)
	if err != nil && !errors.Is(err, snib.ErrInvalidOption) {
		t.Errorf("max hold: %v", err)
	}
	for url, want := range map[string]snib.Code{
		"http://localhost":               snib.ErrInvalidURL,
		"redis://localhost:99999":        snib.ErrInvalidURL,
		"redis://:canary@h/x":            snib.ErrInvalidURL,
		"unix://relative":                snib.ErrInvalidURL,
		"rediss://127.0.0.1:1":           snib.ErrNotConnected,
		"redis://127.0.0.1:1":            snib.ErrNotConnected,
		"unix://:canary@/nowhere/at/all": snib.ErrUnreachable, // which ErrNotConnected also matches
		"unix://:canary-wrong@" + s.path: snib.ErrAuth,
		"unix://" + s.path:               snib.ErrAuth,
		fine + "?db=99":                  snib.ErrInvalidDatabase,
	} {
		limit := patience
		if want == snib.ErrNotConnected || want == snib.ErrUnreachable {
			limit = 300 * time.Millisecond
		}
		_, err := snib.Open(background, url, snib.Patience(limit))
		expect("url "+url, err, want)
	}
	_, err = snib.Open(background, "redis://nul\x00byte")
	expect("NUL in a URL", err, snib.ErrInvalidURL)
	must(t, client.Close())
	must(t, client.Close())
	_, err = client.Mutex("x").Lock(background)
	expect("closed client", err, snib.ErrClosed)
	expect("closed client's ping", client.Ping(background), snib.ErrClosed)
}

func TestWrongType(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url())
	s.do(t, "SET", "text", "mine")
	mutex := client.Mutex("text")
	if _, err := mutex.Lock(background); !errors.Is(err, snib.ErrWrongType) {
		t.Errorf("lock: %v", err)
	}
	if err := mutex.ForceRelease(background); !errors.Is(err, snib.ErrWrongType) {
		t.Errorf("force: %v", err)
	}
	if text := s.do(t, "GET", "text"); text != "mine" {
		t.Errorf("changed to %q", text)
	}
}

func TestCloseEndsEverything(t *testing.T) {
	s := startServer(t)
	goroutines := runtime.NumGoroutine()
	client := open(t, s.url())
	mutex := client.Mutex("end")
	hold := lock(t, mutex)
	finished := make(chan error, 10)
	for range 10 {
		go func() {
			_, err := mutex.Lock(background)
			finished <- err
		}()
	}
	await(t, func() bool { return client.Stats().Waiting == 10 })
	must(t, client.Close())
	for range 10 {
		if err := <-finished; !errors.Is(err, snib.ErrClosed) {
			t.Errorf("waiter: %v", err)
		}
	}
	for _, err := range []error{hold.Check(), hold.Unlock(background)} {
		var e *snib.Error
		if !errors.Is(err, snib.ErrLost) || !errors.As(err, &e) || e.Reason != snib.ReasonClosed {
			t.Errorf("hold: %v", err)
		}
	}
	if _, err := mutex.Lock(background); !errors.Is(err, snib.ErrClosed) {
		t.Errorf("lock: %v", err)
	}
	if err := client.Ping(background); !errors.Is(err, snib.ErrClosed) {
		t.Errorf("ping: %v", err)
	}
	s.clean(t)
	await(t, func() bool { return runtime.NumGoroutine() <= goroutines })
}

// A second Close waits, too, because main may return after it: such as when it hears of the loss from CloseOnTerm's.
func TestSecondCloseWaitsForReleases(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url(), snib.Patience(patience))
	lock(t, client.Mutex("slow"))
	s.halt(t)
	closed := make(chan error, 2)
	go func() { closed <- client.Close() }()
	await(t, client.Closed)
	expect(t, "in a hurry", client.CloseTimeout(0), snib.ErrTimeout)
	go func() { closed <- client.Close() }()
	must(t, s.cmd.Process.Signal(syscall.SIGCONT))
	for range 2 {
		must(t, soon(t, closed))
		if n := s.do(t, "EVAL", countKeys, "0"); n != "0" {
			t.Errorf("%s keys are left", n)
		}
	}
	must(t, client.CloseTimeout(0))
}

// A daemon that has closed its standard descriptors gives their numbers to files of its own.
func TestNoStandardDescriptors(t *testing.T) {
	if url := os.Getenv("SNIB_TEST_MAIN"); url != "" {
		reader, _, _ := os.Pipe() // the runtime takes the descriptors of its poller
		_ = reader.SetDeadline(time.Time{})
		for fd := range 3 {
			_ = syscall.Close(fd)
		}
		_, err := snib.Open(background, url)
		for fd := range 3 {
			var stat syscall.Stat_t
			if err != nil || syscall.Fstat(fd, &stat) != syscall.EBADF {
				os.Exit(3 + fd)
			}
		}
		os.Exit(0)
	}
	child := exec.Command(os.Args[0], "-test.run=^TestNoStandardDescriptors$")
	child.Env = append(os.Environ(), "SNIB_TEST_MAIN="+startServer(t).url())
	must(t, child.Run())
}

// main returns while a lock is held, waited for and lost: no crash, no hang.
func TestMainReturns(t *testing.T) {
	if url := os.Getenv("SNIB_TEST_MAIN"); url != "" {
		client, err := snib.Open(background, url, snib.WatchdogLease(150*time.Millisecond))
		if err != nil {
			os.Exit(3)
		}
		mutex := client.Mutex("main")
		hold, err := mutex.Lock(background)
		if err != nil {
			os.Exit(4)
		}
		for range 5 {
			go func() { _, _ = mutex.Lock(background) }()
		}
		if os.Getenv("SNIB_TEST_LOSE") != "" {
			_ = mutex.ForceRelease(background)
			<-hold.Lost()
		}
		os.Exit(0)
	}
	s := startServer(t)
	for i := range 20 {
		child := exec.Command(os.Args[0], "-test.run=^TestMainReturns$")
		child.Env = append(os.Environ(), "SNIB_TEST_MAIN="+s.url(), "GORACE=atexit_sleep_ms=0")
		if i%2 == 1 {
			child.Env = append(child.Env, "SNIB_TEST_LOSE=1")
		}
		timer := time.AfterFunc(4*patience, func() { _ = child.Process.Kill() })
		if out, err := child.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		timer.Stop()
	}
	s.clean(t)
}
