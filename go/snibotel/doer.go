package snibotel

import (
	"context"
	"reflect"

	"go.opentelemetry.io/otel/trace"

	snib "github.com/snib-lock/snib/go"
)

type doer struct {
	spans
	doer snib.Doer
}

// TraceDoer returns the same Doer with spans: for what has no Lock, such as a [snib.Semaphore], and for a
// [snib.DoerFunc], whose name and kind are not known; see [WithAttributes].
func TraceDoer(lock snib.Doer, options ...Option) snib.Doer {
	return &doer{newSpans(lock, options), lock}
}

// Do is the Doer's own; the context that work gets has the span of the hold.
func (d *doer) Do(ctx context.Context, work func(context.Context) error) (err error) {
	if work == nil {
		return d.doer.Do(ctx, nil)
	}
	waiting, wait := d.wait(ctx)
	end := func(err error) { endWait(wait, err) }
	defer func() { end(err) }() // also when work panics
	var failure error
	return d.doer.Do(waiting, func(inside context.Context) error {
		end(nil)
		hold := newHold(waiting, inside)
		inside, span, holder := d.hold(trace.ContextWithSpan(inside, trace.SpanFromContext(ctx)), hold, d.chain)
		defer holder.end()
		end = func(err error) { endHold(span, hold, besides(failure, err)) }
		failure = work(inside)
		return failure
	})
}

// newHold returns the hold that is in the context inside a Doer and not in the one outside; a fake has none.
func newHold(outside, inside context.Context) *snib.Hold {
	hold := snib.HoldFrom(inside)
	if hold == snib.HoldFrom(outside) {
		return nil
	}
	return hold
}

// besides returns what Do's error says besides the error of the work, which is none of the hold's: nil if it is just that
// one, and the Unlock's if [snib.Mutex.Do] and its like have joined them.
func besides(work, err error) error {
	if isThat(work, err) {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	if all := joined.Unwrap(); len(all) == 2 && isThat(work, all[0]) {
		return all[1]
	}
	return err
}

// isThat reports whether an error is the one of the work. Some errors cannot be compared.
func isThat(work, err error) bool {
	return reflect.TypeOf(work) == reflect.TypeOf(err) && (!reflect.ValueOf(err).Comparable() || work == err)
}
