//go:build cgo

package snib_test

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	snib "github.com/snib-lock/snib/go"
)

// descriptors counts those that are no files and no sockets.
func descriptors(t testing.TB) (n int) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	for _, one := range all {
		if link, _ := os.Readlink("/proc/self/fd/" + one.Name()); strings.HasPrefix(link, "anon_inode:") {
			n++
		}
	}
	return n
}

// A closed client keeps no descriptor, although its locks, and a hold that was not unlocked, are still there.
func TestClosedClientHasNoDescriptors(t *testing.T) {
	s := startServer(t)
	must(t, open(t, s.url()).Close()) // the runtime's poller has its descriptors now
	before := descriptors(t)
	var locks []*snib.Mutex
	var holds []*snib.Hold
	for range 10 {
		client := open(t, s.url())
		locks = append(locks, client.Mutex("x"), client.Mutex(client.ID()))
		must(t, locks[len(locks)-2].Do(background, nothing))
		holds = append(holds, lock(t, locks[len(locks)-1]))
		must(t, client.Close())
	}
	if n := descriptors(t) - before; n > 0 {
		t.Errorf("%d descriptors are left", n)
	}
	runtime.KeepAlive(locks)
	runtime.KeepAlive(holds)
	s.clean(t)
}

// Open without a context panics before it has made anything.
func TestOpenWithoutContext(t *testing.T) {
	s := startServer(t)
	must(t, open(t, s.url()).Close())
	goroutines, before := runtime.NumGoroutine(), descriptors(t)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no context, no panic")
			}
		}()
		var none context.Context
		_, _ = snib.Open(none, s.url())
	}()
	if n := descriptors(t) - before; n > 0 {
		t.Errorf("%d descriptors are left", n)
	}
	await(t, func() bool { return runtime.NumGoroutine() <= goroutines })
}

// Without the ping Open sends nothing, but what ends a call before its start ends this one, too.
func TestOpenWithoutPing(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url(), snib.NoPing())
	if stats := client.Stats(); stats.Connects != 0 || stats.Commands != 0 {
		t.Errorf("%+v", stats)
	}
	must(t, client.Ping(background))
	ended, cancel := context.WithCancel(background)
	cancel()
	if _, err := snib.Open(ended, s.url(), snib.NoPing()); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := snib.Open(background, "redis://host:0", snib.NoPing()); !errors.Is(err, snib.ErrInvalidURL) {
		t.Error(err)
	}
}

// An Open that fails has nothing to release: it does not wait for the closes of others, which wait for a stopped server.
func TestOpenThatFailsWaitsForNoClose(t *testing.T) {
	stopped, strict := startServer(t), startServer(t, "--requirepass", "right")
	var clients []*snib.Client
	for range 10 {
		client := open(t, stopped.url(), snib.Logger(nil), snib.Patience(time.Hour), snib.ReplyTimeout(time.Hour))
		lock(t, client.Mutex(client.ID()))
		clients = append(clients, client)
	}
	stopped.halt(t)
	closed := make(chan error, len(clients))
	for _, client := range clients {
		go func() { closed <- client.Close() }()
	}
	await(t, func() bool { return snib.Closing() == len(clients) })
	ended, cancel := context.WithCancel(background)
	cancel()
	failed := make(chan error, 2)
	go func() {
		for url, ctx := range map[string]context.Context{"unix://:wrong@" + strict.path: background, "unix://:right@" + strict.path: ended} {
			_, err := snib.Open(ctx, url, snib.Logger(nil), snib.Patience(time.Hour))
			failed <- err
		}
	}()
	for range cap(failed) {
		if err := soon(t, failed); !errors.Is(err, snib.ErrAuth) && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	if n := len(closed); n > 0 {
		t.Errorf("%d closes have ended", n)
	}
	must(t, stopped.cmd.Process.Signal(syscall.SIGCONT))
	for range clients {
		must(t, soon(t, closed))
	}
}

// With few descriptors left Open fails, and says why, whatever it wants one for.
func TestOpenWithoutDescriptors(t *testing.T) {
	s := startServer(t)
	must(t, open(t, s.url()).Close())
	var limit syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	defer func() { must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)) }()
	for few, refused := uint64(3), 0; ; few++ {
		must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: few, Max: limit.Max}))
		client, err := snib.Open(background, s.url(), snib.Logger(nil), snib.Patience(time.Second))
		must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
		if err == nil {
			must(t, client.Close())
		}
		if !errors.Is(err, snib.ErrSystem) && refused > 0 {
			break
		}
		refused++
		if !strings.Contains(err.Error(), "check the limits of this process and of the system") {
			t.Errorf("with %d: %v", few, err)
		}
	}
}
