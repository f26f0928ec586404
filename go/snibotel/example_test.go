package snibotel_test

import (
	"context"
	"fmt"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	snib "github.com/snib-lock/snib/go"
	"github.com/snib-lock/snib/go/snibotel"
)

// always is a lock that is always free, so that the example needs no server.
func always(ctx context.Context, work func(context.Context) error) error { return work(ctx) }

// The spans of the work are children of the hold's. A program gives a lock of its client instead of the fake, and its
// own provider or none.
func Example() {
	exporter := tracetest.NewInMemoryExporter() // such as that of otlptracegrpc
	provider := sdk.NewTracerProvider(sdk.WithSyncer(exporter))

	lock := snibotel.TraceDoer(snib.DoerFunc(always), snibotel.WithTracerProvider(provider))
	err := lock.Do(context.Background(), func(ctx context.Context) error {
		_, span := provider.Tracer("shop").Start(ctx, "ship")
		span.End()
		return nil
	})
	fmt.Println(err)
	for _, span := range exporter.GetSpans() {
		fmt.Println(span.Name, span.Parent.IsValid())
	}
	// Output:
	// <nil>
	// snib.wait false
	// ship true
	// snib.hold false
}
