// Lock + unlock on distinct locks, for Snib and comparable Go libraries.
//
//	gobench URL SCRIPTS snib|snib-X|rueidis|rueidislock|redislock|redsync|redsync-fast GOROUTINES
//
// X is registered (with Prometheus and OpenTelemetry, and nobody looks), prometheus (scraped each second), metrics
// (OpenTelemetry's, collected each second), spans (exported to nowhere) or wrapped (with spans for which there is no provider).
// URL is in Snib's form.  rueidis is no lock library here: it sends the two scripts that Snib sends, and nothing else.
// redsync and redsync-fast lock a majority of several servers, whose URLs are separated by spaces.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// A pair locks and unlocks one lock once.
type pair func(ctx context.Context) error

// A rival creates n pairs on n distinct locks.
type rival func(ctx context.Context, at place, scripts string, n int) ([]pair, error)

var rivals = map[string]rival{
	"snib":            newSnib,
	"snib-registered": newWatched(registered),
	"snib-prometheus": newWatched(scraped),
	"snib-metrics":    newWatched(collected),
	"snib-wrapped":    newWrapped,
	"snib-spans":      newSpans,
	"rueidis":         newRueidis,
	"rueidislock":     newRueidislock,
	"redislock":       newRedislock,
	"redsync":         newRedsync,
	"redsync-fast":    newRedsyncFast,
}

func die(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func lockName(i int) string { return "pair:" + strconv.Itoa(i) }

// turn lets every goroutine work for length, and returns how many pairs they did.
func turn(ctx context.Context, pairs []pair, length time.Duration) (int64, time.Duration) {
	var stop atomic.Bool
	var done atomic.Int64
	var crew sync.WaitGroup
	began := time.Now()
	for _, p := range pairs {
		crew.Go(func() {
			count := int64(0)
			for ; !stop.Load(); count++ {
				if err := p(ctx); err != nil {
					die(err)
				}
			}
			done.Add(count)
		})
	}
	time.Sleep(length)
	stop.Store(true)
	crew.Wait()
	return done.Load(), time.Since(began)
}

func main() {
	if len(os.Args) != 5 || rivals[os.Args[3]] == nil {
		die(fmt.Errorf("usage: gobench URL SCRIPTS RIVAL GOROUTINES"))
	}
	n, err := strconv.Atoi(os.Args[4])
	if err != nil {
		die(err)
	}
	ctx := context.Background()
	at, err := parsePlace(os.Args[1])
	if err != nil {
		die(err)
	}
	pairs, err := rivals[os.Args[3]](ctx, at, os.Args[2], n)
	if err != nil {
		die(err)
	}
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var seconds float64
		if _, err := fmt.Sscanf(in.Text(), "go %g", &seconds); err != nil {
			die(err)
		}
		done, took := turn(ctx, pairs, time.Duration(seconds*float64(time.Second)))
		fmt.Printf("{\"done\": %d, \"seconds\": %.6f}\n", done, took.Seconds())
	}
}
