//go:build cgo

package snib

import (
	"context"
	"fmt"
	"path"
	"reflect"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync/atomic"
)

// here is what a client with the option [Debug] tells the core of an acquisition: where in the program it is, and who
// makes it. Goroutines have no identity, so who acquires is known by contexts: whatever is acquired with a context that
// comes from [Hold.Context] is acquired by the holder of that hold, and anything else by someone of its own.
type here struct {
	place string
	actor uint64
}

var lastActor atomic.Uint64

// ownPackages are this one and the one that wraps its locks.
var ownPackages = []string{reflect.TypeOf(Client{}).PkgPath() + ".", reflect.TypeOf(Client{}).PkgPath() + "/snibotel."}

func isOwn(function string) bool {
	return slices.ContainsFunc(ownPackages, func(own string) bool { return strings.HasPrefix(function, own) })
}

func (l *lock) here(ctx context.Context) here {
	if l == nil || l.client == nil || !l.client.debug || ctx == nil {
		return here{}
	}
	h := here{place: fmt.Sprintf("%.100s\n%.100s", callerPlace(), whose(ctx))}
	if outer := HoldFrom(ctx); outer != nil && outer.actor != 0 {
		h.actor = outer.actor
	} else {
		h.actor = lastActor.Add(1)
	}
	return h
}

// whose returns the profiler's labels of a context, such as "goroutine job=import", as pprof.Do sets them for a
// goroutine too; otherwise goroutines have no names.
func whose(ctx context.Context) string {
	var labels []string
	pprof.ForLabels(ctx, func(key, value string) bool {
		labels = append(labels, key+"="+value)
		return true
	})
	if labels == nil {
		return ""
	}
	slices.Sort(labels)
	return "goroutine " + strings.ReplaceAll(strings.Join(labels, ", "), "\x00", "?")
}

// callerPlace returns the innermost place outside these packages, such as "orders.go:31 in pay()".
func callerPlace() string {
	var counters [16]uintptr
	frames := runtime.CallersFrames(counters[:runtime.Callers(2, counters[:])])
	for {
		frame, more := frames.Next()
		if frame.Function == "runtime.goexit" {
			return goPlace()
		}
		if !isOwn(frame.Function) || !more {
			return showPlace(frame.Function, fmt.Sprintf("%s:%d", frame.File, frame.Line))
		}
	}
}

func showPlace(function, line string) string {
	_, function, _ = strings.Cut(path.Base(function), ".")
	return fmt.Sprintf("%s in %s()", path.Base(line), function)
}

// goPlace returns the place of the go statement, as in "go mutex.Do(ctx, work)", which is in no frame; "" if the text of
// the stack has another form.
func goPlace() string {
	text := make([]byte, 1<<14)
	text = text[:runtime.Stack(text, false)]
	_, begun, _ := strings.Cut(string(text), "\ncreated by ")
	function, rest, _ := strings.Cut(begun, "\n\t")
	function, _, _ = strings.Cut(function, " in goroutine ")
	line, _, found := strings.Cut(rest, " +0x")
	if !found {
		return ""
	}
	return showPlace(function, line)
}
