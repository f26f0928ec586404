package snibotel

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	snib "github.com/snib-lock/snib/go"
)

// figure is what an instrument shows of the statistics.
type figure struct {
	name, unit, text string
	read             func(*snib.Stats) uint64
}

var counters = []figure{
	{"acquisitions", "", "Holds granted, without re-entries", func(s *snib.Stats) uint64 { return s.Acquisitions }},
	{"reentries", "", "Re-entries of an owner, without a round trip", func(s *snib.Stats) uint64 { return s.Reentries }},
	{"releases", "", "Holds released", func(s *snib.Stats) uint64 { return s.Releases }},
	{"waits", "", "Acquisitions that had to wait", func(s *snib.Stats) uint64 { return s.Waits }},
	{"handovers", "", "Locks passed on to another waiter of this process", func(s *snib.Stats) uint64 { return s.Handovers }},
	{"timeouts", "", "Waits that ended at their time limit", func(s *snib.Stats) uint64 { return s.Timeouts }},
	{"cancels", "", "Operations that were cancelled", func(s *snib.Stats) uint64 { return s.Cancels }},
	{"renewals", "", "Holds renewed", func(s *snib.Stats) uint64 { return s.Renewals }},
	{"renewal_commands", "", "Commands that renewed holds", func(s *snib.Stats) uint64 { return s.RenewalCommands }},
	{"renewal_failures", "", "Renewals that failed and were retried", func(s *snib.Stats) uint64 { return s.RenewalFailures }},
	{"abandoned", "", "Holds dropped without a release", func(s *snib.Stats) uint64 { return s.Abandoned }},
	{"rechecks", "", "Attempts of waiters without a wake-up message", func(s *snib.Stats) uint64 { return s.Rechecks }},
	{"messages", "", "Wake-up messages received", func(s *snib.Stats) uint64 { return s.Messages }},
	{"polling", "", "Waits that poll because their subscription was refused", func(s *snib.Stats) uint64 { return s.Polling }},
	{"connects", "", "Connections made", func(s *snib.Stats) uint64 { return s.Connects }},
	{"reconnects", "", "Connections made anew", func(s *snib.Stats) uint64 { return s.Reconnects }},
	{"commands", "", "Commands sent, without handshakes", func(s *snib.Stats) uint64 { return s.Commands }},
	{"writes", "", "System calls that sent commands", func(s *snib.Stats) uint64 { return s.Writes }},
	{"reads", "", "System calls that received replies", func(s *snib.Stats) uint64 { return s.Reads }},
	{"wakes", "", "Threads and queues woken", func(s *snib.Stats) uint64 { return s.Wakes }},
	{"clock_moves", "", "Times that the server's clock was set, or ran at another rate", func(s *snib.Stats) uint64 { return s.ClockMoves }},
	{"debug_warnings", "", "Mistakes in the use of locks that the option debug has found", func(s *snib.Stats) uint64 { return s.DebugWarnings }},
}

var gauges = []figure{
	{"held", "", "Current holds", func(s *snib.Stats) uint64 { return s.Held }},
	{"waiting", "", "Current waiters", func(s *snib.Stats) uint64 { return s.Waiting }},
	{"memory", "By", "Memory in use by the client, buffers included", func(s *snib.Stats) uint64 { return s.Memory }},
}

// losses are one counter for all reasons, so that it can be added up; their names are attributes.
var losses = []figure{
	{name: "expired", read: func(s *snib.Stats) uint64 { return s.LostExpired }},
	{name: "taken", read: func(s *snib.Stats) uint64 { return s.LostTaken }},
	{name: "deleted", read: func(s *snib.Stats) uint64 { return s.LostDeleted }},
	{name: "unreachable", read: func(s *snib.Stats) uint64 { return s.LostUnreachable }},
	{name: "max_hold", read: func(s *snib.Stats) uint64 { return s.LostMaxHold }},
	{name: "closed", read: func(s *snib.Stats) uint64 { return s.LostClosed }},
	{name: "failover", read: func(s *snib.Stats) uint64 { return s.LostFailover }},
}

// times are counters by the attribute le.
var times = []struct {
	name, text string
	read       func(*snib.Stats) []uint64
}{
	{"wait_time", "Acquisitions that were granted within le seconds", func(s *snib.Stats) []uint64 { return s.WaitTime[:] }},
	{"hold_time", "Holds that lasted le seconds at most", func(s *snib.Stats) []uint64 { return s.HoldTime[:] }},
}

// below returns the upper bound of bucket i of n: it counts times below 2^(i+1) microseconds, and the last one also those
// above.
func below(i, n int) attribute.KeyValue {
	if i == n-1 {
		return attribute.String("le", "+Inf")
	}
	return attribute.String("le", strconv.FormatFloat(math.Ldexp(1, i+1)/1e6, 'g', -1, 64))
}

func sum(counts []uint64) (all uint64) {
	for _, count := range counts {
		all += count
	}
	return all
}

// A client is what is read of one.
type client interface {
	Stats() snib.Stats
	Closed() bool
}

// Observe exposes a client's statistics as observable instruments, whose names begin with "snib.". Each collection takes
// one snapshot, without a round trip. The values of several clients need an attribute to tell them apart:
//
//	snibotel.Observe(web, snibotel.WithAttributes(attribute.String("client", "web")))
//
// A client that is closed has no values any more; Unregister of the registration forgets it. There are no observable
// histograms, so the times that a client counts in buckets are counters with an attribute le, as in Prometheus: how many
// took at most so many seconds.
func Observe(client *snib.Client, options ...Option) (metric.Registration, error) {
	return observe(client, options)
}

func observe(client client, options []Option) (metric.Registration, error) {
	c := newConfig(options)
	meter := c.meters.Meter(scope, metric.WithInstrumentationVersion(snib.Version()))
	shown, late, err := instruments(meter, c.attributes)
	if err != nil {
		return nil, err
	}
	all := []metric.Observable{late}
	for _, i := range shown {
		all = append(all, i.of)
	}
	attributes := metric.WithAttributes(c.attributes...)
	return meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		stats := client.Stats()
		if client.Closed() { // the statistics may be empty by now
			return nil
		}
		for _, i := range shown {
			to.ObserveInt64(i.of, int64(i.read(&stats)), i.attributes)
		}
		to.ObserveFloat64(late, float64(stats.WatchdogLateMicros)*1e-6, attributes)
		return nil
	}, all...)
}

// instrument is where a figure is shown, and under which attributes.
type instrument struct {
	of         metric.Int64Observable
	read       func(*snib.Stats) uint64
	attributes metric.ObserveOption
}

// instruments makes all of them. One that exists already, for another client, is the same.
func instruments(meter metric.Meter, labels []attribute.KeyValue) (shown []instrument, late metric.Float64Observable, err error) {
	var failures []error
	show := func(of metric.Int64Observable, read func(*snib.Stats) uint64, err error, more ...attribute.KeyValue) {
		shown = append(shown, instrument{of, read, metric.WithAttributes(slices.Concat(labels, more)...)})
		failures = append(failures, err)
	}
	for _, f := range counters {
		of, err := meter.Int64ObservableCounter("snib."+f.name, metric.WithDescription(f.text))
		show(of, f.read, err)
	}
	lost, err := meter.Int64ObservableCounter("snib.losses", metric.WithDescription("Holds lost, by reason"))
	for _, f := range losses {
		show(lost, f.read, err, attribute.String("reason", f.name))
	}
	for _, f := range times {
		of, err := meter.Int64ObservableCounter("snib."+f.name, metric.WithDescription(f.text))
		for i, n := 0, len(f.read(new(snib.Stats))); i < n; i++ {
			show(of, func(s *snib.Stats) uint64 { return sum(f.read(s)[:i+1]) }, err, below(i, n))
		}
	}
	for _, f := range gauges {
		of, err := meter.Int64ObservableGauge("snib."+f.name, metric.WithUnit(f.unit), metric.WithDescription(f.text))
		show(of, f.read, err)
	}
	late, err = meter.Float64ObservableGauge("snib.watchdog_late", metric.WithUnit("s"),
		metric.WithDescription("The longest delay of a due renewal so far"))
	return shown, late, errors.Join(append(failures, err)...)
}
