//go:build cgo

package snib

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// CloseOnTerm closes the clients when the process gets SIGTERM, so that their locks are free immediately and not only
// when their leases end. Then it calls then; if then is nil, it raises the signal again, which ends a program that has
// no handler. A second SIGTERM is not intercepted. stop undoes the call.
//
// A program that uses signal.Notify for SIGTERM still gets the signal immediately. It must pass a function as then,
// even if an empty one, because nil raises the signal once more.
//
// Work under a lock is notified by the context of the hold, whose cause is a loss with [ReasonClosed], but CloseOnTerm
// does not wait for the work. A program that can stop its work does not need CloseOnTerm: it passes the context of
// signal.NotifyContext to [Mutex.Do], which unlocks when the work has ended.
func CloseOnTerm(then func(os.Signal), clients ...*Client) (stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	go func() {
		s, came := <-signals
		if !came {
			return
		}
		signal.Stop(signals)
		closeAll(clients)
		if then == nil {
			then = raise
		}
		then(s)
	}()
	return sync.OnceFunc(func() {
		signal.Stop(signals)
		close(signals) // a signal that came before is still taken
	})
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
