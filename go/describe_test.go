//go:build cgo

package snib_test

import (
	"context"
	"errors"
	"math"
	"syscall"
	"testing"
	"time"

	snib "github.com/snib-lock/snib/go"
)

func describe(t testing.TB, client *snib.Client, name, kind string) snib.Description {
	t.Helper()
	d, err := client.Describe(background, name)
	must(t, err)
	if d.Kind != kind {
		t.Errorf("%s: %+v", kind, d)
	}
	return d
}

func TestDescribe(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url())
	describe(t, client, "nothing", "free")
	held := func(kind string, l snib.Locker) {
		t.Helper()
		hold := lock(t, l)
		d := describe(t, client, kind, kind)
		who := d.Holders
		if kind == "read" {
			who = d.Readers
		}
		if len(who) != 1 || who[0].Owner != hold.Owner() || who[0].Count != 1 || who[0].Remaining < 20*time.Second {
			t.Errorf("%s: %+v", kind, d)
		}
		must(t, hold.Unlock(background))
		describe(t, client, kind, "free")
	}
	held("mutex", client.Mutex("mutex"))
	held("plain", client.Plain("plain"))
	held("write", client.RW("write"))
	held("read", client.RW("read").RLocker())

	hold := lock(t, client.Fenced("fenced"))
	if d := describe(t, client, "fenced", "mutex"); d.Token != hold.Token() {
		t.Errorf("fenced: %+v", d)
	}
	must(t, hold.Unlock(background))

	first := lock(t, client.Fair("fair"))
	second := locking(open(t, s.url()).Fair("fair").Lock)
	await(t, func() bool { return s.do(t, "LLEN", "redisson_lock_queue:{fair}") == "1" })
	if d := describe(t, client, "fair", "fair"); len(d.Holders) != 1 || len(d.Waiters) != 1 || d.Waiters[0].Remaining <= 0 {
		t.Errorf("fair: %+v", d)
	}
	must(t, first.Unlock(background))
	must(t, soon(t, second).Unlock(background))

	permits := client.Permits("permits")
	initialize(t, permits, 5)
	two, err := permits.Acquire(background, 2)
	must(t, err)
	d := describe(t, client, "permits", "permits")
	if len(d.Permits) != 2 || len(d.Permits[0].Owner) != 32 || d.Available != 3 || d.Total != 5 {
		t.Errorf("permits: %+v", d)
	}
	must(t, two.Unlock(background))

	initialize(t, client.Latch("latch"), 7)
	if d := describe(t, client, "latch", "counter"); d.Count != 7 {
		t.Errorf("latch: %+v", d)
	}
	s.do(t, "RPUSH", "list", "x")
	describe(t, client, "list", "other")
}

// A lease of other programs may be longer than any duration of Go.
func TestLongLease(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url())
	const owner = "0123abcd-0000-4000-8000-000000000000:1"
	s.do(t, "HSET", "long", owner, "1")
	s.do(t, "PEXPIRE", "long", "9999999999999999")
	if d := describe(t, client, "long", "mutex"); len(d.Holders) != 1 || d.Holders[0].Remaining != math.MaxInt64 {
		t.Errorf("%+v", d)
	}
	info, err := client.Mutex("long").Info(background)
	if must(t, err); info.Remaining != math.MaxInt64 {
		t.Errorf("%+v", info)
	}
}

func TestDescribeFails(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url())
	for _, name := range []string{"", "a\x00b", "a{b", "\xff"} {
		_, err := client.Describe(background, name)
		expect(t, name, err, snib.ErrInvalidName)
	}
	s.halt(t)
	ctx, cancel := context.WithTimeout(background, 50*time.Millisecond)
	defer cancel()
	if _, err := client.Describe(ctx, "slow"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("describe: %v", err)
	}
	must(t, s.cmd.Process.Signal(syscall.SIGCONT))
	must(t, client.Close())
	_, err := client.Describe(background, "late")
	expect(t, "closed client", err, snib.ErrClosed)
}
