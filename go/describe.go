//go:build cgo

package snib

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"
)

// A Description is everything the server knows about a name. Fields that the kind does not have are 0 or empty.
type Description struct {
	Kind      string   // free, mutex, fair, read, write, plain, permits, counter or other
	Holders   []Holder // of a mutex, fair, write or plain lock
	Readers   []Holder
	Permits   []Holder // those that are held; the owner is the permit's id
	Waiters   []Holder // of a fair lock, in order; Remaining is until the place in the queue ends
	Token     int64    // the last fencing token issued
	Available int64    // free permits
	Total     int64    // permits held and free together
	Count     int64    // of a semaphore or a latch
	Waiting   int64    // subscribed processes, or in a fair lock's queue; -1 unknown
	More      int64    // entries that are not shown
}

// A Holder is an owner that holds a lock, or waits for it.
type Holder struct {
	Owner     string
	Remaining time.Duration // negative if there is no lease
	Count     int64
}

// Describe asks the server for everything it knows about a name, whatever the kind of lock.
func (c *Client) Describe(ctx context.Context, name string) (Description, error) {
	e, err := c.run(ctx, false, false, func(token uint64) started {
		return startDescribe(c.handle, name, c.events.queue, token)
	})
	if err != nil {
		var told *Error
		if errors.As(err, &told) {
			told.Name = name
		}
		return Description{}, err
	}
	var d Description
	for _, line := range e.texts {
		d.add(strings.Fields(line))
	}
	return d, nil
}

// add parses one line from the core; unknown lines, from a newer core, are ignored.
func (d *Description) add(words []string) {
	if len(words) < 2 {
		return
	}
	numbers := map[string]*int64{"token": &d.Token, "available": &d.Available, "total": &d.Total,
		"count": &d.Count, "waiting": &d.Waiting, "more": &d.More}
	lists := map[string]*[]Holder{"holder": &d.Holders, "reader": &d.Readers, "permit": &d.Permits,
		"waiter": &d.Waiters}
	if words[0] == "kind" {
		d.Kind = words[1]
	} else if number, known := numbers[words[0]]; known {
		*number = whole(words, 1)
	} else if list, known := lists[words[0]]; known {
		*list = append(*list, Holder{Owner: words[1], Remaining: millis(whole(words, 2)), Count: whole(words, 3)})
	}
}

// whole returns the number at an index, 0 if there is none.
func whole(words []string, at int) int64 {
	if at >= len(words) {
		return 0
	}
	n, _ := strconv.ParseInt(words[at], 10, 64)
	return n
}
