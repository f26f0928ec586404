// The worker in Go: goroutines that take and release a few locks in a loop; see ../load.py.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	snib "github.com/snib-lock/snib/go"
)

// lock is implemented by all kinds of mutex.
type lock interface {
	Lock(ctx context.Context) (*snib.Hold, error)
}

type worker struct {
	me, kind                 string
	names                    []string
	locks                    []lock
	wait, hold, think, check time.Duration
	record                   *os.File
	holds                    atomic.Int64
	over                     atomic.Bool
}

// nowNs reads CLOCK_BOOTTIME, the clock of every worker's log.
func nowNs() int64 {
	const bootTime = 7
	var t syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, bootTime, uintptr(unsafe.Pointer(&t)), 0)
	return t.Nano()
}

// write appends a line in one system call, so the log of a killed worker is intact.
func (w *worker) write(event string, words ...any) {
	line := fmt.Sprint(event, " ", nowNs())
	for _, word := range words {
		line += fmt.Sprint(" ", word)
	}
	w.record.WriteString(line + "\n")
}

func code(err error) int {
	var told *snib.Error
	switch {
	case err == nil:
		return 0
	case errors.As(err, &told):
		return int(told.Code)
	}
	return -1000
}

func (w *worker) run(who string) {
	w.write("start", who)
	for !w.over.Load() {
		i := rand.IntN(len(w.names))
		asked := nowNs()
		w.write("ask", who, w.names[i], w.wait.Milliseconds())
		ctx, cancel := context.WithTimeout(context.Background(), w.wait)
		hold, err := w.locks[i].Lock(ctx)
		pause := w.think
		if err == nil {
			w.holdIt(who, w.names[i], hold)
		} else {
			w.write("fail", who, w.names[i], asked, code(err))
			pause += 10 * time.Millisecond
		}
		cancel()
		time.Sleep(pause)
	}
	w.write("end", who)
}

func (w *worker) holdIt(who, lock string, hold *snib.Hold) {
	me := fmt.Sprint(w.me, "-", w.holds.Add(1))
	checked := nowNs()
	w.write("grant", who, lock, me, hold.Token())
	end := checked + rand.Int64N(int64(w.hold)+1)
	for {
		now := nowNs()
		if hold.Check() != nil {
			_, reason := hold.State()
			w.write("lost", who, lock, me, checked, reason)
			break
		}
		checked = now
		if now >= end {
			break
		}
		time.Sleep(w.check)
	}
	asked := nowNs()
	err := hold.Unlock(context.Background())
	w.write("release", who, lock, me, checked, asked, code(err))
}

func main() {
	plan := map[string]string{"me": "go", "threads": "4", "kind": "fenced", "wait_ms": "10000",
		"hold_ms": "20", "think_ms": "5", "check_ms": "1", "lease_ms": "0", "patience_ms": "0"}
	for _, word := range os.Args[3:] {
		key, value, _ := strings.Cut(word, "=")
		plan[key] = value
	}
	ms := func(key string) time.Duration {
		n, err := strconv.Atoi(plan[key])
		must(err)
		return time.Duration(n) * time.Millisecond
	}
	w := &worker{me: plan["me"], kind: plan["kind"], names: strings.Split(plan["names"], ","),
		wait: ms("wait_ms"), hold: ms("hold_ms"), think: ms("think_ms"), check: ms("check_ms")}
	var err error
	w.record, err = os.Create(os.Args[2])
	must(err)
	var options []snib.Option
	if lease := ms("lease_ms"); lease > 0 {
		options = append(options, snib.WatchdogLease(lease))
	}
	if patience := ms("patience_ms"); patience > 0 {
		options = append(options, snib.Patience(patience))
	}
	client, err := snib.Open(context.Background(), os.Args[1], options...)
	must(err)
	for _, name := range w.names {
		w.locks = append(w.locks, makeLock(client, w.kind, name))
	}
	threads, err := strconv.Atoi(plan["threads"])
	must(err)
	var all sync.WaitGroup
	for i := range threads {
		all.Add(1)
		go func() {
			defer all.Done()
			w.run(fmt.Sprint(w.me, "/", i))
		}()
	}
	io.Copy(io.Discard, os.Stdin) // until the parent closes the pipe or dies
	w.over.Store(true)
	all.Wait()
	client.Close()
}

func makeLock(client *snib.Client, kind, name string) lock {
	switch kind {
	case "fenced":
		return client.Fenced(name)
	case "fair":
		return client.Fair(name)
	}
	return client.Mutex(name)
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
