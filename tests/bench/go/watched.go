package main

import (
	"context"
	"io"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"

	snib "github.com/snib-lock/snib/go"
	"github.com/snib-lock/snib/go/snibotel"
	"github.com/snib-lock/snib/go/snibprom"
)

// eachSecond does something for as long as the program runs, as a scrape would.
func eachSecond(do func() error) {
	go func() {
		for {
			if err := do(); err != nil {
				die(err)
			}
			time.Sleep(time.Second)
		}
	}()
}

// scrape answers one scrape of Prometheus.
func scrape(registry *prometheus.Registry) error {
	families, err := registry.Gather()
	if err != nil {
		return err
	}
	to := expfmt.NewEncoder(io.Discard, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, family := range families {
		if err := to.Encode(family); err != nil {
			return err
		}
	}
	return nil
}

// newWatched opens a client that watch sees, and creates Snib's pairs.
func newWatched(watch func(client *snib.Client) error) rival {
	return func(ctx context.Context, at place, _ string, n int) ([]pair, error) {
		client, err := snib.Open(ctx, at.url)
		if err != nil {
			return nil, err
		}
		if err := watch(client); err != nil {
			return nil, err
		}
		return snibPairs(client, n), nil
	}
}

// registered has all that shows metrics, and nobody who looks.
func registered(client *snib.Client) error {
	if _, err := snibotel.Observe(client); err != nil {
		return err
	}
	return prometheus.NewRegistry().Register(snibprom.New(client))
}

func scraped(client *snib.Client) error {
	registry := prometheus.NewRegistry()
	eachSecond(func() error { return scrape(registry) })
	return registry.Register(snibprom.New(client))
}

func collected(client *snib.Client) error {
	reader := metric.NewManualReader()
	eachSecond(func() error {
		return reader.Collect(context.Background(), &metricdata.ResourceMetrics{})
	})
	_, err := snibotel.Observe(client, snibotel.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))))
	return err
}

// newWrapped has locks with spans, for which there may be no provider.
func newWrapped(ctx context.Context, at place, _ string, n int) ([]pair, error) {
	client, err := snib.Open(ctx, at.url)
	if err != nil {
		return nil, err
	}
	pairs := make([]pair, n)
	for i := range pairs {
		lock := snibotel.TraceLock(client.Mutex(lockName(i)))
		pairs[i] = func(ctx context.Context) error {
			hold, err := lock.Lock(ctx)
			if err != nil {
				return err
			}
			return hold.Unlock(ctx)
		}
	}
	return pairs, nil
}

// nowhere is where the spans are exported to.
type nowhere struct{}

func (nowhere) ExportSpans(context.Context, []trace.ReadOnlySpan) error { return nil }
func (nowhere) Shutdown(context.Context) error                          { return nil }

func newSpans(ctx context.Context, at place, scripts string, n int) ([]pair, error) {
	otel.SetTracerProvider(trace.NewTracerProvider(trace.WithBatcher(nowhere{})))
	return newWrapped(ctx, at, scripts, n)
}
