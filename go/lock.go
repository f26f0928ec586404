//go:build cgo

package snib

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// lock is what all kinds share: a name on a server, or several locks as one.
type lock struct {
	client *Client
	kind   kind
	name   string
	handle uint64
	owner  uint64
	reader *lock // for a writers' side: the readers' side
	err    error // why it could not be created; every call returns it
}

func (c *Client) newLock(k kind, name string, o *lockOptions) *lock {
	l := &lock{client: c, kind: k, name: name}
	if c.closed.Load() {
		l.err = makeError(ErrClosed, "", 0)
	} else {
		l.take(o, func() (uint64, error) { return newLock(c.handle, k, name, o) })
	}
	l.err = l.fail(l.err)
	return l
}

// take creates the core's lock, which is freed with this one.
func (l *lock) take(o *lockOptions, make func() (uint64, error)) {
	if o.owned && o.owner == 0 {
		l.err = makeError(ErrInvalidArgument, "the owner of a reentrant lock must not be 0", 0)
		return
	}
	if o.owned && (l.kind == kindSemaphore || l.kind == kindPermits || l.kind == kindLatch) {
		l.err = makeError(ErrInvalidOption, "permits and latches have no owners", 0)
		return
	}
	l.owner = o.owner
	l.handle, l.err = make()
	if err, bad := l.err.(*Error); bad {
		err.Text = inGo.Replace(err.Text)
		return
	}
	runtime.AddCleanup(l, freeLock, l.handle)
}

// inGo gives the core's options the names that they have here.
var inGo = strings.NewReplacer("the flag FENCED", "the option FencedTokens", "the flag PREFER_WRITER", "the option PreferWriter",
	"the flag NO_QUARANTINE", "the option NoQuarantine", "max_hold is", "MaxHold is")

func newLockOptions(options []LockOption) *lockOptions {
	o := new(lockOptions)
	for _, option := range options {
		option(o)
	}
	return o
}

// Name returns the name that the lock was created with; of a [Multi] those of its members.
func (l *lock) Name() string {
	if l == nil {
		return ""
	}
	return l.name
}

// Kind returns the lock's kind as an [Error] has it, such as "mutex".
func (l *lock) Kind() string {
	if l == nil {
		return ""
	}
	return l.kind.String()
}

// about adds the lock's name and kind to an error, and to its sentence where neither the core has done so nor it is about
// a name, about the members of several locks, or about the client.
func (l *lock) about(err *Error) *Error {
	if err.Name != "" || l.name == "" {
		return err
	}
	err.Name, err.Kind = l.name, l.kind.String()
	ofMembers := (l.kind == kindMulti || l.kind == kindQuorum) &&
		(err.Code == ErrInvalidArgument || err.Code == ErrInvalidLease || err.Code == ErrInvalidOption)
	named := strings.HasPrefix(err.Text, l.kind.title()+` "`) || strings.Contains(err.Text, strconv.Quote(l.name))
	if !ofMembers && !named && err.Code != ErrInvalidName && err.Code != ErrClosed {
		err.Text = fmt.Sprintf("%s %.100q: %s", l.kind.title(), l.name, err.Text)
	}
	return err
}

// fail is like about, for any error.
func (l *lock) fail(err error) error {
	if e, ok := err.(*Error); ok {
		l.about(e)
	}
	return err
}

// usable returns nil, or why the lock cannot be used at all.
func (l *lock) usable() error {
	switch {
	case l == nil:
		return makeError(ErrInvalidArgument, "the lock was not made by a client", 0)
	case l.err != nil:
		return l.err
	case l.client.closed.Load():
		return l.about(makeError(ErrClosed, "", 0))
	}
	return nil
}

func (l *lock) check(ctx context.Context) error {
	if err := l.usable(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return l.about(contextError(ctx))
	}
	return nil
}

// grant waits for the result of an acquisition; the hold in it is 0 for a latch. One that comes when ctx has ended is
// given back, as the caller expects no lock any more.
func (l *lock) grant(ctx context.Context, w wish) (hold uint64, fencing int64, err error) {
	if err := l.check(ctx); err != nil {
		return 0, 0, err
	}
	c := l.client
	w.kind, w.lock = l.kind, l.handle
	k := c.begin()
	defer c.end(k)
	slice := c.slice(ctx, k)
	s := startAcquire(w, slice, c.events.queue, k.token)
	c.unblock(slice)
	runtime.KeepAlive(l)
	hold, fencing, err = s.hold, s.fencing, s.err
	if s.code == codeAgain {
		var e event
		e, err = c.await(ctx, s, k, w.waitMS > 0)
		hold, fencing = e.hold, e.fencing
	}
	if hold != 0 && ended(ctx) {
		giveBack(hold)
		hold, err = 0, contextError(ctx)
	}
	if err != nil {
		return 0, 0, l.fail(withContext(ctx, err))
	}
	return hold, fencing, nil
}

func (l *lock) acquire(ctx context.Context, w wish) (*Hold, error) {
	w.here = l.here(ctx)
	handle, fencing, err := l.grant(ctx, w)
	if err != nil {
		return nil, err
	}
	return l.newHold(handle, fencing, w.here.actor), nil
}

func (l *lock) ask(ctx context.Context, what question) (event, error) {
	if err := l.check(ctx); err != nil {
		return event{}, err
	}
	defer runtime.KeepAlive(l)
	e, err := l.client.run(ctx, false, what == askForceRelease, func(token uint64) started {
		return startAsk(what, l.handle, 0, l.client.events.queue, token)
	})
	return e, l.fail(err)
}

// Info is what the server says about a lock. Permits are Held if any of them is, a semaphore if none is free, and a latch
// while it is shut.
type Info struct {
	Held      bool
	Mine      bool          // held through this client
	Owner     string        // "<client uuid>:<number>"; "" if free
	Count     int64         // hold count on the wire; readers; free permits; a latch's count
	Remaining time.Duration // until the lease ends, of permits the first; negative if there is none
	Waiting   int64         // processes subscribed to its wake-ups, or in a fair lock's queue; -1 unknown
	Token     int64         // the last fencing token issued; 0 none
	Identity  *Identity     // the process behind the owner; nil if it is not known
}

// Info asks the server who holds the lock, and which process that is.  It fails with ErrWrongType if the name is used
// for another kind, as far as the server's data show it.
func (l *lock) Info(ctx context.Context) (Info, error) {
	e, err := l.ask(ctx, askInfo)
	if err != nil {
		return Info{}, err
	}
	info := Info{Held: e.held, Mine: e.mine, Owner: e.text, Count: e.count, Remaining: e.remaining,
		Waiting: e.waiting, Token: e.fencing}
	if info.Owner != "" { // the rest is true without it
		info.Identity, _ = l.client.Identity(ctx, info.Owner)
	}
	return info, nil
}

// ForceRelease deletes the lock, whoever holds it, and wakes the waiters. The error matches [ErrNotHeld] if
// there was nothing to delete. A holder that uses Snib learns of it at its next renewal, one with a fixed lease at its
// Unlock or its end. Permits are deleted with their number, and a latch opens. Locks made of several others do not
// support this.
func (l *lock) ForceRelease(ctx context.Context) error {
	_, err := l.ask(ctx, askForceRelease)
	return err
}

// A Locker is a lock of any kind: [Multi] and [Quorum] take Lockers.
type Locker interface {
	Lock(ctx context.Context) (*Hold, error)
	TryLock(ctx context.Context) (*Hold, error)
	Do(ctx context.Context, work func(context.Context) error) error
	Info(ctx context.Context) (Info, error)
	ForceRelease(ctx context.Context) error
	Name() string
	Kind() string
	self() *lock
}

// locker is a lock that is held as a whole.
type locker struct{ *lock }

func (l locker) self() *lock { return l.lock }

// Lock waits for the lock until ctx ends; ctx limits the wait, not the hold. If ctx ends before Lock returns, or had
// already ended, the error matches the context's, and the caller does not have the lock: one that was granted at that
// moment is given back.
func (l locker) Lock(ctx context.Context) (*Hold, error) { return l.hold(ctx, waitMS(ctx)) }

// TryLock tries once; the error matches [ErrBusy] if the lock is held.
func (l locker) TryLock(ctx context.Context) (*Hold, error) { return l.hold(ctx, 0) }

// Do waits for the lock until ctx ends, runs work while it is held, and unlocks, even if work panics. The context
// passed to work is cancelled with ctx, and when the lock is lost, see [Hold.Context]; work should then end. The Unlock
// does not end with ctx, so that the lock is free when Do returns: it waits for the server as long as the client's
// [Patience] lasts.
//
// Do returns nil if work returned nil and the lock was held all the time. Otherwise the error is that of the wait,
// of work, or of the Unlock, or joins the last two: it matches [ErrLost] if the lock was lost during the work,
// whatever work returned. An Unlock that fails alone may have the same code as a wait that fails, but then the text says
// that the work was done, and [Error.Retryable] is false.
func (l locker) Do(ctx context.Context, work func(context.Context) error) error {
	return do(ctx, work, l.Lock)
}

func (l locker) hold(ctx context.Context, wait int64) (*Hold, error) {
	if err := l.check(ctx); err != nil {
		return nil, err
	}
	return l.acquire(ctx, wish{owner: l.owner, count: 1, waitMS: wait})
}

// permits is n for the core; a number that does not fit becomes 0, which the core refuses.
func permits(n int) uint32 {
	if n < 0 || int64(n) > math.MaxUint32 {
		return 0
	}
	return uint32(n)
}
