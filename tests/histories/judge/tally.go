package main

// tally counts what was recorded, and how much of it there was to judge: a check that never met its case has proved nothing.
type tally struct {
	Histories  int            `json:"histories"`
	Operations map[string]int `json:"operations"` // by language: calls for the lock, and ends of holds
	Lost       map[string]int `json:"lost"`       // by reason
	Died       int            `json:"died"`       // holds whose process was killed
	Deleted    int            `json:"deleted"`    // of a key
	Unknown    int            `json:"unknown"`    // calls without an answer
	Refusals   int            `json:"refusals"`   // "held", where nothing else explains it
	Updates    int            `json:"updates"`    // writes of holders that were valid before and afterwards
	Stale      int            `json:"stale"`      // writes that the resource refused, because of their tokens
	Places     int            `json:"places"`     // waiters seen in a queue until their grant
}

func (t *tally) add(h *history) {
	if t.Operations == nil {
		t.Operations, t.Lost = map[string]int{}, map[string]int{}
	}
	t.Histories++
	for _, c := range h.calls {
		t.Operations[language(c.who)]++
		if c.code < 0 {
			t.Unknown++
		}
	}
	for _, one := range h.holds {
		t.hold(h, one)
	}
	t.Deleted += len(h.deletions)
	for _, o := range h.operations() {
		switch {
		case o.what == busy:
			t.Refusals++
		case o.what == acquire && o.queued:
			t.Places++
		case o.what == unseen:
			t.Places--
		}
	}
}

func (t *tally) hold(h *history, one *hold) {
	t.Operations[language(one.who)] += 2
	switch {
	case one.lost > 0:
		t.Lost[one.reason]++
	case one.ended == 0:
		t.Died++
	case one.code == 4:
		t.Lost["at_release"]++
	}
	if u := one.used; u != nil && !one.shared {
		if u.before > 0 && u.after > 0 && u.result > 0 && !h.excused(one) {
			t.Updates++
		}
		if u.value >= 0 && u.result < 0 && one.token > 0 {
			t.Stale++
		}
	}
}
