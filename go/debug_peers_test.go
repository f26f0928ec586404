//go:build cgo

package snib_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	snib "github.com/snib-lock/snib/go"
)

// Two programs that are right for themselves: both are told what the other one does, and where.
func TestDebugOrderOfProcesses(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	type program struct {
		label, one, two string
		child           *exec.Cmd
		out             *bufio.Reader
		leave           func()
	}
	programs := []*program{{label: "pay", one: "stock", two: "till"}, {label: "refund", one: "till", two: "stock"}}
	for _, p := range programs {
		p.child = exec.Command(os.Args[0], "-test.run=^TestDebugOrderChild$")
		p.child.Env = append(os.Environ(), "SNIB_TEST_MAIN="+s.url(), "SNIB_TEST_ORDER="+p.label+" "+p.one+" "+p.two)
		in, err := p.child.StdinPipe()
		must(t, err)
		out, err := p.child.StdoutPipe()
		must(t, err)
		must(t, p.child.Start())
		p.out, p.leave = bufio.NewReader(out), func() { _ = in.Close() }
		t.Cleanup(func() { _ = p.child.Process.Kill(); _ = p.child.Wait() })
		took, err := p.out.ReadString('\n') // or else they do deadlock, now and then
		must(t, err)
		if took != "took\n" {
			t.Fatal(took)
		}
	}
	for _, p := range programs { // each stays until both are told
		told := ""
		for !strings.Contains(told, "counted 1\n") {
			line, err := p.out.ReadString('\n')
			must(t, err)
			told += line
		}
		for _, of := range programs {
			for _, part := range []string{
				fmt.Sprintf(`\"%s\" (debug_peers_test.go:`, of.one),
				fmt.Sprintf(`then \"%s\" (debug_peers_test.go:`, of.two),
				fmt.Sprintf(` in %s (pid %d on `, of.label, of.child.Process.Pid),
			} {
				if !strings.Contains(told, part) {
					t.Errorf("no %s in %s", part, told)
				}
			}
		}
	}
	for _, p := range programs {
		p.leave()
	}
}

// TestDebugOrderChild takes one lock under another, prints what it is told, and stays until its input ends.
func TestDebugOrderChild(t *testing.T) {
	words := strings.Fields(os.Getenv("SNIB_TEST_ORDER"))
	if len(words) != 3 {
		t.Skip("for TestDebugOrderOfProcesses")
	}
	log := newLogged()
	client := open(t, os.Getenv("SNIB_TEST_MAIN"), log.option(), snib.Debug(true), snib.Label(words[0]))
	if n := client.Stats().DebugWarnings; n != 0 {
		t.Errorf("counted %d", n)
	}
	must(t, client.Mutex(words[1]).Do(background, func(ctx context.Context) error {
		return client.Mutex(words[2]).Do(ctx, nothingMore)
	}))
	fmt.Println("took")
	told := ""
	for !strings.Contains(told, " in pay (pid ") || !strings.Contains(told, " in refund (pid ") { // in one record, or in two
		told += log.until(t, "WARN", "lock order")
	}
	fmt.Print(told)
	fmt.Println("counted", client.Stats().DebugWarnings)
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	must(t, client.Close())
}
