//go:build cgo

package snib_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
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
	level  slog.Level
	format string
	text   *regexp.Regexp
}

// coreRecords returns all records that the core can log.
func coreRecords(t *testing.T) (all []coreRecord) {
	source, err := os.ReadFile("snib.c")
	must(t, err)
	call := regexp.MustCompile(`snib__engine_log\(\s*\w+,\s*SNIB_LOG_(\w+),\s*((?:"(?:[^"\\]|\\.)*"\s*)+)`)
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
		all = append(all, coreRecord{levels[found[1]], format, regexp.MustCompile("^" + strings.Join(literal, ".*") + "$")})
	}
	return all
}

// provoke maps a part of the format of each core record to a function that causes it.
var provoke = map[string]func(*testing.T, recorder){
	"connected to": func(t *testing.T, log recorder) { open(t, startServer(t).url(), log.option()) },
	"was %s: %s": func(t *testing.T, log recorder) {
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
	"server's clock has moved": func(t *testing.T, log recorder) {
		url := hastyClock(t, startServer(t))
		hold := lock(t, open(t, url, log.option(), snib.WatchdogLease(renewed)).Mutex("held"))
		t.Cleanup(func() { _ = hold.Unlock(background) })
	},
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

// Everything that the core logs reaches the program's logger, with its level and the client.
func TestEveryRecordIsDelivered(t *testing.T) {
	for _, want := range coreRecords(t) {
		t.Run(want.format, func(t *testing.T) {
			var act func(*testing.T, recorder)
			for part, a := range provoke {
				if strings.Contains(want.format, part) {
					act = a
				}
			}
			if act == nil {
				t.Skip("nothing here leads to this record")
			}
			t.Parallel() // most wait for a renewal
			log := newRecorder()
			act(t, log)
			for end := time.After(patience); ; {
				select {
				case got := <-log.records:
					client := ""
					got.Attrs(func(a slog.Attr) bool { client += a.Key; return true })
					if want.text.MatchString(got.Message) && got.Level == want.level && client == "client" {
						return
					}
				case <-end:
					t.Fatal("never logged")
				}
			}
		})
	}
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
