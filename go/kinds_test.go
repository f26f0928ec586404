//go:build cgo

package snib_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	snib "github.com/snib-lock/snib/go"
)

// exclusive creates each kind of lock that has one holder, and names the keys that stay on the server.
var exclusive = []struct {
	kind  string
	make  func(*snib.Client, string, ...snib.LockOption) snib.Locker
	stays string // the prefix of a key that stays
}{
	{"mutex", func(c *snib.Client, n string, o ...snib.LockOption) snib.Locker { return c.Mutex(n, o...) }, ""},
	{"fair", func(c *snib.Client, n string, o ...snib.LockOption) snib.Locker { return c.Fair(n, o...) }, ""},
	{"fenced", func(c *snib.Client, n string, o ...snib.LockOption) snib.Locker { return c.Fenced(n, o...) }, tokens},
	{"spin", func(c *snib.Client, n string, o ...snib.LockOption) snib.Locker { return c.Spin(n, o...) }, ""},
	{"plain", func(c *snib.Client, n string, o ...snib.LockOption) snib.Locker { return c.Plain(n, o...) }, ""},
	{"write", func(c *snib.Client, n string, o ...snib.LockOption) snib.Locker { return c.RW(n, o...) }, ""},
}

// tokens is the prefix of a counter of fencing tokens; the name follows in braces.
const tokens = "redisson_lock_token:"

func left(stays string, names ...string) (keys []string) {
	if stays != "" {
		for _, name := range names {
			keys = append(keys, stays+"{"+name+"}")
		}
	}
	return keys
}

func TestEveryKind(t *testing.T) {
	for _, k := range exclusive {
		t.Run(k.kind, func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			client, rival := open(t, s.url()), open(t, s.url())
			mine, other := k.make(client, "orders"), k.make(rival, "orders")
			hold := lock(t, mine)
			must(t, hold.Check())
			if left := hold.Remaining(); left < 25*time.Second || left > 30*time.Second {
				t.Errorf("remaining %v", left)
			}
			if !strings.HasPrefix(hold.Owner(), client.ID()+":") {
				t.Errorf("owner %q of client %q", hold.Owner(), client.ID())
			}
			if fenced := k.kind == "fenced"; fenced != (hold.Token() > 0) {
				t.Errorf("token %d", hold.Token())
			}
			for _, l := range []snib.Locker{mine, other} {
				info, err := l.Info(background)
				must(t, err)
				if !info.Held || info.Owner != hold.Owner() || info.Count != 1 || info.Mine != (l == mine) {
					t.Errorf("info %+v", info)
				}
				_, err = l.TryLock(background)
				expect(t, "try", err, snib.ErrBusy)
			}
			short, cancel := context.WithTimeout(background, 50*time.Millisecond)
			defer cancel()
			_, err := other.Lock(short)
			expect(t, "short wait", err, snib.ErrTimeout)
			near, far := locking(mine.Lock), locking(other.Lock)
			await(t, func() bool { return client.Stats().Waiting == 1 && rival.Stats().Waiting == 1 })
			must(t, hold.Unlock(background))
			select {
			case hold = <-near:
				near = far
			case hold = <-far:
			}
			must(t, hold.Check())
			must(t, hold.Unlock(background))
			must(t, soon(t, near).Unlock(background))
			expect(t, "second unlock", hold.Unlock(background), snib.ErrNotHeld)
			expect(t, "force", mine.ForceRelease(background), snib.ErrNotHeld)
			s.clean(t, left(k.stays, "orders")...)
		})
	}
}

func TestEveryKindExcludes(t *testing.T) {
	for _, k := range exclusive {
		t.Run(k.kind, func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			clients := []*snib.Client{open(t, s.url()), open(t, s.url())}
			var inside, passed atomic.Int32
			together(8, func(i int) {
				l := k.make(clients[i%2], "hot")
				for range 10 {
					hold, err := l.Lock(background)
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
			if passed.Load() != 80 {
				t.Errorf("%d of 80", passed.Load())
			}
			s.clean(t, left(k.stays, "hot")...)
		})
	}
}

func TestEveryKindIsLost(t *testing.T) {
	for _, k := range exclusive {
		t.Run(k.kind, func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			client := open(t, s.url(), snib.WatchdogLease(renewed))
			rival := open(t, s.url())
			hold := lock(t, k.make(client, "forced"))
			must(t, k.make(rival, "forced").ForceRelease(background))
			soon(t, hold.Lost())
			if state, reason := hold.State(); state != snib.StateLost || reason != snib.ReasonDeleted {
				t.Errorf("state %v, reason %v", state, reason)
			}
			expect(t, "unlock", hold.Unlock(background), snib.ErrLost)
			hold = brief(t, k.make(client, "fixed", snib.Lease(150*time.Millisecond)))
			soon(t, hold.Lost())
			if _, reason := hold.State(); reason != snib.ReasonExpired {
				t.Errorf("reason %v", reason)
			}
			hold = lock(t, k.make(client, "long", snib.MaxHold(150*time.Millisecond)))
			soon(t, hold.Lost())
			if _, reason := hold.State(); reason != snib.ReasonMaxHold {
				t.Errorf("reason %v", reason)
			}
			hold = lock(t, k.make(client, "renewed"))
			before := client.Stats().Renewals
			await(t, func() bool { return client.Stats().Renewals >= before+4 })
			must(t, hold.Check())
			must(t, hold.Unlock(background))
			s.clean(t, left(k.stays, "forced", "fixed", "long", "renewed")...)
		})
	}
}

// An owner re-enters every kind without a command, and others wait.
func TestOwner(t *testing.T) {
	for _, k := range exclusive {
		t.Run(k.kind, func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			client := open(t, s.url())
			mine, other := k.make(client, "deep", snib.Owner(7)), k.make(client, "deep", snib.Owner(8))
			outer := lock(t, mine)
			commands := client.Stats().Commands
			inner := lock(t, mine)
			if inner.Token() != outer.Token() {
				t.Errorf("tokens %d and %d", outer.Token(), inner.Token())
			}
			must(t, inner.Unlock(background))
			if n := client.Stats().Commands - commands; n != 0 {
				t.Errorf("%d commands for re-entry", n)
			}
			_, err := other.TryLock(background)
			expect(t, "other owner", err, snib.ErrBusy)
			must(t, outer.Check())
			must(t, outer.Unlock(background))
			must(t, lock(t, other).Unlock(background))
			_, err = k.make(client, "deep", snib.Owner(0)).Lock(background)
			expect(t, "owner 0", err, snib.ErrInvalidArgument)
			s.clean(t, left(k.stays, "deep")...)
		})
	}
}

// One counter orders the holds of a name, whichever client grants them.
func TestTokensRise(t *testing.T) {
	s := startServer(t)
	clients := []*snib.Client{open(t, s.url()), open(t, s.url())}
	var last int64
	for i := range 12 {
		client := clients[i%2]
		kinds := []snib.Locker{client.Fenced("orders"), client.Fair("orders", snib.FencedTokens()),
			client.RW("orders", snib.FencedTokens())}
		l := kinds[i/2%3]
		hold := lock(t, l)
		if hold.Token() <= last {
			t.Errorf("hold %d has token %d after %d", i, hold.Token(), last)
		}
		last = hold.Token()
		info, err := l.Info(background)
		must(t, err)
		if info.Token != last {
			t.Errorf("info %+v", info)
		}
		must(t, hold.Unlock(background))
	}
	if reader, err := clients[0].RW("orders", snib.FencedTokens()).RLock(background); err != nil || reader.Token() != 0 {
		t.Errorf("reader: %v", err)
	} else {
		must(t, reader.Unlock(background))
	}
	s.clean(t, tokens+"{orders}")
}

func TestFairIsFirstComeFirstServed(t *testing.T) {
	s := startServer(t)
	var clients []*snib.Client
	for range 3 {
		clients = append(clients, open(t, s.url()))
	}
	fair := clients[0].Fair("counter")
	hold := lock(t, fair)
	order := make(chan int, 9)
	for i := range 9 {
		go func() {
			hold, err := clients[i%3].Fair("counter").Lock(background)
			if err != nil {
				t.Error(err)
				return
			}
			order <- i
			if err := hold.Unlock(background); err != nil {
				t.Error(err)
			}
		}()
		await(t, func() bool { return s.do(t, "LLEN", "redisson_lock_queue:{counter}") == fmt.Sprint(i+1) })
	}
	info, err := fair.Info(background)
	must(t, err)
	if info.Waiting != 9 {
		t.Errorf("%d wait", info.Waiting)
	}
	must(t, hold.Unlock(background))
	for i := range 9 {
		if got := soon(t, order); got != i {
			t.Errorf("%d came in place of %d", got, i)
		}
	}
	s.clean(t)
}

func TestPlainIsAString(t *testing.T) {
	s := startServer(t)
	plain := open(t, s.url()).Plain("string")
	hold := lock(t, plain)
	if value := s.do(t, "GET", "string"); value == "" || value == "-1" {
		t.Errorf("value %q", value)
	}
	if s.do(t, "SET", "string", "other", "NX", "PX", "1000") != "-1" {
		t.Error("another one can set it")
	}
	must(t, hold.Unlock(background))
	s.do(t, "SET", "string", "other", "NX", "PX", "60000")
	_, err := plain.TryLock(background)
	expect(t, "held by another library", err, snib.ErrBusy)
	s.do(t, "DEL", "string")
	s.clean(t)
}

func TestSpinSubscribesToNothing(t *testing.T) {
	s := startServer(t)
	client, rival := open(t, s.url()), open(t, s.url())
	hold := lock(t, client.Spin("round"))
	second := locking(rival.Spin("round").Lock)
	before := rival.Stats().Commands
	await(t, func() bool { return rival.Stats().Commands >= before+3 })
	if channels := s.do(t, "PUBSUB", "CHANNELS"); channels != "0" {
		t.Errorf("%s channels", channels)
	}
	must(t, hold.Unlock(background))
	must(t, soon(t, second).Unlock(background))
	s.clean(t)
}

func TestKindsKeepApart(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url())
	s.do(t, "SET", "text", "mine")
	s.do(t, "RPUSH", "list", "mine")
	for _, k := range exclusive {
		name := "text"
		if k.kind == "plain" {
			name = "list"
		}
		l := k.make(client, name)
		_, err := l.Lock(background)
		expect(t, k.kind+": lock", err, snib.ErrWrongType)
		expect(t, k.kind+": force", l.ForceRelease(background), snib.ErrWrongType)
	}
	if text := s.do(t, "GET", "text"); text != "mine" {
		t.Errorf("changed to %q", text)
	}
	if n := s.do(t, "LLEN", "list"); n != "1" {
		t.Errorf("%s in the list", n)
	}
	must(t, client.Close()) // there is nothing to release
}

func TestBadOptions(t *testing.T) {
	s := startServer(t)
	c := open(t, s.url())
	fenced, preferred, waived := snib.FencedTokens(), snib.PreferWriter(), snib.NoQuarantine()
	for what, l := range map[string]snib.Locker{
		"mutex, FencedTokens":  c.Mutex("x", fenced),
		"fenced, FencedTokens": c.Fenced("x", fenced),
		"spin, FencedTokens":   c.Spin("x", fenced),
		"plain, FencedTokens":  c.Plain("x", fenced),
		"mutex, PreferWriter":  c.Mutex("x", preferred),
		"fair, PreferWriter":   c.Fair("x", preferred),
		"mutex, NoQuarantine":  c.Mutex("x", waived),
		"RW, NoQuarantine":     c.RW("x", waived),
		"reader, NoQuarantine": c.RW("x", waived).RLocker(),
		"multi, NoQuarantine":  snib.Multi(c.Mutex("x")).With(waived),
		"multi, FencedTokens":  snib.Multi(c.Mutex("x")).With(fenced),
		"permits, Owner":       c.Permits("x", snib.Owner(7)),
		"permits, fenced":      c.Permits("x", fenced),
	} {
		_, err := l.Lock(background)
		expect(t, what, err, snib.ErrInvalidOption)
	}
	for _, k := range exclusive {
		for _, name := range []string{"", "a\x00b", "\xff", "a{b", strings.Repeat("x", 513)} {
			_, err := k.make(c, name).Lock(background)
			expect(t, fmt.Sprintf("%s %.10q", k.kind, name), err, snib.ErrInvalidName)
		}
		for _, lease := range []time.Duration{0, -1, 99 * time.Millisecond, 25 * time.Hour, 1<<63 - 1} {
			_, err := k.make(c, "x", snib.Lease(lease)).TryLock(background)
			expect(t, fmt.Sprint(k.kind, " ", lease), err, snib.ErrInvalidLease)
		}
	}
	if _, err := new(snib.Mutex).Lock(background); !errors.Is(err, snib.ErrInvalidArgument) {
		t.Errorf("not made by a client: %v", err)
	}
	if keys := s.do(t, "EVAL", countKeys, "0"); keys != "0" {
		t.Errorf("%s keys", keys)
	}
	must(t, c.Close())
	for _, k := range exclusive {
		_, err := k.make(c, "x").Lock(background)
		expect(t, k.kind+" of a closed client", err, snib.ErrClosed)
	}
}
