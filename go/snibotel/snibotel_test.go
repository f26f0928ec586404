package snibotel

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	snib "github.com/snib-lock/snib/go"
)

// address is that of the tests' own server.
var address string

// Address is for tests outside this package.
func Address() string { return address }

func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "snib-otel-") // t.TempDir() can be too long for a socket
	if err == nil {
		address, err = serve(folder)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	slog.SetDefault(slog.New(slog.DiscardHandler)) // tests lose locks on purpose
	code := m.Run()
	_ = os.RemoveAll(folder)
	os.Exit(code) // the server ends with this process
}

// serve starts a server, and returns its URL.
func serve(folder string) (string, error) {
	binary := os.Getenv("SNIB_TEST_SERVER")
	for _, name := range []string{"valkey-server", "redis-server"} {
		if path, err := exec.LookPath(name); err == nil && binary == "" {
			binary = path
		}
	}
	path := filepath.Join(folder, "s")
	command := exec.Command(binary, "--port", "0", "--unixsocket", path, "--save", "", "--dir", folder)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return "", err
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if conn, err := net.Dial("unix", path); err == nil {
			return "unix://" + path + "?patience=30s&try_timeout=30s", conn.Close()
		}
	}
	return "", fmt.Errorf("%s does not start", binary)
}

// open opens a client for a test.
func open(t *testing.T) *snib.Client {
	t.Helper()
	client, err := snib.Open(context.Background(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// ok fails the test because of an error.
func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
