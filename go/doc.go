//go:build cgo

// Package snib gives distributed locks on Redis and Valkey, wire-compatible with Redisson.
//
// A [Client] is one connection set to one server. From it come locks, cheap and safe for use by many
// goroutines, and from a lock comes a [Hold]: one successful acquisition, which is what you own,
// inspect and unlock.
//
//	client, err := snib.Open(ctx, "redis://127.0.0.1:6379")
//	hold, err := client.Mutex("orders").Lock(ctx)
//	defer hold.Unlock(context.WithoutCancel(ctx))
//	work(hold.Context()) // cancelled when the lock is lost, with the cause ErrLost
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
// server can have ended.
//
// Errors are of type *[Error]; compare with errors.Is and the constants from [ErrBusy] to [ErrForked].
// A wait that a context ended matches the context's error as well.
//
// The package compiles the C core that lies beside it and needs cgo, a C compiler, libhiredis and
// libuuid. The build tag snib_system links the installed libsnib instead.
package snib
