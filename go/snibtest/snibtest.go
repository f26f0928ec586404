//go:build cgo

// Package snibtest is a Redis server inside the test's process, for programs that take locks.
//
//	server := snibtest.Start(t)
//	client, err := snib.Open(ctx, server.URL())
//	...
//	server.Stall()
//	server.Advance(30 * time.Second) // as if the machine had slept: the lock is lost
//
// The server runs the library's real scripts on data in memory. Its clock and that of all clients of the process are
// moved forward by hand, and faults are caused by name. It answers only what Snib sends, persists nothing, and is no
// cluster, sentinel or replica. A name belongs to the process: two programs that use the same name have two servers.
//
// The package needs cgo and Lua 5.1 with its pkg-config file lua5.1 (on Debian: liblua5.1-0-dev). Programs that do
// not import it need neither.
package snibtest

/*
#cgo CFLAGS: -std=gnu11 -O2 -fvisibility=hidden -DSNIB_STATIC -I${SRCDIR}/..
#cgo LDFLAGS: -lm -pthread
#cgo pkg-config: lua5.1
#include "snib_testing.h"
#include <stdlib.h>

void snib_memory_stand(void);
*/
import "C"

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	_ "github.com/snib-lock/snib/go" // whose clients' clock is moved
	"github.com/snib-lock/snib/go/internal/clock"
)

// Server is a memory server. Its methods may be called from any goroutine; those that cause faults, and Has,
// panic if the server cannot do what is asked, because the test is wrong then.
type Server struct {
	mutex  sync.Mutex
	handle *C.snib_memory // nil: stopped
	url    string
}

// Start starts a server that ends with the test.
func Start(t testing.TB) *Server {
	t.Helper()
	server, err := New("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	return server
}

// New starts a server, to be ended with Stop. Programs reach it as memory://name; "" makes a name that nothing else
// uses.
func New(name string) (*Server, error) {
	var handle *C.snib_memory
	var err C.snib_error
	if err := noNUL(name); err != nil {
		return nil, err
	}
	given, free := text(name)
	defer free()
	if C.snib_memory_start(given, &handle, &err) != C.SNIB_OK {
		return nil, told(&err)
	}
	return &Server{handle: handle, url: C.GoString(C.snib_memory_url(handle))}, nil
}

func told(err *C.snib_error) error { return errors.New("snibtest: " + C.GoString(&err.text[0])) }

func (s *Server) stopped() error {
	return errors.New("snibtest: the memory server " + s.url + " is stopped")
}

func noNUL(texts ...string) error {
	if strings.ContainsRune(strings.Join(texts, ""), 0) {
		return errors.New("snibtest: a name or an argument contains a NUL")
	}
	return nil
}

// text is NULL for "".
func text(value string) (*C.char, func()) {
	if value == "" {
		return nil, func() {}
	}
	given := C.CString(value)
	return given, func() { C.free(unsafe.Pointer(given)) }
}

// URL is memory://name, for snib.Open.
func (s *Server) URL() string { return s.url }

// Stop ends the server, with its data and connections. It may be called again.
func (s *Server) Stop() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	C.snib_memory_stop(s.handle)
	s.handle = nil
}

// Fault causes a fault by its name, as snib_memory_fault in snib_testing.h describes it; "" is no argument.
func (s *Server) Fault(name, argument string) error {
	var err C.snib_error
	if err := noNUL(name, argument); err != nil {
		return err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.handle == nil {
		return s.stopped()
	}
	givenName, freeName := text(name)
	defer freeName()
	given, free := text(argument)
	defer free()
	if C.snib_memory_fault(s.handle, givenName, given, &err) != C.SNIB_OK {
		return told(&err)
	}
	return nil
}

func (s *Server) must(name, argument string) {
	if err := s.Fault(name, argument); err != nil {
		panic(err)
	}
}

// Advance moves the clocks of all memory servers and of all clients of this process forward, as if the whole machine
// had been suspended for that time: a hold whose lease ends meanwhile is lost. To let holds be renewed, advance by a
// third of a lease at a time, and wait until their remaining time has grown.
func (s *Server) Advance(d time.Duration) {
	var failure C.snib_error
	ms := d.Milliseconds()
	if d%time.Millisecond > 0 {
		ms++
	}
	C.snib_memory_stand() // until both have moved, no server answers
	wrong := clock.Advance(ms)
	if wrong != nil {
		ms = 0
	}
	if C.snib_memory_advance(C.int64_t(ms), &failure) != C.SNIB_OK {
		panic(told(&failure))
	}
	if wrong != nil {
		panic(wrong)
	}
}

// LoseReply executes the next script, but loses its reply and cuts its connection.
func (s *Server) LoseReply() { s.must("lose_reply", "") }

// Stall reads and answers nothing until Resume. The Close of a client that still holds locks waits for its patience,
// as at a real server that hangs.
func (s *Server) Stall() { s.must("stall", "") }

// Resume ends Stall.
func (s *Server) Resume() { s.must("resume", "") }

// Refuse cuts all connections and accepts none until Accept.
func (s *Server) Refuse() { s.must("refuse", "") }

// Accept ends Refuse.
func (s *Server) Accept() { s.must("accept", "") }

// KillConnections cuts all connections.
func (s *Server) KillConnections() { s.must("kill_connection", "") }

// KillConnection cuts one connection; 1 is the oldest.
func (s *Server) KillConnection(which int) { s.must("kill_connection", strconv.Itoa(which)) }

// Expire ends a key, usually the lock's, now; nobody is told.
func (s *Server) Expire(key string) { s.must("expire", key) }

// Snapshot remembers the data for Failover.
func (s *Server) Snapshot() { s.must("snapshot", "") }

// Failover replaces the server by another one, with the data of the last Snapshot or without data.
func (s *Server) Failover() { s.must("failover", "") }

// Heal ends all faults that last.
func (s *Server) Heal() { s.must("heal", "") }

// Has reports whether the server has this key. It panics if the server is stopped.
func (s *Server) Has(key string) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.handle == nil {
		panic(s.stopped())
	}
	if noNUL(key) != nil { // a text of C would end there
		return false
	}
	given := C.CString(key)
	defer C.free(unsafe.Pointer(given))
	return C.snib_memory_has(s.handle, given) != 0
}
