// The recorder in Go: goroutines that take the locks of a history; see ../recorders.py.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log"
	"net"
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

type recorder struct {
	me, kind, conductor string
	leases              [2]time.Duration
	client              *snib.Client
	record              *os.File
	holds               atomic.Int64
}

// worker is one goroutine: who it is, and its conversation with the conductor.
type worker struct {
	*recorder
	name, who string
	locks     map[string]snib.Locker
	conductor net.Conn
	answers   *bufio.Reader
}

// held is a hold in use: when a check last found it valid, and why one has found it lost.
type held struct {
	*snib.Hold
	id               string
	granted, checked int64
	lost             string
}

// nowNs reads CLOCK_MONOTONIC, the clock of every recorder's log.
func nowNs() int64 {
	const monotonic = 1
	var t syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, monotonic, uintptr(unsafe.Pointer(&t)), 0)
	return t.Nano()
}

// write appends a line in one system call: one that is killed leaves what it wrote.
func (r *recorder) write(event string, at int64, words ...any) {
	line := fmt.Sprint(event, " ", at)
	for _, word := range words {
		line += fmt.Sprint(" ", word)
	}
	r.record.WriteString(line + "\n")
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

func number(word string) int64 {
	n, err := strconv.ParseInt(word, 10, 64)
	must(err)
	return n
}

// check returns when the check began if it found the hold valid, otherwise 0.
func (h *held) check() int64 {
	now := nowNs()
	if h.lost != "" {
		return 0
	}
	if h.Check() != nil {
		_, reason := h.State()
		h.lost = strings.ReplaceAll(reason.String(), " ", "_")
		return 0
	}
	h.checked = now
	return now
}

// talk says a line to the conductor; without an answer the run is over for everybody.
func (w *worker) talk(words ...any) []string {
	line := fmt.Sprintln(words...)
	if _, err := w.conductor.Write([]byte(line)); err != nil {
		os.Exit(1)
	}
	answer, err := w.answers.ReadString('\n')
	if err != nil {
		os.Exit(1)
	}
	return strings.Fields(answer)
}

func (w *worker) run() {
	w.write("start", nowNs(), w.who)
	for {
		order := w.talk("turn", w.name, w.who)
		if order[0] != "go" {
			break
		}
		w.turn(time.Duration(number(order[1]))*time.Millisecond, order[2], order[3])
	}
	w.write("end", nowNs(), w.who)
	w.conductor.Close()
}

func (w *worker) turn(wait time.Duration, mode, fixed string) {
	lock := w.locks[mode+fixed]
	var hold *snib.Hold
	var err error
	asked := nowNs()
	w.write("ask", asked, w.who, w.name, wait.Milliseconds())
	if wait == 0 {
		hold, err = lock.TryLock(context.Background())
	} else {
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		hold, err = lock.Lock(ctx)
	}
	if err != nil {
		w.write("fail", nowNs(), w.who, w.name, asked, code(err))
		return
	}
	w.holdIt(hold, mode)
}

func (w *worker) holdIt(hold *snib.Hold, mode string) {
	now := nowNs()
	h := &held{Hold: hold, id: fmt.Sprint(w.me, "-", w.holds.Add(1)), granted: now, checked: now}
	owner, token := h.Owner(), h.Token()
	if owner == "" {
		owner = "-"
	}
	w.write("grant", h.granted, w.who, w.name, h.id, token, mode, owner)
	w.use(h, mode, owner, token)
	if h.lost != "" {
		w.write("lost", nowNs(), w.who, w.name, h.id, h.checked, h.lost)
	}
	asked := nowNs()
	err := h.Unlock(context.Background())
	w.write("release", nowNs(), w.who, w.name, h.id, h.checked, asked, code(err))
}

// use reads the counter, and writes the next number or, as a reader, reads it again.
func (w *worker) use(h *held, mode, owner string, token int64) {
	before, result, after := h.check(), int64(-1), int64(0)
	answer := w.talk("read", w.name, h.id, token, owner)
	value, linger := number(answer[0]), answer[1] == "1"
	for linger && h.check() > 0 {
		time.Sleep(time.Millisecond)
	}
	if linger {
		w.talk("lost", w.name, h.id)
	}
	// One that knows that it has lost a lock without tokens stops; with a token the resource knows better.
	if value >= 0 && (h.check() > 0 || token > 0) {
		if mode == "r" {
			answer = w.talk("again", w.name, h.id, token)
		} else {
			answer = w.talk("write", w.name, h.id, token, value+1)
		}
		result, after = number(answer[0]), h.check()
	}
	w.write("use", nowNs(), w.who, w.name, h.id, before, value, result, after)
}

func (r *recorder) lock(name, mode string, lease time.Duration) snib.Locker {
	var options []snib.LockOption
	if lease > 0 {
		options = append(options, snib.Lease(lease))
	}
	switch r.kind {
	case "rw":
		if rw := r.client.RW(name, options...); mode == "r" {
			return rw.RLocker()
		} else {
			return rw
		}
	case "fenced":
		return r.client.Fenced(name, options...)
	case "fair":
		return r.client.Fair(name, options...)
	case "permits":
		return r.client.Permits(name, options...)
	}
	return r.client.Mutex(name, options...)
}

func (r *recorder) worker(name string, i int) *worker {
	w := &worker{recorder: r, name: name, who: fmt.Sprint(r.me, "/", i), locks: map[string]snib.Locker{}}
	for fixed, lease := range r.leases {
		for _, mode := range []string{"x", "r"} {
			w.locks[fmt.Sprint(mode, fixed)] = r.lock(name, mode, lease)
		}
	}
	var err error
	w.conductor, err = net.Dial("tcp", r.conductor)
	must(err)
	w.answers = bufio.NewReader(w.conductor)
	return w
}

func main() {
	plan := map[string]string{}
	for _, word := range os.Args[3:] {
		key, value, _ := strings.Cut(word, "=")
		plan[key] = value
	}
	ms := func(key string) time.Duration { return time.Duration(number(plan[key])) * time.Millisecond }
	r := &recorder{me: plan["me"], kind: plan["kind"], conductor: "127.0.0.1:" + plan["conductor"],
		leases: [2]time.Duration{0, ms("fixed_ms")}}
	var err error
	r.record, err = os.Create(os.Args[2])
	must(err)
	for r.client == nil { // Open asks the server, which may be down just now
		r.client, _ = snib.Open(context.Background(), os.Args[1], snib.WatchdogLease(ms("lease_ms")),
			snib.Recheck(ms("recheck_ms")), snib.Patience(ms("patience_ms")))
	}
	var all sync.WaitGroup
	each := int(number(plan["workers"]))
	for i, name := range strings.Split(plan["names"], ",") {
		for j := range each {
			w := r.worker(name, i*each+j)
			all.Add(1)
			go func() { defer all.Done(); w.run() }()
		}
	}
	all.Wait()
	r.client.Close()
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
