//go:build cgo

package snib_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	snib "github.com/snib-lock/snib/go"
)

// The holder's process is known once its client has held something for a third of its lease.
func TestIdentity(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	before := time.Now()
	holder := open(t, s.url(), snib.WatchdogLease(renewed), snib.Label("nightly run"))
	client := open(t, s.url())
	mutex, seen := holder.Mutex("m"), client.Mutex("m")
	hold := lock(t, mutex)
	var info snib.Info
	await(t, func() bool {
		var err error
		info, err = seen.Info(background)
		must(t, err)
		return info.Identity != nil
	})
	host, err := os.Hostname()
	must(t, err)
	who := *info.Identity
	if who.Host != host || who.PID != os.Getpid() || who.Program == "" || who.Label != "nightly run" {
		t.Errorf("%+v", who)
	}
	if who.Since.Before(before.Add(-time.Second)) || who.Since.After(time.Now()) {
		t.Error(who.Since)
	}
	if who.HeldSince.Before(who.Since) || who.HeldSince.After(time.Now()) {
		t.Error(who.HeldSince)
	}
	known, err := client.Identity(background, holder.ID())
	must(t, err)
	whole := who
	whole.HeldSince = time.Time{}
	if known == nil || *known != whole {
		t.Errorf("%+v", known)
	}
	for _, owner := range []string{hold.Owner(), describe(t, client, "m", "mutex").Holders[0].Owner} {
		same, err := client.Identity(background, owner)
		must(t, err)
		if same == nil || *same != who {
			t.Errorf("%s: %+v", owner, same)
		}
	}
	must(t, hold.Unlock(background))
	if info, err := seen.Info(background); err != nil || info.Identity != nil {
		t.Errorf("%+v %v", info, err)
	}
	must(t, holder.Close())
	await(t, func() bool { return s.do(t, "DBSIZE") == "0" })
	must(t, client.Close())
}

// A label may change while something is held; a bad one changes nothing.
func TestAnotherLabel(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	holder := open(t, s.url(), snib.WatchdogLease(renewed), snib.Label("first"))
	client := open(t, s.url())
	hold := lock(t, holder.Mutex("m"))
	label := func() string {
		who, err := client.Identity(background, holder.ID())
		must(t, err)
		if who == nil {
			return "nobody"
		}
		return who.Label
	}
	await(t, func() bool { return label() == "first" })
	for _, bad := range []string{"a\nb", "\xff", "a\x00b", strings.Repeat("a", 129)} {
		if err := holder.SetLabel(bad); !errors.Is(err, snib.ErrInvalidArgument) {
			t.Errorf("%.20q: %v", bad, err)
		}
	}
	if got := label(); got != "first" {
		t.Errorf("%q", got)
	}
	for _, next := range []string{"order 17", ""} {
		must(t, holder.SetLabel(next))
		await(t, func() bool { return label() == next })
	}
	must(t, hold.Unlock(background))
	must(t, holder.Close())
	if err := holder.SetLabel("late"); !errors.Is(err, snib.ErrClosed) {
		t.Errorf("%v", err)
	}
	silent := open(t, s.url(), snib.PublishIdentity(false))
	if err := silent.SetLabel("x"); !errors.Is(err, snib.ErrNotSupported) {
		t.Errorf("%v", err)
	}
}

func TestIdentityNotTold(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	silent := open(t, s.url(), snib.WatchdogLease(renewed), snib.PublishIdentity(false))
	client := open(t, s.url())
	hold := lock(t, silent.Mutex("m"))
	renewals := silent.Stats().Renewals
	await(t, func() bool { return silent.Stats().Renewals > renewals+1 })
	if info, err := client.Mutex("m").Info(background); err != nil || !info.Held || info.Identity != nil {
		t.Errorf("%+v %v", info, err)
	}
	must(t, hold.Unlock(background))
	for _, owner := range []string{"", "somebody", "11111111-2222-4333-8444-555555555555:1", "\xff"} {
		if who, err := client.Identity(background, owner); err != nil || who != nil {
			t.Errorf("%q: %+v %v", owner, who, err)
		}
	}
	must(t, silent.Close())
	must(t, client.Close())
	_, err := client.Identity(background, "x")
	expect(t, "closed client", err, snib.ErrClosed)
}

// Anybody may have written what is told.
func TestIdentityOfOthers(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url())
	const id = "11111111-2222-8333-8444-555555555555"
	const key = "snib_client:{" + id + "}"
	s.do(t, "HSET", "m", id+":1", "1")
	for _, c := range []struct {
		text string
		want *snib.Identity
	}{
		{"host \x1b[2J\npid -5\nlabel a b\nsince x\nfuture y", &snib.Identity{Host: "?[2J", Label: "a b"}},
		{"pid 99999999999999999999\nprogram p", &snib.Identity{Program: "p"}},
		{"pid 3\nlosses 12", &snib.Identity{PID: 3, Losses: 12}},
		{"pid 3\nlosses -1", &snib.Identity{PID: 3}},
		{"since 1000000000\nhost", &snib.Identity{Since: time.Unix(1000000000, 0)}},
		{"held 2 7\nheld 1 1000000000\nheld", &snib.Identity{HeldSince: time.Unix(1000000000, 0)}},
		{"held 1 x\nheld 1 -1\nheld 11 5\nheld  5", nil},
		{strings.Repeat("\xff\n", 5000), nil},
	} {
		s.do(t, "SET", key, c.text)
		info, err := client.Mutex("m").Info(background)
		must(t, err)
		if (info.Identity == nil) != (c.want == nil) || c.want != nil && *info.Identity != *c.want {
			t.Errorf("%q: %+v", c.text, info.Identity)
		}
	}
	s.do(t, "DEL", key)
	s.do(t, "RPUSH", key, "x")
	info, err := client.Mutex("m").Info(background)
	if err != nil || info.Owner != id+":1" || info.Identity != nil {
		t.Errorf("%+v %v", info, err)
	}
	if _, err := client.Identity(background, id); !errors.Is(err, snib.ErrWrongType) {
		t.Error(err)
	}
	s.do(t, "DEL", key, "m")
	must(t, client.Close())
}

func TestLabels(t *testing.T) {
	for _, label := range []string{"a\nb", "\xff", "a\x00b", strings.Repeat("x", 129)} {
		_, err := snib.Open(background, "redis://h", snib.Label(label))
		expect(t, label, err, snib.ErrInvalidOption)
	}
}
