//go:build cgo

package snib_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	snib "github.com/snib-lock/snib/go"
)

// address is where the examples find a server: one of their own.
var address string

func TestMain(m *testing.M) {
	if os.Getenv("SNIB_TEST_MAIN") != "" { // TestMainReturns runs this program as a child
		os.Exit(m.Run())
	}
	s, err := launch()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	address = s.url()
	code := m.Run()
	s.stop()
	os.Exit(code)
}

func Example() {
	ctx := context.Background()
	client, err := snib.Open(ctx, address) // such as redis://127.0.0.1:6379
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	hold, err := client.Mutex("orders").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer hold.Unlock(context.WithoutCancel(ctx))
	fmt.Println("safe for more than 20 s:", hold.Remaining() > 20*time.Second)
	// Output: safe for more than 20 s: true
}

func ExampleMutex_TryLock() {
	ctx := context.Background()
	client, _ := snib.Open(ctx, address)
	defer client.Close()
	mutex := client.Mutex("report")
	hold, _ := mutex.TryLock(ctx)
	if _, err := mutex.TryLock(ctx); errors.Is(err, snib.ErrBusy) {
		fmt.Println(err)
	}
	fmt.Println(hold.Unlock(ctx))
	// Output:
	// snib: somebody else holds the lock
	// <nil>
}

func ExampleHold_Context() {
	ctx := context.Background()
	client, _ := snib.Open(ctx, address)
	defer client.Close()
	hold, _ := client.Mutex("import", snib.Lease(100*time.Millisecond)).Lock(ctx)
	work := hold.Context()
	<-work.Done() // a fixed lease ends by itself
	fmt.Println(context.Cause(work) == snib.ErrLost)
	fmt.Println(hold.Check())
	// Output:
	// true
	// snib: the lock was lost (expired): stop working under it
}
