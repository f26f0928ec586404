//go:build cgo

package snib_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	snib "github.com/snib-lock/snib/go"
)

// termChild is a program that holds two locks when SIGTERM arrives.
func termChild(url, mode string) {
	debug.SetGCPercent(-1) // a hold that was dropped is not released by a close
	one, err := snib.Open(background, url, snib.Logger(nil))
	if err != nil {
		os.Exit(3)
	}
	two, err := snib.Open(background, url, snib.Logger(nil), snib.Patience(2*patience))
	if err != nil {
		os.Exit(3)
	}
	first, err := one.Mutex("first").Lock(background)
	if err != nil {
		os.Exit(4)
	}
	second, err := two.Mutex("second").Lock(background)
	if err != nil {
		os.Exit(4)
	}
	heard := make(chan os.Signal, 1)
	switch mode {
	case "alone":
		snib.CloseOnTerm(nil, one, nil, two)
	case "then":
		signal.Notify(heard, syscall.SIGTERM) // the program's own channel still gets the signal
		snib.CloseOnTerm(func(s os.Signal) {
			<-heard
			_, reason := first.State()
			fmt.Println("then", s, reason)
			os.Exit(7)
		}, one, two)
	case "apart", "apart, stopped": // what is closed first does not end the program while the other one has much to release
		manyLocks(two)
		snib.CloseOnTerm(nil, one)
		stop := snib.CloseOnTerm(nil, two)
		if mode == "apart, stopped" { // by its work, which hears of the loss first
			lost := second.Context(background)
			go func() {
				<-lost.Done()
				stop()
			}()
		}
	case "returns": // main does, when it hears of the loss
		manyLocks(two)
		stop := snib.CloseOnTerm(func(os.Signal) { select {} }, one, two)
		fmt.Println("ready")
		<-second.Context(background).Done()
		stop()
		os.Exit(7)
	case "stopped":
		stop := snib.CloseOnTerm(nil, one, two)
		stop()
		stop()
	}
	fmt.Println("ready")
	time.Sleep(10 * patience)
}

func manyLocks(client *snib.Client) {
	for i := range 1000 {
		if _, err := client.Mutex(fmt.Sprint(i)).Lock(background); err != nil {
			os.Exit(4)
		}
	}
}

// SIGTERM releases the holds first, and then has its previous effect.
func TestCloseOnTerm(t *testing.T) {
	if mode := os.Getenv("SNIB_TEST_TERM"); mode != "" {
		termChild(os.Getenv("SNIB_TEST_MAIN"), mode)
		return
	}
	for mode, left := range map[string]string{"off": "2", "alone": "0", "apart": "0", "apart, stopped": "0", "then": "0",
		"returns": "0", "stopped": "2"} {
		t.Run(mode, func(t *testing.T) {
			s := startServer(t)
			child := exec.Command(os.Args[0], "-test.run=^TestCloseOnTerm$")
			child.Env = append(os.Environ(), "SNIB_TEST_MAIN="+s.url(), "SNIB_TEST_TERM="+mode, "GORACE=atexit_sleep_ms=0")
			child.Stderr = os.Stderr
			out, err := child.StdoutPipe()
			must(t, err)
			must(t, child.Start())
			defer time.AfterFunc(4*patience, func() { _ = child.Process.Kill() }).Stop()
			lines := bufio.NewReader(out)
			line, err := lines.ReadString('\n')
			if err != nil || line != "ready\n" {
				t.Fatalf("%q, %v", line, err)
			}
			must(t, child.Process.Signal(syscall.SIGTERM))
			line, _ = lines.ReadString('\n')
			_ = child.Wait()
			status := child.ProcessState.Sys().(syscall.WaitStatus)
			if said, exits := map[string]string{"then": "then terminated closed", "returns": ""}[mode]; exits {
				if status.ExitStatus() != 7 || strings.TrimSpace(line) != said {
					t.Errorf("exit status %d, %q", status.ExitStatus(), line)
				}
			} else if !status.Signaled() || status.Signal() != syscall.SIGTERM {
				t.Errorf("ended by %v", status)
			}
			if n := s.do(t, "EVAL", countKeys, "0"); n != left {
				t.Errorf("%s locks are left", n)
			}
		})
	}
}

// A signal that came before stop is not forgotten, however soon stop follows it.
func TestCloseOnTermStoppedAtOnce(t *testing.T) {
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGTERM)
	defer signal.Stop(heard)
	for range rounds(1000) {
		closed := make(chan os.Signal, 1)
		stop := snib.CloseOnTerm(func(s os.Signal) { closed <- s })
		must(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
		for len(heard) == 0 {
			runtime.Gosched()
		}
		<-heard
		stop()
		soon(t, closed)
	}
}
