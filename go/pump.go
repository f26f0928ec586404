//go:build cgo

package snib

import (
	"os"
	"runtime"
	"time"
)

// A pump delivers the events of one queue of the core. It sleeps in the runtime's poller, without a thread.
type pump struct {
	queue uint64
	fd    *os.File      // the queue's descriptor, for the poller
	done  chan struct{} // closed when the last event was delivered
}

func newPump(client uint64) (*pump, error) {
	queue, fd, err := newQueue(client)
	if err != nil {
		return nil, err
	}
	return pumpOf(queue, fd)
}

// pumpOf fails if the kernel refuses the poller another descriptor: without it run would end at once, and nobody would
// get an answer.
func pumpOf(queue uint64, fd int) (*pump, error) {
	p := &pump{queue, os.NewFile(uintptr(fd), "snib queue"), make(chan struct{})}
	if p.fd.SetDeadline(time.Time{}) != nil {
		p.stop()
		freeQueue(queue)
		return nil, makeError(ErrSystem, "the runtime cannot poll the queue; check the limits of this process and of the system", 0)
	}
	return p, nil
}

const manyEvents = 4 // so many goroutines that are woken at once may submit at once

// hand delivers events. What the goroutines that wait for them submit next is sent together.
func (p *pump) hand(events []event, take func([]event)) {
	if len(events) < manyEvents {
		take(events)
		return
	}
	corkQueue(p.queue)
	take(events)
	runtime.Gosched() // they run before this goroutine goes on
	uncorkQueue(p.queue)
}

// run delivers events until stop, then the remaining ones, and frees the queue.
func (p *pump) run(take func([]event)) {
	defer close(p.done)
	defer freeQueue(p.queue)
	buffer := newDrainBuffer()
	defer buffer.free()
	var events [batch]event
	n := 0
	drain := func(uintptr) bool {
		n = buffer.drain(p.queue, &events)
		return n > 0
	}
	raw, err := p.fd.SyscallConn()
	for err == nil {
		// "Not ready" sends the goroutine to sleep until the core writes the descriptor again, which it does
		// whenever an empty queue gets an event. Read fails when the descriptor is closed.
		if err = raw.Read(drain); err == nil {
			p.hand(events[:n], take)
		}
	}
	for drain(0) {
		take(events[:n])
	}
}

// stop makes run end; done is closed when it has.
func (p *pump) stop() { _ = p.fd.Close() }
