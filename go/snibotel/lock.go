package snibotel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	snib "github.com/snib-lock/snib/go"
)

// A Lock is a lock whose waits and holds have spans. The embedded one is the original.
type Lock struct {
	snib.Locker
	doer
}

// TraceLock returns the same lock with spans: of any kind that a [snib.Locker] has; of an [snib.RW] the writers' side,
// or what its RLocker returns.
func TraceLock(lock snib.Locker, options ...Option) *Lock {
	return &Lock{lock, doer{newSpans(lock, options), lock}}
}

// Do is the lock's own; the context that work gets has the span of the hold.
func (l *Lock) Do(ctx context.Context, work func(context.Context) error) error {
	return l.doer.Do(ctx, work)
}

// Lock is the lock's own.
func (l *Lock) Lock(ctx context.Context) (*Hold, error) { return l.acquire(ctx, l.Locker.Lock) }

// TryLock is the lock's own.
func (l *Lock) TryLock(ctx context.Context) (*Hold, error) { return l.acquire(ctx, l.Locker.TryLock) }

func (l *Lock) acquire(ctx context.Context, acquire func(context.Context) (*snib.Hold, error)) (*Hold, error) {
	waiting, wait := l.wait(ctx)
	hold, err := acquire(waiting)
	endWait(wait, err)
	if err != nil {
		return nil, err
	}
	return l.newHold(ctx, hold, l.chain), nil
}

func (l *Lock) newHold(ctx context.Context, hold *snib.Hold, c chain) *Hold {
	_, span, holder := l.hold(ctx, hold, c)
	return &Hold{hold, l, span, holder}
}

// A Hold is a hold with a span, which ends with Unlock. The embedded one is the original. A hold that is dropped
// without an Unlock leaves no span.
type Hold struct {
	*snib.Hold
	lock   *Lock
	span   trace.Span
	holder *holder
}

var _ snib.Held = (*Hold)(nil)

// Context is the hold's own, with its span.
func (h *Hold) Context(parent context.Context) context.Context {
	return trace.ContextWithSpan(h.Hold.Context(parent), h.span)
}

// Unlock is the hold's own. The span ends when it returns.
func (h *Hold) Unlock(ctx context.Context) error {
	h.holder.end()
	err := h.Hold.Unlock(ctx)
	if !errors.Is(err, snib.ErrNotHeld) { // the first Unlock has ended it, or is about to
		endHold(h.span, h.Hold, err)
	}
	return err
}

// Downgrade is the hold's own. The span of the write hold ends, and the read hold has one beside it, with the parent
// that is in ctx.
func (h *Hold) Downgrade(ctx context.Context) (*Hold, error) {
	hold, err := h.Hold.Downgrade(ctx)
	if err == nil {
		endHold(h.span, nil, nil)
		h.holder.end()
		reading := h.lock.newHold(ctx, hold, h.lock.chain.readers())
		reading.span.SetAttributes(attribute.String("snib.lock.kind", "read"))
		return reading, nil
	}
	if _, lost := lossOf(h.Hold, err); lost {
		h.holder.end()
		endHold(h.span, h.Hold, err)
	}
	return nil, err
}
