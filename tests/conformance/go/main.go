// Command conform-go is the Go interpreter of conformance programs; ../README.md has the language.
//
//	conform-go CODES PROGRAM SOCKET
//
// CODES is core/api/codes.def, which knows the names that errors have in C.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	snib "github.com/snib-lock/snib/go"
)

const limit = 10 * time.Second

// acquirer is what a Mutex and a Reentrant have in common.
type acquirer interface {
	Lock(context.Context) (*snib.Hold, error)
	TryLock(context.Context) (*snib.Hold, error)
}

type lock struct {
	client  *snib.Client
	name    string
	options []snib.LockOption
	mutex   *snib.Mutex
}

type submitted struct {
	cancel context.CancelFunc
	done   chan struct{}
	hold   *snib.Hold
	err    error
}

type interpreter struct {
	socket    string
	raw       *raw
	clients   map[string]*snib.Client
	locks     map[string]lock
	holds     map[string]*snib.Hold
	submitted map[string]*submitted
	options   map[string]string
}

// names are those of the result codes, by number.
var names = map[string]string{}

func readNames(path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	rows := regexp.MustCompile(`(?m)^X\((\w+), (-?\d+)`)
	for _, row := range rows.FindAllStringSubmatch(string(text), -1) {
		names[row[2]] = "SNIB_" + row[1]
	}
}

func outcome(err error) string {
	var e *snib.Error
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, snib.ErrBusy):
		return "busy"
	case errors.Is(err, snib.ErrTimeout):
		return "timedout"
	case errors.Is(err, context.Canceled), errors.Is(err, snib.ErrCancelled):
		return "cancelled"
	case errors.Is(err, snib.ErrNotHeld):
		return "not_held"
	case !errors.As(err, &e):
		return "strange error: " + err.Error()
	case errors.Is(err, snib.ErrLost):
		return "lost: " + e.Text
	}
	return fmt.Sprintf("error %s: %s", names[strconv.Itoa(int(e.Code))], e.Text)
}

func (in *interpreter) milliseconds(key string) (time.Duration, bool) {
	value, given := in.options[key]
	n, _ := strconv.ParseInt(value, 10, 64)
	return time.Duration(n) * time.Millisecond, given
}

func until(condition func() bool) bool {
	for end := time.Now().Add(limit); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

func (in *interpreter) client(name string) string {
	address := "unix://" + in.socket
	if user, given := in.options["user"]; given {
		address = "unix://" + user + "@" + in.socket
	}
	if db, given := in.options["db"]; given {
		address += "?db=" + db
	}
	if given, ok := in.options["url"]; ok {
		address = given
	}
	var options []snib.Option
	if d, given := in.milliseconds("lease"); given {
		options = append(options, snib.WatchdogLease(d))
	}
	if d, given := in.milliseconds("patience"); given {
		options = append(options, snib.Patience(d))
	}
	if d, given := in.milliseconds("recheck"); given {
		options = append(options, snib.Recheck(d))
	}
	client, err := snib.Open(context.Background(), address, options...)
	in.clients[name] = client
	return outcome(err)
}

func (in *interpreter) lock(words []string) {
	l := lock{client: in.clients[words[1]], name: words[2]}
	if d, given := in.milliseconds("lease"); given {
		l.options = append(l.options, snib.Lease(d))
	}
	if d, given := in.milliseconds("max_hold"); given {
		l.options = append(l.options, snib.MaxHold(d))
	}
	l.mutex = l.client.Mutex(l.name, l.options...)
	in.locks[words[0]] = l
}

// acquire waits as the program says: no limit, one try, or a deadline.
func (in *interpreter) acquire(ctx context.Context, l lock) (*snib.Hold, error) {
	var target acquirer = l.mutex
	if owner, given := in.options["owner"]; given {
		number, _ := strconv.ParseUint(owner, 10, 64)
		target = l.client.Reentrant(l.name, number, l.options...)
	}
	wait, given := in.milliseconds("wait")
	if given && wait == 0 {
		return target.TryLock(ctx)
	}
	if given {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	return target.Lock(ctx)
}

func (in *interpreter) submit(hold string, l lock) string {
	ctx, cancel := context.WithCancel(context.Background())
	s := &submitted{cancel: cancel, done: make(chan struct{})}
	in.submitted[hold] = s
	copied := *in
	go func() {
		defer close(s.done)
		s.hold, s.err = copied.acquire(ctx, l)
	}()
	return "started"
}

func (in *interpreter) await(hold string, cancel bool) string {
	s := in.submitted[hold]
	if cancel {
		s.cancel()
	}
	select {
	case <-s.done:
		in.holds[hold] = s.hold
		return outcome(s.err)
	case <-time.After(limit):
		return "stuck"
	}
}

func (in *interpreter) lost(hold *snib.Hold) string {
	select {
	case <-hold.Lost():
		return outcome(hold.Check())
	case <-time.After(limit):
		return "stuck"
	}
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (in *interpreter) info(l lock) string {
	info, err := l.mutex.Info(context.Background())
	if err != nil {
		return outcome(err)
	}
	if !info.Held {
		return "free"
	}
	return fmt.Sprintf("held mine=%d count=%d waiting=%d leased=%d", flag(info.Mine), info.Count,
		info.Waiting, flag(info.Remaining > 0))
}

func (in *interpreter) list(client *snib.Client, pattern string) string {
	names, err := client.List(context.Background(), pattern)
	if err != nil {
		return outcome(err)
	}
	return strings.Join(names, " ")
}

func (in *interpreter) waiting(client *snib.Client, count string) string {
	want, _ := strconv.ParseUint(count, 10, 64)
	if !until(func() bool { return client.Stats().Waiting == want }) {
		return "stuck"
	}
	return "ok"
}

func (in *interpreter) run(verb string, words []string) string {
	ctx := context.Background()
	switch verb {
	case "client":
		return in.client(words[0])
	case "close":
		return outcome(in.clients[words[0]].Close())
	case "acquire":
		hold, err := in.acquire(ctx, in.locks[words[1]])
		in.holds[words[0]] = hold
		return outcome(err)
	case "submit":
		return in.submit(words[0], in.locks[words[1]])
	case "await":
		return in.await(words[0], false)
	case "cancel":
		return in.await(words[0], true)
	case "waiting":
		return in.waiting(in.clients[words[0]], words[1])
	case "release":
		return outcome(in.holds[words[0]].Unlock(ctx))
	case "check":
		return outcome(in.holds[words[0]].Check())
	case "remaining":
		if in.holds[words[0]].Remaining() > 0 {
			return "some"
		}
		return "none"
	case "lost":
		return in.lost(in.holds[words[0]])
	case "info":
		return in.info(in.locks[words[0]])
	case "force":
		return outcome(in.locks[words[0]].mutex.ForceRelease(ctx))
	case "list":
		return in.list(in.clients[words[0]], words[1])
	case "raw":
		return in.raw.do(words...)
	case "until":
		if !until(func() bool { return in.raw.do(words[1:]...) == words[0] }) {
			return "stuck"
		}
		return words[0]
	case "kill":
		in.raw.do("CLIENT", "KILL", "TYPE", words[0], "SKIPME", "yes")
		return "ok"
	}
	panic("no such operation: " + verb)
}

func (in *interpreter) line(line string) {
	line, _, _ = strings.Cut(line, "#")
	shown := strings.TrimRight(line, " ")
	all := strings.Fields(shown)
	if len(all) == 0 {
		return
	}
	in.options = map[string]string{}
	var words []string
	for _, word := range all[1:] {
		decoded, err := url.PathUnescape(word)
		if err != nil {
			panic(err)
		}
		key, value, isOption := strings.Cut(decoded, "=")
		isRaw := all[0] == "raw" || all[0] == "until"
		if isOption && !isRaw && strings.Trim(key, "abcdefghijklmnopqrstuvwxyz_") == "" {
			in.options[key] = value
		} else {
			words = append(words, decoded)
		}
	}
	if all[0] == "lock" {
		in.lock(words)
		fmt.Println(shown)
		return
	}
	fmt.Printf("%s -> %s\n", shown, in.run(all[0], words))
}

func main() {
	readNames(os.Args[1])
	program, err := os.Open(os.Args[2])
	if err != nil {
		panic(err)
	}
	in := &interpreter{
		socket:    os.Args[3],
		raw:       dial(os.Args[3]),
		clients:   map[string]*snib.Client{},
		locks:     map[string]lock{},
		holds:     map[string]*snib.Hold{},
		submitted: map[string]*submitted{},
	}
	for lines := bufio.NewScanner(program); lines.Scan(); {
		in.line(lines.Text())
	}
	for _, client := range in.clients {
		if client != nil {
			_ = client.Close()
		}
	}
}
