//go:build cgo

package snib_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	snib "github.com/snib-lock/snib/go"
)

func TestMulti(t *testing.T) {
	s, far := startServer(t), startServer(t)
	client, rival, distant := open(t, s.url()), open(t, s.url()), open(t, far.url())
	initialize(t, distant.Permits("slots"), 1)
	make := func(c *snib.Client) *snib.Group {
		return snib.Multi(distant.Permits("slots"), c.Mutex("a"), c.Fenced("b"), c.RW("c"), c.RW("d").RLocker(),
			c.Spin("e"), c.Plain("f"), c.Fair("g"), distant.Mutex("a"))
	}
	mine, other := make(client), make(rival)
	hold := lock(t, mine)
	must(t, hold.Check())
	if hold.Token() != 0 || hold.Remaining() < 20*time.Second {
		t.Errorf("token %d, remaining %v", hold.Token(), hold.Remaining())
	}
	for what, member := range map[string]snib.Locker{"mutex": rival.Mutex("a"), "fenced": rival.Fenced("b"),
		"write": rival.RW("c"), "read": rival.RW("d"), "spin": rival.Spin("e"), "plain": rival.Plain("f"),
		"fair": rival.Fair("g"), "permits": distant.Permits("slots"), "distant": distant.Mutex("a")} {
		_, err := member.TryLock(background)
		expect(t, what, err, snib.ErrBusy)
	}
	must(t, rlock(t, rival.RW("d")).Unlock(background))
	_, err := other.TryLock(background)
	expect(t, "the same group", err, snib.ErrBusy)
	second := locking(other.Lock)
	must(t, hold.Unlock(background))
	must(t, soon(t, second).Unlock(background))
	expect(t, "second unlock", hold.Unlock(background), snib.ErrNotHeld)
	s.clean(t, tokens+"{b}")
	far.clean(t, "slots")
}

// An attempt that finds one member held leaves nothing behind on the others.
func TestMultiIsAllOrNothing(t *testing.T) {
	s := startServer(t)
	client, rival := open(t, s.url()), open(t, s.url())
	for _, held := range []string{"a", "b", "c"} {
		hold := lock(t, rival.Mutex(held))
		group := snib.Multi(client.Mutex("a"), client.Mutex("b"), client.Mutex("c"))
		_, err := group.TryLock(background)
		expect(t, held, err, snib.ErrBusy)
		short, cancel := context.WithTimeout(background, 50*time.Millisecond)
		defer cancel()
		_, err = group.Lock(short)
		expect(t, held, err, snib.ErrTimeout)
		must(t, hold.Check())
		must(t, hold.Unlock(background))
		s.clean(t)
	}
}

// Groups with members in opposite orders do not deadlock.
func TestMultiInAnyOrder(t *testing.T) {
	s, far := startServer(t), startServer(t)
	near := []*snib.Client{open(t, s.url()), open(t, s.url())}
	distant := []*snib.Client{open(t, far.url()), open(t, far.url())}
	var inside atomic.Int32
	together(4, func(i int) {
		a, b, c := near[i%2].Mutex("a"), near[i%2].Fair("b"), distant[i%2].Mutex("c")
		group := [][]snib.Locker{{a, b, c}, {c, b, a}, {b, a, c}, {b, c, a}}[i]
		for range 10 {
			hold, err := snib.Multi(group...).Lock(background)
			if err != nil {
				t.Error(err)
				return
			}
			if inside.Add(1) != 1 {
				t.Error("two inside")
			}
			inside.Add(-1)
			if err := hold.Unlock(background); err != nil {
				t.Error(err)
			}
		}
	})
	s.clean(t)
	far.clean(t)
}

func TestMultiIsLostWithAMember(t *testing.T) {
	t.Parallel()
	s, far := startServer(t), startServer(t)
	lease := snib.WatchdogLease(renewed)
	client, distant := open(t, s.url(), lease), open(t, far.url(), lease)
	group := snib.Multi(client.Mutex("a"), client.Mutex("b"), distant.Mutex("c"))
	for _, member := range []*snib.Mutex{client.Mutex("b"), distant.Mutex("c")} {
		hold := lock(t, group)
		must(t, member.ForceRelease(background))
		soon(t, hold.Lost())
		expect(t, "check", hold.Check(), snib.ErrLost)
		expect(t, "unlock", hold.Unlock(background), snib.ErrLost)
		s.clean(t)
		far.clean(t)
	}
	hold := lock(t, group.With(snib.Lease(renewed)))
	if state, _ := hold.State(); state != snib.StateValid {
		t.Errorf("state %v", state)
	}
	soon(t, hold.Lost())
	if _, reason := hold.State(); reason != snib.ReasonExpired {
		t.Errorf("reason %v", reason)
	}
	hold = lock(t, group)
	must(t, distant.Close())
	soon(t, hold.Lost())
	if _, reason := hold.State(); reason != snib.ReasonClosed {
		t.Errorf("reason %v", reason)
	}
	_ = hold.Unlock(background)
	_, err := group.Lock(background)
	expect(t, "a member's client is closed", err, snib.ErrClosed)
	s.clean(t)
	far.clean(t)
}

// A cancel at any moment leaves nothing behind on any server.
func TestCancelledGroups(t *testing.T) {
	servers, majority := quorum(t, 3)
	mixed := func() *snib.Group {
		var locks []snib.Locker
		for _, s := range servers[1:] {
			c := open(t, s.url())
			locks = append(locks, c.Mutex("a"), c.RW("b"), c.Fair("c"))
		}
		return snib.Multi(locks...)
	}
	together(8, func(worker int) {
		group := mixed()
		if worker%2 == 0 {
			group = majority()
		}
		for i := range 40 {
			ctx, cancel := context.WithCancel(background)
			timer := time.AfterFunc(time.Duration(i*(worker+1)%40)*50*time.Microsecond, cancel)
			if hold, err := group.Lock(ctx); err == nil {
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
	for _, s := range servers {
		s.free(t, "orders", "a", "b", "c")
	}
}

func TestGroupsEndWithTheirClients(t *testing.T) {
	s, far := startServer(t), startServer(t)
	for _, home := range []bool{true, false} {
		client, distant := open(t, s.url()), open(t, far.url())
		group := snib.Multi(client.Mutex("a"), distant.Mutex("a"))
		hold := lock(t, group)
		ended := make(chan error, 1)
		go func() {
			_, err := group.Lock(background)
			ended <- err
		}()
		await(t, func() bool { return client.Stats().Waiting+distant.Stats().Waiting > 0 })
		if home {
			must(t, client.Close())
		} else {
			must(t, distant.Close())
		}
		expect(t, "a waiter", soon(t, ended), snib.ErrClosed)
		soon(t, hold.Lost())
		expect(t, "the hold", hold.Check(), snib.ErrLost)
		_ = hold.Unlock(background)
		s.clean(t)
		far.clean(t)
	}
}

func TestBadMembers(t *testing.T) {
	s := startServer(t)
	client, closed := open(t, s.url()), open(t, s.url())
	early := closed.Mutex("early")
	must(t, closed.Close())
	var many []snib.Locker
	for i := range 101 {
		many = append(many, client.Mutex(fmt.Sprint("m", i)))
	}
	three := func(names ...string) (all []snib.Locker) {
		for _, name := range names {
			all = append(all, open(t, s.url()).Mutex(name))
		}
		return all
	}
	for what, bad := range map[string]struct {
		group *snib.Group
		want  snib.Code
	}{
		"no member":              {snib.Multi(), snib.ErrInvalidArgument},
		"nil":                    {snib.Multi(client.Mutex("a"), nil), snib.ErrInvalidArgument},
		"not made by a client":   {snib.Multi(new(snib.Mutex)), snib.ErrInvalidArgument},
		"101":                    {snib.Multi(many...), snib.ErrInvalidArgument},
		"doubled":                {snib.Multi(client.Mutex("a"), client.Mutex("b"), client.Mutex("a")), snib.ErrInvalidArgument},
		"a bad name":             {snib.Multi(client.Mutex("a"), client.Mutex("")), snib.ErrInvalidName},
		"a closed client":        {snib.Multi(client.Mutex("a"), closed.Mutex("b")), snib.ErrClosed},
		"closed since":           {snib.Multi(client.Mutex("a"), early), snib.ErrClosed},
		"a group":                {snib.Multi(client.Mutex("a"), snib.Multi(client.Mutex("b"))), snib.ErrInvalidArgument},
		"a bad lease":            {snib.Multi(client.Mutex("a")).With(snib.Lease(time.Millisecond)), snib.ErrInvalidLease},
		"owner 0":                {snib.Multi(client.Mutex("a")).With(snib.Owner(0)), snib.ErrInvalidArgument},
		"a quorum of none":       {snib.Quorum(), snib.ErrInvalidArgument},
		"a quorum of two":        {snib.Quorum(three("a", "a")...), snib.ErrInvalidArgument},
		"a quorum's client":      {snib.Quorum(client.Mutex("a"), client.Mutex("a"), client.Mutex("a")), snib.ErrInvalidArgument},
		"a quorum's names":       {snib.Quorum(three("a", "a", "b")...), snib.ErrInvalidArgument},
		"a quorum's kinds":       {snib.Quorum(append(three("a", "a"), open(t, s.url()).Fair("a"))...), snib.ErrInvalidArgument},
		"a quorum's nil":         {snib.Quorum(append(three("a", "a"), nil)...), snib.ErrInvalidArgument},
		"a quorum, closed":       {snib.Quorum(append(three("early", "early"), early)...), snib.ErrClosed},
		"a quorum, owner 0":      {snib.Quorum(three("a", "a", "a")...).With(snib.Owner(0)), snib.ErrInvalidArgument},
		"a quorum, FencedTokens": {snib.Quorum(three("a", "a", "a")...).With(snib.FencedTokens()), snib.ErrInvalidOption},
	} {
		_, err := bad.group.Lock(background)
		expect(t, what, err, bad.want)
		_, err = bad.group.TryLock(background)
		expect(t, what, err, bad.want)
	}
	expect(t, "force", snib.Multi(client.Mutex("a")).ForceRelease(background), snib.ErrNotSupported)
	if keys := s.do(t, "EVAL", countKeys, "0"); keys != "0" {
		t.Errorf("%s keys", keys)
	}
}

// A nil pointer is no lock, whatever its type; and one may be embedded.
func TestNilMembers(t *testing.T) {
	for what, member := range map[string]snib.Locker{
		"nil": nil, "mutex": (*snib.Mutex)(nil), "RW": (*snib.RW)(nil), "group": (*snib.Group)(nil), "permits": (*snib.Permits)(nil),
		"embedded": struct{ *snib.Mutex }{}, "embedding": (*struct{ snib.Mutex })(nil), "interface": struct{ snib.Locker }{},
	} {
		for kind, group := range map[string]*snib.Group{"multi": snib.Multi(member), "quorum": snib.Quorum(member, member, member)} {
			_, err := group.With(snib.Lease(time.Hour)).TryLock(background)
			if !errors.Is(err, snib.ErrInvalidArgument) || !strings.Contains(err.Error(), "member 1 is not a lock") {
				t.Errorf("%s of %s: %v", kind, what, err)
			}
		}
	}
}

// The options of several With add up, and the last one counts.
func TestWithTwice(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url())
	hour := snib.Multi(client.Mutex("a"), client.Mutex("b")).With(snib.Lease(time.Hour))
	for what, group := range map[string]struct {
		group *snib.Group
		hours time.Duration
	}{
		"another option": {hour.With(snib.Owner(7)), 1},
		"no option":      {hour.With(), 1},
		"the same again": {hour.With(snib.Lease(3 * time.Hour)), 3},
		"the first":      {hour, 1}, // which is as it was
	} {
		hold := lock(t, group.group)
		if left := hold.Remaining(); left > group.hours*time.Hour || left < group.hours*time.Hour-time.Hour/2 {
			t.Errorf("%s: %v are left", what, left)
		}
		must(t, hold.Unlock(background))
	}
	_, open := quorum(t, 3)
	must(t, lock(t, open().With(snib.Lease(time.Hour))).Unlock(background)) // still without quarantine
}

// quorum starts servers, and returns a function that makes groups of new clients.
func quorum(t *testing.T, n int, given ...snib.Option) ([]*server, func(options ...snib.LockOption) *snib.Group) {
	var servers []*server
	for range n {
		servers = append(servers, startServer(t))
	}
	return servers, func(options ...snib.LockOption) *snib.Group {
		var locks []snib.Locker
		for _, s := range servers {
			locks = append(locks, open(t, s.url(), given...).Mutex("orders"))
		}
		return snib.Quorum(locks...).With(append(options, snib.NoQuarantine())...)
	}
}

func TestQuorum(t *testing.T) {
	servers, open := quorum(t, 3)
	mine, other := open(), open()
	hold := lock(t, mine)
	must(t, hold.Check())
	_, err := other.TryLock(background)
	expect(t, "try", err, snib.ErrBusy)
	second := locking(other.Lock)
	must(t, hold.Unlock(background))
	must(t, soon(t, second).Unlock(background))
	for _, s := range servers {
		await(t, func() bool { return s.do(t, "EXISTS", "orders") == "0" })
	}
}

func TestQuorumEnduresAMinority(t *testing.T) {
	t.Parallel()
	servers, open := quorum(t, 3, snib.WatchdogLease(2*renewed), snib.Patience(renewed), snib.TryTimeout(time.Second))
	mine, other := open(), open()
	servers[1].halt(t)
	hold := lock(t, mine)
	must(t, hold.Check())
	_, err := other.TryLock(background)
	if err == nil {
		t.Error("two holders")
	}
	servers[2].halt(t)
	soon(t, hold.Lost()) // a majority is gone
	_, err = mine.TryLock(background)
	if err == nil {
		t.Error("a hold of one server of three")
	}
	for _, s := range servers[1:] {
		must(t, s.cmd.Process.Signal(syscall.SIGCONT))
	}
	_ = hold.Unlock(background)
	must(t, lock(t, mine).Unlock(background))
}

// A program that starts while a minority is down names all servers all the same, and the missing one votes when it comes.
func TestQuorumBeginsWithAMinorityDown(t *testing.T) {
	near, far := startServer(t), startServer(t)
	missing := filepath.Join(t.TempDir(), "s")
	_, err := snib.Open(background, "unix://"+missing, snib.Logger(nil), snib.Patience(time.Millisecond))
	expect(t, "with a ping", err, snib.ErrUnreachable)
	var locks []snib.Locker
	for _, path := range []string{near.path, missing, far.path} {
		locks = append(locks, open(t, "unix://"+path, snib.NoPing()).Mutex("orders"))
	}
	mine := snib.Quorum(locks...).With(snib.NoQuarantine())
	hold, err := mine.TryLock(background)
	must(t, err)
	must(t, hold.Check())
	must(t, hold.Unlock(background))
	late := startServer(t)
	must(t, os.Symlink(late.path, missing))
	near.halt(t)
	hold = lock(t, mine) // there is no majority without the late one
	if late.do(t, "EXISTS", "orders") != "1" || far.do(t, "EXISTS", "orders") != "1" {
		t.Error("a majority without votes")
	}
	must(t, near.cmd.Process.Signal(syscall.SIGCONT))
	must(t, hold.Unlock(background))
}

func TestExtendQuorum(t *testing.T) {
	t.Parallel()
	servers, open := quorum(t, 3)
	hold := lock(t, open())
	servers[2].halt(t) // the others are a majority
	must(t, hold.Extend(background, time.Hour))
	if left := hold.Remaining(); left < time.Hour-time.Minute {
		t.Errorf("%v are left", left)
	}
	must(t, hold.Extend(background, 0))
	must(t, servers[2].cmd.Process.Signal(syscall.SIGCONT))
	must(t, hold.Unlock(background))
}

func TestQuorumExcludes(t *testing.T) {
	_, open := quorum(t, 3)
	groups := []*snib.Group{open(), open()}
	var inside atomic.Int32
	together(4, func(i int) {
		for range 8 {
			hold, err := groups[i%2].Lock(background)
			if err != nil {
				t.Error(err)
				return
			}
			if inside.Add(1) != 1 {
				t.Error("two inside")
			}
			inside.Add(-1)
			if err := hold.Unlock(background); err != nil {
				t.Error(err)
			}
		}
	})
}

// A node seen for the first time may have forgotten a hold, so it does not vote yet.
func TestQuarantine(t *testing.T) {
	t.Parallel()
	servers, _ := quorum(t, 3)
	var locks []snib.Locker
	for _, s := range servers {
		locks = append(locks, open(t, s.url(), snib.WatchdogLease(renewed)).Mutex("orders"))
	}
	if _, err := snib.Quorum(locks...).TryLock(background); err == nil {
		t.Error("unknown servers vote")
	}
	must(t, lock(t, snib.Quorum(locks...)).Unlock(background))
}

// A client is closed within its time limit, although a release waits for the server of another client.
func TestCloseDuringReleaseOfGroup(t *testing.T) {
	t.Parallel()
	s, far := startServer(t), startServer(t)
	client, distant := open(t, s.url()), open(t, far.url())
	hold := lock(t, snib.Multi(client.Mutex("near"), distant.Mutex("far")))
	far.halt(t)
	released := make(chan error, 1)
	go func() { released <- hold.Unlock(background) }()
	await(t, func() bool { return s.do(t, "EXISTS", "near") == "0" })
	began := time.Now()
	expect(t, "close", client.CloseTimeout(0), snib.ErrTimeout)
	if took := time.Since(began); took > patience/2 {
		t.Errorf("it took %v", took)
	}
	expect(t, "unlock", soon(t, released), snib.ErrUnreachable)
	must(t, far.cmd.Process.Signal(syscall.SIGCONT))
	far.free(t, "far")
}

// When a client is closed, a wait for several locks ends: immediately if it is the first one's, or that of the member whose
// turn it is, and otherwise when the turn of its member comes.
func TestCloseEndsAWaitForSeveral(t *testing.T) {
	s := startServer(t)
	rival := open(t, s.url())
	for closes, at := range map[string]int{"first": 0, "waited for": 1, "later": 2} {
		clients := []*snib.Client{open(t, s.url()), open(t, s.url()), open(t, s.url())}
		multi := snib.Multi(clients[0].Mutex("b"), clients[1].Mutex("a"), clients[2].Mutex("c")) // taken by name
		hold := lock(t, rival.Mutex("a"))
		ended := make(chan error, 1)
		go func() {
			_, err := multi.Lock(background)
			ended <- err
		}()
		await(t, func() bool { return clients[1].Stats().Waiting == 1 })
		must(t, clients[at].Close())
		if closes == "later" {
			must(t, hold.Unlock(background))
		}
		expect(t, closes, soon(t, ended), snib.ErrClosed)
		if closes != "later" {
			must(t, hold.Unlock(background))
		}
	}
	s.free(t, "a", "b", "c")
}
