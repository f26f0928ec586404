//go:build cgo

package snib_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	snib "github.com/snib-lock/snib/go"
)

// A hold gets another lease: a fixed one, the client's again, and no shorter one.
func TestExtend(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url(), snib.WatchdogLease(20*time.Second))
	for _, lock := range []snib.Locker{client.Mutex("m"), client.Fair("f"), client.RW("rw"),
		client.RW("rw").RLocker(), client.Plain("p"), snib.Multi(client.Mutex("a"), client.Mutex("b"))} {
		hold, err := lock.Lock(background)
		must(t, err)
		must(t, hold.Extend(background, time.Hour))
		if left := hold.Remaining(); left < 50*time.Minute {
			t.Error(left)
		}
		must(t, hold.Extend(background, time.Second))
		if left := hold.Remaining(); left < 50*time.Minute {
			t.Error(left)
		}
		must(t, hold.Extend(background, 0))
		if left := hold.Remaining(); left > 20*time.Second {
			t.Error(left)
		}
		must(t, hold.Unlock(background))
		if err := hold.Extend(background, time.Hour); !errors.Is(err, snib.ErrNotHeld) {
			t.Error(err)
		}
	}
	must(t, client.Close())
}

func TestExtendRefused(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url())
	mutex := client.Mutex("m")
	hold, err := mutex.Lock(background)
	must(t, err)
	for _, lease := range []time.Duration{-time.Second, 1, time.Millisecond, 25 * time.Hour} {
		if err := hold.Extend(background, lease); !errors.Is(err, snib.ErrInvalidLease) {
			t.Errorf("%v: %v", lease, err)
		}
	}
	ended, end := context.WithCancel(background)
	end()
	if err := hold.Extend(ended, time.Hour); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	s.do(t, "DEL", "m")
	var e *snib.Error
	if err := hold.Extend(background, time.Hour); !errors.As(err, &e) || e.Reason != snib.ReasonDeleted {
		t.Error(err)
	}
	<-hold.Lost()
	if err := hold.Unlock(background); !errors.Is(err, snib.ErrLost) {
		t.Error(err)
	}
	semaphore := client.Semaphore("s")
	_, err = semaphore.Init(background, 1)
	must(t, err)
	permit, err := semaphore.Acquire(background, 1)
	must(t, err)
	if err := permit.Extend(background, time.Hour); !errors.Is(err, snib.ErrNotSupported) ||
		!strings.Contains(err.Error(), `"s"`) {
		t.Error(err)
	}
	must(t, permit.Unlock(background))
	var unmade snib.Hold
	if err := unmade.Extend(background, time.Hour); !errors.Is(err, snib.ErrNotHeld) {
		t.Error(err)
	}
	must(t, client.Close())
}
