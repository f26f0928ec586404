//go:build cgo

package snibtest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	snib "github.com/snib-lock/snib/go"
	"github.com/snib-lock/snib/go/snibtest"
)

const (
	lease = 30 * time.Second
	soon  = 20 * time.Second
)

func open(t *testing.T, server *snibtest.Server) *snib.Client {
	t.Helper()
	client, err := snib.Open(context.Background(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// lostUnder runs work under a lock, lets it be lost, and returns what Do says.
func lostUnder(t *testing.T, client *snib.Client, fault func()) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	return client.Mutex("name").Do(ctx, func(ctx context.Context) error {
		fault()
		<-ctx.Done()
		return context.Cause(ctx)
	})
}

func TestASilentServerAndTheClock(t *testing.T) {
	server := snibtest.Start(t)
	client := open(t, server)
	err := lostUnder(t, client, func() {
		if !server.Has("name") {
			t.Error("the lock's key is not there")
		}
		if server.Has("name\x00") {
			t.Error("it has a key that nothing has set")
		}
		server.Stall()
		server.Advance(lease)
	})
	if !errors.Is(err, snib.ErrLost) {
		t.Fatal(err)
	}
	server.Resume()
	if err := client.Mutex("name").Do(context.Background(), func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
}

func TestNoClockSeemsToHaveBeenSet(t *testing.T) {
	server := snibtest.Start(t)
	client := open(t, server)
	hold, err := client.Mutex("name").Lock(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for range 200 {
		server.Advance(lease/3 + time.Millisecond)
		for end := time.Now().Add(soon); hold.Remaining() < lease*2/3; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("it is not renewed")
			}
		}
	}
	if moves := client.Stats().ClockMoves; moves != 0 {
		t.Errorf("the clock has moved %d times", moves)
	}
}

func TestTheKeyEnds(t *testing.T) {
	server := snibtest.Start(t)
	err := lostUnder(t, open(t, server), func() {
		server.Expire("name")
		server.Advance(lease/3 + time.Millisecond) // the client asks
	})
	if !errors.Is(err, snib.ErrLost) {
		t.Fatal(err)
	}
}

func TestAFailover(t *testing.T) {
	server := snibtest.Start(t)
	err := lostUnder(t, open(t, server), server.Failover)
	if !errors.Is(err, snib.ErrLost) {
		t.Fatal(err)
	}
}

func TestLostRepliesAndConnections(t *testing.T) {
	server := snibtest.Start(t)
	client := open(t, server)
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	for _, fault := range []func(){func() {}, server.LoseReply, server.KillConnections, server.Heal} {
		fault()
		if err := client.Mutex("name").Do(ctx, func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNoServer(t *testing.T) {
	server, err := snibtest.New("twice")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := snibtest.New("twice"); err == nil || !strings.Contains(err.Error(), `"twice" already`) {
		t.Error(err)
	}
	client := open(t, server)
	server.Stop()
	server.Stop()
	_, err = client.Mutex("name").TryLock(context.Background())
	if err == nil || !strings.Contains(err.Error(), "no memory server of this name") {
		t.Error(err)
	}
	if err := server.Fault("stall", ""); err == nil {
		t.Error("a stopped server has faults")
	}
	func() {
		defer func() {
			if wrong, _ := recover().(error); wrong == nil || !strings.Contains(wrong.Error(), "is stopped") {
				t.Error("a stopped server says what it has:", wrong)
			}
		}()
		server.Has("name")
	}()
	for _, bad := range []string{"a/b", "twice\x00"} {
		if _, err := snibtest.New(bad); err == nil {
			t.Errorf("the name %q is taken", bad)
		}
	}
}

func TestBadFaults(t *testing.T) {
	server := snibtest.Start(t)
	for _, bad := range [][3]string{
		{"explode", "", `no fault "explode"; there are lose_reply, `},
		{"", "", "there are lose_reply, "},
		{"stall", "1", "takes no argument"},
		{"expire", "", "the name of a key"},
		{"expire", "nothing", `no key "nothing"`},
		{"kill_connection", "9", "1 is the oldest; there are 0"},
		{"lose_reply", "0", "1 to 1000000"},
		{"oom", "maybe", `"on" or "off"`},
		{"stall\x00", "", "contains a NUL"},
		{"expire", "a\x00b", "contains a NUL"},
	} {
		if err := server.Fault(bad[0], bad[1]); err == nil || !strings.Contains(err.Error(), bad[2]) {
			t.Error(bad, err)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a clock went back")
		}
	}()
	server.Advance(-time.Second)
}

func Example() {
	server, err := snibtest.New("")
	if err != nil {
		panic(err)
	}
	defer server.Stop()
	ctx := context.Background()
	client, err := snib.Open(ctx, server.URL())
	if err != nil {
		panic(err)
	}
	defer client.Close()
	err = client.Mutex("orders").Do(ctx, func(ctx context.Context) error {
		server.Stall()
		server.Advance(30 * time.Second)
		<-ctx.Done() // the work stops
		return ctx.Err()
	})
	fmt.Println(errors.Is(err, snib.ErrLost))
	// Output: true
}
