package main

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// The lines of a log; every second word is a time in nanoseconds of CLOCK_MONOTONIC.
//
//	plan    <at> <name> <kind> <number> <lease_ms>       a history: what its name is, how many permits, the lease
//	start   <at> <who>                                   a worker begins
//	ask     <at> <who> <name> <wait_ms>                  a call for the lock begins
//	grant   <at> <who> <name> <hold> <token> <x or r> <owner>      exclusive or shared; the owner on the wire
//	fail    <at> <who> <name> <asked> <code>             or the call ends with this code of snib.h
//	use     <at> <who> <name> <hold> <before> <value> <result> <after>   see counter.go
//	lost    <at> <who> <name> <hold> <checked> <reason>  a check has found the hold lost
//	release <at> <who> <name> <hold> <checked> <asked> <code>      the hold has ended after this call
//	end     <at> <who>                                   a worker has ended
//	delete  <at> <from> <name>                           the lock's key was deleted, as a fault
//	queue   <at> <from> <name> <owner>... or ?           the fair lock's queue was this, or could not be read; with a
//	                                                     question mark before it: an owner that may be passed over; with
//	                                                     a word `!`: so may all have been since the look before
//	wrote   <n> <name> <hold> <token> <value>            the nth write that the protected resource accepted
//	fault   <at> <from> <words>                          what was done to whom: for the reader
//	over    <at> <process>... or -                       the recording has ended; these processes were killed before that
//
// `checked` is when the holder last began a check that found the hold valid: until then it worked under the lock.

// forever is the end of what has no known end.
const forever = math.MaxInt64 / 2

// hold is one acquisition as its holder saw it; times of what did not happen are 0.
type hold struct {
	id, who, name, owner string
	shared               bool
	token                int64
	asked, granted       int64
	waits                bool  // the call was no single try
	checked              int64 // when the last check that found it valid began
	lost, asking, ended  int64 // told of the loss; the release was called, and returned with this code
	reason               string
	code                 int
	used                 *use
}

// call is an attempt that gave no hold.
type call struct {
	who          string
	asked, ended int64
	code         int
	waits        bool // it was no single try
}

// use is what a holder did at the protected resource; see counter.go.
type use struct{ before, value, result, after int64 }

func (h *history) owner(hold string) string {
	if h.owners == nil {
		h.owners = map[string]string{}
		for _, one := range h.holds {
			h.owners[one.id] = one.owner
		}
	}
	return h.owners[hold]
}

type deletion struct{ from, at int64 }

// sample is the queue of a fair lock at a moment between two times, and those in it that may be passed over; unknown if it
// could not be read, unsteady if a subscriber's connection has ended since the sample before.
type sample struct {
	from, at         int64
	owners, doubtful []string
	unknown          bool
	unsteady         bool
}

type write struct {
	hold         string
	token, value int64
}

// history is all that is known of one name.
type history struct {
	name, kind string
	number     int // of permits
	lease      int64
	holds      []*hold
	calls      []call
	deletions  []deletion
	samples    []sample
	writes     []write
	owners     map[string]string
	unended    []string // workers that are missing from some moment on
}

// process is the part of a worker's name that names its process; it begins with the language.
func process(who string) string { p, _, _ := strings.Cut(who, "/"); return p }

func language(who string) string { return strings.TrimRight(process(who), "0123456789") }

// Java's client is Redisson, which knows no deadlines: its worker keeps count of them itself.
func (h *hold) foreign() bool { return language(h.who) == "java" }

// sure is the last moment at which the hold existed beyond doubt.
func (h *hold) sure() int64 {
	if h.checked > h.granted {
		return h.checked
	}
	return h.asked
}

type reader struct {
	histories map[string]*history
	holds     map[string]*hold
	asked     map[string]int64
	waits     map[string]bool
	asking    map[string]string // the name that is asked for
	started   map[string]bool   // and not ended yet
	killed    map[string]bool   // the processes; nil: nothing says that the recording has ended
	last      int64             // when something happened last in a file
}

// killed is the code of a call whose process was killed before the answer.
const killed = -1000

// read takes in all logs of a folder, or one file.
func read(path string) (*reader, error) {
	r := &reader{map[string]*history{}, map[string]*hold{}, map[string]int64{}, map[string]bool{}, map[string]string{},
		map[string]bool{}, nil, 0}
	paths := []string{path}
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if info.IsDir() {
		paths, _ = filepath.Glob(filepath.Join(path, "*.log"))
		sort.SliceStable(paths, func(i, j int) bool { return isPlan(paths[i]) && !isPlan(paths[j]) })
	}
	for _, one := range paths {
		if err := r.file(one); err != nil {
			return nil, fmt.Errorf("%s: %w", one, err)
		}
	}
	if len(r.histories) == 0 {
		return nil, fmt.Errorf("%s: there is no history", path)
	}
	for _, h := range r.holds {
		r.histories[h.name].holds = append(r.histories[h.name].holds, h)
	}
	for _, h := range r.histories {
		sort.Slice(h.holds, func(i, j int) bool { return h.holds[i].granted < h.holds[j].granted })
		sort.Slice(h.samples, func(i, j int) bool { return h.samples[i].from < h.samples[j].from })
	}
	r.missing()
	return r, nil
}

// missing finds the workers that began and did not end, although nobody killed their process: what they did afterwards is not
// in the log.  Which history lacks it may be unknown, so all have it.
func (r *reader) missing() {
	for _, who := range slices.Sorted(maps.Keys(r.started)) {
		if r.killed == nil || r.killed[process(who)] {
			continue
		}
		for _, h := range r.histories {
			h.unended = append(h.unended, who+" began and did not end, and its process was not killed")
		}
	}
}

// isPlan is the log that says which histories there are.
func isPlan(path string) bool { return filepath.Base(path) == "plan.log" }

func (r *reader) file(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewReader(file)
	clear(r.asking)
	for number := 1; ; number++ {
		line, err := lines.ReadString('\n')
		if err == io.EOF { // what has no end of line was being written when its process died
			r.unanswered()
			return nil
		}
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		if err := r.line(words); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
	}
}

// unanswered takes in the attempts of a process that was killed: the server may have granted them.
func (r *reader) unanswered() {
	for who, name := range r.asking {
		h := r.histories[name]
		h.calls = append(h.calls, call{who, r.asked[who], r.last, killed, r.waits[who]})
	}
}

// fewest is the number of words a line has at least.
var fewest = map[string]int{"plan": 6, "ask": 5, "grant": 8, "fail": 6, "use": 9, "lost": 7, "release": 8, "end": 3,
	"delete": 4, "queue": 4, "wrote": 6, "fault": 4, "start": 3, "over": 3}

func (r *reader) line(words []string) (err error) {
	if fewest[words[0]] == 0 || len(words) < fewest[words[0]] {
		return fmt.Errorf("not understood: %s", strings.Join(words, " "))
	}
	number := func(i int) int64 {
		n, bad := strconv.ParseInt(words[i], 10, 64)
		if bad != nil {
			err = fmt.Errorf("%w in: %s", bad, strings.Join(words, " "))
		}
		return n
	}
	named := func(i int) *history {
		if h := r.histories[words[i]]; h != nil {
			return h
		}
		err = fmt.Errorf("a name without a plan: %s", words[i])
		return &history{}
	}
	held := func() *hold {
		if h := r.holds[words[4]]; h != nil {
			return h
		}
		err = fmt.Errorf("a hold without a grant: %s", words[4])
		return &hold{}
	}
	at, who := number(1), words[2]
	r.last = at
	switch words[0] {
	case "plan":
		r.histories[who] = &history{name: who, kind: words[3], number: int(number(4)), lease: number(5) * 1e6}
	case "start":
		r.started[who] = true
	case "end":
		delete(r.started, who)
	case "over":
		r.killed = map[string]bool{}
		for _, process := range words[2:] {
			r.killed[process] = true
		}
	case "ask":
		r.asked[who], r.waits[who], r.asking[who] = at, number(4) > 0, named(3).name
	case "fail":
		h := named(3)
		delete(r.asking, who)
		h.calls = append(h.calls, call{who, number(4), at, int(number(5)), r.waits[who]})
	case "grant":
		delete(r.asking, who)
		r.holds[words[4]] = &hold{id: words[4], who: who, name: named(3).name, token: number(5), asked: r.asked[who],
			waits: r.waits[who], shared: words[6] == "r", owner: words[7], granted: at, checked: at}
	case "use":
		held().used = &use{number(5), number(6), number(7), number(8)}
	case "lost":
		h := held()
		h.checked, h.lost, h.reason = number(5), at, words[6]
	case "release":
		h := held()
		h.checked, h.asking, h.code, h.ended = number(5), number(6), int(number(7)), at
	case "delete":
		h := named(3)
		h.deletions = append(h.deletions, deletion{number(2), at})
	case "queue":
		h := named(3)
		s := sample{from: number(2), at: at, unknown: words[len(words)-1] == "?"}
		for _, owner := range words[4:] {
			if owner == "!" {
				s.unsteady = true
			} else if doubtful, ok := strings.CutPrefix(owner, "?"); ok {
				s.doubtful = append(s.doubtful, doubtful)
			} else {
				s.owners = append(s.owners, owner)
			}
		}
		h.samples = append(h.samples, s)
	case "wrote":
		h := named(2)
		h.writes = append(h.writes, write{words[3], number(4), number(5)})
	}
	return err
}
