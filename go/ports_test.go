//go:build cgo

package snib_test

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
)

// Ports for the servers of tests; tests/support/ports.c and ports.py follow the same rule.
//
// A port that the system gave away and that was closed again may be an outgoing connection's before the server has it:
// those come and go all the time. So these are below the system's range, in blocks. A block belongs to the process that
// has locked its file, so a server that is down keeps its port.
const (
	portsFirst  = 11000
	portsBlock  = 32
	portsBlocks = 300
	portsBus    = 10000 // each has a second port, so much higher, for a cluster's bus
)

var ownPorts struct {
	sync.Mutex
	lock  *os.File
	first int
	taken int
}

// reservePorts locks a block.
func reservePorts() error {
	for i := range portsBlocks {
		block := (os.Getpid() + i) % portsBlocks
		path := fmt.Sprintf("/tmp/snib-ports-%d-%d", os.Getuid(), block)
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			continue
		}
		if syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			ownPorts.lock, ownPorts.first = file, portsFirst+block*portsBlock
			return nil
		}
		_ = file.Close()
	}
	return fmt.Errorf("every block of ports is taken")
}

func portIsFree(port int) bool {
	listener, err := net.Listen("tcp4", ":"+strconv.Itoa(port))
	return err == nil && listener.Close() == nil
}

// freePort returns one of the process' own ports, in turn.
func freePort(t *testing.T) string {
	t.Helper()
	ownPorts.Lock()
	defer ownPorts.Unlock()
	if ownPorts.lock == nil {
		must(t, reservePorts())
	}
	for range portsBlock {
		port := ownPorts.first + ownPorts.taken%portsBlock
		ownPorts.taken++
		if portIsFree(port) && portIsFree(port+portsBus) {
			return strconv.Itoa(port)
		}
	}
	t.Fatal("none of the ports of the process is free")
	return ""
}
