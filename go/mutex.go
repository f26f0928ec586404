//go:build cgo

package snib

import "slices"

// A Mutex names one lock that one holder has at a time. It is cheap, and safe for use by many goroutines:
// each Lock that succeeds brings a [Hold] of its own, and a second Lock waits for the first hold's Unlock.
type Mutex struct{ locker }

func (c *Client) newMutex(k kind, name string, options []LockOption) *Mutex {
	return &Mutex{locker{c.newLock(k, name, newLockOptions(options))}}
}

// Mutex names a lock: 1 to 512 bytes of UTF-8 without control characters; braces, if any, form one hash
// tag as in "{tenant}orders". A bad name or option is reported by the first call.
func (c *Client) Mutex(name string, options ...LockOption) *Mutex {
	return c.newMutex(kindMutex, name, options)
}

// Reentrant is Mutex with an [Owner].
func (c *Client) Reentrant(name string, owner uint64, options ...LockOption) *Mutex {
	return c.newMutex(kindMutex, name, slices.Concat(options, []LockOption{Owner(owner)}))
}

// Fair names a lock that is given first come, first served between all processes, Redisson's fair locks
// among them. It costs more commands than a mutex; see [FencedTokens].
func (c *Client) Fair(name string, options ...LockOption) *Mutex {
	return c.newMutex(kindFair, name, options)
}

// Fenced names a lock whose holds carry a fencing token, see [Hold.Token]: what the lock protects can
// refuse who was overtaken.
func (c *Client) Fenced(name string, options ...LockOption) *Mutex {
	return c.newMutex(kindFenced, name, options)
}

// Spin names a lock whose waiters ask again and again instead of being told: for many short holds that
// hardly ever meet, and for users that may not subscribe.
func (c *Client) Spin(name string, options ...LockOption) *Mutex {
	return c.newMutex(kindSpin, name, options)
}

// Plain names a lock that is a string set by SET NX PX, as redis-py, redsync and node-redlock write it.
func (c *Client) Plain(name string, options ...LockOption) *Mutex {
	return c.newMutex(kindPlain, name, options)
}
