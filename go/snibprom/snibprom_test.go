package snibprom

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	snib "github.com/snib-lock/snib/go"
)

// gather returns what a scrape gets, by name.
func gather(t *testing.T, c prometheus.Collector) map[string]*dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(c); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]*dto.MetricFamily{}
	for _, family := range families {
		byName[family.GetName()] = family
	}
	return byName
}

// Each field of the statistics gets a number of its own, and each number must be there.
func TestEveryCounterIsThere(t *testing.T) {
	var stats snib.Stats
	expected := map[float64]string{}
	fields := reflect.ValueOf(&stats).Elem()
	for i := range fields.NumField() {
		if field := fields.Field(i); field.Kind() == reflect.Uint64 {
			field.SetUint(uint64(1000 + i))
			expected[float64(1000+i)] = fields.Type().Field(i).Name
		}
	}
	for _, family := range gather(t, collector{func() snib.Stats { return stats }}) {
		for _, m := range family.GetMetric() {
			shown := m.GetCounter().GetValue() + m.GetGauge().GetValue()
			if family.GetName() == "snib_watchdog_late_seconds" {
				shown = math.Round(shown * 1e6)
			}
			delete(expected, shown)
		}
	}
	if len(expected) > 0 {
		t.Errorf("not exposed: %v", slices.Sorted(maps.Values(expected)))
	}
}

func TestHistogramHasSeconds(t *testing.T) {
	var stats snib.Stats
	stats.HoldTime[0], stats.HoldTime[19], stats.HoldTime[31] = 1, 2, 4 // 19: up to 2^20 microseconds
	family := gather(t, collector{func() snib.Stats { return stats }})["snib_hold_seconds"]
	h := family.GetMetric()[0].GetHistogram()
	if h.GetSampleCount() != 7 || !math.IsNaN(h.GetSampleSum()) {
		t.Errorf("count %d, sum %v", h.GetSampleCount(), h.GetSampleSum())
	}
	for _, bucket := range h.GetBucket() {
		want := uint64(1)
		if bucket.GetUpperBound() > 1 {
			want = 3
		}
		if bucket.GetCumulativeCount() != want {
			t.Errorf("%v s: %d", bucket.GetUpperBound(), bucket.GetCumulativeCount())
		}
	}
}

// A program in Python has the same names and texts.
func TestNamesAreThoseOfPython(t *testing.T) {
	var source []byte
	for _, file := range []string{"_figures.py", "prometheus.py"} {
		text, err := os.ReadFile("../../python/snib/" + file)
		if err != nil {
			t.Skip("not in a checkout")
		}
		source = append(source, text...)
	}
	for name, family := range gather(t, collector{func() snib.Stats { return snib.Stats{} }}) {
		name = strings.TrimSuffix(name, "_total")
		text := fmt.Sprintf("%q", family.GetHelp())
		short := strings.TrimPrefix(name, "snib_")
		known := regexp.MustCompile(`"(` + name + `|` + short + `)"[:,][^"]*` + regexp.QuoteMeta(text))
		if !known.Match(source) {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// serve starts a server of the test's own, and returns its URL.
func serve(t *testing.T) string {
	t.Helper()
	binary := os.Getenv("SNIB_TEST_SERVER")
	for _, name := range []string{"valkey-server", "redis-server"} {
		if path, err := exec.LookPath(name); err == nil && binary == "" {
			binary = path
		}
	}
	folder, err := os.MkdirTemp("", "snib-prom-") // t.TempDir() can be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "s")
	command := exec.Command(binary, "--port", "0", "--unixsocket", path, "--save", "", "--dir", folder)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		_ = os.RemoveAll(folder)
	})
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if conn, err := net.Dial("unix", path); err == nil {
			_ = conn.Close()
			return "unix://" + path
		}
		if time.Now().After(end) {
			t.Fatal("the server does not start")
		}
	}
}

func TestSeveralClients(t *testing.T) {
	ctx := context.Background()
	url := serve(t) + "?patience=30s&try_timeout=30s"
	registry := prometheus.NewPedanticRegistry()
	clients := map[string]*snib.Client{}
	for _, name := range []string{"jobs", "web"} {
		client, err := snib.Open(ctx, url)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		prometheus.WrapRegistererWith(prometheus.Labels{"client": name}, registry).MustRegister(New(client))
		clients[name] = client
	}
	hold, err := clients["web"].Mutex("a").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Unlock(ctx)
	const expected = `
		# HELP snib_held Current holds
		# TYPE snib_held gauge
		snib_held{client="jobs"} 0
		snib_held{client="web"} 1
		# HELP snib_acquisitions_total Holds granted, without re-entries
		# TYPE snib_acquisitions_total counter
		snib_acquisitions_total{client="jobs"} 0
		snib_acquisitions_total{client="web"} 1
	`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(expected), "snib_held", "snib_acquisitions_total"); err != nil {
		t.Error(err)
	}
}

func TestTwoCollectorsWouldWriteTheSameNames(t *testing.T) {
	registry := prometheus.NewRegistry()
	c := collector{func() snib.Stats { return snib.Stats{} }}
	registry.MustRegister(c)
	if err := registry.Register(c); err == nil {
		t.Error("registered twice")
	}
}
