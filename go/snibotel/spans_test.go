package snibotel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	snib "github.com/snib-lock/snib/go"
)

// recorder is what ends up in a trace.
type recorder struct {
	*tracetest.SpanRecorder
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

func record() *recorder {
	spans := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans))
	return &recorder{spans, provider, provider.Tracer("test")}
}

func (r *recorder) here() Option { return WithTracerProvider(r.provider) }

// outcomes are the names and outcomes of all spans, in the order in which they have ended, since the last call.
func (r *recorder) outcomes() []string {
	all := []string{}
	for _, span := range r.Ended() {
		all = append(all, span.Name()+" "+attributes(span)["snib.outcome"])
	}
	r.Reset()
	return all
}

func (r *recorder) expect(t *testing.T, want ...string) {
	t.Helper()
	if got := r.outcomes(); !slices.Equal(got, want) {
		t.Errorf("%q instead of %q", got, want)
	}
}

// named returns the last span with a name.
func (r *recorder) named(t *testing.T, name string) sdk.ReadOnlySpan {
	t.Helper()
	for _, span := range slices.Backward(r.Ended()) {
		if span.Name() == name {
			return span
		}
	}
	t.Fatalf("no span %s", name)
	return nil
}

func attributes(span sdk.ReadOnlySpan) map[string]string {
	all := map[string]string{}
	for _, a := range span.Attributes() {
		all[string(a.Key)] = a.Value.Emit()
	}
	return all
}

func same(t *testing.T, span sdk.ReadOnlySpan, want map[string]string) {
	t.Helper()
	if got := attributes(span); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %v instead of %v", span.Name(), got, want)
	}
}

func TestAHoldHasTwoSpans(t *testing.T) {
	r, client := record(), open(t)
	lock := TraceLock(client.Fenced("orders"), r.here())
	ctx, work := r.tracer.Start(context.Background(), "work")
	var owner, token string
	ok(t, lock.Do(ctx, func(ctx context.Context) error {
		_, inside := r.tracer.Start(ctx, "inside")
		inside.End()
		owner, token = snib.HoldFrom(ctx).Owner(), fmt.Sprint(snib.HoldFrom(ctx).Token())
		return nil
	}))
	wait, hold, inside := r.named(t, "snib.wait"), r.named(t, "snib.hold"), r.named(t, "inside")
	same(t, wait, map[string]string{"snib.lock.name": "orders", "snib.lock.kind": "fenced", "snib.outcome": "granted"})
	same(t, hold, map[string]string{"snib.lock.name": "orders", "snib.lock.kind": "fenced", "snib.outcome": "released",
		"snib.lock.owner": owner, "snib.fencing.token": token})
	for _, span := range []sdk.ReadOnlySpan{wait, hold} {
		if span.Parent().SpanID() != work.SpanContext().SpanID() || span.Status().Code != codes.Unset {
			t.Errorf("%s: parent %v, status %v", span.Name(), span.Parent(), span.Status())
		}
		if scope := span.InstrumentationScope(); scope.Name != "snib" || scope.Version != snib.Version() {
			t.Error(scope)
		}
	}
	if inside.Parent().SpanID() != hold.SpanContext().SpanID() || wait.EndTime().After(hold.StartTime()) {
		t.Error("the spans are not in order")
	}
}

// lockers are one of each kind.
func lockers(t *testing.T, client *snib.Client) map[string]snib.Locker {
	ctx := context.Background()
	permits := client.Permits("permits")
	_, err := permits.Init(ctx, 1)
	ok(t, err)
	t.Cleanup(func() { ok(t, client.Permits("permits").ForceRelease(ctx)) })
	rw := client.RW("rw")
	return map[string]snib.Locker{
		"mutex": client.Mutex("mutex"), "fair": client.Fair("fair"), "fenced": client.Fenced("fenced"),
		"spin": client.Spin("spin"), "plain": client.Plain("plain"), "write": rw, "read": rw.RLocker(),
		"multi": snib.Multi(client.Mutex("a"), client.Mutex("b")), "permits": permits,
	}
}

func TestEveryKindAndWay(t *testing.T) {
	ctx := context.Background()
	r := record()
	client, err := snib.Open(ctx, address)
	ok(t, err)
	t.Cleanup(func() { _ = client.Close() })
	for kind, plain := range lockers(t, client) {
		lock := TraceLock(plain, r.here())
		var _ snib.Doer = lock
		ok(t, lock.Do(ctx, func(context.Context) error { return nil }))
		if got := attributes(r.named(t, "snib.hold"))["snib.lock.kind"]; got != kind {
			t.Errorf("kind %q instead of %q", got, kind)
		}
		r.expect(t, "snib.wait granted", "snib.hold released")
		for _, acquire := range []func(context.Context) (*Hold, error){lock.Lock, lock.TryLock} {
			hold, err := acquire(ctx)
			ok(t, err)
			r.expect(t, "snib.wait granted")
			if trace.SpanFromContext(hold.Context(ctx)) != hold.span || snib.HoldFrom(hold.Context(ctx)) != hold.Hold {
				t.Error("the context is not the hold's")
			}
			ok(t, hold.Unlock(ctx))
			r.expect(t, "snib.hold released")
		}
	}
}

func TestDowngrade(t *testing.T) {
	ctx := context.Background()
	r, client := record(), open(t)
	writing, err := TraceLock(client.RW("rw"), r.here()).Lock(ctx)
	ok(t, err)
	reading, err := writing.Downgrade(ctx)
	ok(t, err)
	r.expect(t, "snib.wait granted", "snib.hold released")
	ok(t, reading.Unlock(ctx))
	if kind := attributes(r.named(t, "snib.hold"))["snib.lock.kind"]; kind != "read" {
		t.Error(kind)
	}
	r.expect(t, "snib.hold released")
}

func TestRefusalsAreNoErrors(t *testing.T) {
	ctx := context.Background()
	r, client := record(), open(t)
	holder, err := client.Mutex("a").Lock(ctx)
	ok(t, err)
	lock := TraceLock(client.Mutex("a"), r.here())
	_, err = lock.TryLock(ctx)
	if !errors.Is(err, snib.ErrBusy) {
		t.Error(err)
	}
	brief, end := context.WithTimeout(ctx, 50*time.Millisecond)
	defer end()
	if err := lock.Do(brief, func(context.Context) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := lock.Lock(cancelled); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for _, span := range r.Ended() {
		if span.Status().Code != codes.Unset {
			t.Error(span.Status())
		}
	}
	r.expect(t, "snib.wait busy", "snib.wait timeout", "snib.wait cancelled")
	ok(t, holder.Unlock(ctx))
}

func TestFailures(t *testing.T) {
	ctx := context.Background()
	r, client := record(), open(t)
	if _, err := TraceLock(client.Mutex("a{"), r.here()).Lock(ctx); !errors.Is(err, snib.ErrInvalidName) {
		t.Error(err)
	}
	span := r.named(t, "snib.wait")
	if attributes(span)["error.type"] != "SNIB_ENAME" || span.Status().Code != codes.Error {
		t.Error(attributes(span), span.Status())
	}
	other := errors.New("no such lock")
	fake := snib.DoerFunc(func(context.Context, func(context.Context) error) error { return other })
	if err := TraceDoer(fake, r.here()).Do(ctx, func(context.Context) error { return nil }); err != other {
		t.Error(err)
	}
	same(t, r.named(t, "snib.wait"), map[string]string{"snib.outcome": "error", "error.type": "*errors.errorString"})
	r.expect(t, "snib.wait error", "snib.wait error")
	if err := TraceLock(client.Mutex("a"), r.here()).Do(ctx, nil); !errors.Is(err, snib.ErrInvalidArgument) {
		t.Error(err)
	}
	r.expect(t)
}

func TestALoss(t *testing.T) {
	ctx := context.Background()
	r, client := record(), open(t)
	lock := TraceLock(client.Mutex("a", snib.Lease(time.Second)), r.here())
	hold := granted(t, lock)
	<-hold.Lost()
	if err := hold.Unlock(ctx); !errors.Is(err, snib.ErrLost) {
		t.Error(err)
	}
	if err := hold.Unlock(ctx); err == nil { // the span has ended already
		t.Error("unlocked twice")
	}
	err := lock.Do(ctx, func(ctx context.Context) error {
		<-ctx.Done()
		return context.Cause(ctx)
	})
	for errors.Is(err, snib.ErrUnreachable) { // its lease had ended before it was here
		err = lock.Do(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil })
	}
	if !errors.Is(err, snib.ErrLost) {
		t.Error(err)
	}
	lost := 0
	for _, span := range r.Ended() {
		if span.Name() != "snib.hold" {
			continue
		}
		lost++
		if attributes(span)["snib.loss.reason"] != "expired" || attributes(span)["snib.outcome"] != "lost" ||
			span.Status().Code != codes.Error || span.Status().Description != "lost: expired" {
			t.Error(attributes(span), span.Status())
		}
	}
	if lost != 2 {
		t.Error(lost, "holds")
	}
}

// granted takes a lock with a brief lease, which may end before the grant is here.
func granted(t *testing.T, lock *Lock) *Hold {
	t.Helper()
	for {
		hold, err := lock.Lock(context.Background())
		if !errors.Is(err, snib.ErrUnreachable) {
			ok(t, err)
			return hold
		}
	}
}

// failures is an error that cannot be compared.
type failures []string

func (f failures) Error() string { return fmt.Sprint([]string(f)) }

func TestTheWorkFails(t *testing.T) {
	ctx := context.Background()
	r, client := record(), open(t)
	lock := TraceLock(client.Mutex("a"), r.here())
	for _, failure := range []error{errors.New("of the work"), failures{"a"}, fmt.Errorf("other: %w", snib.ErrLost)} {
		if err := lock.Do(ctx, func(context.Context) error { return failure }); err.Error() != failure.Error() {
			t.Error(err)
		}
		if status := r.named(t, "snib.hold").Status(); status.Code != codes.Unset {
			t.Error(status)
		}
		r.expect(t, "snib.wait granted", "snib.hold released")
	}
	func() {
		defer func() { _ = recover() }()
		_ = lock.Do(ctx, func(context.Context) error { panic("of the work") })
	}()
	r.expect(t, "snib.wait granted", "snib.hold released")
}

// The span is about the release: what the work says may look like a cancelled one, or have a code of its own.
func TestTheWorkAndTheReleaseFail(t *testing.T) {
	ctx := context.Background()
	r := record()
	unreachable := &snib.Error{Code: snib.ErrUnreachable, Text: "no server"}
	for _, c := range []struct {
		work, unlock error
		want         string
	}{
		{context.Canceled, unreachable, "error SNIB_EUNREACHABLE"},
		{&snib.Error{Code: snib.ErrBusy, Text: "of another lock"}, unreachable, "error SNIB_EUNREACHABLE"},
		{failures{"a"}, unreachable, "error SNIB_EUNREACHABLE"},
		{fmt.Errorf("%w; %w", context.Canceled, snib.ErrTimeout), unreachable, "error SNIB_EUNREACHABLE"}, // of a Do inside
		{errors.New("of the work"), snib.ErrCancelled, "cancelled "},
	} {
		lock := snib.DoerFunc(func(ctx context.Context, work func(context.Context) error) error {
			return fmt.Errorf("%w; %w", work(ctx), c.unlock)
		})
		if err := TraceDoer(lock, r.here()).Do(ctx, func(context.Context) error { return c.work }); !errors.Is(err, c.unlock) {
			t.Error(err)
		}
		told := attributes(r.named(t, "snib.hold"))
		if got := told["snib.outcome"] + " " + told["error.type"]; got != c.want {
			t.Errorf("%q instead of %q after %v; %v", got, c.want, c.work, c.unlock)
		}
	}
}

// The same with what Do itself makes of two errors.
func TestTheServerEndsWhileTheWorkFails(t *testing.T) {
	folder, err := os.MkdirTemp("", "snib-otel-")
	ok(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	own, err := serve(folder)
	ok(t, err)
	ctx, r := context.Background(), record()
	client, err := snib.Open(ctx, strings.Replace(own, "patience=30s", "patience=2s", 1))
	ok(t, err)
	t.Cleanup(func() { _ = client.Close() })
	lock := TraceLock(client.Mutex("a"), r.here())
	for ran := false; !ran; { // it was granted in spite of the brief patience
		err = lock.Do(ctx, func(context.Context) error {
			ran = true
			conn, err := net.Dial("unix", filepath.Join(folder, "s"))
			ok(t, err)
			_, err = conn.Write([]byte("SHUTDOWN NOSAVE\r\n"))
			ok(t, err)
			_, _ = conn.Read(make([]byte, 1)) // until it ends
			ok(t, conn.Close())
			return context.Canceled
		})
	}
	if !errors.Is(err, context.Canceled) || !errors.Is(err, snib.ErrUnreachable) {
		t.Error(err)
	}
	told := attributes(r.named(t, "snib.hold"))
	var e *snib.Error // SNIB_ECONNECT, or SNIB_EUNREACHABLE if the release was sent before the end was known
	if !errors.As(err, &e) || told["snib.outcome"] != "error" || told["error.type"] != e.Code.Name() {
		t.Error(told)
	}
}

func TestNobodyWaitsForTheRelease(t *testing.T) {
	r, client := record(), open(t)
	hold, err := TraceLock(client.Mutex("a"), r.here()).Lock(context.Background())
	ok(t, err)
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if err := hold.Unlock(over); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	r.expect(t, "snib.wait granted", "snib.hold cancelled")
}

func TestNestedAndAtTheSameTime(t *testing.T) {
	ctx := context.Background()
	r, client := record(), open(t)
	a, b := TraceLock(client.Mutex("a"), r.here()), TraceLock(client.Mutex("b"), r.here())
	ok(t, a.Do(ctx, func(ctx context.Context) error {
		return b.Do(ctx, func(context.Context) error { return nil })
	}))
	var holds []sdk.ReadOnlySpan
	for _, span := range r.Ended() {
		if span.Name() == "snib.hold" {
			holds = append(holds, span)
		}
	}
	if holds[0].Parent().SpanID() != holds[1].SpanContext().SpanID() || holds[1].Parent().IsValid() {
		t.Error("the inner hold is not within the outer one")
	}
	r.Reset()
	var all sync.WaitGroup
	for range 4 {
		all.Add(1)
		go func() {
			defer all.Done()
			for range 20 {
				if err := a.Do(ctx, func(context.Context) error { return nil }); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	all.Wait()
	if got := len(r.outcomes()); got != 160 {
		t.Error(got, "spans")
	}
}

func TestDoers(t *testing.T) {
	ctx := context.Background()
	r, client := record(), open(t)
	semaphore := client.Semaphore("s")
	_, err := semaphore.Init(ctx, 1)
	ok(t, err)
	ok(t, TraceDoer(semaphore, r.here()).Do(ctx, func(context.Context) error { return nil }))
	if kind := attributes(r.named(t, "snib.hold"))["snib.lock.kind"]; kind != "semaphore" {
		t.Error(kind)
	}
	r.expect(t, "snib.wait granted", "snib.hold released")
	ok(t, semaphore.ForceRelease(ctx))

	name := WithAttributes(attribute.String("snib.lock.name", "fake"))
	lost := snib.DoerFunc(func(ctx context.Context, work func(context.Context) error) error {
		return errors.Join(snib.ErrLost, work(ctx))
	})
	err = TraceLock(client.Mutex("a"), r.here()).Do(ctx, func(ctx context.Context) error {
		return TraceDoer(lost, r.here(), name).Do(ctx, func(context.Context) error { return nil })
	})
	if !errors.Is(err, snib.ErrLost) {
		t.Error(err)
	}
	same(t, r.Ended()[2], map[string]string{"snib.lock.name": "fake", "snib.outcome": "lost", "snib.loss.reason": "unknown"})
	r.expect(t, "snib.wait granted", "snib.wait granted", "snib.hold lost", "snib.hold released")
}

func TestWithoutAProvider(t *testing.T) {
	ctx := context.Background()
	before := runtime.NumGoroutine()
	lock := TraceLock(open(t).Mutex("a"))
	hold, err := lock.Lock(ctx)
	ok(t, err)
	if hold.span.IsRecording() {
		t.Error("it records")
	}
	ok(t, hold.Unlock(ctx))
	if after := runtime.NumGoroutine(); after > before+2 { // the client's own
		t.Error(before, "goroutines, then", after)
	}
}
