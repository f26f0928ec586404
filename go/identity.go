//go:build cgo

package snib

import (
	"context"
	"strconv"
	"strings"
	"time"
)

// An Identity is what the process behind an owner says about itself. Fields that it does not tell are empty.
type Identity struct {
	Host    string
	PID     int
	Program string
	Label   string    // see the option [Label]
	Since   time.Time // when it opened its client, by its clock

	// When the owner acquired its hold, by the same clock, if that is among the 16 oldest of its client.
	HeldSince time.Time

	// With its option [Debug]: where in the program that was, such as "orders.go:31 in pay()", and who did it: a thread or
	// task, or the profiler's labels of a Go context, such as "goroutine job=import" (see [runtime/pprof.Do]).
	HeldAt, HeldBy string

	Losses uint64 // holds that its client has lost since it was opened
}

// Identity asks which process is behind an owner, such as one of [Client.Describe]. It returns nil if that is not known:
// a client tells it once it has held something for a third of its lease, unless it was opened with
// [PublishIdentity](false). Redisson's clients do not.
func (c *Client) Identity(ctx context.Context, owner string) (*Identity, error) {
	e, err := c.run(ctx, false, false, func(token uint64) started {
		return startIdentity(c.handle, owner, c.events.queue, token)
	})
	if err != nil {
		return nil, err
	}
	return newIdentity(e.texts, owner), nil
}

// SetLabel changes what this client says about itself, such as the order that it is working on: at most 128 bytes of UTF-8
// without control characters; "" is none. Those who ask see it at once if the client has told who it is, else when it
// does. The error is [ErrInvalidArgument] for a bad label and [ErrNotSupported] with [PublishIdentity](false); the former
// label stays then.
func (c *Client) SetLabel(label string) error {
	return setClientLabel(c.handle, label)
}

// newIdentity parses the lines from the core; unknown ones, from a newer core, are ignored.
func newIdentity(lines []string, owner string) *Identity {
	var who Identity
	_, owned, _ := strings.Cut(owner, ":")
	for _, line := range lines {
		word, rest, _ := strings.Cut(line, " ")
		number, err := strconv.ParseUint(rest, 10, 63) // anybody may have written it
		if err != nil {
			number = 0
		}
		switch word {
		case "host":
			who.Host = rest
		case "pid":
			who.PID = int(number)
		case "program":
			who.Program = rest
		case "label":
			who.Label = rest
		case "losses":
			who.Losses = number
		case "since":
			if number > 0 {
				who.Since = time.Unix(int64(number), 0)
			}
		case "held":
			held, seconds, _ := strings.Cut(rest, " ")
			number, err := strconv.ParseUint(seconds, 10, 63)
			if held == owned && owned != "" && err == nil && number > 0 {
				who.HeldSince = time.Unix(int64(number), 0)
			}
		case "at", "by":
			held, told, _ := strings.Cut(rest, " ")
			if held != owned || owned == "" || told == "" {
				break
			}
			if word == "at" {
				who.HeldAt = told
			} else {
				who.HeldBy = told
			}
		}
	}
	if who == (Identity{}) {
		return nil
	}
	return &who
}
