//go:build cgo

package snib

import "slices"

// A Mutex is a named lock with one holder at a time. It is cheap, and safe for use by many goroutines: each
// successful Lock returns its own [Hold], and a second Lock waits for the Unlock of the first hold.
type Mutex struct{ locker }

func (c *Client) newMutex(k kind, name string, options []LockOption) *Mutex {
	return &Mutex{locker{c.newLock(k, name, newLockOptions(options))}}
}

// Mutex creates a lock for a name: 1 to 512 bytes of UTF-8 without control characters; the first braces, if any, must
// enclose a hash tag as in "{tenant}orders". The first call on the lock reports an invalid name or option.
func (c *Client) Mutex(name string, options ...LockOption) *Mutex {
	return c.newMutex(kindMutex, name, options)
}

// Reentrant is Mutex with an [Owner].
func (c *Client) Reentrant(name string, owner uint64, options ...LockOption) *Mutex {
	return c.newMutex(kindMutex, name, slices.Concat(options, []LockOption{Owner(owner)}))
}

// Fair creates a lock that is first come, first served across all processes, including those that use Redisson's
// fair lock. It costs more commands than a mutex; see [FencedTokens].
func (c *Client) Fair(name string, options ...LockOption) *Mutex {
	return c.newMutex(kindFair, name, options)
}

// Fenced creates a lock whose holds carry a fencing token, see [Hold.Token], so that the protected resource can
// refuse an outdated holder.
func (c *Client) Fenced(name string, options ...LockOption) *Mutex {
	return c.newMutex(kindFenced, name, options)
}

// Spin creates a lock whose waiters poll instead of being notified: for many short holds that hardly ever
// contend, and for server users that may not subscribe.
func (c *Client) Spin(name string, options ...LockOption) *Mutex {
	return c.newMutex(kindSpin, name, options)
}

// Plain creates a lock that is a string set by SET NX PX, as redis-py, redsync and node-redlock write it.
func (c *Client) Plain(name string, options ...LockOption) *Mutex {
	return c.newMutex(kindPlain, name, options)
}
