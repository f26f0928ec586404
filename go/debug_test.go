//go:build cgo

package snib_test

import (
	"context"
	"errors"
	"fmt"
	"path"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	snib "github.com/snib-lock/snib/go"
)

// line returns the caller's place, some lines further, without its function.
func line(further int) string {
	_, file, number, _ := runtime.Caller(1)
	return fmt.Sprintf("%s:%d in ", path.Base(file), number+further)
}

// debugged opens a client with the option Debug; the log has its records.
func debugged(t *testing.T, s *server, options ...snib.Option) (*snib.Client, logged) {
	t.Helper()
	log := newLogged()
	return open(t, s.url(), append(options, log.option(), snib.Debug(true))...), log
}

// once makes a name that is used once: a mistake is told once in a process, and a test may run several times in one.
func once(client *snib.Client, name string) string { return name + " " + client.ID() }

// nothing checks that no mistake was reported, at the end of a client.
func (l logged) nothing(t *testing.T, client *snib.Client) {
	t.Helper()
	must(t, client.Close())
	for len(l.lines) > 0 {
		if text := <-l.lines; strings.Contains(text, "debug: ") {
			t.Errorf("reported: %s", text)
		}
	}
}

func nothingMore(context.Context) error { return nil }

func TestDebugOrder(t *testing.T) {
	t.Parallel()
	client, log := debugged(t, startServer(t))
	a, b := client.Mutex("account"), client.Mutex("ledger")
	ctx := context.Background()
	outer, under := line(1), line(2)
	must(t, a.Do(ctx, func(ctx context.Context) error {
		return b.Do(ctx, nothingMore)
	}))
	hold := lock(t, b) // its place is in lock()
	inner := line(1)
	second, err := a.Lock(hold.Context(ctx))
	must(t, err)
	must(t, second.Unlock(ctx))
	must(t, hold.Unlock(ctx))
	log.until(t, "WARN", `lock order: \"ledger\" (server_test.go:`, `in lock()) then \"account\" (`+inner,
		`but \"account\" (`+outer, `then \"ledger\" (`+under, "can deadlock")
	log.nothing(t, client) // it is told once
}

func TestDebugItself(t *testing.T) {
	t.Parallel()
	client, log := debugged(t, startServer(t))
	name := once(client, "self")
	mutex := client.Mutex(name)
	outer := line(1)
	must(t, mutex.Do(context.Background(), func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		ended := make(chan error)
		inner := line(2)
		go func() {
			_, err := mutex.Lock(ctx)
			ended <- err
		}()
		log.until(t, "WARN", `mutex \"`+name+`\" is awaited at `+inner, `by the caller that has held it since `+outer, "waits for itself")
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		return nil
	}))
}

func TestDebugHold(t *testing.T) {
	t.Parallel()
	client, log := debugged(t, startServer(t), snib.DebugHold(100*time.Millisecond))
	name := once(client, "long")
	place := line(1)
	must(t, client.Mutex(name).Do(context.Background(), func(context.Context) error {
		log.until(t, "WARN", `mutex \"`+name+`\", acquired at `+place, "is still held after", "longer than debug_hold")
		return nil
	}))
}

// A goroutine that runs a method of this package has no frame of the program.
func TestDebugGo(t *testing.T) {
	t.Parallel()
	client, log := debugged(t, startServer(t), snib.DebugHold(100*time.Millisecond))
	name, done := once(client, "go"), make(chan struct{})
	place := line(1)
	go client.Mutex(name).Do(context.Background(), func(context.Context) error {
		<-done
		return nil
	})
	log.until(t, "WARN", `mutex \"`+name+`\", acquired at `+place+"TestDebugGo()", "is still held after")
	close(done)
}

func TestDebugWho(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client, _ := debugged(t, s, snib.WatchdogLease(6*time.Second), snib.DebugHold(-1))
	other := open(t, s.url())
	var labelled, plain *snib.Hold
	ctx := context.Background()
	at := line(2)
	pprof.Do(ctx, pprof.Labels("job", "import", "a", "x\x00\ny"), func(ctx context.Context) {
		labelled, _ = client.Mutex("w1").Lock(ctx)
	})
	plain = lock(t, client.Mutex("w2"))
	for want, hold := range map[string]*snib.Hold{"goroutine a=x??y, job=import": labelled, "": plain} {
		for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
			who, err := other.Identity(ctx, hold.Owner())
			must(t, err)
			if who != nil && who.HeldAt != "" {
				if who.HeldBy != want || (want != "" && !strings.HasPrefix(who.HeldAt, at)) || !strings.HasSuffix(who.HeldAt, ")") {
					t.Errorf("%q: at %q by %q", want, who.HeldAt, who.HeldBy)
				}
				break
			}
			if time.Now().After(end) {
				t.Fatalf("not told: %+v", who)
			}
		}
		must(t, hold.Unlock(ctx))
	}
}

func TestDebugNeverUnlocked(t *testing.T) {
	t.Parallel()
	client, log := debugged(t, startServer(t))
	keptName, droppedName := once(client, "kept"), once(client, "dropped")
	place := line(1)
	kept, err := client.Mutex(keptName).Lock(context.Background())
	must(t, err)
	dropped := line(1)
	_, err = client.Mutex(droppedName).Lock(context.Background())
	must(t, err)
	for end := time.Now().Add(patience); ; {
		runtime.GC()
		if stats := client.Stats(); stats.Abandoned > 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("it was not collected")
		}
		runtime.Gosched()
	}
	log.until(t, "WARN", `mutex \"`+droppedName+`\" was acquired at `+dropped, "and never released")
	must(t, client.Close())
	log.until(t, "WARN", `mutex \"`+keptName+`\", acquired at `+place, "is still held when its client is closed")
	runtime.KeepAlive(kept)
}

func TestDebugNoMistakes(t *testing.T) {
	t.Parallel()
	client, log := debugged(t, startServer(t))
	a, b := client.Mutex("n1"), client.Mutex("n2")
	rw, reentrant := client.RW("n3"), client.Reentrant("n4", 7)
	both, turned := snib.Multi(a, b), snib.Multi(b, a)
	ctx := context.Background()
	for range 2 {
		must(t, a.Do(ctx, func(ctx context.Context) error { return b.Do(ctx, nothingMore) }))
		must(t, rw.Do(ctx, func(ctx context.Context) error { return both.Do(ctx, nothingMore) }))
		must(t, rw.RDo(ctx, func(ctx context.Context) error { return turned.Do(ctx, nothingMore) }))
		must(t, reentrant.Do(ctx, func(ctx context.Context) error {
			return rw.RDo(ctx, func(ctx context.Context) error { return reentrant.Do(ctx, nothingMore) })
		}))
		hold := lock(t, b)
		handed := make(chan *snib.Hold, 1)
		handed <- hold
		must(t, (<-handed).Unlock(ctx))
		write, err := rw.Lock(ctx)
		must(t, err)
		read, err := write.Downgrade(ctx)
		must(t, err)
		must(t, read.Unlock(ctx))
	}
	hold, err := b.Lock(ctx)
	must(t, err)
	second, err := a.TryLock(hold.Context(ctx)) // an attempt is in no order
	must(t, err)
	must(t, second.Unlock(ctx))
	must(t, hold.Unlock(ctx))
	log.nothing(t, client)
}

func TestDebugRefused(t *testing.T) {
	for _, options := range [][]snib.Option{
		{snib.DebugHold(time.Second)},
		{snib.Debug(true), snib.DebugHold(25 * time.Hour)},
		{snib.Debug(true), snib.DebugHold(0)},
	} {
		expect(t, "debug", openError(t, "redis://h", options...), snib.ErrInvalidOption)
	}
}
