//go:build cgo

package snib_test

import (
	"log/slog"
	"testing"

	snib "github.com/snib-lock/snib/go"
)

// option makes a client log here.
func (l logged) option() snib.Option {
	return snib.Logger(slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug})))
}

func TestLogOfALoss(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	log := newLogged()
	client := open(t, s.url(), log.option(), snib.WatchdogLease(renewed))
	log.until(t, "INFO", "connected", client.ID())
	hold := lock(t, client.Mutex("gone"))
	s.do(t, "DEL", "gone")
	log.until(t, "WARN", `lock \"gone\" was lost: deleted`)
	<-hold.Lost()
}

// Without the option warnings go to slog's default logger, and Logger(nil) means silence.
func TestDefaultLog(t *testing.T) {
	s := startServer(t)
	log := newLogged()
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
	defer slog.SetDefault(before)
	silent, client := open(t, s.url(), snib.Logger(nil)), open(t, s.url())
	lose := func(client *snib.Client) {
		hold := brief(t, client.Mutex("closed", snib.Lease(100_000_000)))
		<-hold.Lost()
	}
	lose(silent)
	must(t, silent.Close())
	lose(client)
	must(t, client.Close())
	log.until(t, "WARN", client.ID())
	for len(log.lines) > 0 {
		t.Errorf("one more: %s", <-log.lines)
	}
}

// A handler may use the client, and even close it.
func TestHandlerThatCloses(t *testing.T) {
	s := startServer(t)
	log := newLogged()
	closed := make(chan error, 10)
	var client *snib.Client
	opened := make(chan struct{})
	handler := slog.NewTextHandler(log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.LevelKey && a.Value.Any() == slog.LevelWarn {
			<-opened
			_, err := client.Mutex("from the handler").TryLock(background)
			closed <- err
			closed <- client.Close()
		}
		return a
	}})
	client = open(t, s.url(), snib.Logger(slog.New(handler)))
	close(opened)
	<-brief(t, client.Mutex("short", snib.Lease(100_000_000))).Lost()
	must(t, soon(t, closed))
	must(t, soon(t, closed))
	s.clean(t)
}
