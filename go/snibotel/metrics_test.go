package snibotel

import (
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	snib "github.com/snib-lock/snib/go"
)

// still is a client whose statistics do not change.
type still struct{ stats snib.Stats }

func (s still) Stats() snib.Stats { return s.stats }
func (s still) Closed() bool      { return false }

// collect returns what a reader collects, by name.
func collect(t *testing.T, reader *sdk.ManualReader) map[string]metricdata.Metrics {
	t.Helper()
	var data metricdata.ResourceMetrics
	ok(t, reader.Collect(context.Background(), &data))
	byName := map[string]metricdata.Metrics{}
	for _, scope := range data.ScopeMetrics {
		if scope.Scope.Name != "snib" || scope.Scope.Version != snib.Version() {
			t.Error(scope.Scope)
		}
		for _, m := range scope.Metrics {
			byName[m.Name] = m
		}
	}
	return byName
}

// points are the values of a metric, by their attributes.
func points(m metricdata.Metrics) map[string]float64 {
	all := map[string]float64{}
	add := func(labels attribute.Set, value float64) {
		all[labels.Encoded(attribute.DefaultEncoder())] = value
	}
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			add(p.Attributes, float64(p.Value))
		}
	case metricdata.Gauge[int64]:
		for _, p := range data.DataPoints {
			add(p.Attributes, float64(p.Value))
		}
	case metricdata.Gauge[float64]:
		for _, p := range data.DataPoints {
			add(p.Attributes, p.Value)
		}
	}
	return all
}

func reading() (*sdk.ManualReader, Option) {
	reader := sdk.NewManualReader()
	return reader, WithMeterProvider(sdk.NewMeterProvider(sdk.WithReader(reader)))
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
	reader, here := reading()
	_, err := observe(still{stats}, []Option{here})
	ok(t, err)
	for name, m := range collect(t, reader) {
		for _, shown := range points(m) {
			if name == "snib.watchdog_late" {
				shown = math.Round(shown * 1e6)
			}
			delete(expected, shown)
		}
	}
	if len(expected) > 0 {
		t.Errorf("not exposed: %v", slices.Sorted(maps.Values(expected)))
	}
}

// python returns the text of files of the Python package.
func python(t *testing.T, files ...string) string {
	t.Helper()
	var source []byte
	for _, file := range files {
		text, err := os.ReadFile("../../python/snib/" + file)
		if err != nil {
			t.Skip("not in a checkout")
		}
		source = append(source, text...)
	}
	return string(source)
}

// A program in Python has the same names and texts.
func TestNamesAreThoseOfPython(t *testing.T) {
	source := python(t, "_figures.py", "opentelemetry.py")
	reader, here := reading()
	_, err := observe(still{}, []Option{here})
	ok(t, err)
	units := map[string]string{"snib.memory": "By", "snib.watchdog_late": "s"}
	for name, m := range collect(t, reader) {
		if m.Unit != units[name] {
			t.Errorf("%s: unit %q", name, m.Unit)
		}
		short := regexp.QuoteMeta(strings.TrimPrefix(name, "snib."))
		text := regexp.QuoteMeta(fmt.Sprintf("%q", m.Description))
		if !regexp.MustCompile(`"(snib[._])?`+short+`(_\w+)?"[:,][^"]*("snib_\w+", [^"]*)?`+text).MatchString(source) &&
			!regexp.MustCompile(`"`+name+`"[^"]*`+text).MatchString(source) && !regexp.MustCompile(`"snib\.losses".*`+text).MatchString(source) {
			t.Errorf("%s: %s", name, m.Description)
		}
	}
	if losses := points(collect(t, reader)["snib.losses"]); len(losses) != 7 {
		t.Error(losses)
	}
}

func TestTimesAreCountedAsInPrometheus(t *testing.T) {
	var stats snib.Stats
	for i := range stats.WaitTime {
		stats.WaitTime[i], stats.HoldTime[i] = 1, 2
	}
	reader, here := reading()
	_, err := observe(still{stats}, []Option{here})
	ok(t, err)
	for name, each := range map[string]float64{"snib.wait_time": 1, "snib.hold_time": 2} {
		got := points(collect(t, reader)[name])
		for i, le := range []string{"2e-06", "4e-06", "8e-06", "1.6e-05", "3.2e-05", "6.4e-05", "0.000128"} {
			if got["le="+le] != each*float64(i+1) {
				t.Error(name, le, got["le="+le])
			}
		}
		if len(got) != len(stats.WaitTime) || got["le=2147.483648"] != each*31 || got["le=+Inf"] != each*32 {
			t.Error(name, got)
		}
	}
}

func TestSeveralClients(t *testing.T) {
	ctx := context.Background()
	reader, here := reading()
	clients := map[string]*snib.Client{}
	for _, name := range []string{"jobs", "web"} {
		clients[name] = open(t)
		registration, err := Observe(clients[name], here, WithAttributes(attribute.String("client", name)))
		ok(t, err)
		defer func() { ok(t, registration.Unregister()) }()
	}
	hold, err := clients["web"].Mutex("a").Lock(ctx)
	ok(t, err)
	expect := func(name string, want map[string]float64) {
		t.Helper()
		if got := points(collect(t, reader)[name]); !maps.Equal(got, want) {
			t.Errorf("%s: %v instead of %v", name, got, want)
		}
	}
	expect("snib.held", map[string]float64{"client=jobs": 0, "client=web": 1})
	expect("snib.acquisitions", map[string]float64{"client=jobs": 0, "client=web": 1})
	ok(t, hold.Unlock(ctx))
	expect("snib.held", map[string]float64{"client=jobs": 0, "client=web": 0})
	ok(t, clients["jobs"].Close())
	expect("snib.held", map[string]float64{"client=web": 0})
}

func TestUnregister(t *testing.T) {
	reader, here := reading()
	registration, err := Observe(open(t), here)
	ok(t, err)
	if found := collect(t, reader); len(found) != len(counters)+len(times)+len(gauges)+2 {
		t.Error(len(found), "instruments")
	}
	ok(t, registration.Unregister())
	if found := collect(t, reader); len(found) != 0 {
		t.Error(len(found), "instruments are left")
	}
}
