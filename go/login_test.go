//go:build cgo

package snib_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	snib "github.com/snib-lock/snib/go"
)

// An issuer issues a new password each time, which invalidates the previous one.
type issuer struct {
	t      *testing.T
	server *server
	valid  time.Duration
	calls  atomic.Int64
	err    atomic.Pointer[error]
	mutex  sync.Mutex
	over   bool
}

func newIssuer(t *testing.T, s *server, valid time.Duration) *issuer {
	i := &issuer{t: t, server: s, valid: valid}
	t.Cleanup(i.end) // before the server ends: a client may ask until it is closed
	return i
}

func (i *issuer) end() {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	i.over = true
}

func (i *issuer) login(context.Context) (snib.Login, error) {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	if i.over {
		return snib.Login{}, errors.New("the test is over")
	}
	number := i.calls.Add(1)
	if err := i.err.Load(); err != nil {
		return snib.Login{}, *err
	}
	password := fmt.Sprint("token-", number)
	i.server.setUser(i.t, password)
	return snib.Login{Username: "app", Password: password, Valid: i.valid}, nil
}

func (s *server) setUser(t testing.TB, password string) {
	s.do(t, "ACL", "SETUSER", "app", "reset", "on", ">"+password, "~*", "&*", "+@all")
}

func TestPasswordFile(t *testing.T) {
	s := startServer(t)
	path := filepath.Join(t.TempDir(), "password")
	write := func(password string) {
		s.setUser(t, password)
		must(t, os.WriteFile(path, []byte(password+"\n"), 0o600))
	}
	write("first")
	client := open(t, s.url(), snib.Credentials("app", ""), snib.PasswordFile(path), snib.WatchdogLease(10*time.Second))
	hold := lock(t, client.Mutex("x"))
	write("second")
	s.do(t, "CLIENT", "KILL", "USER", "app")
	await(t, func() bool { return client.Stats().Reconnects > 0 })
	must(t, hold.Check())
	must(t, hold.Unlock(background))
	must(t, os.Remove(path))
	err := openError(t, s.url(), snib.PasswordFile(path))
	if !errors.Is(err, snib.ErrCredentials) || !strings.Contains(err.Error(), "cannot be read: no such file") &&
		!strings.Contains(err.Error(), "cannot be read: No such file") {
		t.Error(err)
	}
}

func TestLoginBy(t *testing.T) {
	s := startServer(t)
	i := newIssuer(t, s, 0)
	client := open(t, s.url(), snib.LoginBy(i.login), snib.WatchdogLease(10*time.Second))
	hold := lock(t, client.Mutex("x"))
	before := i.calls.Load()
	s.do(t, "CLIENT", "KILL", "USER", "app")
	await(t, func() bool { return client.Stats().Reconnects > 0 })
	if i.calls.Load() <= before {
		t.Error("it was not asked at the second connect")
	}
	must(t, hold.Check())
	must(t, hold.Unlock(background))
	must(t, client.Close())
}

func TestConnectionsLogInAnew(t *testing.T) {
	s := startServer(t)
	i := newIssuer(t, s, time.Second)
	client := open(t, s.url(), snib.LoginBy(i.login))
	hold := lock(t, client.Mutex("x"))
	begun, before := time.Now(), i.calls.Load()
	await(t, func() bool { return i.calls.Load() >= before+4 })
	if time.Since(begun) < 1600*time.Millisecond {
		t.Error("it is asked all the time")
	}
	if n := client.Stats().Reconnects; n != 0 {
		t.Error("connections ended:", n)
	}
	must(t, hold.Check())
	must(t, hold.Unlock(background))
}

func TestLoginThatFails(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	limit := snib.Patience(5 * time.Second)
	var says []string
	var asks []func(context.Context) (snib.Login, error)
	for text, ask := range map[string]func(context.Context) (snib.Login, error){
		"the vault is shut":    func(context.Context) (snib.Login, error) { return snib.Login{}, errors.New("the vault is shut") },
		"no reason was given":  func(context.Context) (snib.Login, error) { return snib.Login{}, errors.New("") },
		"panic: at the disco":  func(context.Context) (snib.Login, error) { panic("at the disco") },
		"there is no password": func(context.Context) (snib.Login, error) { return snib.Login{}, nil },
		"have already expired": func(context.Context) (snib.Login, error) {
			return snib.Login{Password: "canary", Valid: -1}, nil
		},
		"zero byte": func(context.Context) (snib.Login, error) { return snib.Login{Password: "canary\x00"}, nil },
		"too long": func(context.Context) (snib.Login, error) {
			return snib.Login{Password: strings.Repeat("canary", 3000)}, nil
		},
		"no answer in time": func(ctx context.Context) (snib.Login, error) {
			<-ctx.Done()
			return snib.Login{}, ctx.Err()
		},
	} {
		says, asks = append(says, text), append(asks, ask)
	}
	together(len(asks), func(i int) { // each is asked again until the patience ends
		timeout := patience
		if says[i] == "no answer in time" {
			timeout = 200 * time.Millisecond
		}
		err := openError(t, s.url(), snib.LoginBy(asks[i]), limit, snib.ConnectTimeout(timeout))
		if !errors.Is(err, snib.ErrCredentials) || !strings.Contains(fmt.Sprint(err), says[i]) ||
			strings.Contains(fmt.Sprint(err), "canary") {
			t.Errorf("%s: %v", says[i], err)
		}
	})
	i := newIssuer(t, s, 0)
	client := open(t, s.url(), snib.LoginBy(i.login), limit)
	err := errors.New("out")
	i.err.Store(&err)
	s.do(t, "CLIENT", "KILL", "USER", "app")
	expect(t, "ping", client.Ping(background), snib.ErrCredentials)
	i.err.Store(nil)
	must(t, client.Ping(background))
}

func TestLoginIsNotShown(t *testing.T) {
	login := snib.Login{Username: "app", Password: "canary"}
	var log strings.Builder
	for _, handler := range []slog.Handler{slog.NewJSONHandler(&log, nil), slog.NewTextHandler(&log, nil)} {
		for _, value := range []any{login, &login, []snib.Login{login}, map[string]any{"login": login}} {
			slog.New(handler).Info("new", "login", value)
		}
	}
	encoded, err := json.Marshal(login)
	must(t, err)
	texts := []string{log.String(), string(encoded)}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%t"} {
		texts = append(texts, fmt.Sprintf(verb, login), fmt.Sprintf(verb, &login), fmt.Sprintf(verb, []snib.Login{login}))
	}
	for _, text := range texts {
		if strings.Contains(text, "canary") || strings.Contains(text, "63616e617279") || !strings.Contains(text, "app") {
			t.Error(text)
		}
	}
	if text := fmt.Sprintf("%#v", login); text != `snib.Login{Username:"app", Password:"***", Valid:0}` {
		t.Error(text)
	}
	err = openError(t, "redis://host", snib.Credentials("", "canary"), snib.LoginBy(func(context.Context) (snib.Login, error) { return login, nil }))
	expect(t, "two passwords", err, snib.ErrInvalidOption)
}
