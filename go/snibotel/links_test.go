package snibotel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	snib "github.com/snib-lock/snib/go"
)

// begun is the holds whose spans have begun, in this order.
type begun struct {
	sdk.SpanProcessor
	mu    sync.Mutex
	holds []sdk.ReadWriteSpan
}

func (b *begun) OnStart(_ context.Context, span sdk.ReadWriteSpan) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if span.Name() == "snib.hold" {
		b.holds = append(b.holds, span)
	}
}
func (b *begun) OnEnd(sdk.ReadOnlySpan) {}

// follow forgets the holders of other tests.
func follow(t *testing.T) (*begun, Option) {
	t.Helper()
	holders = newTable()
	b := new(begun)
	return b, WithTracerProvider(sdk.NewTracerProvider(sdk.WithSpanProcessor(b)))
}

// expect compares, for each hold, the number of the one that its span is linked to; -1: to none.
func (b *begun) expect(t *testing.T, want ...int) {
	t.Helper()
	got := []int{}
	for _, span := range b.holds {
		before := -1
		for _, link := range span.Links() {
			if fmt.Sprint(link.Attributes) != fmt.Sprint([]any{says}) || before != -1 {
				t.Error(span.Links())
			}
			before = slices.IndexFunc(b.holds, func(s sdk.ReadWriteSpan) bool { return s.SpanContext().Equal(link.SpanContext) })
		}
		got = append(got, before)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v instead of %v", got, want)
	}
}

func nothing(context.Context) error { return nil }

// eventually waits for a condition that other goroutines bring about.
func eventually(t *testing.T, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not come")
		}
	}
}

func TestAWaiterIsLinkedToTheHolder(t *testing.T) {
	ctx, client := context.Background(), open(t)
	waits := []func(*Lock) error{
		func(l *Lock) error { return l.Do(ctx, nothing) },
		func(l *Lock) error {
			hold, err := l.Lock(ctx)
			if err != nil {
				return err
			}
			return hold.Unlock(ctx)
		},
	}
	permits := client.Permits("slot")
	_, err := permits.Init(ctx, 1)
	ok(t, err)
	for i, plain := range []snib.Locker{client.Mutex("a"), client.Mutex("a"), permits, permits} {
		b, here := follow(t)
		lock, ended := TraceLock(plain, here), make(chan error)
		ok(t, lock.Do(ctx, func(ctx context.Context) error {
			go func() { ended <- waits[i%2](lock) }()
			eventually(t, func() bool { return client.Stats().Waiting == 1 })
			return TraceLock(client.Mutex("b"), here).Do(ctx, nothing) // was never held
		}))
		ok(t, <-ended)
		b.expect(t, -1, -1, 0)
	}
	ok(t, permits.ForceRelease(ctx))
}

// Users and options make no difference, the kind does, and so does the database.
func TestTheSameLockAtAnotherClient(t *testing.T) {
	ctx, client := context.Background(), open(t)
	other := func(options string) *snib.Client {
		c, err := snib.Open(ctx, address+options)
		ok(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	second, elsewhere := other("&lease=20s"), other("&db=1")
	b, here := follow(t)
	for _, lock := range []snib.Locker{client.Mutex("a"), second.Mutex("a"), elsewhere.Mutex("a"), second.Plain("p"),
		second.Spin("p"), snib.Multi(client.Mutex("m"), client.Mutex("n")), snib.Multi(second.Mutex("n"), second.Mutex("m")),
		snib.Multi(second.Mutex("n"), elsewhere.Mutex("m"))} {
		ok(t, TraceLock(lock, here).Do(ctx, nothing))
	}
	b.expect(t, -1, 0, -1, -1, -1, -1, 5, -1)
}

// Only while no writer has the lock: it ends after the readers within it.
func TestTheReaderThatHasEndedLast(t *testing.T) {
	ctx, client := context.Background(), open(t)
	b, here := follow(t)
	rw := client.RW("rw", snib.Owner(7))
	read, write := TraceLock(client.RW("rw").RLocker(), here), TraceLock(rw, here)
	readers := [3]*Hold{}
	for i := range readers { // each links to none, as none has ended
		readers[i] = granted(t, read)
	}
	for _, i := range []int{0, 2, 1} {
		ok(t, readers[i].Unlock(ctx))
	}
	ok(t, read.Do(ctx, nothing))
	ok(t, write.Do(ctx, func(ctx context.Context) error { return TraceLock(rw.RLocker(), here).Do(ctx, nothing) }))
	ok(t, read.Do(ctx, nothing))
	b.expect(t, -1, -1, -1, 1, 3, -1, 4)
}

func TestADowngradeIsLinked(t *testing.T) {
	ctx, client := context.Background(), open(t)
	b, here := follow(t)
	lock := TraceLock(client.RW("rw"), here)
	reading, err := granted(t, lock).Downgrade(ctx)
	ok(t, err)
	ok(t, TraceLock(client.RW("rw").RLocker(), here).Do(ctx, nothing))
	ok(t, reading.Unlock(ctx))
	ok(t, lock.Do(ctx, nothing))
	b.expect(t, -1, 0, 0, 1)
}

func TestAReentryIsNotAfterItself(t *testing.T) {
	ctx := context.Background()
	b, here := follow(t)
	lock := TraceLock(open(t).Reentrant("again", 7), here)
	for range 2 {
		ok(t, lock.Do(ctx, func(ctx context.Context) error { return lock.Do(ctx, nothing) }))
	}
	b.expect(t, -1, -1, 0, -1)
}

func TestALossThatIsNoticedLate(t *testing.T) {
	ctx, client := context.Background(), open(t)
	b, here := follow(t)
	first := granted(t, TraceLock(client.Mutex("a", snib.Lease(time.Second)), here))
	<-first.Lost()
	lock := TraceLock(client.Mutex("a"), here)
	ok(t, lock.Do(ctx, func(ctx context.Context) error {
		if err := first.Unlock(ctx); !errors.Is(err, snib.ErrLost) {
			t.Error(err)
		}
		return nil
	}))
	ok(t, lock.Do(ctx, nothing))
	b.expect(t, -1, 0, 1)
}

func TestPermitsAreLinkedToThoseThatWereGivenBack(t *testing.T) {
	ctx, client := context.Background(), open(t)
	b, here := follow(t)
	permits, semaphore := client.Permits("permits"), client.Semaphore("semaphore")
	_, err := permits.Init(ctx, 2)
	ok(t, err)
	_, err = semaphore.Init(ctx, 2)
	ok(t, err)
	for i, slots := range []snib.Doer{TraceLock(permits, here), TraceDoer(semaphore, here)} {
		ok(t, slots.Do(ctx, func(ctx context.Context) error { return slots.Do(ctx, nothing) }))
		ok(t, slots.Do(ctx, nothing))
		b.expect(t, [][]int{{-1, -1, 0}, {-1, -1, 0, -1, -1, 3}}[i]...)
	}
	ok(t, permits.ForceRelease(ctx))
	ok(t, semaphore.ForceRelease(ctx))
}

func TestFewLocksAreRemembered(t *testing.T) {
	b, _ := follow(t)
	span := trace.SpanFromContext(context.Background())
	begin := func(name string) { chain{key: lockKey{"mutex", name}}.begin(span, nil, name).end() }
	for i := range limit + 1 {
		begin(fmt.Sprint(i))
	}
	begin("1") // was the oldest
	begin("more")
	for name, known := range map[string]bool{"0": false, "1": true, "2": false, "3": true, "more": true} {
		if (holders.find(lockKey{"mutex", name}) != nil) != known {
			t.Error(name)
		}
	}
	if len(holders.last) != limit || holders.order.Len() != limit {
		t.Error(len(holders.last), holders.order.Len())
	}
	b.expect(t)
}

func TestWhatIsNotRecordedIsNotRemembered(t *testing.T) {
	ctx, client := context.Background(), open(t)
	b, here := follow(t)
	dropped := WithTracerProvider(sdk.NewTracerProvider(sdk.WithSampler(sdk.NeverSample())))
	fake := snib.DoerFunc(func(ctx context.Context, work func(context.Context) error) error { return work(ctx) })
	for _, options := range [][]Option{{here}, {dropped}, {}, {here}} {
		ok(t, TraceLock(client.Mutex("a"), options...).Do(ctx, nothing))
		ok(t, TraceDoer(fake, options...).Do(ctx, nothing))
	}
	b.expect(t, -1, -1, 0, -1)
	if len(holders.last) != 1 {
		t.Error(len(holders.last))
	}
}

func TestNamesOfLinksAreThoseOfPython(t *testing.T) {
	source := python(t, "_links.py")
	if !strings.Contains(source, fmt.Sprintf("{%q: %q}", says.Key, says.Value.AsString())) ||
		!strings.Contains(source, fmt.Sprintf("LIMIT = %d ", limit)) {
		t.Error("not the same")
	}
}
