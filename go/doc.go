//go:build cgo

// Package snib gives distributed locks on Redis and Valkey, wire-compatible with Redisson.
//
// A [Client] is one connection set to one server. From it come locks, cheap and safe for use by many
// goroutines. What is done under a lock is a function, whose context ends when the lock is lost:
//
//	client, err := snib.Open(ctx, "redis://127.0.0.1:6379")
//	err = client.Mutex("orders").Do(ctx, func(ctx context.Context) error {
//		return work(ctx)
//	})
//
// or what follows a [Hold]: one successful acquisition, which is what you own, inspect and unlock.
//
//	hold, err := client.Mutex("orders").Lock(ctx)
//	defer hold.Unlock(context.WithoutCancel(ctx))
//	err = work(hold.Context(ctx))
//
// The kinds of locks, each the Redisson type in brackets on the wire:
//
//   - [Client.Mutex]: one holder [RLock]; [Client.Reentrant] with an owner that re-enters
//   - [Client.Fair]: first come, first served between all processes [RFairLock]
//   - [Client.RW]: many readers or one writer [RReadWriteLock]
//   - [Client.Fenced]: holds carry a rising token [RFencedLock], for the checks of package fencing
//   - [Client.Spin]: waiters ask again and again [RSpinLock]
//   - [Client.Plain]: a string set by SET NX PX, as many libraries write it
//   - [Client.Permits]: a number of permits with a lease each [RPermitExpirableSemaphore]
//   - [Client.Semaphore]: a number of permits without owners [RSemaphore]
//   - [Client.Latch]: a count that is waited for to become 0 [RCountDownLatch]
//   - [Multi]: several locks, or none of them; [Quorum]: most of several servers
//
// A lock without a lease of its own is renewed while it is held, by a thread of the C core that needs
// no goroutine. When a hold can no longer be trusted it is lost, for ever, before the lease at the
// server can have ended. A hold that is dropped without an Unlock is not given back by the garbage
// collector: its lease runs out, and a log record says so.
//
// Errors are of type *[Error], with the lock's name, its kind and the reason of a loss; compare with
// errors.Is and the constants from [ErrBusy] to [ErrForked].
//
// One rule for contexts: with one that has ended nothing is begun (a release is, but not waited for). When
// one ends under way the operation is cancelled unless it was done already, and what was done is reported.
// An error that a context caused matches the context's error, and [Error.MaybeApplied] tells whether
// something may have been done all the same.
//
// The package compiles the C core that lies beside it and needs cgo, a C compiler, libhiredis and
// libuuid. The build tag snib_system links the installed libsnib instead.
package snib
