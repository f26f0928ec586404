//go:build cgo

package snib

import (
	"fmt"
	"runtime"
	"slices"
)

// A Group is several locks held as one; see [Multi] and [Quorum].
type Group struct {
	locker
	members []*lock
	options []LockOption
}

// Multi combines 1 to 100 locks into one: all of them are held, or none. They may be of any kind but semaphore and
// latch, and of different clients. They are always taken in the same order, whatever their order here, so that
// processes cannot deadlock. The hold is lost as soon as one of them is lost. The members' own options are ignored
// in favour of those of [Group.With]. If another client than that of the first is closed, a wait does not end before the turn
// of its member comes, and then with [ErrClosed].
func Multi(locks ...Locker) *Group { return newLockGroup(kindMulti, members(locks), nil) }

// Quorum combines 3 to 15 mutexes of the same name, each of a different client with its own server, into one lock:
// it is held while a majority of them is held. The servers must be independent of each other. A server that was
// restarted does not vote until every lease that it may have forgotten has ended, see [NoQuarantine].
//
// Every program names all servers, also those that are down, so open the clients with [NoPing]. If one left out a server,
// it would count another majority, and two programs could hold the lock at the same time.
func Quorum(locks ...Locker) *Group { return newLockGroup(kindQuorum, members(locks), nil) }

// With returns the group with these options too; they take precedence over those that it has.
func (g *Group) With(options ...LockOption) *Group {
	if g.lock == nil { // a zero Group
		return g
	}
	return newLockGroup(g.kind, g.members, slices.Concat(g.options, options))
}

func members(locks []Locker) []*lock {
	all := make([]*lock, len(locks))
	for i, member := range locks {
		all[i] = selfOf(member)
	}
	return all
}

// selfOf returns nil for a Locker that is nil, or a nil pointer, or embeds one: whatever the type, its method panics then.
func selfOf(member Locker) (l *lock) {
	defer func() { _ = recover() }()
	return member.self()
}

func newLockGroup(k kind, members []*lock, options []LockOption) *Group {
	l := &lock{kind: k}
	defer func() { l.err = l.fail(l.err) }()
	g := &Group{locker{l}, members, options}
	handles := make([]uint64, len(members))
	for i, member := range members {
		if member == nil {
			l.err = makeError(ErrInvalidArgument, fmt.Sprintf("member %d is not a lock", i+1), 0)
			return g
		}
		if err, bad := member.usable().(*Error); bad {
			said := *err // a copy: the member's other users have the original
			if l.err = &said; said.Code == ErrClosed {
				l.err = makeError(ErrClosed, "a member's client is closed", 0)
			}
			return g
		}
		handles[i] = member.handle
		if i == 0 {
			l.name = member.name
		} else if k == kindMulti {
			l.name += ", " + member.name
		}
	}
	if len(members) > 0 {
		l.client = members[0].client // its queue delivers the group's events
	}
	o := newLockOptions(options)
	l.take(o, func() (uint64, error) { return newGroup(k, handles, o) })
	runtime.KeepAlive(members)
	return g
}
