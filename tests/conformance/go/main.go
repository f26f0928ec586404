// Command conform-go is the Go interpreter of conformance programs; ../README.md has the language.
//
//	conform-go CODES PROGRAM SOCKET...
//
// CODES is core/net/codes.def, which knows the names that errors have in C.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	snib "github.com/snib-lock/snib/go"
)

const limit = 30 * time.Second

// asked has the queries about a name, whatever its kind.
type asked interface {
	Info(context.Context) (snib.Info, error)
	ForceRelease(context.Context) error
}

// acquirer is anything that can be held.
type acquirer interface {
	Lock(context.Context) (*snib.Hold, error)
	TryLock(context.Context) (*snib.Hold, error)
}

// pool is the common interface of semaphores and permits.
type pool interface {
	Acquire(context.Context, int) (*snib.Hold, error)
	TryAcquire(context.Context, int) (*snib.Hold, error)
	Init(context.Context, int) (bool, error)
	Add(context.Context, int) (int, error)
	Available(context.Context) (int, error)
}

// counted is a pool with the number of permits to take.
type counted struct {
	pool
	n int
}

func (c counted) Lock(ctx context.Context) (*snib.Hold, error)    { return c.Acquire(ctx, c.n) }
func (c counted) TryLock(ctx context.Context) (*snib.Hold, error) { return c.TryAcquire(ctx, c.n) }

// lock creates its lock anew for each owner, because in Go the owner is part of the lock.
type lock struct {
	named asked
	owned func(owner uint64) snib.Locker
}

type submitted struct {
	cancel context.CancelFunc
	done   chan struct{}
	hold   *snib.Hold
	err    error
}

type interpreter struct {
	servers   []server
	server    server
	clients   map[string]*snib.Client
	locks     map[string]lock
	holds     map[string]*snib.Hold
	submitted map[string]*submitted
	options   map[string]string
}

// names maps result codes to their names.
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
	user, given := in.options["user"]
	if given {
		user += "@"
	}
	address := in.server.scheme + user + in.server.rest
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
	endurance := limit
	if d, given := in.milliseconds("patience"); given {
		endurance = d
	}
	options = append(options, snib.Patience(endurance), snib.TryTimeout(endurance))
	if d, given := in.milliseconds("recheck"); given {
		options = append(options, snib.Recheck(d))
	}
	if label, given := in.options["label"]; given {
		options = append(options, snib.Label(label))
	}
	if d, given := in.milliseconds("debug_hold"); given {
		options = append(options, snib.Debug(true), snib.DebugHold(d))
	}
	options = append(options, snib.PublishIdentity(in.options["identity"] == "1"))
	client, err := snib.Open(context.Background(), address, options...)
	in.clients[name] = client
	return outcome(err)
}

func (in *interpreter) lockOptions() []snib.LockOption {
	var options []snib.LockOption
	if d, given := in.milliseconds("lease"); given {
		options = append(options, snib.Lease(d))
	}
	if d, given := in.milliseconds("max_hold"); given {
		options = append(options, snib.MaxHold(d))
	}
	if in.options["fenced"] == "1" {
		options = append(options, snib.FencedTokens())
	}
	if in.options["prefer_writer"] == "1" {
		options = append(options, snib.PreferWriter())
	}
	if in.options["quarantine"] == "0" {
		options = append(options, snib.NoQuarantine())
	}
	return options
}

// newLock creates a lock of a kind that can be held as a whole.
func newLock(c *snib.Client, kind, name string, options []snib.LockOption) snib.Locker {
	switch kind {
	case "fair":
		return c.Fair(name, options...)
	case "read":
		return c.RW(name, options...).RLocker()
	case "write":
		return c.RW(name, options...)
	case "fenced":
		return c.Fenced(name, options...)
	case "spin":
		return c.Spin(name, options...)
	case "plain":
		return c.Plain(name, options...)
	}
	return c.Mutex(name, options...)
}

func (in *interpreter) lock(words []string) {
	c, name, options := in.clients[words[1]], words[2], in.lockOptions()
	var l lock
	switch kind := in.options["kind"]; kind {
	case "semaphore":
		l.named = c.Semaphore(name, options...)
	case "permits":
		l.named = c.Permits(name, options...)
	case "latch":
		l.named = c.Latch(name, options...)
	default:
		l.named = newLock(c, kind, name, options)
		l.owned = func(owner uint64) snib.Locker {
			return newLock(c, kind, name, slices.Concat(options, []snib.LockOption{snib.Owner(owner)}))
		}
	}
	in.locks[words[0]] = l
}

func (in *interpreter) group(words []string, combine func(...snib.Locker) *snib.Group) {
	var members []snib.Locker
	for _, word := range words[1:] {
		members = append(members, in.locks[word].named.(snib.Locker))
	}
	in.locks[words[0]] = lock{named: combine(members...).With(in.lockOptions()...)}
}

// acquire waits as the program says: without a limit, for one attempt, or until a deadline.
func (in *interpreter) acquire(ctx context.Context, l lock) (*snib.Hold, error) {
	var target acquirer
	if p, ok := l.named.(pool); ok {
		n := 1
		if text, given := in.options["n"]; given {
			n, _ = strconv.Atoi(text)
		}
		target = counted{p, n}
	} else if owner, given := in.options["owner"]; given {
		number, _ := strconv.ParseUint(owner, 10, 64)
		target = l.owned(number)
	} else {
		target = l.named.(acquirer)
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
		if latch, ok := l.named.(*snib.Latch); ok {
			s.err = copied.wait(ctx, latch)
		} else {
			s.hold, s.err = copied.acquire(ctx, l)
		}
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

func (in *interpreter) wait(ctx context.Context, latch *snib.Latch) error {
	wait, given := in.milliseconds("wait")
	if given && wait == 0 {
		left, err := latch.Count(ctx)
		if err == nil && left > 0 {
			err = snib.ErrBusy
		}
		return err
	}
	if given {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	return latch.Wait(ctx)
}

func (in *interpreter) count(l lock, words []string) string {
	n := 0
	if len(words) > 1 {
		n, _ = strconv.Atoi(words[1])
	}
	value, err := count(context.Background(), l.named, words[0], n)
	if err != nil {
		return outcome(err)
	}
	return strconv.Itoa(value)
}

func count(ctx context.Context, named asked, what string, n int) (int, error) {
	done := func(is bool, err error) (int, error) { return flag(is), err }
	if latch, ok := named.(*snib.Latch); ok {
		switch what {
		case "get":
			return latch.Count(ctx)
		case "init":
			return done(latch.Init(ctx, n))
		case "down":
			return latch.CountDown(ctx)
		}
	}
	switch what {
	case "get":
		return named.(pool).Available(ctx)
	case "init":
		return done(named.(pool).Init(ctx, n))
	case "add":
		return named.(pool).Add(ctx, n)
	case "set":
		return named.(*snib.Permits).Set(ctx, n)
	case "total":
		return named.(*snib.Permits).Total(ctx)
	case "release":
		return named.(*snib.Semaphore).PutBack(ctx, n)
	case "drain":
		return named.(*snib.Semaphore).Drain(ctx)
	}
	panic("no such thing to count: " + what)
}

func losses(s snib.Stats) string {
	lost := s.LostExpired + s.LostTaken + s.LostDeleted + s.LostUnreachable + s.LostMaxHold + s.LostClosed +
		s.LostFailover
	return strconv.FormatUint(lost, 10)
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
	info, err := l.named.Info(context.Background())
	if err != nil {
		return outcome(err)
	}
	if !info.Held {
		return "free"
	}
	return fmt.Sprintf("held mine=%d count=%d waiting=%d leased=%d token=%d", flag(info.Mine), info.Count,
		info.Waiting, flag(info.Remaining > 0), info.Token)
}

// who formats the process behind the owner, without parts that differ from run to run.
func (in *interpreter) who(l lock) string {
	info, err := l.named.Info(context.Background())
	if err != nil {
		return outcome(err)
	}
	if !info.Held {
		return "free"
	}
	if info.Identity == nil {
		return "held by unknown"
	}
	who, texts := *info.Identity, []string{"held"}
	host, _ := os.Hostname()
	add := func(key, value string, isOurs bool, ours string) {
		if isOurs {
			value = ours
		}
		if value != "" {
			texts = append(texts, key+"="+value)
		}
	}
	isOurs := who.PID == os.Getpid()
	add("host", who.Host, who.Host == host, "ours")
	if who.PID > 0 {
		add("pid", strconv.Itoa(who.PID), isOurs, "ours")
	}
	add("program", who.Program, isOurs, "ours")
	if !who.Since.IsZero() {
		add("since", strconv.FormatInt(who.Since.Unix(), 10), time.Since(who.Since).Abs() < time.Hour, "now")
	}
	if _, given := in.options["held"]; given && !who.HeldSince.IsZero() {
		add("held", strconv.FormatInt(who.HeldSince.Unix(), 10), time.Since(who.HeldSince).Abs() < time.Hour, "now")
	}
	if _, given := in.options["taken"]; given {
		add("at", who.HeldAt, false, "")
		add("by", who.HeldBy, false, "")
	}
	if who.Losses > 0 {
		add("losses", strconv.FormatUint(who.Losses, 10), false, "")
	}
	add("label", who.Label, false, "")
	return strings.Join(texts, " ")
}

func describe(client *snib.Client, name string) string {
	d, err := client.Describe(context.Background(), name)
	if err != nil {
		return outcome(err)
	}
	texts := []string{d.Kind}
	for _, entry := range []struct {
		word    string
		entries []snib.Holder
	}{{"holder", d.Holders}, {"reader", d.Readers}, {"permit", d.Permits}, {"waiter", d.Waiters}} {
		for _, h := range entry.entries {
			texts = append(texts, entry.word+described(entry.word, h, client.ID()))
		}
	}
	for _, number := range []struct {
		word  string
		value int64
	}{{"token", d.Token}, {"total", d.Total}, {"available", d.Available}, {"count", d.Count}, {"waiting", d.Waiting}} {
		if number.value != 0 {
			texts = append(texts, fmt.Sprint(number.word, " ", number.value))
		}
	}
	return strings.Join(texts, ", ")
}

// described formats a holder or waiter, without parts that differ from run to run.
func described(word string, h snib.Holder, id string) string {
	var text string
	if word != "permit" {
		text = " foreign"
		if strings.HasPrefix(h.Owner, id) {
			text = " mine"
		}
	}
	if h.Remaining > 0 {
		text += " leased"
	} else {
		text += " unleased"
	}
	if word == "holder" || word == "reader" {
		text += fmt.Sprint(" ", h.Count)
	}
	return text
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

func warnings(client *snib.Client, count string) string {
	want, _ := strconv.ParseUint(count, 10, 64)
	until(func() bool { return client.Stats().DebugWarnings >= want })
	return strconv.FormatUint(client.Stats().DebugWarnings, 10)
}

func gone(client *snib.Client) string {
	noConnection := func() bool {
		var e *snib.Error
		return errors.As(client.Ping(context.Background()), &e) && names[strconv.Itoa(int(e.Code))] == "SNIB_ECONNECT"
	}
	if !until(noConnection) {
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
	case "server":
		number, _ := strconv.Atoi(words[0])
		in.server = in.servers[number-1]
		return "ok"
	case "shutdown":
		return in.server.shutdown()
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
	case "extend":
		ms, _ := strconv.Atoi(words[1])
		return outcome(in.holds[words[0]].Extend(ctx, time.Duration(ms)*time.Millisecond))
	case "downgrade":
		hold, err := in.holds[words[1]].Downgrade(ctx)
		in.holds[words[0]] = hold
		return outcome(err)
	case "wait":
		return outcome(in.wait(ctx, in.locks[words[0]].named.(*snib.Latch)))
	case "count":
		return in.count(in.locks[words[0]], words[1:])
	case "gone":
		return gone(in.clients[words[0]])
	case "label":
		return outcome(in.clients[words[0]].SetLabel(strings.Join(words[1:], "")))
	case "warnings":
		return warnings(in.clients[words[0]], words[1])
	case "losses":
		return losses(in.clients[words[0]].Stats())
	case "token":
		return strconv.FormatInt(in.holds[words[0]].Token(), 10)
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
	case "who":
		return in.who(in.locks[words[1]])
	case "force":
		return outcome(in.locks[words[0]].named.ForceRelease(ctx))
	case "list":
		return in.list(in.clients[words[0]], words[1])
	case "describe":
		return describe(in.clients[words[0]], words[1])
	case "raw":
		return in.server.raw.do(words...)
	case "until":
		if !until(func() bool { return in.server.raw.do(words[1:]...) == words[0] }) {
			return "stuck"
		}
		return words[0]
	case "kill":
		return ok(in.server.raw.do("CLIENT", "KILL", "TYPE", words[0], "SKIPME", "yes"))
	case "sick":
		return in.server.sick(words[0], words[1])
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
	switch all[0] {
	case "lock":
		in.lock(words)
	case "multi":
		in.group(words, snib.Multi)
	case "quorum":
		in.group(words, snib.Quorum)
	default:
		shown += " -> " + in.run(all[0], words)
	}
	fmt.Println(shown)
}

func main() {
	readNames(os.Args[1])
	program, err := os.Open(os.Args[2])
	if err != nil {
		panic(err)
	}
	in := &interpreter{
		clients:   map[string]*snib.Client{},
		locks:     map[string]lock{},
		holds:     map[string]*snib.Hold{},
		submitted: map[string]*submitted{},
	}
	for _, socket := range os.Args[3:] {
		in.servers = append(in.servers, reach(socket))
	}
	in.server = in.servers[0]
	for lines := bufio.NewScanner(program); lines.Scan(); {
		in.line(lines.Text())
	}
	for _, client := range in.clients {
		if client != nil {
			_ = client.Close()
		}
	}
}
