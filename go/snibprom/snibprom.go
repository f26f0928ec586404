// Package snibprom exposes the counters of a [snib.Client] to Prometheus.
//
//	prometheus.MustRegister(snibprom.New(client))
//
// The names begin with snib_, and are those of snib.prometheus in Python. Several clients of a program are told apart
// by a label:
//
//	prometheus.WrapRegistererWith(prometheus.Labels{"client": "web"}, registry).MustRegister(snibprom.New(web))
//
// The histograms have no sum, because the core counts times and does not add them up: it is shown as NaN.
package snibprom

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"

	snib "github.com/snib-lock/snib/go"
)

// value is what one series shows of the statistics.
type value struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	read func(*snib.Stats) float64
}

func counter(name, help string, read func(*snib.Stats) uint64) value {
	desc := prometheus.NewDesc("snib_"+name+"_total", help, nil, nil)
	return value{desc, prometheus.CounterValue, func(s *snib.Stats) float64 { return float64(read(s)) }}
}

func gauge(name, help string, read func(*snib.Stats) float64) value {
	return value{prometheus.NewDesc("snib_"+name, help, nil, nil), prometheus.GaugeValue, read}
}

// lost is one counter for all reasons, so that it can be added up.
func lost(reason string, read func(*snib.Stats) uint64) value {
	desc := prometheus.NewDesc("snib_losses_total", "Holds lost, by reason", nil, prometheus.Labels{"reason": reason})
	return value{desc, prometheus.CounterValue, func(s *snib.Stats) float64 { return float64(read(s)) }}
}

var values = []value{
	counter("acquisitions", "Holds granted, without re-entries", func(s *snib.Stats) uint64 { return s.Acquisitions }),
	counter("reentries", "Re-entries of an owner, without a round trip", func(s *snib.Stats) uint64 { return s.Reentries }),
	counter("releases", "Holds released", func(s *snib.Stats) uint64 { return s.Releases }),
	counter("waits", "Acquisitions that had to wait", func(s *snib.Stats) uint64 { return s.Waits }),
	counter("handovers", "Locks passed on to another waiter of this process", func(s *snib.Stats) uint64 { return s.Handovers }),
	counter("timeouts", "Waits that ended at their time limit", func(s *snib.Stats) uint64 { return s.Timeouts }),
	counter("cancels", "Operations that were cancelled", func(s *snib.Stats) uint64 { return s.Cancels }),
	counter("renewals", "Holds renewed", func(s *snib.Stats) uint64 { return s.Renewals }),
	counter("renewal_commands", "Commands that renewed holds", func(s *snib.Stats) uint64 { return s.RenewalCommands }),
	counter("renewal_failures", "Renewals that failed and were retried", func(s *snib.Stats) uint64 { return s.RenewalFailures }),
	counter("abandoned", "Holds dropped without a release", func(s *snib.Stats) uint64 { return s.Abandoned }),
	counter("rechecks", "Attempts of waiters without a wake-up message", func(s *snib.Stats) uint64 { return s.Rechecks }),
	counter("messages", "Wake-up messages received", func(s *snib.Stats) uint64 { return s.Messages }),
	counter("polling", "Waits that poll because their subscription was refused", func(s *snib.Stats) uint64 { return s.Polling }),
	counter("connects", "Connections made", func(s *snib.Stats) uint64 { return s.Connects }),
	counter("reconnects", "Connections made anew", func(s *snib.Stats) uint64 { return s.Reconnects }),
	counter("commands", "Commands sent, without handshakes", func(s *snib.Stats) uint64 { return s.Commands }),
	counter("writes", "System calls that sent commands", func(s *snib.Stats) uint64 { return s.Writes }),
	counter("reads", "System calls that received replies", func(s *snib.Stats) uint64 { return s.Reads }),
	counter("wakes", "Threads and queues woken", func(s *snib.Stats) uint64 { return s.Wakes }),
	counter("clock_moves", "Times that the server's clock was set, or ran at another rate", func(s *snib.Stats) uint64 { return s.ClockMoves }),
	counter("debug_warnings", "Mistakes in the use of locks that the option debug has found", func(s *snib.Stats) uint64 { return s.DebugWarnings }),
	lost("expired", func(s *snib.Stats) uint64 { return s.LostExpired }),
	lost("taken", func(s *snib.Stats) uint64 { return s.LostTaken }),
	lost("deleted", func(s *snib.Stats) uint64 { return s.LostDeleted }),
	lost("unreachable", func(s *snib.Stats) uint64 { return s.LostUnreachable }),
	lost("max_hold", func(s *snib.Stats) uint64 { return s.LostMaxHold }),
	lost("closed", func(s *snib.Stats) uint64 { return s.LostClosed }),
	lost("failover", func(s *snib.Stats) uint64 { return s.LostFailover }),
	gauge("held", "Current holds", func(s *snib.Stats) float64 { return float64(s.Held) }),
	gauge("waiting", "Current waiters", func(s *snib.Stats) float64 { return float64(s.Waiting) }),
	gauge("memory_bytes", "Memory in use by the client, buffers included", func(s *snib.Stats) float64 { return float64(s.Memory) }),
	gauge("watchdog_late_seconds", "The longest delay of a due renewal so far",
		func(s *snib.Stats) float64 { return float64(s.WatchdogLateMicros) * 1e-6 }),
}

var (
	waitTime = prometheus.NewDesc("snib_wait_seconds", "How long acquisitions took that were granted", nil, nil)
	holdTime = prometheus.NewDesc("snib_hold_seconds", "How long holds were held", nil, nil)
)

type collector struct{ stats func() snib.Stats }

// New returns a collector of the client's statistics. Each scrape takes one snapshot, without a round trip. A client
// that is closed shows zeros.
func New(client *snib.Client) prometheus.Collector { return collector{client.Stats} }

// Describe lists the series, so that a second collector in the same registry is refused.
func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, v := range values {
		to <- v.desc
	}
	to <- waitTime
	to <- holdTime
}

// Collect takes a snapshot.
func (c collector) Collect(to chan<- prometheus.Metric) {
	s := c.stats()
	for _, v := range values {
		to <- prometheus.MustNewConstMetric(v.desc, v.kind, v.read(&s))
	}
	to <- histogram(waitTime, s.WaitTime[:])
	to <- histogram(holdTime, s.HoldTime[:])
}

// histogram adds the buckets up: number i counts times below 2^(i+1) microseconds, and the last one also those above.
func histogram(desc *prometheus.Desc, counts []uint64) prometheus.Metric {
	below := map[float64]uint64{}
	var sum uint64
	for i, count := range counts {
		sum += count
		if i < len(counts)-1 {
			below[math.Ldexp(1, i+1)/1e6] = sum
		}
	}
	return prometheus.MustNewConstHistogram(desc, sum, math.NaN(), below)
}
