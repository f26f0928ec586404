//go:build cgo

package snib

/*
#include "bridge.h"
*/
import "C"

// Stats are a client's counters; snib_client_stats_data in snib.h explains each of them.
type Stats struct {
	Acquisitions, Reentries, Releases, Waits, Handovers, Timeouts, Cancels             uint64
	Renewals, RenewalCommands, RenewalFailures                                         uint64
	LostExpired, LostTaken, LostDeleted, LostUnreachable, LostMaxHold                  uint64
	LostClosed, Abandoned, Rechecks, Messages, Polling, Connects, Reconnects, Commands uint64
	Writes, Reads, Wakes, ClockMoves, WatchdogLateMicros, Held, Waiting, Memory        uint64

	// WaitTime and HoldTime are histograms: bucket i counts times from 2^i to 2^(i+1) microseconds.
	WaitTime, HoldTime [C.SNIB_HISTOGRAM_BUCKETS]uint64

	LostFailover  uint64
	DebugWarnings uint64 // mistakes in the use of locks that the option Debug has found
}

// Stats returns a consistent snapshot of the client's counters, without a round trip. A closed
// client returns the zero Stats.
func (c *Client) Stats() Stats {
	var raw C.snib_client_stats_data
	if C.bridge_stats(C.uint64_t(c.handle), &raw, nil) != C.SNIB_OK {
		return Stats{}
	}
	s := Stats{
		Acquisitions: uint64(raw.acquisitions), Reentries: uint64(raw.reentries), Releases: uint64(raw.releases),
		Waits: uint64(raw.waits), Handovers: uint64(raw.handovers), Timeouts: uint64(raw.timeouts),
		Cancels: uint64(raw.cancels), Renewals: uint64(raw.renewals), RenewalCommands: uint64(raw.renewal_commands),
		RenewalFailures: uint64(raw.renewal_failures), LostExpired: uint64(raw.lost_expired),
		LostTaken: uint64(raw.lost_taken), LostDeleted: uint64(raw.lost_deleted),
		LostUnreachable: uint64(raw.lost_unreachable), LostMaxHold: uint64(raw.lost_max_hold),
		LostClosed: uint64(raw.lost_closed), Abandoned: uint64(raw.abandoned), Rechecks: uint64(raw.rechecks), Messages: uint64(raw.messages),
		Polling: uint64(raw.polling), Connects: uint64(raw.connects), Reconnects: uint64(raw.reconnects),
		Commands: uint64(raw.commands), Writes: uint64(raw.writes), Reads: uint64(raw.reads), Wakes: uint64(raw.wakes),
		ClockMoves: uint64(raw.clock_moves), WatchdogLateMicros: uint64(raw.watchdog_late_us), Held: uint64(raw.held), Waiting: uint64(raw.waiting),
		Memory: uint64(raw.memory), LostFailover: uint64(raw.lost_failover),
		DebugWarnings: uint64(raw.debug_warnings),
	}
	for i := range s.WaitTime {
		s.WaitTime[i], s.HoldTime[i] = uint64(raw.wait_time[i]), uint64(raw.hold_time[i])
	}
	return s
}
