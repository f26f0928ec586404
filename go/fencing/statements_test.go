package fencing_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/snib-lock/snib/go/fencing"
)

// sqlProgram runs the statements in Python's SQLite and prints the affected rows.
const sqlProgram = `
import json, sqlite3, sys
given = json.load(sys.stdin)
database = sqlite3.connect(":memory:")
database.execute(given["table"])
database.execute(given["table"])
for step in given["steps"]:
    try:
        print(database.execute(given["accept"], dict(zip("123", step))).rowcount)
    except sqlite3.IntegrityError:
        print("refused")
`

func TestSQL(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("SQLite is taken from Python, which is not there")
	}
	var rows [][]any
	for _, step := range steps {
		rows = append(rows, []any{"orders", step.token, step.owner})
	}
	// A program may run the statement without a check of its own: no token is 0 or less, and NULL is a new row each time.
	wrong := [][]any{{"fresh", 0, "a"}, {"fresh", -1, "a"}, {"orders", -1, "b"}, {nil, 7, "a"}, {"fresh", nil, "a"}}
	rows = append(rows, wrong...)
	given, _ := json.Marshal(map[string]any{"table": fencing.SQLTable, "accept": fencing.SQLAccept, "steps": rows})
	command := exec.Command(python, "-c", sqlProgram)
	command.Stdin = strings.NewReader(string(given))
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	affected := strings.Fields(string(out))
	if len(affected) != len(rows) {
		t.Fatalf("%d answers to %d steps", len(affected), len(rows))
	}
	for i, step := range steps {
		if step.accept != (affected[i] == "1") {
			t.Errorf("step %d: %+v: %s rows", i, step, affected[i])
		}
	}
	for i, row := range wrong {
		if answer := affected[len(steps)+i]; answer != "refused" {
			t.Errorf("%v: %s", row, answer)
		}
	}
}

func TestAPoolIsNoTransaction(t *testing.T) {
	for _, pool := range []fencing.Querier{&sql.DB{}, struct{ *sql.DB }{&sql.DB{}}} {
		err := fencing.AcceptSQL(context.Background(), pool, fencing.SQLite, "orders", 1, "a")
		if err == nil || !strings.Contains(err.Error(), "needs the *sql.Tx") {
			t.Errorf("%T: %v", pool, err)
		}
	}
}

// dial starts a private server and connects to it.
func dial(t *testing.T) net.Conn {
	t.Helper()
	binary := os.Getenv("SNIB_TEST_SERVER")
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil && binary == "" {
			binary = path
		}
	}
	if binary == "" {
		t.Fatal("no server: set SNIB_TEST_SERVER or install redis-server or valkey-server")
	}
	folder, err := os.MkdirTemp("", "snib-fence-") // t.TempDir() can be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "s")
	command := exec.Command(binary, "--port", "0", "--unixsocket", path, "--save", "", "--dir", folder)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		_ = os.RemoveAll(folder)
	})
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if conn, err := net.Dial("unix", path); err == nil {
			t.Cleanup(func() { _ = conn.Close() })
			return conn
		}
		if time.Now().After(end) {
			t.Fatal("the server does not start")
		}
	}
}

// do sends a command and returns the reply without its line ends.
func do(t *testing.T, conn net.Conn, in *bufio.Reader, words ...string) string {
	t.Helper()
	command := fmt.Sprintf("*%d\r\n", len(words))
	for _, word := range words {
		command += fmt.Sprintf("$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := conn.Write([]byte(command)); err != nil {
		t.Fatal(err)
	}
	line, err := in.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if line[0] == '$' && line[1] != '-' {
		line, _ = in.ReadString('\n')
	}
	return strings.TrimRight(line, "\r\n")
}

func TestRedis(t *testing.T) {
	conn := dial(t)
	in := bufio.NewReader(conn)
	value := "$-1"
	for i, step := range steps {
		next := fmt.Sprint("value ", i)
		token := strconv.FormatInt(step.token, 10)
		reply := do(t, conn, in, "EVAL", fencing.RedisAccept, "2", "orders:fence", "orders", token, step.owner, next)
		if step.accept != (reply == ":1") {
			t.Errorf("step %d: %+v: %s", i, step, reply)
		}
		if step.accept {
			value = next
		}
		if now := do(t, conn, in, "GET", "orders"); now != value {
			t.Errorf("step %d: the value is %q instead of %q", i, now, value)
		}
	}
	for _, token := range []string{"", "0", "-1", "007", "1.5", "1e3", "x"} {
		reply := do(t, conn, in, "EVAL", fencing.RedisAccept, "1", "fresh", token, "a")
		if reply[0] != '-' || !strings.Contains(reply, "a token must be a whole number greater than 0") {
			t.Errorf("token %q: %s", token, reply)
		}
	}
	if reply := do(t, conn, in, "EVAL", fencing.RedisAccept, "1", "fresh", "1", "a"); reply != ":1" {
		t.Errorf("the first token: %s", reply)
	}
}
