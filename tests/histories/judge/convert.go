package main

import (
	"cmp"
	"slices"

	"github.com/anishathalye/porcupine"
)

// timed is an operation with the interval in which it takes effect.
type timed struct {
	operation
	who      string
	from, to int64
}

// operations makes the model's operations of a history.
func (h *history) operations() []timed {
	var all []timed
	dropped := h.handedOn()
	for _, one := range h.holds {
		if dropped[one] {
			continue
		}
		from, to := h.ending(one)
		all = append(all,
			timed{operation{what: acquire, hold: one.id, shared: one.shared, token: one.token}, one.who, one.asked, one.granted},
			timed{operation{what: end, hold: one.id}, one.who, from, max(from, to)})
	}
	for _, d := range h.deletions {
		all = append(all, timed{operation{what: deleted}, "fault", d.from, d.at})
	}
	all = append(all, h.refusals()...)
	if h.kind == "fair" {
		all = h.placed(all)
	}
	slices.SortStableFunc(all, func(a, b timed) int { return cmp.Compare(a.from, b.from) })
	return all
}

// ending is the interval in which a hold ended.
//
// A release that succeeded says that the hold existed until it arrived.  A loss happened after the last check that
// found the hold valid.  If the release's outcome is unknown, it happened by the end of the lease or not at all, which
// ended the hold as well.
func (h *history) ending(one *hold) (from, to int64) {
	switch {
	case one.lost > 0:
		return one.sure(), one.lost
	case one.ended == 0: // its process was killed
		return one.sure(), forever
	case one.code < 0:
		return one.sure(), one.asking + h.lease
	case one.code > 0 || one.foreign(): // Redisson's repeated release does not know what its first attempt found
		return one.sure(), one.ended
	}
	return one.asking, one.ended
}

// handedOn returns the holds that a process may have passed on among its own threads after the key was deleted, until
// its next renewal told it: they are lost from the beginning.
func (h *history) handedOn() map[*hold]bool {
	dropped := map[*hold]bool{}
	for _, d := range h.deletions {
		held := map[string]bool{}
		for _, one := range h.holds {
			if _, to := h.ending(one); one.asked <= d.at && to >= d.from {
				held[process(one.who)] = true
			}
		}
		for _, one := range h.holds {
			if !one.foreign() && (h.kind == "mutex" || h.kind == "rw") && held[process(one.who)] && one.granted > d.from && one.granted <= d.at+h.lease {
				dropped[one] = true
			}
		}
	}
	return dropped
}

// span is a time in which the lock may have been held although the model says that it was free.
type span struct{ from, to int64 }

// doubts are such times: from a grant whose answer did not arrive, from a hold that ended nobody knows when, and from the
// deletion of the key, until all that may have been on its way then has ended.
func (h *history) doubts() []span {
	var all []span
	for _, c := range h.calls {
		if c.code != 1 {
			all = append(all, span{c.asked, c.ended + 10*h.lease})
		}
	}
	for _, one := range h.holds {
		if one.lost > 0 || one.code != 0 || one.ended == 0 || one.foreign() {
			all = append(all, span{one.sure(), min(h.succeeded(one), max(one.lost, one.ended)+10*h.lease)})
		}
	}
	for _, d := range h.deletions {
		all = append(all, span{d.from, d.at + 10*h.lease})
	}
	for dropped := range h.handedOn() {
		all = append(all, span{dropped.asked, dropped.ended + 10*h.lease})
	}
	return all
}

// succeeded is when somebody else certainly had the lock after a hold: then that was over.
func (h *history) succeeded(one *hold) int64 {
	for _, other := range h.holds { // in the order of their grants
		if h.kind != "permits" && other.asked > one.granted && process(other.who) != process(one.who) {
			return other.granted
		}
	}
	return forever
}

// behindOwn tells whether another call of the same process was waiting for the lock: then a client answers a single try by
// itself, from what the server said to the call that waits, whatever it would have said by now.
func (h *history) behindOwn(c call) bool {
	under := func(who string, waits bool, asked, ended int64) bool {
		return who != c.who && waits && process(who) == process(c.who) && asked < c.ended && c.asked < ended
	}
	return slices.ContainsFunc(h.holds, func(o *hold) bool { return under(o.who, o.waits, o.asked, o.granted) }) ||
		slices.ContainsFunc(h.calls, func(o call) bool { return under(o.who, o.waits, o.asked, o.ended) })
}

// refusals are the attempts that were answered "held", without a doubt about what they met.
func (h *history) refusals() []timed {
	if h.kind == "fair" || h.kind == "rw" {
		return nil // a queue and waiting writers refuse as well
	}
	doubts := h.doubts()
	var all []timed
	for _, c := range h.calls {
		if c.code == 1 && language(c.who) != "java" && !h.behindOwn(c) &&
			!slices.ContainsFunc(doubts, func(g span) bool { return g.from < c.ended && c.asked < g.to }) {
			all = append(all, timed{operation{what: busy}, c.who, c.asked, c.ended})
		}
	}
	return all
}

// ---- Places in a fair lock's queue ---------------------------------------------------------------

// gap is how long nobody may look away from a queue: a waiter that could not prove meanwhile that it lives loses its
// place, and may have a new one at once.
const gap = 500e6

// stay is how long a waiter was seen in its place without a gap.
type stay struct {
	ahead              []string
	early, first, sent int64 // it came after `early` and before `first`, and was seen after `sent`
}

// stays finds for each owner its last stay in the queue.
func stays(samples []sample) map[string]*stay {
	last := map[string]*stay{}
	var before *sample
	for i := range samples {
		s := &samples[i]
		if s.unknown {
			before = nil
			continue
		}
		for at, owner := range s.owners {
			seen := last[owner]
			if seen == nil || before == nil || s.at-before.from > gap || !slices.Contains(before.owners, owner) {
				seen = &stay{first: s.at, ahead: s.owners[:at]}
				if before != nil {
					seen.early = before.from
				}
				last[owner] = seen
			}
			seen.sent = s.from
		}
		before = s
	}
	return last
}

// lookedAway tells whether a waiter that was last seen in its place by a look that began at `sent` may have lost it before
// it was granted: a later look did not see it, or there was none for long, or by the next one a subscriber's connection had
// ended.
func (h *history) lookedAway(sent, granted int64) bool {
	for _, s := range h.samples {
		if s.from > sent {
			return s.at <= granted || s.unknown || s.unsteady || min(s.at, granted)-sent > gap
		}
	}
	return granted-sent > gap
}

// placed adds the places that were seen in the queue.  Nobody sees a waiter come or go, so it comes between two samples.
func (h *history) placed(all []timed) []timed {
	seen := stays(h.samples)
	doubtful := map[string]bool{}
	for _, s := range h.samples {
		for _, owner := range s.doubtful {
			doubtful[owner] = true
		}
	}
	byOwner := map[string]*hold{} // those that were seen waiting, and had to be waited for
	for _, one := range h.holds {
		// What is seen only after its grant says nothing.  A look that had begun by then saw it before.
		if s := seen[one.owner]; s != nil && !doubtful[one.owner] && s.sent <= one.granted {
			byOwner[one.owner] = one
		}
	}
	for i := range all {
		o := &all[i]
		if o.what == acquire {
			o.doubtful = doubtful[h.owner(o.hold)]
			_, o.queued = byOwner[h.owner(o.hold)]
		}
	}
	for owner, one := range byOwner {
		s := seen[owner]
		place := operation{what: enqueue, hold: one.id}
		for _, other := range s.ahead {
			// It is in the queue at that moment, unless its last place is a later one.
			if his := byOwner[other]; his != nil && seen[other].first <= s.first {
				place.behind = his.id
			}
		}
		all = append(all,
			timed{place, one.who, max(one.asked, s.early), min(s.first, one.granted)})
		if h.lookedAway(s.sent, one.granted) {
			all = append(all, timed{operation{what: unseen, hold: one.id}, one.who, s.sent, one.granted})
		}
	}
	return all
}

// ---- Porcupine -----------------------------------------------------------------------------------

func porcupines(all []timed) []porcupine.Operation {
	clients := map[string]int{}
	made := make([]porcupine.Operation, len(all))
	for i, o := range all {
		if _, known := clients[o.who]; !known {
			clients[o.who] = len(clients)
		}
		made[i] = porcupine.Operation{ClientId: clients[o.who], Input: o.operation, Call: o.from, Return: o.to}
	}
	return made
}

// until is the part of a history that was known at a time: what had returned, and the ends that had begun.
func until(all []timed, at int64) []timed {
	granted := map[string]bool{}
	for _, o := range all {
		if o.what == acquire && o.to <= at {
			granted[o.hold] = true
		}
	}
	var part []timed
	for _, o := range all {
		switch {
		case (o.what == acquire || o.what == end) && !granted[o.hold]:
			continue
		case o.what == enqueue && o.to > at:
			continue
		case o.to > at && (o.from > at || o.what == busy):
			continue
		case o.to > at:
			o.to = forever
		}
		part = append(part, o)
	}
	return part
}
