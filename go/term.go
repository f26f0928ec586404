//go:build cgo

package snib

import (
	"maps"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
)

// CloseOnTerm closes the clients when the process gets SIGTERM, so that their locks are free immediately and not only
// when their leases end. Then it calls then; if then is nil, it raises the signal again, which ends a program that has
// no handler, as soon as the clients of all calls of CloseOnTerm are closed. A second SIGTERM is not intercepted. stop
// undoes the call; if the signal came before, it waits until the clients are closed, so that main may return after it.
//
// A program that uses signal.Notify for SIGTERM still gets the signal immediately. It must pass a function as then,
// even if an empty one, because nil raises the signal once more.
//
// Work under a lock is notified by the context of the hold, whose cause is a loss with [ReasonClosed], but CloseOnTerm
// does not wait for the work. A program that can stop its work does not need CloseOnTerm: it passes the context of
// signal.NotifyContext to [Mutex.Do], which unlocks when the work has ended.
func CloseOnTerm(then func(os.Signal), clients ...*Client) (stop func()) {
	t := &term{signals: make(chan os.Signal, 1), closed: make(chan struct{})}
	terms.add(t)
	signal.Notify(t.signals, syscall.SIGTERM)
	go func() {
		s, came := <-t.signals
		if came {
			signal.Stop(t.signals)
			closeAll(clients)
		}
		close(t.closed)
		if came && then == nil {
			terms.end(s)
			then = raise
		}
		terms.remove(t)
		if came {
			then(s)
		}
	}()
	return sync.OnceFunc(func() {
		signal.Stop(t.signals)
		terms.stop(t)
		<-t.closed
	})
}

// A term is a call of CloseOnTerm.
type term struct {
	signals chan os.Signal
	closed  chan struct{} // closed when its clients are, or need not be
	stopped bool
}

// terms are those that have not ended. One that is stopped may still be closing its clients: the work that stopped it
// hears of the loss first.
var terms = termSet{all: map[*term]struct{}{}}

type termSet struct {
	mu  sync.Mutex
	all map[*term]struct{}
}

func (s *termSet) add(t *term) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[t] = struct{}{}
}

func (s *termSet) remove(t *term) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, t)
}

func (s *termSet) stop(t *term) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.stopped = true
	close(t.signals) // a signal that came before is still taken
}

// end passes the signal on to all, which may have come after it, and waits until their clients are closed.
func (s *termSet) end(sig os.Signal) {
	s.mu.Lock()
	all := slices.Collect(maps.Keys(s.all))
	for _, t := range all {
		if t.stopped {
			continue
		}
		select {
		case t.signals <- sig:
		default: // it has the signal
		}
	}
	s.mu.Unlock()
	for _, t := range all {
		<-t.closed
	}
}

func closeAll(clients []*Client) {
	var all sync.WaitGroup
	for _, c := range clients {
		if c == nil {
			continue
		}
		all.Add(1)
		go func() {
			defer all.Done()
			_ = c.Close() // an unconfirmed release ends with its lease
		}()
	}
	all.Wait()
}

// raise sends the process a signal, for its default effect.
func raise(s os.Signal) {
	if number, ok := s.(syscall.Signal); ok {
		_ = syscall.Kill(os.Getpid(), number)
	}
}
