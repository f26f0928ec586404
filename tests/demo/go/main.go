// The buyer in Go: goroutines that share one client.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	snib "github.com/snib-lock/snib/go"
)

const buyers = 3

var (
	name    = os.Getenv("DEMO_NAME")
	endUs   = number("DEMO_END_US")
	slow    = time.Duration(number("DEMO_SLOW_MS")) * time.Millisecond
	think   = time.Duration(number("DEMO_THINK_MS")) * time.Millisecond
	logLock sync.Mutex
	logFile *os.File
)

func number(variable string) int64 {
	n, err := strconv.ParseInt(os.Getenv(variable), 10, 64)
	must(err)
	return n
}

func must(err error) {
	if err != nil {
		log.Fatalf("%s: %v", name, err)
	}
}

// nowUs reads CLOCK_BOOTTIME, the clock of every buyer's log.
func nowUs() int64 {
	const bootTime = 7
	var t syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, bootTime, uintptr(unsafe.Pointer(&t)), 0)
	return t.Nano() / 1000
}

type fields map[string]any

func record(event string, more fields) {
	more["event"], more["at"] = event, nowUs()
	line, err := json.Marshal(more)
	must(err)
	logLock.Lock()
	defer logLock.Unlock()
	_, err = logFile.Write(append(line, '\n'))
	must(err)
}

// shop is the minimal Redis client that a buyer needs.
type shop struct {
	conn net.Conn
	in   *bufio.Reader
}

func openShop() *shop {
	conn, err := net.Dial("unix", os.Getenv("DEMO_SHOP"))
	must(err)
	return &shop{conn, bufio.NewReader(conn)}
}

// do sends an inline command and returns the reply's values.
func (s *shop) do(command string) []string {
	_, err := fmt.Fprintf(s.conn, "%s\r\n", command)
	must(err)
	return s.reply()
}

func (s *shop) reply() []string {
	line, err := s.in.ReadString('\n')
	must(err)
	line = strings.TrimSpace(line)
	n, _ := strconv.Atoi(line[1:])
	switch {
	case line[0] == '*':
		var all []string
		for range n {
			all = append(all, s.reply()...)
		}
		return all
	case line[0] == '$' && n >= 0:
		text, err := s.in.ReadString('\n')
		must(err)
		return []string{strings.TrimSpace(text)}
	case line[0] == '$':
		return []string{""}
	}
	return []string{line[1:]}
}

// buy reads the stock, thinks and writes it back: wrong without a lock.
// ctx ends when the lock is lost.
func buy(ctx context.Context, shop *shop, check func() error) (bought int, err error) {
	now := shop.do("MGET stock slow")
	stock, err := strconv.Atoi(now[0])
	must(err)
	if stock <= 0 {
		return -1, nil
	}
	pause := think
	if now[1] == name {
		shop.do("DEL slow")
		pause = slow
	}
	select {
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-time.After(pause):
	}
	if err := check(); err != nil { // both may have been ready after a long stop
		return 0, err
	}
	shop.do(fmt.Sprint("SET stock ", stock-1))
	shop.do("INCR sold")
	return 1, nil
}

func locked(shop *shop, lock *snib.Mutex, by int) int {
	ctx := context.Background()
	asked := nowUs()
	hold, err := lock.Lock(ctx)
	must(err)
	record("got", fields{"by": by, "wait": nowUs() - asked})
	bought, err := buy(hold.Context(ctx), shop, hold.Check)
	if err != nil {
		record("lost", fields{"why": err.Error()})
	}
	record("gave", fields{"by": by, "bought": max(bought, 0)})
	if err := hold.Unlock(ctx); !errors.Is(err, snib.ErrLost) {
		must(err)
	}
	return bought
}

func unlocked(shop *shop, by int) int {
	record("got", fields{"by": by, "wait": 0})
	bought, _ := buy(context.Background(), shop, func() error { return nil })
	record("gave", fields{"by": by, "bought": max(bought, 0)})
	return bought
}

func run(lock *snib.Mutex) {
	var all sync.WaitGroup
	for by := range buyers {
		all.Add(1)
		go func() {
			defer all.Done()
			shop := openShop()
			for bought := 0; bought >= 0 && nowUs() < endUs; {
				if lock == nil {
					bought = unlocked(shop, by)
				} else {
					bought = locked(shop, lock, by)
				}
			}
		}()
	}
	all.Wait()
}

func main() {
	var err error
	logFile, err = os.Create(os.Getenv("DEMO_LOG"))
	must(err)
	if os.Getenv("DEMO_LOCK") == "" {
		run(nil)
		return
	}
	lease := time.Duration(number("DEMO_LEASE_MS")) * time.Millisecond
	client, err := snib.Open(context.Background(), os.Getenv("SNIB_URL"), snib.WatchdogLease(lease))
	must(err)
	run(client.Mutex(os.Getenv("DEMO_LOCK")))
	record("end", fields{"handovers": client.Stats().Handovers})
	must(client.Close())
}
