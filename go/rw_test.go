//go:build cgo

package snib_test

import (
	"context"
	"errors"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	snib "github.com/snib-lock/snib/go"
)

func rlock(t testing.TB, rw *snib.RW) *snib.Hold {
	t.Helper()
	return lock(t, rw.RLocker())
}

func TestReadersShare(t *testing.T) {
	s := startServer(t)
	client, rival := open(t, s.url()), open(t, s.url())
	mine, other := client.RW("page"), rival.RW("page")
	readers := []*snib.Hold{rlock(t, mine), rlock(t, mine), rlock(t, other)}
	info, err := mine.RLocker().Info(background)
	must(t, err)
	if !info.Held || info.Count != 3 {
		t.Errorf("info %+v", info)
	}
	_, err = mine.TryLock(background)
	expect(t, "write beside readers", err, snib.ErrBusy)
	writer := locking(other.Lock)
	await(t, func() bool { return rival.Stats().Waiting == 1 })
	for _, reader := range readers {
		must(t, reader.Check())
		must(t, reader.Unlock(background))
	}
	hold := soon(t, writer)
	for _, rw := range []*snib.RW{mine, other} {
		_, err = rw.TryRLock(background)
		expect(t, "read beside a writer", err, snib.ErrBusy)
		_, err = rw.TryLock(background)
		expect(t, "write beside a writer", err, snib.ErrBusy)
	}
	waiting := []<-chan *snib.Hold{locking(mine.RLock), locking(mine.RLock), locking(other.RLock)}
	await(t, func() bool { return client.Stats().Waiting == 2 && rival.Stats().Waiting == 1 })
	must(t, hold.Unlock(background))
	var all []*snib.Hold // all are held before the first is unlocked
	for _, reader := range waiting {
		all = append(all, soon(t, reader))
	}
	for _, reader := range all {
		must(t, reader.Unlock(background))
	}
	s.clean(t)
}

// No reader sees a half-finished write.
func TestReadersAndWriters(t *testing.T) {
	s := startServer(t)
	clients := []*snib.Client{open(t, s.url()), open(t, s.url())}
	var writers, readers atomic.Int32
	together(12, func(i int) {
		rw := clients[i%2].RW("page")
		for range 10 {
			ask, count, other := rw.RLock, &readers, &writers
			if i%4 == 0 {
				ask, count, other = rw.Lock, &writers, &readers
			}
			hold, err := ask(background)
			if err != nil {
				t.Error(err)
				return
			}
			if n := count.Add(1); n > 1 && i%4 == 0 || other.Load() != 0 {
				t.Error("a writer is not alone")
			}
			count.Add(-1)
			if err := hold.Unlock(background); err != nil {
				t.Error(err)
			}
		}
	})
	s.clean(t)
}

// An Owner may be any number but 0, and is none that a writer without one has.
func TestWriterWithoutOwnerIsNobodyElse(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url())
	for range 3 {
		hold := lock(t, client.RW("page"))
		for n := range uint64(5) {
			other, err := client.RW("page", snib.Owner(1<<63+n)).TryLock(background)
			expect(t, "another owner", err, snib.ErrBusy)
			if err == nil {
				must(t, other.Unlock(background))
			}
		}
		must(t, hold.Unlock(background))
	}
	s.clean(t)
}

func TestDowngrade(t *testing.T) {
	s := startServer(t)
	client, rival := open(t, s.url()), open(t, s.url())
	mine, other := client.RW("page"), rival.RW("page")
	write := lock(t, mine)
	work := write.Context(background)
	writer, reader := locking(other.Lock), locking(mine.RLock)
	await(t, func() bool { return client.Stats().Waiting == 1 && rival.Stats().Waiting == 1 })
	read, err := write.Downgrade(background)
	must(t, err)
	if <-work.Done(); context.Cause(work) != context.Canceled {
		t.Errorf("the write hold's context: %v", context.Cause(work))
	}
	expect(t, "the write hold", write.Check(), snib.ErrNotHeld)
	expect(t, "its unlock", write.Unlock(background), snib.ErrNotHeld)
	must(t, read.Check())
	must(t, soon(t, reader).Unlock(background)) // the waiting reader gets in
	select {
	case <-writer:
		t.Fatal("a writer holds the lock beside a reader")
	default:
	}
	if info, err := mine.RLocker().Info(background); err != nil || info.Count != 1 {
		t.Errorf("readers: %+v, %v", info, err)
	}
	_, err = mine.TryLock(background)
	expect(t, "write beside the reader", err, snib.ErrBusy)
	must(t, read.Unlock(background))
	must(t, soon(t, writer).Unlock(background))
	s.clean(t)
}

func TestDowngradeOfWhatIsNoWriteHold(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := open(t, s.url(), snib.WatchdogLease(renewed))
	rw := client.RW("page")
	for what, hold := range map[string]*snib.Hold{"mutex": lock(t, client.Mutex("m")), "reader": rlock(t, rw)} {
		_, err := hold.Downgrade(background)
		expect(t, what, err, snib.ErrNotSupported)
		must(t, hold.Unlock(background))
	}
	hold := lock(t, rw)
	must(t, hold.Unlock(background))
	_, err := hold.Downgrade(background)
	expect(t, "after unlock", err, snib.ErrNotHeld)
	hold = lock(t, rw)
	must(t, rw.ForceRelease(background))
	soon(t, hold.Lost())
	_, err = hold.Downgrade(background)
	expect(t, "after the loss", err, snib.ErrLost)
	ended, cancel := context.WithCancel(background)
	cancel()
	hold = lock(t, rw)
	if _, err = hold.Downgrade(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	must(t, hold.Check())
	must(t, hold.Unlock(background))
	s.clean(t)
}

// The write hold is lost unnoticed: the downgrade must not claim that there was no gap.
func TestDowngradeOfALoss(t *testing.T) {
	s := startServer(t)
	client, rival := open(t, s.url()), open(t, s.url())
	hold := lock(t, client.RW("page"))
	must(t, rival.RW("page").ForceRelease(background))
	_, err := hold.Downgrade(background)
	expect(t, "free", err, snib.ErrLost)
	hold = lock(t, client.RW("page"))
	must(t, rival.RW("page").ForceRelease(background))
	read, err := hold.Downgrade(hold.Context(background)) // which its release ends
	expect(t, "free, with the hold's own context", err, snib.ErrLost)
	if read != nil {
		t.Error("a read hold beside the error")
	}
	hold = lock(t, client.RW("page"))
	must(t, rival.RW("page").ForceRelease(background))
	other := lock(t, rival.RW("page"))
	work := hold.Context(background)
	_, err = hold.Downgrade(background)
	expect(t, "another one's", err, snib.ErrLost)
	expect(t, "check after it", hold.Check(), snib.ErrLost) // lost is final
	if state, reason := hold.State(); state != snib.StateLost || reason == snib.ReasonNone {
		t.Errorf("%v, %v", state, reason)
	}
	expect(t, "the cause", context.Cause(work), snib.ErrLost)
	must(t, other.Check())
	must(t, other.Unlock(background))
	_ = hold.Unlock(background)
	s.clean(t)
}

// waitsAtBusy is a context whose second Err, which comes after the answer of a try that is refused, waits.
type waitsAtBusy struct {
	context.Context
	asked     *int
	refused   chan<- struct{}
	continued <-chan struct{}
}

func (c waitsAtBusy) Err() error {
	if *c.asked++; *c.asked == 2 {
		close(c.refused)
		<-c.continued
	}
	return nil
}

// A loss that the downgrade finds is told at once, not when a server that is silent has answered the release.
func TestDowngradeOfALossAtASilentServer(t *testing.T) {
	s := startServer(t)
	client, rival := open(t, s.url(), snib.Patience(time.Hour), snib.ReplyTimeout(time.Hour)), open(t, s.url())
	for _, watched := range []bool{true, false} {
		hold := lock(t, client.RW("page"))
		must(t, rival.RW("page").ForceRelease(background))
		other := lock(t, rival.RW("page"))
		work := background
		if watched {
			work = hold.Context(background)
		}
		refused, continued, downgraded := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		go func() {
			_, err := hold.Downgrade(waitsAtBusy{background, new(int), refused, continued})
			downgraded <- err
		}()
		soon(t, refused)
		s.halt(t)
		close(continued)
		if watched {
			soon(t, work.Done())
			expect(t, "the cause", context.Cause(work), snib.ErrLost)
		} else {
			await(t, func() bool { return hold.Check() != nil })
		}
		lost := hold.Lost()
		expect(t, "check", hold.Check(), snib.ErrLost)
		if len(downgraded) > 0 {
			t.Error("the server has not answered, and the downgrade has ended")
		}
		must(t, s.cmd.Process.Signal(syscall.SIGCONT))
		soon(t, lost)
		expect(t, "the downgrade", soon(t, downgraded), snib.ErrLost)
		if _, reason := hold.State(); reason != snib.ReasonTaken {
			t.Errorf("reason %v", reason)
		}
		must(t, other.Unlock(background))
	}
	s.clean(t)
}

func TestUpgradeIsRefused(t *testing.T) {
	s := startServer(t)
	rw := open(t, s.url()).RW("page", snib.Owner(7))
	read := rlock(t, rw)
	_, err := rw.Lock(background) // it would wait for itself
	expect(t, "upgrade", err, snib.ErrUpgrade)
	_, err = rw.TryLock(background)
	expect(t, "try to upgrade", err, snib.ErrUpgrade)
	must(t, read.Unlock(background))
	write, again := lock(t, rw), lock(t, rw)
	read = rlock(t, rw) // the opposite is fine
	must(t, again.Unlock(background))
	must(t, write.Unlock(background))
	must(t, read.Check())
	must(t, read.Unlock(background))
	s.clean(t)
}

func TestPreferWriter(t *testing.T) {
	s := startServer(t)
	client, rival := open(t, s.url()), open(t, s.url())
	mine, other := client.RW("page", snib.PreferWriter()), rival.RW("page", snib.PreferWriter())
	read := rlock(t, mine)
	writer := locking(other.Lock)
	await(t, func() bool {
		second, err := mine.TryRLock(background)
		if err == nil { // the writer is not waiting yet
			must(t, second.Unlock(background))
		}
		return errors.Is(err, snib.ErrBusy)
	})
	must(t, read.Check())
	must(t, read.Unlock(background))
	must(t, soon(t, writer).Unlock(background))
	must(t, rlock(t, mine).Unlock(background))
	s.clean(t)
}
