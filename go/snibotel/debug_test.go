package snibotel_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	snib "github.com/snib-lock/snib/go"
	"github.com/snib-lock/snib/go/snibotel"
)

// lines collects what is written by one goroutine and read by another.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

// A warning of the option Debug names places in the program, not in this package.
func TestDebugNamesTheProgram(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, out := context.Background(), new(lines)
	client, err := snib.Open(ctx, snibotel.Address(), snib.Debug(true), snib.Logger(slog.New(slog.NewTextHandler(out, nil))))
	must(err)
	// A mistake is told once in a process, and the test may run several times in one.
	lock := func(name string) snib.Doer { return snibotel.TraceLock(client.Mutex(name + client.ID())) }
	done := func(context.Context) error { return nil }
	kept, err := snibotel.TraceLock(client.Mutex("kept" + client.ID())).Lock(ctx)
	must(err)
	for _, names := range [][]string{{"one", "two"}, {"two", "one"}} {
		must(lock(names[0]).Do(ctx, func(ctx context.Context) error { return lock(names[1]).Do(ctx, done) }))
	}
	must(client.Close()) // after which the log is complete
	if err := kept.Unlock(ctx); !errors.Is(err, snib.ErrLost) {
		t.Error(err)
	}
	for _, says := range []string{"lock order", "is still held when its client is closed"} {
		if !strings.Contains(out.text.String(), says) {
			t.Error("not said:", says)
		}
	}
	for place := range strings.FieldsSeq(out.text.String()) {
		if strings.Contains(place, ".go:") && !strings.Contains(place, "debug_test.go:") {
			t.Error(place)
		}
	}
}
