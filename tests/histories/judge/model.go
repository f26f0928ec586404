package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// The operations of the model.  All have an interval in which they take effect at one moment.
const (
	acquire = iota // a grant: the lock must be free for it
	end            // a release or a loss: the hold must exist until then
	deleted        // the key was deleted: nobody holds the lock any more, but the holders do not know it
	enqueue        // a waiter takes its place in a fair lock's queue, behind the one that is seen before it
	unseen         // from here on nobody has seen the waiter in its place: it may have lost it
	busy           // an attempt was refused because the lock was held
)

type operation struct {
	what   int
	hold   string
	shared bool
	token  int64
	// A fair lock's: whether its waiter was seen in the queue, whether it might be passed over at any time, and behind which
	// other one it was seen.
	queued, doubtful bool
	behind           string
}

// state is a value, so that equal states compare equal; its lists are texts of ids, each ended by a comma.
type state struct {
	holders, orphans, queue, strays string
	shared                          bool
	token                           int64
}

func has(list, id string) bool      { return strings.Contains(","+list, ","+id+",") }
func count(list string) int         { return strings.Count(list, ",") }
func with(list, id string) string   { return list + id + "," }
func sorted(list, id string) string { return set(append(split(list), id)) }

func split(list string) []string {
	return strings.FieldsFunc(list, func(c rune) bool { return c == ',' })
}

func set(ids []string) string {
	slices.Sort(ids)
	return strings.Join(ids, ",") + strings.Repeat(",", min(len(ids), 1))
}

func without(list, id string) string {
	return strings.TrimPrefix(strings.Replace(","+list, ","+id+",", ",", 1), ",")
}

// grant gives the lock to an owner, if that is allowed.
func grant(h *history, s state, o operation) (bool, state) {
	switch {
	case h.kind == "permits":
		if count(s.holders) >= h.number {
			return false, s
		}
	case s.holders != "" && (!o.shared || !s.shared):
		return false, s
	}
	if h.kind == "fair" {
		switch {
		case o.doubtful: // whatever its turn was, nobody waits for it
		case !o.queued: // it came and found nobody before it
			if s.queue != "" {
				return false, s
			}
		case has(s.strays, o.hold):
			s.strays = without(s.strays, o.hold)
		case strings.HasPrefix(s.queue, o.hold+","):
			s.queue = without(s.queue, o.hold)
		default:
			return false, s
		}
	}
	if h.kind == "fenced" {
		if o.token <= s.token {
			return false, s
		}
		s.token = o.token
	}
	s.holders, s.shared = sorted(s.holders, o.hold), o.shared
	return true, s
}

func step(h *history, s state, o operation) (bool, state) {
	switch o.what {
	case acquire:
		return grant(h, s, o)
	case end:
		switch {
		case has(s.holders, o.hold):
			s.holders = without(s.holders, o.hold)
		case has(s.orphans, o.hold):
			s.orphans = without(s.orphans, o.hold)
		default:
			return false, s
		}
	case deleted:
		s.orphans = set(append(split(s.orphans), split(s.holders)...))
		s.holders = ""
	case enqueue:
		if o.behind != "" && !has(s.queue, o.behind) {
			return false, s
		}
		s.queue = with(s.queue, o.hold)
	case unseen:
		if has(s.queue, o.hold) {
			s.queue, s.strays = without(s.queue, o.hold), sorted(s.strays, o.hold)
		}
	case busy:
		return h.kind == "permits" && count(s.holders) >= h.number || h.kind != "permits" && s.holders != "", s
	}
	return true, s
}

// model is Porcupine's form of it.
func model(h *history) porcupine.Model {
	return porcupine.Model{
		Init:              func() any { return state{} },
		Step:              func(s, in, _ any) (bool, any) { return step(h, s.(state), in.(operation)) },
		DescribeOperation: func(in, _ any) string { return in.(operation).String() },
		DescribeState: func(s any) string {
			t := s.(state)
			text := "free"
			if t.holders != "" {
				text = "held by " + strings.TrimSuffix(t.holders, ",")
			}
			for _, more := range []struct{ word, list string }{
				{"lost by deletion", t.orphans}, {"queue", t.queue}, {"strays", t.strays}} {
				if more.list != "" {
					text += "; " + more.word + " " + strings.TrimSuffix(more.list, ",")
				}
			}
			if h.kind == "fenced" {
				text += fmt.Sprint("; token ", t.token)
			}
			return text
		},
	}
}

func (o operation) String() string {
	switch o.what {
	case acquire:
		text := "granted"
		if o.shared {
			text = "granted to read"
		}
		if o.token > 0 {
			text += fmt.Sprint(", token ", o.token)
		}
		return o.hold + " " + text
	case end:
		return o.hold + " ends"
	case deleted:
		return "the key is deleted"
	case enqueue:
		return strings.TrimSpace(o.hold + " queues behind " + o.behind)
	case unseen:
		return o.hold + " is no longer seen in the queue"
	}
	return "refused: held"
}
