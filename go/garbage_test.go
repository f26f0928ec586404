//go:build cgo

package snib_test

import (
	"runtime"
	"testing"

	snib "github.com/snib-lock/snib/go"
)

// A Lock and Unlock pair creates no garbage but the Hold itself, free or contended within the process.
func TestGarbage(t *testing.T) {
	s := startServer(t)
	client := open(t, s.url())
	rw := client.RW("rw")
	permits := client.Permits("permits")
	initialize(t, permits, 3)
	for kind, l := range map[string]snib.Locker{"mutex": client.Mutex("mutex"), "fair": client.Fair("fair"),
		"fenced": client.Fenced("fenced"), "spin": client.Spin("spin"), "plain": client.Plain("plain"), "write": rw,
		"read": rw.RLocker(), "permits": permits, "multi": snib.Multi(client.Mutex("one"), client.Mutex("two"))} {
		pair := func() { must(t, lock(t, l).Unlock(background)) }
		pair()
		if n := testing.AllocsPerRun(200, pair); n > 1 {
			t.Errorf("%s: %v allocations a pair", kind, n)
		}
		if n := bytesPerRun(200, pair); n > 192 {
			t.Errorf("%s: %v bytes of garbage a pair", kind, n)
		}
		hold := lock(t, l)
		if n := testing.AllocsPerRun(200, func() { _, _ = hold.Check(), hold.Remaining(); hold.State() }); n != 0 {
			t.Errorf("%s: %v allocations for asking", kind, n)
		}
		must(t, hold.Unlock(background))
	}
}

// As [testing.AllocsPerRun], but the size of what is allocated.
func bytesPerRun(runs int, f func()) uint64 {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range runs {
		f()
	}
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) / uint64(runs)
}

func BenchmarkPair(b *testing.B) {
	s := startServer(b)
	mutex := open(b, s.url()).Mutex("pair")
	b.ReportAllocs()
	for range b.N {
		must(b, lock(b, mutex).Unlock(background))
	}
}
