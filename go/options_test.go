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

// openError returns the error of Open. Open pings the server, so a valid URL that leads nowhere gives another error.
func openError(t *testing.T, url string, options ...snib.Option) error {
	t.Helper()
	client, err := snib.Open(context.Background(), url, options...)
	if err == nil {
		_ = client.Close()
	}
	return err
}

func TestRefusedURLs(t *testing.T) {
	for url, want := range map[string]struct {
		code snib.Code
		text string
	}{
		"nonsense":                            {snib.ErrInvalidURL, "must begin with"},
		"http://host":                         {snib.ErrInvalidURL, "must begin with"},
		"redis://":                            {snib.ErrInvalidURL, "no host"},
		"redis://u:canary@host:0":             {snib.ErrInvalidURL, "port"},
		"redis://u:canary@::1":                {snib.ErrInvalidURL, "two colons"},
		"redis://u:ca/nary@host":              {snib.ErrInvalidURL, "%2F"},
		"redis://u:canary@a,b":                {snib.ErrInvalidURL, "several hosts"},
		"redis://u:canary@host?x":             {snib.ErrInvalidURL, "name=value"},
		"redis://u:canary@host?password=x":    {snib.ErrInvalidURL, "password twice"},
		"redis+sentinel://u:canary@a,b":       {snib.ErrInvalidURL, "service's name"},
		"redis+cluster://u:canary@a,b/1":      {snib.ErrInvalidURL, "database but 0"},
		"redis://u:canary@host?colour=blue":   {snib.ErrInvalidOption, "no option colour"},
		"redis://u:canary@host?patience=soon": {snib.ErrInvalidOption, "patience is not a time"},
		"redis://u:canary@host?recheck=1h":    {snib.ErrInvalidOption, "use 50ms to 1m"},
		"redis://u:canary@host?lease=1ms":     {snib.ErrInvalidLease, "100 ms to 24 hours"},
		"redis://u:canary@host?tls_ca=/ca":    {snib.ErrInvalidOption, "rediss://"},
		"redis://host\x00":                    {snib.ErrInvalidURL, "the URL has a NUL"},
		"\x00":                                {snib.ErrInvalidURL, "the URL has a NUL"},
	} {
		err := openError(t, url)
		if !errors.Is(err, want.code) || !strings.Contains(err.Error(), want.text) || strings.Contains(err.Error(), "nary") {
			t.Errorf("%q: %v", url, err)
		}
	}
}

func TestBadClientOptions(t *testing.T) {
	for name, option := range map[string]snib.Option{
		"connect_timeout": snib.ConnectTimeout(0), "reply_timeout": snib.ReplyTimeout(time.Microsecond),
		"patience": snib.Patience(-time.Second), "try_timeout": snib.TryTimeout(25 * time.Hour),
		"recheck": snib.Recheck(time.Hour), "max_hold": snib.DefaultMaxHold(0),
		"handover_max": snib.Handovers(-2), "waiters_max": snib.Waiters(0),
		"tls_ca": snib.TLSCA(""), "tls_server_name": snib.TLSServerName(""), "password_file": snib.PasswordFile(""), "label": snib.Label(""),
	} {
		err := openError(t, "redis://host", option)
		if !errors.Is(err, snib.ErrInvalidOption) || !strings.Contains(err.Error(), "the option "+name+" ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := openError(t, "redis://host", snib.WatchdogLease(0)); !errors.Is(err, snib.ErrInvalidLease) {
		t.Error(err)
	}
}

func TestOptionsOfTheURL(t *testing.T) {
	s := startServer(t)
	for _, query := range []string{"?lease=5s&max_hold=none&handover_max=0&db=0", "?password=&", "?lease=1.5"} {
		err := openError(t, s.url()+query)
		if wrong := strings.Contains(query, "password"); wrong != errors.Is(err, snib.ErrInvalidURL) || !wrong && err != nil {
			t.Errorf("%s: %v", query, err)
		}
	}
	// A given option takes precedence over the URL's, even to switch something off.
	if err := openError(t, s.url()+"?max_hold=10s&patience=1ms", snib.DefaultMaxHold(-1), snib.Patience(time.Minute), snib.Handovers(0)); err != nil {
		t.Error(err)
	}
}

func TestEnvironment(t *testing.T) {
	s := startServer(t)
	t.Setenv("SNIB_URL", s.url())
	if err := openError(t, ""); err != nil {
		t.Error(err)
	}
	t.Setenv("SNIB_PASSWORD", "canary")
	if err := openError(t, ""); !errors.Is(err, snib.ErrAuth) || strings.Contains(err.Error(), "canary") {
		t.Error(err)
	}
	if err := openError(t, s.url()); err != nil {
		t.Error("SNIB_PASSWORD belongs to SNIB_URL:", err)
	}
	t.Setenv("SNIB_URL", "redis://host:0")
	if err := openError(t, ""); !errors.Is(err, snib.ErrInvalidURL) || !strings.Contains(err.Error(), "SNIB_URL: ") {
		t.Error(err)
	}
}
