//go:build cgo

package snib

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// CloseOnTerm closes the clients when the process gets SIGTERM, so that what it holds is free at once and not
// after a lease. Then the signal goes on: to then, or with nil to what a program without a handler does, which
// is to end by the signal. A second SIGTERM is not held back. stop takes the call back.
//
// A program that asks signal.Notify for SIGTERM still gets it, at once; it passes what it wants to be done after
// the close as then, if only an empty function, because nil raises the signal once more.
//
// Who works under a lock is told by the context of the hold, whose cause is a loss for [ReasonClosed], but is not
// waited for. A program that can stop its work needs no CloseOnTerm: it hands the context of signal.NotifyContext
// to [Mutex.Do], which unlocks when the work has ended.
func CloseOnTerm(then func(os.Signal), clients ...*Client) (stop func()) {
	signals, stopped := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, syscall.SIGTERM)
	go func() {
		select {
		case s := <-signals:
			signal.Stop(signals)
			closeAll(clients)
			if then == nil {
				then = raise
			}
			then(s)
		case <-stopped:
		}
	}()
	return sync.OnceFunc(func() {
		signal.Stop(signals)
		close(stopped)
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
			_ = c.Close() // what could not be confirmed ends with its lease
		}()
	}
	all.Wait()
}

// raise lets a signal do what it does when nobody listens to it.
func raise(s os.Signal) {
	if number, ok := s.(syscall.Signal); ok {
		_ = syscall.Kill(os.Getpid(), number)
	}
}
