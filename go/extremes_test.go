//go:build cgo

package snib_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	snib "github.com/snib-lock/snib/go"
)

// A deadline may be as far away as a Duration can say, or farther.
func TestFarDeadline(t *testing.T) {
	t.Parallel()
	client := open(t, startServer(t).url())
	mutex := client.Mutex("far")
	far, cancel := context.WithDeadline(background, time.Now().AddDate(1000, 0, 0))
	defer cancel()
	longest, cancel := context.WithTimeout(background, math.MaxInt64)
	defer cancel()
	for _, ctx := range []context.Context{far, longest} {
		hold := lock(t, mutex)
		waiter := make(chan error, 1)
		go func() {
			hold, err := mutex.Lock(ctx)
			if err == nil {
				err = hold.Unlock(background)
			}
			waiter <- err
		}()
		brief, cancel := context.WithTimeout(background, 200*time.Millisecond)
		_, err := mutex.Lock(brief)
		expect(t, "a brief wait", err, snib.ErrTimeout)
		cancel()
		must(t, hold.Unlock(background))
		must(t, soon(t, waiter))
	}
}

// A client can be closed with any time limit, and ends what waits.
func TestCloseTimeoutOfAnyLength(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	for _, limit := range []time.Duration{math.MinInt64, -1, 0, 1, 25 * time.Hour, math.MaxInt64} {
		client := open(t, s.url())
		hold := lock(t, client.Mutex("close"))
		waiter := make(chan error, 1)
		go func() {
			_, err := client.Mutex("close").Lock(background)
			waiter <- err
		}()
		await(t, func() bool { return client.Stats().Waiting > 0 })
		closed := make(chan error, 1)
		go func() { closed <- client.CloseTimeout(limit) }()
		if err := soon(t, closed); err != nil && !errors.Is(err, snib.ErrTimeout) || err != nil && limit > time.Second {
			t.Errorf("%v: %v", limit, err)
		}
		expect(t, "the waiter", soon(t, waiter), snib.ErrClosed)
		expect(t, "the hold", hold.Check(), snib.ErrLost)
		s.do(t, "DEL", "close")
	}
}

// The longest hold is one that is allowed, none, or refused: such as the rest of a time that is over.
func TestMaxHoldOfAnyLength(t *testing.T) {
	client := open(t, startServer(t).url(), snib.DefaultMaxHold(time.Hour))
	for _, d := range []time.Duration{math.MinInt64, -time.Hour, -time.Millisecond, -2, 0, 1, math.MaxInt64} {
		_, err := client.Mutex("max", snib.MaxHold(d)).TryLock(background)
		expect(t, fmt.Sprint(int64(d)), err, snib.ErrInvalidOption)
	}
	for _, d := range []time.Duration{-1, time.Minute} {
		hold, err := client.Mutex("max", snib.MaxHold(d)).TryLock(background)
		must(t, err)
		must(t, hold.Unlock(background))
	}
}

// What a client was stays known after its Close, for a log.
func TestIDAfterClose(t *testing.T) {
	client := open(t, startServer(t).url())
	id := client.ID()
	must(t, client.Close())
	if client.ID() != id || len(id) != 36 {
		t.Errorf("%q was %q", client.ID(), id)
	}
}

// A call that panics because it has no context changes nothing.
func TestNoContext(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url())
	hold := lock(t, client.Mutex("nil"))
	work := hold.Context(background)
	for name, call := range map[string]func(){
		"Lock":    func() { _, _ = client.Mutex("nil").Lock(nil) },    //nolint:staticcheck
		"TryLock": func() { _, _ = client.Mutex("nil").TryLock(nil) }, //nolint:staticcheck
		"Extend":  func() { _ = hold.Extend(nil, time.Second) },       //nolint:staticcheck
		"Unlock":  func() { _ = hold.Unlock(nil) },                    //nolint:staticcheck
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error(name, "does not panic")
				}
			}()
			call()
		}()
	}
	must(t, hold.Check())
	must(t, work.Err())
	must(t, hold.Unlock(background))
	s.clean(t)
}

// To unlock with the context of the work is to unlock with one that has ended.
func TestUnlockWithItsOwnContext(t *testing.T) {
	s := startServer(t)
	hold := lock(t, open(t, s.url()).Mutex("own"))
	if err := hold.Unlock(hold.Context(background)); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "in the background") {
		t.Error(err)
	}
	s.clean(t)
}

// The error of a lock is not changed by a group that has the lock as a member.
func TestMemberKeepsItsError(t *testing.T) {
	client := open(t, startServer(t).url())
	bad := client.Mutex("")
	_, before := bad.TryLock(background)
	expect(t, "the member", before, snib.ErrInvalidName)
	said := *before.(*snib.Error)
	together(4, func(int) {
		_, err := snib.Multi(client.Mutex("good"), bad).TryLock(background)
		expect(t, "the group", err, snib.ErrInvalidName)
	})
	_, after := bad.TryLock(background)
	if now := *after.(*snib.Error); now.Name != said.Name || now.Kind != said.Kind || now.Text != said.Text {
		t.Errorf("%+v was %+v", now, said)
	}
}

// A function for credentials may end its goroutine, as t.FailNow does.
func TestLoginThatEndsItsGoroutine(t *testing.T) {
	t.Parallel()
	ask := func(context.Context) (snib.Login, error) {
		runtime.Goexit()
		return snib.Login{}, nil
	}
	err := openError(t, startServer(t).url(), snib.LoginBy(ask), snib.Patience(5*time.Second))
	expect(t, "open", err, snib.ErrCredentials)
	if text := err.Error(); strings.Contains(text, "panic") || !strings.Contains(text, "Goexit") {
		t.Error(text)
	}
}

// An error of a function for credentials may be a nil pointer, whose text cannot be asked for.
func TestLoginWithAnErrorThatPanics(t *testing.T) {
	t.Parallel()
	ask := func(context.Context) (snib.Login, error) {
		var none *snib.Error
		return snib.Login{}, none
	}
	err := openError(t, startServer(t).url(), snib.LoginBy(ask), snib.Patience(5*time.Second))
	expect(t, "open", err, snib.ErrCredentials)
}

// The goroutine of the work may end without a return.
func TestWorkThatEndsItsGoroutine(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = client.Mutex("exit").Do(background, func(context.Context) error {
			runtime.Goexit()
			return nil
		})
	}()
	soon(t, ended)
	s.clean(t)
}
