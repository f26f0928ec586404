//go:build cgo

package snib_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	snib "github.com/snib-lock/snib/go"
)

type key struct{}

// The context of a hold ends with its parent, with the loss and with the Unlock, each with its cause.
func TestContextEnds(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url())

	hold := lock(t, client.Mutex("parent"))
	why := errors.New("shutdown")
	parent, stop := context.WithCancelCause(context.WithValue(background, key{}, "value"))
	work := hold.Context(parent)
	child, cancel := context.WithTimeout(work, time.Hour)
	defer cancel()
	if work.Value(key{}) != "value" || work.Err() != nil {
		t.Errorf("value %v, error %v", work.Value(key{}), work.Err())
	}
	stop(why)
	<-child.Done()
	if context.Cause(work) != why || work.Err() != context.Canceled {
		t.Errorf("cause %v, error %v", context.Cause(work), work.Err())
	}
	must(t, hold.Check()) // only the work was told to stop
	other := hold.Context(background)
	must(t, hold.Unlock(background))
	if <-other.Done(); context.Cause(other) != context.Canceled {
		t.Errorf("cause after the unlock: %v", context.Cause(other))
	}
	if late := hold.Context(background); context.Cause(late) != context.Canceled {
		t.Errorf("cause of a late one: %v", context.Cause(late))
	}
	if early := hold.Context(parent); context.Cause(early) != why {
		t.Errorf("cause of one whose parent has ended: %v", context.Cause(early))
	}

	deadline, cancel := context.WithTimeout(background, 10*time.Millisecond)
	defer cancel()
	hold = lock(t, client.Mutex("deadline"))
	work = hold.Context(deadline)
	if end, limited := work.Deadline(); !limited || time.Until(end) > time.Second {
		t.Error("the parent's deadline is gone")
	}
	if <-work.Done(); work.Err() != context.DeadlineExceeded {
		t.Errorf("error %v", work.Err())
	}
	must(t, hold.Unlock(background))

	hold = brief(t, client.Mutex("lost", snib.Lease(100*time.Millisecond)))
	for _, work := range []context.Context{hold.Context(background), hold.Context(parent), hold.Context(background)} {
		<-work.Done()
	}
	for range 2 { // a context made after the loss has the same cause
		var e *snib.Error
		cause := context.Cause(hold.Context(background))
		if !errors.Is(cause, snib.ErrLost) || !errors.As(cause, &e) || e.Name != "lost" || e.Kind != "mutex" ||
			e.Reason != snib.ReasonExpired || !strings.Contains(e.Text, "lost") {
			t.Errorf("cause %+v", cause)
		}
		_ = hold.Unlock(background)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no parent, no panic")
			}
		}()
		hold.Context(nil) //nolint:staticcheck // like context.WithCancel
	}()
}

// Contexts cost nothing once they have ended: a long hold may have had any number of them.
func TestContextsAreForgotten(t *testing.T) {
	s := startServer(t)
	hold := lock(t, open(t, s.url()).Mutex("long"))
	collected := make(chan struct{}, 1000)
	for range cap(collected) {
		value := new([100]byte)
		runtime.AddCleanup(value, func(done chan struct{}) { done <- struct{}{} }, collected)
		parent, stop := context.WithCancel(context.WithValue(background, key{}, value))
		hold.Context(parent)
		stop()
	}
	await(t, func() bool {
		runtime.GC()
		return len(collected) == cap(collected)
	})
	must(t, hold.Check())
	must(t, hold.Unlock(background))
}

// logged is a log in memory.
type logged struct{ lines chan string }

func newLogged() logged { return logged{make(chan string, 1000)} }

func (l logged) Write(line []byte) (int, error) {
	l.lines <- string(line)
	return len(line), nil
}

// until waits for a record with all these parts.
func (l logged) until(t testing.TB, parts ...string) string {
	t.Helper()
	for end := time.After(patience); ; {
		select {
		case line := <-l.lines:
			found := true
			for _, part := range parts {
				found = found && strings.Contains(line, part)
			}
			if found {
				return line
			}
		case <-end:
			t.Fatalf("no record with %q", parts)
		}
	}
}

// A hold found by the collector is not released: it is no longer renewed, the lease runs out, and a record says so.
func TestDroppedHold(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	log := newLogged()
	client := open(t, s.url(), snib.WatchdogLease(renewed), log.option())
	rival := open(t, s.url())
	done := lock(t, client.Mutex("dropped")).Context(background).Done()
	lost := lock(t, client.Mutex("watched")).Lost()
	initialize(t, client.Permits("slots"), 2)
	_, err := client.Permits("slots").Acquire(background, 2)
	must(t, err)
	_ = lock(t, snib.Multi(client.Mutex("one"), client.Mutex("two")))
	for range 2 {
		await(t, func() bool {
			runtime.GC()
			return client.Stats().Held == 0
		})
	}
	if _, err := rival.Mutex("dropped").TryLock(background); err == nil {
		t.Error("given back by the collector")
	}
	soon(t, done) // the work under it is notified
	soon(t, lost)
	record := log.until(t, "WARN", `\"dropped\"`, client.ID())
	t.Log(record)
	must(t, lock(t, rival.Mutex("dropped")).Unlock(background)) // once the lease has run out
	must(t, lock(t, snib.Multi(rival.Mutex("two"), rival.Mutex("one"))).Unlock(background))
	must(t, rival.Permits("slots").DoN(background, 2, func(context.Context) error { return nil }))
}

// The same for holds that come after many others: what those left behind ends no renewal but that of a dropped hold.
func TestDroppedAfterOthers(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url(), snib.Logger(nil))
	kept := lock(t, client.Mutex("kept"))
	for range 50 {
		must(t, lock(t, client.Mutex("before")).Unlock(background))
	}
	for i := range 10 {
		_ = lock(t, client.Mutex(fmt.Sprint("dropped ", i)))
		must(t, lock(t, client.Mutex("between")).Unlock(background))
	}
	await(t, func() bool {
		runtime.GC()
		return client.Stats().Held == 1
	})
	must(t, kept.Unlock(background))
}

// A context keeps its hold alive, as long as it is in use.
func TestContextKeepsItsHold(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := open(t, s.url(), snib.WatchdogLease(renewed), snib.Logger(nil))
	work, stop := context.WithCancel(lock(t, client.Mutex("work")).Context(background))
	for range 5 {
		runtime.GC()
	}
	must(t, snib.HoldFrom(work).Check())
	// A context derived from the hold's own context keeps the hold until it has ended, and no longer.
	work = snib.HoldFrom(work).Context(work)
	stop()
	<-work.Done()
	work = nil
	await(t, func() bool {
		runtime.GC()
		return client.Stats().Held == 0
	})
	s.free(t, "work")
}

// everyKind returns Do of every kind of lock.
func everyKind(client *snib.Client, others ...*snib.Client) map[string]func(context.Context, func(context.Context) error) error {
	rw := client.RW("rw")
	var nodes []snib.Locker
	for _, c := range append(others, client) {
		nodes = append(nodes, c.Mutex("q"))
	}
	return map[string]func(context.Context, func(context.Context) error) error{
		"mutex":     client.Mutex("m").Do,
		"fair":      client.Fair("f").Do,
		"write":     rw.Do,
		"read":      rw.RDo,
		"reentrant": client.Reentrant("r", 7).Do,
		"fenced":    client.Fenced("e").Do,
		"spin":      client.Spin("s").Do,
		"plain":     client.Plain("p").Do,
		"semaphore": client.Semaphore("sem").Do,
		"permits":   client.Permits("per").Do,
		"multi":     snib.Multi(client.Mutex("a"), client.Mutex("b")).Do,
		"quorum":    snib.Quorum(nodes...).With(snib.NoQuarantine()).Do,
		"locker":    rw.RLocker().Do,
		"permits 2": func(ctx context.Context, work func(context.Context) error) error {
			return client.Permits("per").DoN(ctx, 2, work)
		},
	}
}

func TestDo(t *testing.T) {
	s, client, others := quorumOfThree(t)
	initialize(t, client.Semaphore("sem"), 1)
	initialize(t, client.Permits("per"), 2)
	why := errors.New("the work went wrong")
	for kind, do := range everyKind(client, others...) {
		t.Run(kind, func(t *testing.T) {
			ran := false
			must(t, do(background, func(ctx context.Context) error {
				ran = true
				hold := snib.HoldFrom(ctx)
				if (hold.Token() > 0) != (kind == "fenced") {
					t.Errorf("token %d", hold.Token())
				}
				return errors.Join(ctx.Err(), hold.Check())
			}))
			if !ran {
				t.Error("not run")
			}
			if err := do(background, func(context.Context) error { return why }); err != why {
				t.Errorf("the work's error: %v", err)
			}
			func() {
				defer func() {
					if recover() != why {
						t.Error("the panic is gone")
					}
				}()
				_ = do(background, func(context.Context) error { panic(why) })
			}()
			ctx, stop := context.WithCancel(background)
			err := do(ctx, func(ctx context.Context) error {
				stop()
				<-ctx.Done()
				return ctx.Err()
			})
			if err != context.Canceled {
				t.Errorf("ended by the caller: %v", err)
			}
			expect(t, "ended before", do(ctx, func(context.Context) error { panic("run") }), snib.ErrCancelled)
			expect(t, "no work", do(background, nil), snib.ErrInvalidArgument)
			must(t, do(background, func(context.Context) error { return nil })) // all of them released
		})
	}
	s.clean(t, "sem", "per", "redisson_lock_token:{e}")
}

// quorumOfThree returns a server, its client, and two clients of other servers.
func quorumOfThree(t testing.TB) (*server, *snib.Client, []*snib.Client) {
	t.Helper()
	s := startServer(t)
	return s, open(t, s.url()), []*snib.Client{open(t, startServer(t).url()), open(t, startServer(t).url())}
}

// A loss during the work ends its context, and Do reports it whatever the work returns.
func TestDoLost(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url(), snib.Logger(nil))
	mutex := client.Mutex("lost", snib.Lease(100*time.Millisecond))
	why := errors.New("stopped half-way")
	for what, work := range map[string]func(context.Context) error{
		"says nothing":       func(ctx context.Context) error { <-ctx.Done(); return nil },
		"says so":            func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) },
		"is cancelled":       func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"has its own error":  func(ctx context.Context) error { <-ctx.Done(); return why },
		"does not even look": func(context.Context) error { time.Sleep(150 * time.Millisecond); return nil },
	} {
		var e *snib.Error
		err := mutex.Do(background, work)
		for end := time.Now().Add(patience); errors.Is(err, snib.ErrUnreachable) && time.Now().Before(end); {
			err = mutex.Do(background, work) // the short lease had ended before the answer came
		}
		if !errors.Is(err, snib.ErrLost) || !errors.As(err, &e) || e.Reason != snib.ReasonExpired || e.Name != "lost" {
			t.Errorf("%s: %v", what, err)
		}
		if strings.Count(err.Error(), "expired") != 1 {
			t.Errorf("%s: the loss is not reported once: %v", what, err)
		}
		if what == "has its own error" && !errors.Is(err, why) {
			t.Errorf("the work's error is gone: %v", err)
		}
	}
	s.clean(t)
}

// An Unlock that fails is not taken for a wait that fails: the work need not be done again.
func TestDoThatCannotUnlock(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url())
	err := client.Mutex("refused").Do(background, func(context.Context) error {
		s.do(t, "ACL", "SETUSER", "default", "-evalsha", "-eval")
		return nil
	})
	s.do(t, "ACL", "SETUSER", "default", "+evalsha", "+eval")
	expect(t, "unlock", err, snib.ErrPermission)
	if err == nil || !strings.Contains(err.Error(), "the work was done") {
		t.Error(err)
	}
}

// A program that ends at a signal tells a loss, and an Unlock that failed, from its own end, as in operations.md.
func TestDoThatEndsAtASignal(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url())
	failed := func(err error) bool {
		var told *snib.Error
		switch {
		case errors.Is(err, snib.ErrLost), errors.As(err, &told) && !errors.Is(told, context.Canceled):
			return true
		}
		return err != nil && !errors.Is(err, context.Canceled)
	}
	for what, end := range map[string]func(signal func()) bool{
		"the work's end": func(signal func()) bool { signal(); return false },
		"no unlock": func(signal func()) bool {
			signal()
			s.do(t, "ACL", "SETUSER", "default", "-evalsha", "-eval")
			return true
		},
		"a loss":           func(signal func()) bool { signal(); s.do(t, "DEL", "a loss"); return true },
		"work that failed": func(func()) bool { return true },
	} {
		ctx, signal := context.WithCancel(background)
		want := false
		err := client.Mutex(what).Do(ctx, func(ctx context.Context) error {
			if want = end(signal); ctx.Err() == nil {
				return errors.New("failed")
			}
			<-ctx.Done()
			return ctx.Err()
		})
		signal()
		s.do(t, "ACL", "SETUSER", "default", "+evalsha", "+eval")
		if failed(err) != want {
			t.Errorf("%s: %v", what, err)
		}
		if err := client.Mutex("other").Do(ctx, nothing); failed(err) {
			t.Errorf("a wait: %v", err)
		}
	}
}

// Who retries while an error says so does the work once, and an Unlock never: a second one has nothing to release.
func TestDoThatMayBeRetried(t *testing.T) {
	s := startServer(t)
	client, worked := open(t, s.url(), snib.ReplyTimeout(time.Second), snib.Patience(time.Second)), 0
	var e *snib.Error
	for again := true; again; {
		err := client.Mutex("slow").Do(background, func(context.Context) error {
			worked++
			s.halt(t)
			return nil
		})
		if again = errors.As(err, &e) && e.Retryable(); again && worked == 1 {
			t.Fatal(err)
		}
	}
	must(t, s.cmd.Process.Signal(syscall.SIGCONT))
	expect(t, "unlock", e, snib.ErrUnreachable)
	hold := lock(t, client.Mutex("other"))
	short, cancel := context.WithTimeout(background, 0)
	defer cancel()
	if err := hold.Unlock(short); !errors.Is(err, snib.ErrTimeout) || !errors.As(err, &e) || e.Retryable() || !e.MaybeApplied() {
		t.Error(err)
	}
}

// The Unlock may be the first to learn that the lock is gone. Then nothing says that it was released.
func TestLossFoundByUnlock(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url())
	early, late := lock(t, client.Mutex("early")), lock(t, client.Mutex("late"))
	lost := early.Lost()
	s.do(t, "DEL", "early", "late")
	expect(t, "early", early.Unlock(background), snib.ErrLost)
	expect(t, "late", late.Unlock(background), snib.ErrLost)
	soon(t, lost)
	soon(t, late.Lost())
	for _, hold := range []*snib.Hold{early, late} {
		expect(t, "a context that begins after it", context.Cause(hold.Context(background)), snib.ErrLost)
	}
	released := lock(t, client.Mutex("released"))
	lost = released.Lost()
	must(t, released.Unlock(background))
	select {
	case <-lost:
		t.Error("what was released is lost")
	default:
	}
}

// A context that has ended has one outcome: nothing starts, and Unlock does not wait. It does not depend on timing.
func TestEndedContext(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url())
	cancelled, cancel := context.WithCancel(background)
	cancel()
	expired, cancel := context.WithDeadline(background, time.Now().Add(-time.Second))
	defer cancel()
	initialize(t, client.Latch("latch"), 1000)
	initialize(t, client.Permits("permits"), 5)
	for range rounds(300) {
		for ctx, want := range map[context.Context]snib.Code{cancelled: snib.ErrCancelled, expired: snib.ErrTimeout} {
			for what, call := range callsOf(client) {
				err := call(ctx)
				var e *snib.Error
				if !errors.Is(err, want) || !errors.Is(err, ctx.Err()) || !errors.As(err, &e) || e.MaybeApplied() {
					t.Fatalf("%s: %v", what, err)
				}
			}
			hold := lock(t, client.Mutex("given back"))
			err := hold.Unlock(ctx)
			var e *snib.Error
			if !errors.Is(err, want) || !errors.Is(err, ctx.Err()) || !errors.As(err, &e) || !e.MaybeApplied() || e.Name != "given back" {
				t.Fatalf("unlock: %v", err)
			}
			expect(t, "second unlock", hold.Unlock(ctx), snib.ErrNotHeld)
		}
	}
	number(t, "latch", 1000)(client.Latch("latch").Count(background))
	lost := brief(t, client.Mutex("lost", snib.Lease(100*time.Millisecond)))
	<-lost.Lost()
	expect(t, "unlock of what is lost", lost.Unlock(cancelled), snib.ErrLost)
	s.free(t, "given back")
	s.clean(t, "latch", "permits")
}

// callsOf returns every method that takes a context and can be called any number of times.
func callsOf(client *snib.Client) map[string]func(context.Context) error {
	mutex, permits, latch := client.Mutex("ended"), client.Permits("permits"), client.Latch("latch")
	return map[string]func(context.Context) error{
		"lock":     func(ctx context.Context) error { _, err := mutex.Lock(ctx); return err },
		"try":      func(ctx context.Context) error { _, err := mutex.TryLock(ctx); return err },
		"write":    func(ctx context.Context) error { _, err := client.RW("ended").Lock(ctx); return err },
		"acquire":  func(ctx context.Context) error { _, err := permits.Acquire(ctx, 1); return err },
		"add":      func(ctx context.Context) error { _, err := permits.Add(ctx, 1); return err },
		"down":     func(ctx context.Context) error { _, err := latch.CountDown(ctx); return err },
		"count":    func(ctx context.Context) error { _, err := latch.Count(ctx); return err },
		"wait":     latch.Wait,
		"info":     func(ctx context.Context) error { _, err := mutex.Info(ctx); return err },
		"force":    mutex.ForceRelease,
		"ping":     client.Ping,
		"list":     func(ctx context.Context) error { _, err := client.List(ctx, ""); return err },
		"describe": func(ctx context.Context) error { _, err := client.Describe(ctx, "ended"); return err },
	}
}

// What is granted after its context has ended is given back, and the call says so.
func TestGrantedTooLate(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url())
	initialize(t, client.Semaphore("semaphore"), 1)
	for what, acquire := range map[string]func(context.Context, string) (*snib.Hold, error){
		"lock":      func(ctx context.Context, name string) (*snib.Hold, error) { return client.Mutex(name).Lock(ctx) },
		"try":       func(ctx context.Context, name string) (*snib.Hold, error) { return client.Mutex(name).TryLock(ctx) },
		"write":     func(ctx context.Context, name string) (*snib.Hold, error) { return client.RW(name).Lock(ctx) },
		"reentrant": func(ctx context.Context, name string) (*snib.Hold, error) { return client.Reentrant(name, 7).Lock(ctx) },
		"semaphore": func(ctx context.Context, _ string) (*snib.Hold, error) {
			return client.Semaphore("semaphore").Acquire(ctx, 1)
		},
	} {
		for i := range rounds(10) {
			s.halt(t)
			ctx, cancel := context.WithCancel(background)
			sent := client.Stats().Commands
			go func() {
				for end := time.Now().Add(patience); client.Stats().Commands == sent && time.Now().Before(end); {
					time.Sleep(100 * time.Microsecond)
				}
				cancel()
				_ = s.cmd.Process.Signal(syscall.SIGCONT)
			}()
			hold, err := acquire(ctx, fmt.Sprint(what, i)) // no release of the round before is in its way
			if hold != nil || !errors.Is(err, context.Canceled) || !errors.Is(err, snib.ErrCancelled) {
				t.Fatalf("%s: %v, %v", what, hold, err)
			}
			s.free(t, fmt.Sprint(what, i))
		}
	}
	await(t, func() bool { return s.do(t, "GET", "semaphore") == "1" })
}

// lateContext is cancelled between the call that acquires and its answer.
type lateContext struct {
	context.Context
	asked int
	done  chan struct{}
}

func (c *lateContext) Done() <-chan struct{} {
	if c.asked++; c.asked == 2 {
		close(c.done)
	}
	return c.done
}

func (c *lateContext) Err() error {
	if c.asked >= 2 {
		return context.Canceled
	}
	return nil
}

// A re-entry that is given back, because its context has ended, does not count: the Unlock of the other hold releases
// the lock, and is told what the server says.
func TestReentryGivenBack(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url())
	orders := client.Reentrant("orders", 7)
	hold := lock(t, orders)
	late := &lateContext{Context: background, done: make(chan struct{})}
	if again, err := orders.Lock(late); !errors.Is(err, context.Canceled) || again != nil {
		t.Fatalf("%v, %v", again, err)
	}
	if got := s.do(t, "del", "orders"); got != "1" {
		t.Fatalf("deleted %s", got)
	}
	if err := hold.Unlock(background); !errors.Is(err, snib.ErrLost) {
		t.Errorf("%v", err)
	}
}

// endsLate is a context that ends while the server is asked, when Err has been called a number of times.
type endsLate struct {
	context.Context
	before *int
	err    error
}

func (c endsLate) Err() error {
	if *c.before--; *c.before >= 0 {
		return nil
	}
	return c.err
}

// An error that comes as the context ends matches the context's, too: whoever has cancelled need not know all others.
func TestRefusedTooLate(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url())
	hold := lock(t, client.Mutex("held"))
	var e *snib.Error
	for _, ended := range []error{context.Canceled, context.DeadlineExceeded} {
		for before := range 3 {
			limited, cancel := context.WithTimeout(background, time.Nanosecond) // which has passed, too
			defer cancel()
			for _, ctx := range []context.Context{background, limited} {
				calls := before
				_, err := client.Mutex("held").TryLock(endsLate{ctx, &calls, ended})
				if !errors.Is(err, ended) || !errors.As(err, &e) || calls > 0 || e.MaybeApplied() {
					t.Errorf("%d: %v", before, err)
				}
			}
		}
	}
	expect(t, "refused", e, snib.ErrBusy)
	must(t, hold.Unlock(background))
}

// A change that was applied is reported even if the context ends at that moment; otherwise MaybeApplied says so.
func TestCountsThatAreCancelled(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url())
	permits := client.Semaphore("numbers")
	initialize(t, permits, 0)
	applied, doubtful := 0, 0
	for i := range rounds(3000) {
		ctx, cancel := context.WithCancel(background)
		timer := time.AfterFunc(time.Duration(i%100)*3*time.Microsecond, cancel)
		_, err := permits.Add(ctx, 1)
		timer.Stop()
		cancel()
		var e *snib.Error
		switch {
		case err == nil:
			applied++
		case errors.As(err, &e) && e.MaybeApplied():
			doubtful++
		case !errors.Is(err, context.Canceled):
			t.Fatal(err)
		}
	}
	n, err := permits.Available(background)
	must(t, err)
	if n < applied || n > applied+doubtful {
		t.Errorf("%d at the server, %d reported and %d doubtful", n, applied, doubtful)
	}

	s.halt(t)
	ctx, cancel := context.WithCancel(background)
	sent := client.Stats().Commands
	go func() {
		defer cancel()
		for end := time.Now().Add(patience); client.Stats().Commands == sent && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
	}()
	_, err = permits.Add(ctx, 1)
	var e *snib.Error
	if !errors.Is(err, context.Canceled) || !errors.As(err, &e) || !e.MaybeApplied() {
		t.Errorf("add: %v", err)
	}
	_, err = permits.Available(ctx)
	if !errors.Is(err, context.Canceled) || !errors.As(err, &e) || e.MaybeApplied() {
		t.Errorf("available: %v", err)
	}
	must(t, s.cmd.Process.Signal(syscall.SIGCONT))
	await(t, func() bool { return s.do(t, "GET", "numbers") == fmt.Sprint(n+1) })
}
