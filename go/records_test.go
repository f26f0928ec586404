//go:build cgo

package snib_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	snib "github.com/snib-lock/snib/go"
)

// recorder is a handler that keeps its records.
type recorder struct{ records chan slog.Record }

func newRecorder() recorder { return recorder{make(chan slog.Record, 1000)} }

func (r recorder) option() snib.Option { return snib.Logger(slog.New(r)) }

func (r recorder) Enabled(context.Context, slog.Level) bool { return true }
func (r recorder) WithAttrs([]slog.Attr) slog.Handler       { return r }
func (r recorder) WithGroup(string) slog.Handler            { return r }
func (r recorder) Handle(_ context.Context, record slog.Record) error {
	r.records <- record
	return nil
}

// coreRecord is a record as it appears in the core's sources.
type coreRecord struct {
	levels []slog.Level // those that the call names; none if it names none
	format string
	text   *regexp.Regexp
}

// coreRecords returns all records that the core can log.
func coreRecords(t *testing.T) (all []coreRecord) {
	source, err := os.ReadFile("snib.c")
	must(t, err)
	call := regexp.MustCompile(`snib__engine_log\(\s*\w+,([^"(;]*),\s*((?:"(?:[^"\\]|\\.)*"\s*)+)`)
	level := regexp.MustCompile(`SNIB_LOG_(\w+)`)
	part := regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	hole := regexp.MustCompile(`%[-+.*0-9]*l{0,2}[a-z]`)
	levels := map[string]slog.Level{"ERROR": slog.LevelError, "WARNING": slog.LevelWarn, "INFO": slog.LevelInfo}
	for _, found := range call.FindAllStringSubmatch(string(source), -1) {
		format := ""
		for _, quoted := range part.FindAllString(found[2], -1) {
			text, err := strconv.Unquote(quoted)
			must(t, err)
			format += text
		}
		literal := hole.Split(format, -1)
		for i := range literal {
			literal[i] = regexp.QuoteMeta(literal[i])
		}
		record := coreRecord{nil, format, regexp.MustCompile("^" + strings.Join(literal, ".*") + "$")}
		for _, named := range level.FindAllStringSubmatch(found[1], -1) {
			record.levels = append(record.levels, levels[named[1]])
		}
		all = append(all, record)
	}
	// All but the function itself and its declaration.
	if calls := len(regexp.MustCompile(`snib__engine_log\([^;{]*[;{]`).FindAll(source, -1)) - 2; calls != len(all) {
		t.Errorf("%d of %d calls are understood", len(all), calls)
	}
	return all
}

// provoke maps a part of the format of each core record to a function that causes it.
var provoke = map[string]func(*testing.T, recorder){
	"connected to": func(t *testing.T, log recorder) { open(t, startServer(t).url(), log.option()) },
	`lock "`: func(t *testing.T, log recorder) {
		client := open(t, startServer(t).url(), log.option())
		<-brief(t, client.Mutex("lost", snib.Lease(100*time.Millisecond))).Lost()
	},
	"refused a subscription": func(t *testing.T, log recorder) {
		s := startServer(t)
		s.do(t, "ACL", "SETUSER", "deaf", "on", "nopass", "~*", "+@all", "resetchannels")
		client := open(t, "unix://deaf:none@"+s.path, log.option())
		hold := lock(t, client.Mutex("polled"))
		waiting := locking(open(t, "unix://deaf:none@"+s.path, log.option()).Mutex("polled").Lock)
		t.Cleanup(func() {
			must(t, hold.Unlock(background))
			must(t, soon(t, waiting).Unlock(background))
		})
	},
	"refused to publish": func(t *testing.T, log recorder) {
		s := startServer(t)
		s.do(t, "ACL", "SETUSER", "mute", "on", "nopass", "~*", "&*", "+@all", "-publish")
		must(t, lock(t, open(t, "unix://mute:none@"+s.path, log.option()).Mutex("quiet")).Unlock(background))
	},
	"refused SCRIPT LOAD": func(t *testing.T, log recorder) {
		s := startServer(t)
		s.do(t, "ACL", "SETUSER", "plain", "on", "nopass", "~*", "&*", "+@all", "-script")
		must(t, lock(t, open(t, "unix://plain:none@"+s.path, log.option()).Mutex("whole")).Unlock(background))
	},
	"no connection to": func(t *testing.T, log recorder) {
		s := startServer(t)
		lock(t, open(t, s.url(), log.option(), snib.WatchdogLease(time.Second)).Mutex("held"))
		must(t, s.cmd.Process.Kill())
	},
	"may evict locks": func(t *testing.T, log recorder) {
		open(t, startServer(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru").url(), log.option())
	},
	"was restarted or replaced": func(t *testing.T, log recorder) {
		s := startServer(t)
		client := open(t, s.url(), log.option())
		s.restart(t)
		await(t, func() bool { return client.Ping(background) == nil })
	},
	"gets too little CPU time": tooLittleTime,
	"does not answer TIME": func(t *testing.T, log recorder) {
		s := startServer(t)
		s.do(t, "ACL", "SETUSER", "timeless", "on", "nopass", "~*", "&*", "+@all", "-time")
		hold := lock(t, open(t, "unix://timeless:none@"+s.path, log.option(), snib.WatchdogLease(renewed)).Mutex("held"))
		t.Cleanup(func() { _ = hold.Unlock(background) })
	},
	"cannot be killed": func(t *testing.T, log recorder) {
		s := startServer(t)
		s.do(t, "ACL", "SETUSER", "endless", "on", "nopass", "~*", "&*", "+@all", "-client")
		open(t, "unix://endless:none@"+s.path, log.option())
	},
	"the clock of ": func(t *testing.T, log recorder) {
		url := hastyClock(t, startServer(t))
		hold := lock(t, open(t, url, log.option(), snib.WatchdogLease(renewed)).Mutex("held"))
		t.Cleanup(func() { _ = hold.Unlock(background) })
	},
	"has replicated from another server": func(t *testing.T, log recorder) {
		s := startServer(t)
		client := open(t, s.url(), log.option())
		s.do(t, "REPLICAOF", "127.0.0.1", "1")
		s.do(t, "REPLICAOF", "NO", "ONE")
		s.do(t, "CLIENT", "KILL", "TYPE", "normal")
		must(t, client.Ping(background))
	},
	"could not be killed": func(t *testing.T, log recorder) {
		s := startServer(t)
		s.do(t, "ACL", "SETUSER", "endless", "on", "nopass", "~*", "&*", "+@all", "-client")
		client := open(t, "unix://endless:none@"+s.path, log.option(), snib.ReplyTimeout(500*time.Millisecond))
		s.halt(t)
		answered := make(chan error, 1)
		go func() { answered <- client.Ping(background) }() // stays unread on the connection that is given up
		log.await(t, func(got slog.Record) bool { return strings.HasPrefix(got.Message, "no connection to ") })
		must(t, s.cmd.Process.Signal(syscall.SIGCONT))
		must(t, soon(t, answered))
	},
	"this client's identity": func(t *testing.T, log recorder) {
		s := startServer(t)
		s.do(t, "ACL", "SETUSER", "hidden", "on", "nopass", "resetkeys", "~held", "allchannels", "+@all")
		hold := lock(t, open(t, "unix://hidden:none@"+s.path, log.option(), snib.WatchdogLease(renewed)).Mutex("held"))
		t.Cleanup(func() { _ = hold.Unlock(background) })
	},
	"the orders of locks": func(t *testing.T, log recorder) {
		s := startServer(t)
		s.do(t, "ACL", "SETUSER", "alone", "on", "nopass", "resetkeys", "~name*", "allchannels", "+@all")
		client := open(t, "unix://alone:none@"+s.path, log.option(), snib.Debug(true))
		nested(t, client.Mutex("name1"), client.Mutex("name2"))
	},
	"debug: ": func(t *testing.T, log recorder) {
		client := open(t, startServer(t).url(), log.option(), snib.Debug(true))
		nested(t, client.Mutex("name1"), client.Mutex("name2"))
		nested(t, client.Mutex("name2"), client.Mutex("name1"))
	},
	"durability: ": func(t *testing.T, log recorder) {
		client := open(t, startServer(t).url(), log.option(), snib.Durability(1), snib.DurabilityPolicy(snib.DurabilityReport))
		must(t, lock(t, client.Mutex("alone")).Unlock(background))
	},
	"refused a renewed login": func(t *testing.T, log recorder) {
		renewedWith(t, log, snib.Login{Username: "app", Password: "another"}, nil)
	},
	"cannot renew the login": func(t *testing.T, log recorder) {
		renewedWith(t, log, snib.Login{}, errors.New("the vault is shut"))
	},
	"tls_insecure": func(t *testing.T, log recorder) {
		port, _ := tlsServer(t)
		open(t, fmt.Sprintf("rediss://localhost:%d", port), log.option(), snib.TLSInsecure(true))
	},
	"says that the master of": func(t *testing.T, log recorder) { openBySentinel(t, log) },
	"no sentinel knows the service ": func(t *testing.T, log recorder) {
		sentinel := holdBySentinel(t, log)
		tell(t, sentinel, "SENTINEL REMOVE main")
	},
	"most sentinels were set up anew": func(t *testing.T, log recorder) {
		other := freePort(t)
		startServer(t, "--port", other)
		sentinel := holdBySentinel(t, log, "sentinel config-epoch main 5")
		tell(t, sentinel, "SENTINEL REMOVE main", "SENTINEL MONITOR main 127.0.0.1 "+other+" 1") // with epoch 0
	},
	"refused the subscription to +switch-master": func(t *testing.T, log recorder) {
		openBySentinel(t, log, snib.SentinelUsername("deaf"), snib.SentinelPassword("none"))
	},
}

// elsewhere maps parts of formats to C tests, where it takes more than a server to cause the record.
var elsewhere = map[string]string{
	// Calls of Go share a connection.
	"a further connection to":         "tests/unit/lanes.c: lane_to_another_server_is_refused",
	"belongs to another cluster":      "tests/unit/outages.c: seed_that_is_in_another_cluster",
	"lost one of the connections to ": "tests/unit/lanes.c: lost_lane_is_killed_before_anything_is_repeated",
	"refuses to renew locks: ":        "tests/unit/lost.c: refused_renewals_are_told",
}

// await waits for a record.
func (r recorder) await(t *testing.T, is func(slog.Record) bool) {
	t.Helper()
	for end := time.After(patience); ; {
		select {
		case got := <-r.records:
			if is(got) {
				return
			}
		case <-end:
			t.Fatal("never logged")
		}
	}
}

// nested acquires one lock under another.
func nested(t *testing.T, outer, inner *snib.Mutex) {
	t.Helper()
	must(t, outer.Do(background, func(ctx context.Context) error { return inner.Do(ctx, nothingMore) }))
}

// renewedWith opens a client whose first login is soon to be renewed, with this answer.
func renewedWith(t *testing.T, log recorder, answer snib.Login, err error) {
	s := startServer(t)
	s.setUser(t, "first")
	var opened atomic.Bool
	open(t, s.url(), log.option(), snib.LoginBy(func(context.Context) (snib.Login, error) {
		if opened.Load() {
			return answer, err
		}
		return snib.Login{Username: "app", Password: "first", Valid: 200 * time.Millisecond}, nil
	}))
	opened.Store(true)
}

// openBySentinel opens a client of a master with a sentinel that has a user deaf.
func openBySentinel(t *testing.T, log recorder, options ...snib.Option) {
	port := freePort(t)
	startServer(t, "--port", port)
	sentinel := startSentinel(t, port, "user deaf on nopass ~* &* +@all -subscribe")
	open(t, "redis+sentinel://127.0.0.1:"+sentinel+"/main", append(options, log.option())...)
}

// holdBySentinel has a client hold a lock for as long as the test lasts, so that it asks its sentinel, and returns that
// one's port.
func holdBySentinel(t *testing.T, log recorder, further ...string) string {
	port := freePort(t)
	startServer(t, "--port", port)
	sentinel := startSentinel(t, port, further...)
	hold := lock(t, open(t, "redis+sentinel://127.0.0.1:"+sentinel+"/main", log.option()).Mutex("held"))
	t.Cleanup(func() { must(t, hold.Unlock(background)) })
	return sentinel
}

// tell has the server at this port of 127.0.0.1 carry out commands.
func tell(t *testing.T, port string, commands ...string) {
	conn, err := net.Dial("tcp", "127.0.0.1:"+port)
	must(t, err)
	defer conn.Close()
	answers := bufio.NewReader(conn)
	for _, command := range commands {
		_, err = fmt.Fprintf(conn, "%s\r\n", command)
		must(t, err)
		if answer, err := answers.ReadString('\n'); err != nil || answer != "+OK\r\n" {
			t.Fatalf("%s: %q, %v", command, answer, err)
		}
	}
}

// hastyClock is a proxy that sets the server's clock ahead by a minute at each TIME.
func hastyClock(t *testing.T, s *server) (url string) {
	path := filepath.Join(filepath.Dir(s.path), "hasty")
	listener, err := net.Listen("unix", path)
	must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	var ahead atomic.Int64
	answer := regexp.MustCompile(`\*2\r\n\$10\r\n\d{10}\r\n\$`) // to TIME: seconds and microseconds
	serve := func(near net.Conn) {
		far, err := net.Dial("unix", s.path)
		if err != nil {
			return
		}
		go func() { _, _ = io.Copy(far, near); _ = far.Close() }()
		defer near.Close()
		buffer := make([]byte, 65536)
		for {
			n, err := far.Read(buffer)
			if err != nil {
				return
			}
			out := answer.ReplaceAllFunc(buffer[:n], func(found []byte) []byte {
				return fmt.Appendf(nil, "*2\r\n$10\r\n%d\r\n$", time.Now().Unix()+ahead.Add(60))
			})
			if _, err := near.Write(out); err != nil {
				return
			}
		}
	}
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			go serve(near)
		}
	}()
	return "unix://" + path
}

// restart restarts the server without its data.
func (s *server) restart(t testing.TB) {
	t.Helper()
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	again := exec.Command(s.cmd.Args[0], s.cmd.Args[1:]...)
	again.SysProcAttr = s.cmd.SysProcAttr
	must(t, again.Start())
	s.cmd = again
}

// Each record of the core is caused here or elsewhere, by one test, and each cause is that of one record.
func TestEveryRecordHasACause(t *testing.T) {
	var parts []string
	for part := range provoke {
		parts = append(parts, part)
	}
	for part, test := range elsewhere {
		parts = append(parts, part)
		path, name, _ := strings.Cut(test, ": ")
		source, err := os.ReadFile(filepath.Join("..", path))
		if _, none := os.Stat("../tests"); none == nil && (err != nil || !strings.Contains(string(source), "static void "+name+"(")) {
			t.Errorf("%s: there is no test %s", part, test)
		}
	}
	records := coreRecords(t)
	for _, record := range records {
		if n := len(partsOf(record, parts)); n != 1 {
			t.Errorf("%q has %d causes", record.format, n)
		}
	}
	for _, part := range parts {
		n := 0
		for _, record := range records {
			n += len(partsOf(record, []string{part}))
		}
		if n != 1 {
			t.Errorf("%q is part of %d records", part, n)
		}
	}
}

// partsOf returns those of the parts that are in the record's format.
func partsOf(record coreRecord, parts []string) (found []string) {
	for _, part := range parts {
		if strings.Contains(record.format, part) {
			found = append(found, part)
		}
	}
	return found
}

// Everything that the core logs reaches the program's logger, with its level and the client.
func TestEveryRecordIsDelivered(t *testing.T) {
	for _, want := range coreRecords(t) {
		for part, act := range provoke {
			if !strings.Contains(want.format, part) {
				continue
			}
			t.Run(part, func(t *testing.T) {
				t.Parallel() // most wait for a renewal
				log := newRecorder()
				act(t, log)
				log.await(t, want.is)
			})
		}
	}
}

// is tells whether a record that was delivered is this one, as it should be.
func (want coreRecord) is(got slog.Record) bool {
	client := ""
	got.Attrs(func(a slog.Attr) bool { client += a.Key; return true })
	level := want.levels == nil || slices.Contains(want.levels, got.Level)
	return level && want.text.MatchString(got.Message) && client == "client"
}

// tooLittleTime stops a child process while its renewal is due, until the child logs that.
func tooLittleTime(t *testing.T, log recorder) {
	child := exec.Command(os.Args[0], "-test.run=^TestLateChild$")
	child.Env = append(os.Environ(), "SNIB_TEST_MAIN="+startServer(t).url(), "SNIB_TEST_LATE=1")
	out, err := child.StdoutPipe()
	must(t, err)
	must(t, child.Start())
	defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
	told := make(chan slog.Record, 1000)
	go func() {
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			var level slog.Level
			if words := strings.SplitN(scanner.Text(), " ", 3); len(words) == 3 && level.UnmarshalText([]byte(words[0])) == nil {
				record := slog.NewRecord(time.Now(), level, words[2], 0)
				record.Add(words[1], "")
				told <- record
			}
		}
	}()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		select {
		case record := <-told:
			log.records <- record
			if strings.Contains(record.Message, "too little CPU time") {
				return
			}
		case <-time.After(500 * time.Millisecond):
			_ = child.Process.Signal(syscall.SIGSTOP)
			time.Sleep(1200 * time.Millisecond) // longer than a renewal may be late, shorter than a lease
			_ = child.Process.Signal(syscall.SIGCONT)
		}
	}
}

// TestLateChild holds a lock and prints the log: level, attribute, message.
func TestLateChild(t *testing.T) {
	if os.Getenv("SNIB_TEST_LATE") == "" {
		t.Skip("for TestEveryRecordIsDelivered")
	}
	log := newRecorder()
	client, err := snib.Open(background, os.Getenv("SNIB_TEST_MAIN"), log.option(), snib.WatchdogLease(2*time.Second))
	must(t, err)
	go func() {
		for {
			_ = client.Mutex("late").Do(background, func(ctx context.Context) error { <-ctx.Done(); return nil })
		}
	}()
	for record := range log.records {
		record.Attrs(func(a slog.Attr) bool { fmt.Println(record.Level, a.Key, record.Message); return true })
	}
}

// Go has every counter of the core, under the same name.
func TestEveryCounter(t *testing.T) {
	header, err := os.ReadFile("snib.h")
	must(t, err)
	_, rest, _ := strings.Cut(string(header), "typedef struct snib_client_stats_data {")
	rest, _, _ = strings.Cut(rest, "} snib_client_stats_data;")
	for _, field := range regexp.MustCompile(`uint64_t (\w+)`).FindAllStringSubmatch(rest, -1) {
		name := ""
		for _, word := range strings.Split(strings.ReplaceAll(field[1], "late_us", "late_micros"), "_") {
			name += strings.ToUpper(word[:1]) + word[1:]
		}
		if _, there := reflect.TypeFor[snib.Stats]().FieldByName(name); !there {
			t.Errorf("%s is not in Stats", name)
		}
	}
}
