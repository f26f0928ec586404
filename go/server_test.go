//go:build cgo

package snib_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	snib "github.com/snib-lock/snib/go"
)

// server is a private Redis or Valkey, on a unix socket in its own folder.
type server struct {
	path string
	cmd  *exec.Cmd
}

func (s *server) url() string { return "unix://" + s.path }

func serverBinary() (string, error) {
	if binary := os.Getenv("SNIB_TEST_SERVER"); binary != "" {
		return binary, nil
	}
	if binary, err := exec.LookPath("redis-server"); err == nil {
		return binary, nil
	}
	return exec.LookPath("valkey-server")
}

func launch(arguments ...string) (*server, error) {
	binary, err := serverBinary()
	if err != nil {
		return nil, errors.New("no server: set SNIB_TEST_SERVER or install redis-server or valkey-server")
	}
	return launchAs(binary, arguments...)
}

func launchAs(binary string, arguments ...string) (*server, error) {
	folder, err := os.MkdirTemp("", "snib-go-")
	if err != nil {
		return nil, err
	}
	s := &server{path: filepath.Join(folder, "s")}
	s.cmd = exec.Command(binary, append([]string{"--port", "0", "--unixsocket", s.path, "--save", "",
		"--appendonly", "no", "--dir", folder}, arguments...)...)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		conn, err := net.Dial("unix", s.path)
		if err == nil {
			return s, conn.Close()
		}
		if time.Now().After(end) {
			s.stop()
			return nil, err
		}
	}
}

func (s *server) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGCONT)
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	_ = os.RemoveAll(filepath.Dir(s.path))
}

// halt stops the server with SIGSTOP, and returns once it has stopped.
func (s *server) halt(t testing.TB) {
	t.Helper()
	must(t, s.cmd.Process.Signal(syscall.SIGSTOP))
	await(t, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
		must(t, err)
		_, rest, _ := strings.Cut(string(stat), ") ")
		return strings.HasPrefix(rest, "T")
	})
}

func startServer(t testing.TB, arguments ...string) *server {
	t.Helper()
	s, err := launch(arguments...)
	must(t, err)
	t.Cleanup(s.stop)
	return s
}

// How long a test waits for expected events: the machine may be slow or busy.
const patience = 30 * time.Second

// A lease that is renewed every two seconds, for tests of renewals: processes may stall for that long. Tests that wait
// for renewals run in parallel.
const renewed = 6 * time.Second

// await polls a condition until it holds.
func await(t testing.TB, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("still not so after %v", patience)
		}
	}
}

// do sends a raw command and returns the reply's first line, without its mark, or a bulk's text.
func (s *server) do(t testing.TB, words ...string) string {
	t.Helper()
	conn, err := net.Dial("unix", s.path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var out strings.Builder
	fmt.Fprintf(&out, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(&out, "$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := conn.Write([]byte(out.String())); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	line, err := in.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if line[0] == '$' && line[1] != '-' {
		line, _ = in.ReadString('\n')
		return strings.TrimRight(line, "\r\n")
	}
	return strings.TrimRight(line[1:], "\r\n")
}

// clean waits until nothing of Snib is left: no key but these and what clients say about themselves, no channel. It
// waits for less than a default lease, whose end must not do the work.
func (s *server) clean(t testing.TB, but ...string) {
	t.Helper()
	for _, key := range but {
		if s.do(t, "DEL", key) != "1" {
			t.Errorf("no key %q", key)
		}
	}
	var keys, channels string
	for end := time.Now().Add(patience / 2); time.Now().Before(end); time.Sleep(time.Millisecond) {
		keys, channels = s.do(t, "EVAL", countKeys, "0"), s.do(t, "PUBSUB", "CHANNELS")
		if keys == "0" && channels == "0" {
			return
		}
	}
	t.Errorf("left at the server: %s keys (such as %q), %s channels", keys, s.do(t, "RANDOMKEY"), channels)
}

// countKeys counts all keys but the identities of clients, which end with their leases.
const countKeys = `local n = 0
for _, key in ipairs(redis.call('keys', '*')) do
    if not key:find('^snib_client:') then n = n + 1 end
end
return n`

// free waits until none of these locks is held, whatever else is on the server.
func (s *server) free(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		await(t, func() bool { return s.do(t, "EXISTS", name) == "0" })
	}
}

// open opens a client with the tests' patience for a stalled server, unless an option says otherwise.
func open(t testing.TB, url string, options ...snib.Option) *snib.Client {
	t.Helper()
	patient := []snib.Option{snib.ConnectTimeout(patience), snib.ReplyTimeout(patience), snib.Patience(patience),
		snib.TryTimeout(patience)}
	client, err := snib.Open(context.Background(), url, append(patient, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.CloseTimeout(time.Second) })
	return client
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func lock(t testing.TB, lock snib.Locker) *snib.Hold {
	t.Helper()
	hold, err := lock.Lock(context.Background())
	must(t, err)
	return hold
}

// brief takes a lock with a short lease, and again if the lease had ended before the answer came.
func brief(t testing.TB, l snib.Locker) *snib.Hold {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		hold, err := l.Lock(context.Background())
		if err == nil || !errors.Is(err, snib.ErrUnreachable) || time.Now().After(end) {
			must(t, err)
			return hold
		}
	}
}

// expect checks an error of this package: its code, and that it has a sentence.
func expect(t testing.TB, what string, err error, want snib.Code) {
	t.Helper()
	var e *snib.Error
	if !errors.Is(err, want) || !errors.As(err, &e) || e.Text == "" {
		t.Errorf("%s: %v instead of %q", what, err, want.Error())
	}
}

// soon waits for a value from a channel.
func soon[T any](t testing.TB, values <-chan T) T {
	t.Helper()
	select {
	case value := <-values:
		return value
	case <-time.After(patience):
		t.Fatal("nothing comes")
		panic("unreachable")
	}
}

// locking locks in the background.
func locking(lock func(context.Context) (*snib.Hold, error)) <-chan *snib.Hold {
	got := make(chan *snib.Hold, 1)
	go func() {
		if hold, err := lock(context.Background()); err == nil {
			got <- hold
		}
	}()
	return got
}

// threads counts the threads of this process.
func threads(t testing.TB) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	must(t, err)
	_, rest, _ := strings.Cut(string(status), "Threads:")
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	must(t, err)
	return n
}

// together runs n goroutines and waits for them.
func together(n int, run func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Add(1)
		go func() {
			defer all.Done()
			run(i)
		}()
	}
	all.Wait()
}
