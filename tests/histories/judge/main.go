// Judges recorded histories of locks: judge [-limit 10m] [-html FOLDER] [-counts FILE] FOLDER|FILE...
//
// Each argument is a folder of logs (see log.go) or one file.  Porcupine looks for an order of the operations of each
// name that the model in model.go allows; counter.go judges what the holders did at the protected resource.  One line
// for each name, "ok" or REFUSED with the reason; a refused history is shown up to the operation that makes it illegal,
// and drawn in FOLDER.  A check that does not come to an end is refused, too.  FILE gets what tally.go counts.  Exit code 1:
// something was refused.
package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// verdict is the result for one name.
type verdict struct {
	refused []string
	shown   string
}

// shown is how many operations before the illegal one are printed.
const shown = 24

func judge(h *history, limit time.Duration, drawing string) (v verdict) {
	all := h.operations()
	switch porcupine.CheckOperationsTimeout(model(h), porcupines(all), limit) {
	case porcupine.Unknown:
		v.refused = append(v.refused, fmt.Sprintf("undecided after %v", limit))
	case porcupine.Illegal:
		v.refused = append(v.refused, "not linearizable")
		v.shown = explain(h, all, limit, drawing)
	}
	v.refused = slices.Concat(v.refused, h.lostUpdates(), h.late(), h.unfounded(), h.unended)
	return v
}

// explain finds the shortest part, from the beginning, that is illegal; draws it, and returns the end of it as text.
func explain(h *history, all []timed, limit time.Duration, drawing string) string {
	var times []int64
	for _, o := range all {
		times = append(times, o.to)
	}
	slices.Sort(times)
	i := sort.Search(len(times)-1, func(i int) bool {
		return porcupine.CheckOperationsTimeout(model(h), porcupines(until(all, times[i])), limit) == porcupine.Illegal
	})
	part := until(all, times[i])
	_, info := porcupine.CheckOperationsVerbose(model(h), porcupines(part), limit)
	text := ""
	if drawing != "" {
		if err := porcupine.VisualizePath(model(h), info, drawing); err != nil {
			text += fmt.Sprintln("  no drawing:", err)
		} else {
			text += fmt.Sprintln("  drawn in", drawing)
		}
	}
	slices.SortStableFunc(part, func(a, b timed) int {
		return cmp.Or(cmp.Compare(min(a.to, times[i]), min(b.to, times[i])), cmp.Compare(b.what, a.what))
	})
	begin := all[0].from
	text += fmt.Sprintf("  the shortest illegal part has %d of %d operations; the last of them, in ms:\n", len(part), len(all))
	for _, o := range part[max(0, len(part)-shown):] {
		to := fmt.Sprintf("%10.3f", float64(o.to-begin)/1e6)
		if o.to == forever {
			to = "      open"
		}
		text += fmt.Sprintf("  %10.3f %s  %-10s %s\n", float64(o.from-begin)/1e6, to, o.who, o.operation)
	}
	return text
}

func main() {
	limit := flag.Duration("limit", 10*time.Minute, "for the check of one name")
	drawings := flag.String("html", "", "folder for drawings of refused histories")
	counts := flag.String("counts", "", "file for what was counted, in JSON")
	flag.Parse()
	counted, bad := tally{}, false
	for _, path := range flag.Args() {
		logs, err := read(path)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		names := slices.Sorted(maps.Keys(logs.histories))
		for i, v := range judgeAll(logs, names, *limit, *drawings) {
			h := logs.histories[names[i]]
			counted.add(h)
			if len(v.refused) == 0 {
				fmt.Println("ok", path, h.name, h.kind)
				continue
			}
			bad = true
			fmt.Printf("REFUSED %s %s %s: %s\n%s", path, h.name, h.kind, v.refused[0], v.shown)
			for _, more := range v.refused[1:] {
				fmt.Println("  and:", more)
			}
		}
	}
	if *counts != "" {
		text, _ := json.Marshal(counted)
		if err := os.WriteFile(*counts, text, 0o644); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
	if bad {
		os.Exit(1)
	}
}

func judgeAll(logs *reader, names []string, limit time.Duration, drawings string) []verdict {
	made := make([]verdict, len(names))
	turn := make(chan int)
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Add(1)
		go func() {
			defer all.Done()
			for i := range turn {
				drawing := ""
				if drawings != "" {
					drawing = filepath.Join(drawings, names[i]+".html")
				}
				made[i] = judge(logs.histories[names[i]], limit, drawing)
			}
		}()
	}
	for i := range names {
		turn <- i
	}
	close(turn)
	all.Wait()
	return made
}
