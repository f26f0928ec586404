package main

import (
	"fmt"
	"slices"
)

// The second oracle knows no model of a lock.  Each holder reads a counter at a resource, works, and writes the number
// plus one.  The resource notes the writes that it accepts: one that does not write the next number has overwritten an
// update that it had not seen.
//
// With tokens the resource refuses what comes with a smaller token than it has seen, from readers too: then no update
// is ever lost, even if holders are paused between their check and their write.  Without tokens no update is lost
// unless one of the two holders had lost its lock by then; each checks before it reads, before it writes and after it
// has written, and the times of the first and the last check are `before` and `after`: 0 if they found the hold lost.
//
// A reader reads twice; if its hold was valid throughout, no valid writer has written in between.

// lostUpdates returns a sentence for each violation.
func (h *history) lostUpdates() []string {
	var found []string
	holds := map[string]*hold{}
	for _, one := range h.holds {
		holds[one.id] = one
	}
	believed := func(id string) bool {
		one := holds[id]
		return one != nil && one.used != nil && one.used.before > 0 && one.used.after > 0 && !h.excused(one)
	}
	last := int64(0)
	for i, w := range h.writes {
		if w.value == last+1 {
			last = w.value
			continue
		}
		for _, earlier := range h.writes[:i] {
			if earlier.value < w.value || h.kind != "fenced" && !(believed(w.hold) && believed(earlier.hold)) {
				continue
			}
			found = append(found, fmt.Sprintf("%s wrote %d with token %d after %s had written %d with token %d: an update is lost",
				w.hold, w.value, w.token, earlier.hold, earlier.value, earlier.token))
			break
		}
		last = w.value
	}
	return append(found, h.tornReads(believed)...)
}

func (h *history) tornReads(believed func(string) bool) []string {
	var found []string
	for _, one := range h.holds {
		if !one.shared || !believed(one.id) || one.used.value == one.used.result {
			continue
		}
		for _, w := range h.writes {
			if w.value > one.used.value && w.value <= one.used.result && believed(w.hold) {
				found = append(found, fmt.Sprintf("%s read %d and then %d, which %s wrote meanwhile",
					one.id, one.used.value, one.used.result, w.hold))
				break
			}
		}
	}
	return found
}

// excused is a hold that a deletion of the key may have taken away before the holder could know.
func (h *history) excused(one *hold) bool {
	for _, d := range h.deletions {
		if one.asked <= d.at+h.lease && (one.ended == 0 || one.ended >= d.from) {
			return true
		}
	}
	return false
}

// late returns the holds that were believed for more than a lease after their key had been deleted, and those that
// came back after they were lost.
func (h *history) late() []string {
	var found []string
	for _, one := range h.holds {
		for _, d := range h.deletions {
			if one.granted < d.from && one.checked > d.at+h.lease {
				found = append(found, fmt.Sprintf("%s was found valid %d ms after its key was deleted; the lease is %d ms",
					one.id, (one.checked-d.at)/1e6, h.lease/1e6))
			}
		}
		switch {
		case one.lost > 0 && one.code == 0 && one.ended > 0 && !one.foreign():
			found = append(found, one.id+" was lost, and then released all the same")
		case one.used != nil && one.lost > 0 && one.used.after > one.lost:
			found = append(found, one.id+" was lost, and then found valid")
		case one.code == 6:
			found = append(found, one.id+" was released twice")
		}
	}
	return found
}

// unfounded returns the losses that nothing can have caused.  A client that says that the server does not know the hold, or
// knows another one, needs a server where that was so: somebody has deleted the key, somebody else was granted the lock, or
// the lease had ended.  One that says that the lease has ended, or could not be renewed in time, needs no more than the time,
// but that; and a loss that only the release has told is one like these.  Nobody sees renewals, so only the first lease is
// judged.  The shortest one is a fixed one, four fifths of the other, and the clients' margin is less than a twentieth of it.
func (h *history) unfounded() []string {
	var found []string
	for _, one := range h.holds {
		told, reason := one.lost, one.reason
		if told == 0 && one.code == 4 && one.ended > 0 && !one.foreign() {
			told, reason = one.ended, "missing at its release"
		}
		early := told < one.asked+h.lease*3/4
		caused := true
		switch reason {
		case "none", "unknown":
			found = append(found, one.id+" was lost without a reason")
		case "taken", "deleted":
			caused = h.taken(one, told)
		case "expired", "unreachable":
			caused = h.inherited(one)
		case "missing at its release":
			// Redisson's readers may shorten the lease of others.
			caused = h.deleted(one, told) || h.inherited(one) || h.kind == "rw" && h.taken(one, told)
		}
		if early && !caused {
			found = append(found, fmt.Sprintf("%s was lost as %s %d ms after it was asked for, and nobody has done that",
				one.id, reason, (told-one.asked)/1e6))
		}
	}
	return found
}

func (h *history) deleted(one *hold, told int64) bool {
	return slices.ContainsFunc(h.deletions, func(d deletion) bool { return d.from <= told && d.at >= one.asked })
}

// inherited tells whether another thread of the process may have passed the lock on to a hold, with what was left of its lease,
// and with what had happened to it before.
func (h *history) inherited(one *hold) bool {
	return slices.ContainsFunc(h.holds, func(o *hold) bool {
		return o != one && process(o.who) == process(one.who) && o.granted <= one.granted && (o.ended == 0 || o.ended >= one.asked)
	})
}

// taken tells whether a server may not have known a hold before the end of its lease.
func (h *history) taken(one *hold, told int64) bool {
	return h.deleted(one, told) || h.inherited(one) || slices.ContainsFunc(h.holds, func(o *hold) bool {
		return o != one && o.asked <= told && o.granted >= one.asked
	})
}
