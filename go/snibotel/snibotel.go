// Package snibotel gives the locks of a [snib.Client] spans for OpenTelemetry, and its counters as instruments.
//
//	lock := snibotel.TraceLock(client.Mutex("orders"))
//	err := lock.Do(ctx, work)
//
//	registration, err := snibotel.Observe(client)
//
// Each acquisition has a span snib.wait, until the lock was granted or refused, and each hold a span snib.hold, until
// it was released or found lost. Both are children of the span in the caller's context. The context that work gets,
// and that of [Hold.Context], has the hold's span, so that the spans of the work are its children. A link leads from a
// hold to the one that had the lock before, if this process has its span.
//
// Nothing is patched: only a lock that was wrapped has spans. The names, attributes and outcomes are those of
// snib.opentelemetry in Python.
package snibotel

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// scope is the name of the tracer and of the meter.
const scope = "snib"

type config struct {
	tracers    trace.TracerProvider
	meters     metric.MeterProvider
	attributes []attribute.KeyValue
}

// An Option changes how spans or instruments are made.
type Option func(*config)

// WithTracerProvider gives spans to this provider instead of the global one.
func WithTracerProvider(provider trace.TracerProvider) Option {
	return func(c *config) { c.tracers = provider }
}

// WithMeterProvider gives instruments to this provider instead of the global one.
func WithMeterProvider(provider metric.MeterProvider) Option {
	return func(c *config) { c.meters = provider }
}

// WithAttributes adds attributes to each span, or to each value that is observed.
func WithAttributes(attributes ...attribute.KeyValue) Option {
	return func(c *config) { c.attributes = append(c.attributes, attributes...) }
}

func newConfig(options []Option) *config {
	c := new(config)
	for _, option := range options {
		option(c)
	}
	if c.tracers == nil {
		c.tracers = otel.GetTracerProvider()
	}
	if c.meters == nil {
		c.meters = otel.GetMeterProvider()
	}
	return c
}
