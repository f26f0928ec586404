//go:build cgo

package snib_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	snib "github.com/snib-lock/snib/go"
)

// most watches the number of threads while run runs, and returns its largest growth.
func most(t testing.TB, run func()) (grown int) {
	t.Helper()
	before := threads(t)
	finished := make(chan struct{})
	go func() { run(); close(finished) }()
	for {
		select {
		case <-finished:
			return grown
		case <-time.After(time.Millisecond):
			grown = max(grown, threads(t)-before)
		}
	}
}

// No call that waits for a stopped server costs a thread.
func TestWaitingNeedsNoThreads(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url())
	calls := callsOf(client)
	delete(calls, "try") // of many simultaneous tries all but one fail immediately
	for what, call := range calls {
		s.halt(t)
		ctx, cancel := context.WithTimeout(background, 300*time.Millisecond)
		grown := most(t, func() {
			together(200, func(int) {
				if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: %v", what, err)
				}
			})
		})
		cancel()
		if grown > 20 {
			t.Errorf("%s: %d more threads", what, grown)
		}
		must(t, s.cmd.Process.Signal(syscall.SIGCONT))
		must(t, client.Ping(background))
	}
}

// Nor do clients that are all closed at once while their server is stopped.
func TestClosingNeedsNoThreads(t *testing.T) {
	s := startServer(t)
	var clients []*snib.Client
	for range 100 {
		client := open(t, s.url(), snib.Logger(nil))
		lock(t, client.Mutex(client.ID()))
		clients = append(clients, client)
	}
	s.halt(t)
	grown := most(t, func() {
		together(len(clients), func(i int) { _ = clients[i].CloseTimeout(2 * time.Second) })
	})
	if grown > 20 {
		t.Errorf("%d more threads", grown)
	}
	must(t, s.cmd.Process.Signal(syscall.SIGCONT))
}
