package snibotel

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	snib "github.com/snib-lock/snib/go"
)

// spans makes the spans of one lock.
type spans struct {
	tracer     trace.Tracer
	attributes trace.SpanStartEventOption
	chain      chain
}

// newSpans knows a lock's name and kind, unless it is a fake.
func newSpans(lock any, options []Option) spans {
	c := newConfig(options)
	attributes := c.attributes
	if l, ok := lock.(interface{ Name() string }); ok {
		attributes = append(attributes, attribute.String("snib.lock.name", l.Name()))
	}
	kind := ""
	if l, ok := lock.(interface{ Kind() string }); ok {
		kind = l.Kind()
		attributes = append(attributes, attribute.String("snib.lock.kind", kind))
	}
	tracer := c.tracers.Tracer(scope, trace.WithInstrumentationVersion(snib.Version()))
	return spans{tracer, trace.WithAttributes(attributes...), newChain(lock, kind)}
}

func (s *spans) wait(ctx context.Context) (context.Context, trace.Span) {
	return s.tracer.Start(ctx, "snib.wait", s.attributes)
}

// hold starts the span of a hold, which is nil under a fake; the context has the parent.
func (s *spans) hold(ctx context.Context, hold *snib.Hold, c chain) (context.Context, trace.Span, *holder) {
	ctx, span := s.tracer.Start(ctx, "snib.hold", s.attributes)
	if hold == nil || !span.IsRecording() {
		return ctx, span, nil
	}
	owner := hold.Owner()
	span.SetAttributes(attribute.String("snib.lock.owner", owner))
	if token := hold.Token(); token != 0 {
		span.SetAttributes(attribute.Int64("snib.fencing.token", token))
	}
	return ctx, span, c.begin(span, hold, owner)
}

// endWait ends the span of an acquisition. That a lock was not free in time is no failure, because the program set the
// limit.
func endWait(span trace.Span, err error) {
	defer span.End()
	if !span.IsRecording() {
		return
	}
	switch {
	case err == nil:
		outcome(span, "granted")
	case errors.Is(err, snib.ErrBusy):
		outcome(span, "busy")
	case errors.Is(err, snib.ErrTimeout):
		outcome(span, "timeout")
	case isCancelled(err):
		outcome(span, "cancelled")
	default:
		fail(span, err)
	}
}

// endHold ends the span of a hold, whose release has failed with err.
func endHold(span trace.Span, hold *snib.Hold, err error) {
	defer span.End()
	if !span.IsRecording() { // the hold need not be asked
		return
	}
	switch reason, lost := lossOf(hold, err); {
	case lost:
		outcome(span, "lost")
		span.SetAttributes(attribute.String("snib.loss.reason", reason))
		span.SetStatus(codes.Error, "lost: "+reason)
	case err == nil:
		outcome(span, "released")
	case isCancelled(err) || errors.Is(err, snib.ErrTimeout): // nobody waited for the end of the release
		outcome(span, "cancelled")
	default:
		fail(span, err)
	}
}

// lossOf asks the hold, because the error may be about another one. Of a fake there is only the error.
func lossOf(hold *snib.Hold, err error) (reason string, lost bool) {
	var why snib.Reason
	if hold != nil {
		var state snib.State
		state, why = hold.State()
		lost = state == snib.StateLost
	} else if lost = errors.Is(err, snib.ErrLost); lost {
		var e *snib.Error
		if errors.As(err, &e) {
			why = e.Reason
		}
	}
	if why == snib.ReasonNone {
		return "unknown", lost
	}
	return why.String(), lost
}

func isCancelled(err error) bool {
	return errors.Is(err, snib.ErrCancelled) || errors.Is(err, context.Canceled)
}

func outcome(span trace.Span, how string) { span.SetAttributes(attribute.String("snib.outcome", how)) }

// fail says which error it was: its code for one of Snib's, or else its type.
func fail(span trace.Span, err error) {
	kind := fmt.Sprintf("%T", err)
	var e *snib.Error
	if errors.As(err, &e) {
		kind = e.Code.Name()
	}
	outcome(span, "error")
	span.SetAttributes(attribute.String("error.type", kind))
	span.SetStatus(codes.Error, err.Error())
}
