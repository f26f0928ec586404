//go:build cgo

package snib_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	snib "github.com/snib-lock/snib/go"
	"github.com/snib-lock/snib/go/fencing"
)

// address is that of the examples' own server.
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
	address = s.url() + "?patience=30s&try_timeout=30s"
	slog.SetDefault(slog.New(slog.DiscardHandler)) // tests lose locks on purpose
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
	// snib: mutex "report": another owner holds the lock
	// <nil>
}

func ExampleHold_Context() {
	ctx := context.Background()
	client, _ := snib.Open(ctx, address)
	defer client.Close()
	hold, _ := client.Mutex("import", snib.Lease(time.Second)).Lock(ctx)
	work := hold.Context(ctx) // ends with ctx, with the hold's Unlock, and when the hold is lost
	<-work.Done()             // a fixed lease ends by itself
	var lost *snib.Error
	fmt.Println(errors.As(context.Cause(work), &lost), lost.Name, lost.Kind, lost.Reason, errors.Is(lost, snib.ErrLost))
	// Output: true import mutex expired true
}

func ExampleClient_Fenced() {
	ctx := context.Background()
	client, _ := snib.Open(ctx, address)
	defer client.Close()
	var orders fencing.Fence // where the orders are kept
	lock := client.Fenced("orders", snib.Lease(time.Second))
	paused, _ := lock.Lock(ctx)
	<-paused.Lost() // its lease ends while it sleeps
	next, _ := lock.Lock(ctx)
	fmt.Println(orders.Accept(next.Token(), next.Owner()))
	fmt.Println(orders.Accept(paused.Token(), paused.Owner()))
	// Output:
	// <nil>
	// fencing: the token is stale: a newer hold has been accepted
}

func ExampleClient_Reentrant() {
	ctx := context.Background()
	client, _ := snib.Open(ctx, address)
	defer client.Close()
	job := client.Reentrant("job", 42)
	outer, _ := job.Lock(ctx)
	inner, err := job.Lock(ctx) // immediately: the owner holds it
	fmt.Println(err, inner.Unlock(ctx), outer.Check(), outer.Unlock(ctx))
	// Output: <nil> <nil> <nil> <nil>
}

func ExampleHold_Downgrade() {
	ctx := context.Background()
	client, _ := snib.Open(ctx, address)
	defer client.Close()
	page := client.RW("page")
	write, _ := page.Lock(ctx)
	// ... write, then let others read the result, while no other writer can change it
	read, err := write.Downgrade(ctx)
	fmt.Println(err)
	other, err := page.TryRLock(ctx)
	fmt.Println(err)
	_, err = page.TryLock(ctx)
	fmt.Println(err)
	_ = other.Unlock(ctx)
	_ = read.Unlock(ctx)
	// Output:
	// <nil>
	// <nil>
	// snib: write lock "page": another owner holds the lock
}

func ExamplePermits() {
	ctx := context.Background()
	client, _ := snib.Open(ctx, address)
	defer client.Close()
	slots := client.Permits("slots")
	_, _ = slots.Init(ctx, 5) // does nothing if another process was first
	hold, _ := slots.Acquire(ctx, 2)
	fmt.Println(slots.Available(ctx))
	fmt.Println(hold.Unlock(ctx))
	// Output:
	// 3 <nil>
	// <nil>
}

func ExampleLatch() {
	ctx := context.Background()
	client, _ := snib.Open(ctx, address)
	defer client.Close()
	ready := client.Latch("ready")
	_, _ = ready.Init(ctx, 3)
	for range 3 {
		go ready.CountDown(ctx)
	}
	fmt.Println(ready.Wait(ctx))
	// Output: <nil>
}

func ExampleMulti() {
	ctx := context.Background()
	client, _ := snib.Open(ctx, address)
	defer client.Close()
	transfer := snib.Multi(client.Mutex("account:1"), client.Mutex("account:2")).With(snib.MaxHold(time.Minute))
	hold, err := transfer.Lock(ctx)
	fmt.Println(err)
	_, err = client.Mutex("account:2").TryLock(ctx)
	fmt.Println(err, hold.Unlock(ctx))
	// Output:
	// <nil>
	// snib: mutex "account:2": another owner holds the lock <nil>
}

func ExampleMutex_Do() {
	ctx := context.Background()
	client, _ := snib.Open(ctx, address)
	defer client.Close()
	err := client.Mutex("report").Do(ctx, func(ctx context.Context) error {
		// ctx ends when the caller's does, and when the lock is lost
		return ctx.Err()
	})
	fmt.Println(err)
	// Output: <nil>
}

// The end of the caller's context reaches the work, like Ctrl-C through signal.NotifyContext.
func ExampleMutex_Do_shutdown() {
	client, _ := snib.Open(context.Background(), address)
	defer client.Close()
	ctx, shutdown := context.WithCancel(context.Background())
	err := client.Mutex("import").Do(ctx, func(ctx context.Context) error {
		shutdown()
		<-ctx.Done()
		return context.Cause(ctx)
	})
	fmt.Println(err)
	// Output: context canceled
}

// A loss ends the work, and Do reports it whatever the work returns.
func ExampleMutex_Do_lost() {
	ctx := context.Background()
	client, _ := snib.Open(ctx, address)
	defer client.Close()
	err := client.Mutex("import", snib.Lease(time.Second)).Do(ctx, func(ctx context.Context) error {
		<-ctx.Done() // it took longer than its lease
		return nil
	})
	var lost *snib.Error
	fmt.Println(errors.Is(err, snib.ErrLost), errors.As(err, &lost), lost.Name, lost.Reason)
	// Output: true true import expired
}

func ExampleHoldFrom() {
	ctx := context.Background()
	client, _ := snib.Open(ctx, address)
	defer client.Close()
	var stock fencing.Fence // where the stock is kept
	err := client.Fenced("stock").Do(ctx, func(ctx context.Context) error {
		hold := snib.HoldFrom(ctx)
		return stock.Accept(hold.Token(), hold.Owner())
	})
	fmt.Println(err)
	// Output: <nil>
}

// A dropped hold is not released by the collector: its lease runs out.
func ExampleHold_dropped() {
	ctx := context.Background()
	warnings := make(chan string, 1)
	logger := slog.New(slog.NewTextHandler(onlyMessages(warnings), nil))
	client, _ := snib.Open(ctx, address, snib.WatchdogLease(time.Second), snib.Logger(logger))
	defer client.Close()
	_, _ = client.Mutex("leader").Lock(ctx) // dropped, so it cannot be unlocked
	for len(warnings) == 0 {
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	hold, err := client.Mutex("leader").Lock(ctx) // once the lease has run out
	fmt.Println(err, hold.Unlock(ctx))
	// Output: <nil> <nil>
}

// onlyMessages forwards warnings about dropped holds.
type onlyMessages chan string

func (m onlyMessages) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("leader")) {
		m <- string(line)
	}
	return len(line), nil
}

func ExampleLogger() {
	ctx := context.Background()
	handler := slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		Level: slog.LevelWarn,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "client" {
				return slog.Attr{}
			}
			return a
		},
	})
	client, _ := snib.Open(ctx, address, snib.Logger(slog.New(handler)))
	hold, _ := client.Mutex("import", snib.Lease(time.Second)).Lock(ctx)
	<-hold.Lost()
	_ = client.Close()
	// Output: level=WARN msg="lock \"import\" was lost: expired"
}

func ExampleCloseOnTerm() {
	ctx := context.Background()
	client, _ := snib.Open(ctx, address)
	ended := make(chan struct{})
	// A real program passes nil, and ends by the signal once its locks are released.
	defer snib.CloseOnTerm(func(os.Signal) { close(ended) }, client)()
	hold, _ := client.Mutex("import").Lock(ctx)
	_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
	<-ended
	fmt.Println(hold.Check())
	// Output: snib: mutex "import" was lost (closed): stop working under it
}

func ExampleError() {
	ctx := context.Background()
	client, _ := snib.Open(ctx, address)
	defer client.Close()
	hold, _ := client.Fair("seat").Lock(ctx)
	_, err := client.Fair("seat").TryLock(ctx)
	var e *snib.Error
	if errors.As(err, &e) {
		fmt.Println(e.Name, e.Kind, e.Code.Name(), e.Retryable(), e.MaybeApplied())
	}
	fmt.Println(hold.Unlock(ctx))
	// Output:
	// seat fair SNIB_BUSY true false
	// <nil>
}
