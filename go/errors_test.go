//go:build cgo

package snib_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	snib "github.com/snib-lock/snib/go"
)

// Every error names its lock, in its fields and in its sentence, and quotes the server.
func TestErrorsName(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url())
	ended, cancel := context.WithCancel(background)
	cancel()
	fair := client.Fair("seat")
	hold := lock(t, fair)
	short, cancel := context.WithTimeout(background, 20*time.Millisecond)
	defer cancel()
	s.do(t, "ACL", "SETUSER", "guest", "on", ">canary-password", "~seat", "+@all", "-eval", "-evalsha", "&*")
	guest, err := snib.Open(background, "unix://guest:canary-password@"+s.path, snib.Logger(nil), snib.TryTimeout(patience))
	if err == nil {
		t.Cleanup(func() { _ = guest.Close() })
		_, err = guest.Fair("seat").TryLock(background)
	}
	told := map[string]error{"permission": err}
	_, told["busy"] = fair.TryLock(background)
	_, told["timeout"] = fair.Lock(short)
	_, told["cancelled"] = fair.Lock(ended)
	told["unconfirmed"] = hold.Unlock(ended)
	told["second"] = hold.Unlock(background)
	lost := brief(t, client.Fair("seat", snib.Lease(100*time.Millisecond)))
	<-lost.Lost()
	told["lost"], told["lost too"] = lost.Check(), lost.Unlock(background)
	for what, err := range told {
		var e *snib.Error
		if !errors.As(err, &e) || e.Name != "seat" || e.Kind != "fair" || !strings.Contains(e.Text, `fair lock "seat"`) {
			t.Errorf("%s: %+v", what, err)
			continue
		}
		if strings.Count(e.Text, `"seat"`) != 1 || strings.Contains(e.Text, "canary") {
			t.Errorf("%s: %s", what, e.Text)
		}
		if (e.Server != "") != (what == "permission") || !strings.Contains(e.Text, e.Server) {
			t.Errorf("%s: server %q in %q", what, e.Server, e.Text)
		}
		if (e.Reason != snib.ReasonNone) != errors.Is(err, snib.ErrLost) {
			t.Errorf("%s: reason %v", what, e.Reason)
		}
	}
}

// Of every kind: a wait that is over, a context that has ended, a loss, other data, a missing right, and a closed client.
func TestErrorsOfEveryKindName(t *testing.T) {
	about := map[string][2]string{ // name and kind
		"mutex": {"m", "mutex"}, "fair": {"f", "fair"}, "write": {"rw", "write"}, "read": {"rw", "read"}, "reentrant": {"r", "mutex"},
		"fenced": {"e", "fenced"}, "spin": {"s", "spin"}, "plain": {"p", "plain"}, "semaphore": {"sem", "semaphore"},
		"permits": {"per", "permits"}, "multi": {"a, b", "multi"}, "quorum": {"q", "quorum"}, "locker": {"rw", "read"},
		"permits 2": {"per", "permits"},
	}
	servers := []*server{startServer(t), startServer(t), startServer(t)}
	clients := func(url func(*server) string, options ...snib.Option) (all []*snib.Client) {
		for _, s := range servers {
			client, err := snib.Open(background, url(s), append(options, snib.Logger(nil))...)
			must(t, err)
			t.Cleanup(func() { _ = client.Close() })
			all = append(all, client)
		}
		return all
	}
	everywhere := func(words ...string) {
		for _, s := range servers {
			s.do(t, words...)
		}
	}
	ours, theirs := clients((*server).url), clients((*server).url)
	everywhere("ACL", "SETUSER", "guest", "on", ">pw", "~x", "+@all", "&*")
	guests := clients(func(s *server) string { return "unix://guest:pw@" + s.path })
	rivals := everyKind(theirs[2], theirs[0], theirs[1])
	ended, cancel := context.WithCancel(background)
	cancel()
	told := map[string]map[string]error{} // by what happened, and kind
	tell := func(what, kind string, err error) {
		if told[what] == nil {
			told[what] = map[string]error{}
		}
		told[what][kind] = err
	}
	for kind, do := range everyKind(ours[2], ours[0], ours[1]) {
		initialize(t, ours[2].Semaphore("sem"), 1)
		initialize(t, ours[2].Permits("per"), 2)
		rival := rivals[kind]
		switch kind {
		case "read", "locker":
			rival = rivals["write"]
		case "permits":
			rival = rivals["permits 2"]
		}
		tell("cancelled", kind, do(ended, nothing))
		must(t, rival(background, func(context.Context) error {
			short, cancel := context.WithTimeout(background, 20*time.Millisecond)
			defer cancel()
			tell("timeout", kind, do(short, nothing))
			return nil
		}))
		if kind != "semaphore" { // which nobody can lose
			tell("lost", kind, do(background, func(context.Context) error { everywhere("FLUSHALL"); return nil }))
		}
		everywhere("FLUSHALL")
		for _, name := range []string{"m", "f", "rw", "r", "e", "s", "p", "sem", "per", "a", "b", "q"} {
			everywhere("LPUSH", name, "not a lock of any kind")
		}
		tell("data", kind, do(background, nothing))
		everywhere("FLUSHALL")
	}
	forbidden := everyKind(guests[2], guests[0], guests[1])
	for kind, do := range forbidden {
		tell("permission", kind, do(background, nothing))
	}
	for _, guest := range guests {
		must(t, guest.Close())
	}
	for kind, do := range forbidden {
		tell("closed", kind, do(background, nothing))
	}
	for what, errs := range told {
		for kind, err := range errs {
			var e *snib.Error
			if !errors.As(err, &e) || e.Name != about[kind][0] || e.Kind != about[kind][1] {
				t.Errorf("%s, %s: %+v", what, kind, err)
				continue
			}
			title := map[string]string{"fair": "fair lock", "write": "write lock", "read": "read lock", "fenced": "fenced lock",
				"spin": "spin lock", "plain": "plain lock", "multi": "multi lock", "quorum": "quorum lock"}[e.Kind]
			if title == "" {
				title = e.Kind
			}
			if what != "closed" && (!strings.HasPrefix(e.Text, title+` "`) || strings.Count(e.Text, title+` "`) != 1) {
				t.Errorf("%s, %s: %s", what, kind, e.Text)
			}
			server := map[string]string{"data": "WRONGTYPE ", "permission": "NOPERM "}[what]
			if (e.Server != "") != (server != "") || !strings.HasPrefix(e.Server, server) {
				t.Errorf("%s, %s: the server said %q", what, kind, e.Server)
			}
			if (e.Reason == snib.ReasonDeleted) != (what == "lost") {
				t.Errorf("%s, %s: reason %v", what, kind, e.Reason)
			}
		}
	}
}

// So does an error of an option or an argument, once, and in Go's words; but not one of a name, or of members.
func TestErrorsOfArgumentsName(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url())
	try := func(l snib.Locker) error { _, err := l.TryLock(background); return err }
	permits, long := client.Permits("orders"), strings.Repeat("x", 200)
	_, tooFew := permits.Acquire(background, 0)
	_, tooMany := permits.Init(background, -1)
	_, noCount := client.Latch("orders").Init(background, 0)
	_, noLease := client.Semaphore("orders", snib.Lease(time.Hour)).TryAcquire(background, 1)
	_, noPutBack := client.Semaphore("orders").PutBack(background, 0)
	multi := snib.Multi(client.Mutex("a"), client.Mutex("b"))
	_, noInfo := multi.Info(background)
	hold := lock(t, client.Mutex("held"))
	defer func() { must(t, hold.Unlock(background)) }()
	for what, bad := range map[string]struct {
		err        error
		name, text string
	}{
		"lease":        {try(client.Mutex("orders", snib.Lease(time.Millisecond))), "orders", `mutex "orders": the lease is out of range`},
		"max hold":     {try(client.Mutex("orders", snib.MaxHold(0))), "orders", `mutex "orders": MaxHold is out of range`},
		"prefer":       {try(client.Fair("orders", snib.PreferWriter())), "orders", `fair lock "orders": this kind of lock does not support the option PreferWriter`},
		"fenced":       {try(client.Spin("orders", snib.FencedTokens())), "orders", `spin lock "orders": this kind of lock does not support the option FencedTokens`},
		"quarantine":   {try(client.RW("orders", snib.NoQuarantine())), "orders", `write lock "orders": this kind of lock does not support the option NoQuarantine`},
		"reader":       {try(client.RW("orders", snib.NoQuarantine()).RLocker()), "orders", `read lock "orders": this kind`},
		"owner":        {try(client.Reentrant("orders", 0)), "orders", `mutex "orders": the owner`},
		"permits":      {tooFew, "orders", `permits "orders": the number of permits`},
		"total":        {tooMany, "orders", `permits "orders": the number is out of range`},
		"latch":        {noCount, "orders", `latch "orders": `},
		"semaphore":    {noLease, "orders", `semaphore "orders": semaphores and latches have no lease`},
		"put back":     {noPutBack, "orders", `semaphore "orders": `},
		"extension":    {hold.Extend(background, time.Millisecond), "held", `mutex "held": the lease is out of range`},
		"info":         {noInfo, "a, b", `multi lock "a" and others: `},
		"force":        {multi.ForceRelease(background), "a, b", `multi lock "a" and others: `},
		"group":        {try(multi.With(snib.MaxHold(0))), "a, b", `MaxHold is out of range`},
		"twice":        {try(snib.Multi(client.Mutex("a"), client.Mutex("a"))), "a, a", `the lock "a" is given twice`},
		"member":       {try(snib.Multi(client.Mutex("a"), client.Mutex("b", snib.Lease(1)))), "b", `mutex "b": the lease is out of range`},
		"long":         {try(client.Mutex(long, snib.Lease(1))), long, `mutex "` + long[:80]},
		"control":      {try(client.Mutex("a\nb")), "a\nb", `the lock name`},
		"a name alike": {try(client.Mutex("the lease", snib.Lease(1))), "the lease", `mutex "the lease": the lease is out of range`},
	} {
		var e *snib.Error
		if !errors.As(bad.err, &e) || e.Name != bad.name || !strings.HasPrefix(e.Text, bad.text) {
			t.Errorf("%s: %+v", what, bad.err)
		} else if head, _, _ := strings.Cut(bad.text, ":"); strings.Count(e.Text, head) != 1 {
			t.Errorf("%s: it is named more than once: %s", what, e.Text)
		}
	}
}

// A state prints in words, as a reason does.
func TestStatesPrint(t *testing.T) {
	want := "valid, at risk, lost, released, unknown"
	if got := fmt.Sprintf("%v, %v, %v, %v, %v", snib.StateValid, snib.StateAtRisk, snib.StateLost, snib.StateReleased, snib.State(-2)); got != want {
		t.Error(got)
	}
}

// Only what the server said is quoted as its words, whatever is in the lock's name.
func TestServerWords(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url())
	for _, name := range []string{"job; the server said: all is well", `a"; the server said: "`, `\"; the server said: b`,
		`\`, `"; the server said: `, strings.Repeat("; the server said: ", 20), strings.Repeat(`"`, 300)} {
		must(t, lock(t, client.Mutex(name)).Unlock(background))
		hold := lock(t, client.Mutex(name))
		_, err := client.Mutex(name).TryLock(background)
		var e *snib.Error
		if !errors.As(err, &e) || e.Server != "" || e.Name != name {
			t.Errorf("busy: %+v", e)
		}
		must(t, hold.Unlock(background))
		s.do(t, "SET", name, "a string")
		if _, err = client.Mutex(name).TryLock(background); !errors.As(err, &e) || !strings.HasPrefix(e.Server, "WRONGTYPE") {
			t.Errorf("wrong type: %+v", e)
		}
	}
}

// An unreachable server is not reported as a lock that is held, and the error also matches the context's.
func TestUnreachableIsSaidSo(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url(), snib.Logger(nil), snib.TryTimeout(50*time.Millisecond))
	must(t, s.cmd.Process.Kill())
	_ = s.cmd.Wait()
	_, err := client.Mutex("away").TryLock(background)
	expect(t, "try", err, snib.ErrUnreachable)
	for what, call := range map[string]func(context.Context) error{
		"lock": func(ctx context.Context) error { _, err := client.Mutex("away").Lock(ctx); return err },
		"ping": client.Ping,
		"do":   func(ctx context.Context) error { return client.Mutex("away").Do(ctx, nothing) },
	} {
		ctx, cancel := context.WithTimeout(background, 200*time.Millisecond)
		err := call(ctx)
		cancel()
		var e *snib.Error
		if !errors.Is(err, snib.ErrUnreachable) || !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &e) ||
			!strings.Contains(e.Text, s.path) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, d := range []time.Duration{0, -1, time.Microsecond, 1<<63 - 1} {
		_, err := snib.Open(background, s.url(), snib.TryTimeout(d))
		expect(t, "try timeout", err, snib.ErrInvalidOption)
	}
}

// A timeout says that the lock was held; or that the context's deadline came before the server had replied, and then
// nothing is known of the lock.
func TestDeadlineBeforeTheReply(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url())
	hold := lock(t, client.Mutex("held"))
	says := "the context's deadline came before the operation was done"
	told := func(name string) string {
		ctx, cancel := context.WithTimeout(background, 20*time.Millisecond)
		defer cancel()
		_, err := client.Mutex(name).Lock(ctx)
		expect(t, name, err, snib.ErrTimeout)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		return fmt.Sprint(err)
	}
	await(t, func() bool { return !strings.Contains(told("held"), says) }) // once the reply comes in time
	s.halt(t)
	if text := told("free"); !strings.Contains(text, says) {
		t.Error(text)
	}
	must(t, s.cmd.Process.Signal(syscall.SIGCONT))
	must(t, hold.Unlock(background))
}

func nothing(context.Context) error { return nil }

// startSentinel starts a single sentinel for the master at this port, under the name main, with further lines in its file,
// and returns its own port.
func startSentinel(t *testing.T, master string, further ...string) string {
	t.Helper()
	port, folder := freePort(t), t.TempDir()
	config := filepath.Join(folder, "sentinel.conf")
	text := "port " + port + "\ndir " + folder + "\nsentinel monitor main 127.0.0.1 " + master + " 1\n"
	text += strings.Join(further, "\n") + "\n"
	must(t, os.WriteFile(config, []byte(text), 0o600))
	binary, err := serverBinary()
	must(t, err)
	sentinel := exec.Command(binary, config, "--sentinel")
	sentinel.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, sentinel.Start())
	t.Cleanup(func() {
		_ = sentinel.Process.Kill()
		_ = sentinel.Wait()
	})
	await(t, func() bool {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		return err == nil && conn.Close() == nil
	})
	return port
}

// A server that does not match the URL is reported in one sentence, with the URL to use.
func TestMisfits(t *testing.T) {
	node, single, replica := freePort(t), freePort(t), freePort(t)
	startServer(t, "--cluster-enabled", "yes", "--port", node, "--cluster-port", freePort(t))
	startServer(t, "--port", single)
	startServer(t, "--port", replica, "--replicaof", "127.0.0.1", single)
	sentinel := startSentinel(t, single)
	for url, says := range map[string]string{
		"redis://127.0.0.1:" + node:                         "is a cluster node: use redis+cluster://127.0.0.1:" + node,
		"redis+cluster://127.0.0.1:" + single:               "is not a cluster node: use redis://127.0.0.1:" + single,
		"redis+sentinel://127.0.0.1:" + single + "/main":    "is not a sentinel for \"main\"",
		"redis://127.0.0.1:" + sentinel:                     "is a sentinel: use redis+sentinel://127.0.0.1:" + sentinel + "/service",
		"redis://127.0.0.1:" + sentinel + "/3":              "is a sentinel: use redis+sentinel://127.0.0.1:" + sentinel + "/service",
		"redis+cluster://127.0.0.1:" + sentinel:             "is a sentinel: use redis+sentinel://127.0.0.1:" + sentinel + "/service",
		"redis+sentinel://127.0.0.1:" + sentinel + "/other": "no sentinel knows the service \"other\" (1 of 1 answered)",
	} {
		if err := openError(t, url); !errors.Is(err, snib.ErrTopology) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", url, err)
		}
	}
	says := "127.0.0.1:" + replica + " is a read-only replica; connect to its master"
	client, err := snib.Open(background, "redis://127.0.0.1:"+replica, snib.Logger(nil), snib.Patience(500*time.Millisecond))
	if err == nil {
		t.Cleanup(func() { _ = client.Close() })
		_, err = client.Mutex("x").TryLock(background)
	}
	if !errors.Is(err, snib.ErrReadOnly) || !strings.Contains(err.Error(), says) {
		t.Errorf("replica: %v", err)
	}
	must(t, lock(t, open(t, "redis+sentinel://127.0.0.1:"+sentinel+"/main").Mutex("x")).Unlock(background))
}
