//go:build cgo

package snib_test

import (
	"context"
	"errors"
	"sync"
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

// beginning is a context that tells when a call begins to wait for it.
type beginning struct {
	context.Context
	waits func()
}

func (b *beginning) Done() <-chan struct{} {
	b.waits()
	return b.Context.Done()
}

// No call that waits for a stopped server costs a thread. While calls begin, or end, they are in C, where a slow machine
// gives other goroutines new threads; so few begin at a time, and what counts is how many there are when all wait.
func TestWaitingNeedsNoThreads(t *testing.T) {
	const callers = 200
	s := startServer(t)
	client := open(t, s.url(), snib.Patience(time.Minute), snib.ReplyTimeout(time.Minute))
	calls := callsOf(client)
	delete(calls, "try") // of many simultaneous tries all but one fail immediately
	for what, call := range calls {
		s.halt(t)
		before := threads(t)
		ctx, cancel := context.WithCancel(background)
		room := make(chan struct{}, 4)
		var waiting sync.WaitGroup
		waiting.Add(callers)
		finished := make(chan struct{})
		go func() {
			defer close(finished)
			together(callers, func(int) {
				room <- struct{}{}
				waits := sync.OnceFunc(func() { <-room; waiting.Done() })
				defer waits()
				if err := call(&beginning{ctx, waits}); !errors.Is(err, context.Canceled) {
					t.Errorf("%s: %v", what, err)
				}
			})
		}()
		waiting.Wait()
		if grown := threads(t) - before; grown > 20 {
			t.Errorf("%s: %d more threads", what, grown)
		}
		cancel()
		<-finished
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
