//go:build cgo

// Package snib provides distributed locks on Redis and Valkey, wire-compatible with Redisson.
//
// A [Client] holds the connections to one deployment. It creates locks, which are cheap and safe for use by
// many goroutines. The work under a lock is a function whose context is cancelled when the lock is lost:
//
//	client, err := snib.Open(ctx, "redis://127.0.0.1:6379")
//	err = client.Mutex("orders").Do(ctx, func(ctx context.Context) error {
//		return work(ctx)
//	})
//
// or code that uses a [Hold]: one successful acquisition, which the caller owns, inspects and unlocks.
//
//	hold, err := client.Mutex("orders").Lock(ctx)
//	defer hold.Unlock(context.WithoutCancel(ctx))
//	err = work(hold.Context(ctx))
//
// These are the kinds of locks; on the wire each is the Redisson type in brackets:
//
//   - [Client.Mutex]: one holder [RLock]; [Client.Reentrant]: the same with an owner that may re-enter
//   - [Client.Fair]: first come, first served across all processes [RFairLock]
//   - [Client.RW]: many readers or one writer [RReadWriteLock]
//   - [Client.Fenced]: holds carry increasing tokens [RFencedLock], which package fencing checks
//   - [Client.Spin]: waiters poll [RSpinLock]
//   - [Client.Plain]: a string set by SET NX PX, as many libraries write it
//   - [Client.Permits]: a number of permits with a lease each [RPermitExpirableSemaphore]
//   - [Client.Semaphore]: a number of permits without owners [RSemaphore]
//   - [Client.Latch]: a count; waiters wait until it is 0 [RCountDownLatch]
//   - [Multi]: all of several locks, or none; [Quorum]: a majority of several servers
//
// A lock without an explicit lease is renewed while it is held, by a thread of the C core that needs
// no goroutine. When a hold can no longer be trusted it is lost, permanently, before the lease on the
// server can have ended. The garbage collector does not release a hold that is dropped without an
// Unlock: its lease runs out, and a log record says so. Nor does the end of the program, whether main
// returns or calls os.Exit: close the clients before it.
//
// Errors are of type *[Error], with the lock's name, its kind and the reason of a loss; compare with
// errors.Is and the constants from [ErrBusy] to [ErrForked].
//
// One rule applies to contexts: a call with a context that has already ended starts nothing (a release does start, but
// the call does not wait for it). If the context ends during a call, the operation is cancelled unless it was already
// done, and the call reports what was done; but a lock that was granted is given back. An error caused by a context
// matches the context's error, and [Error.MaybeApplied] tells whether something may have been done anyway. Calls notice
// a cancel within some milliseconds; after a deadline they may wait up to 100 ms for the core, which knows more about
// why the time was not enough. If it does not know by then, because the server has not replied, the error is [ErrTimeout]
// with a text that begins with the context's deadline, and says nothing about the lock. The Unlock at the end of a Do does
// not end with the context: it waits for the server as long as the client's [Patience] lasts.
//
// The package runs on Linux. It compiles the C core that is included in it, and needs cgo, a C compiler, libhiredis and
// libuuid. The build tag snib_system links the installed libsnib instead, which must have the same major and minor
// version, or [Open] returns [ErrNotSupported]. For TLS it loads OpenSSL 3 when it is first needed, which a statically linked
// program cannot do: there Open returns [ErrNotSupported] too.
package snib
