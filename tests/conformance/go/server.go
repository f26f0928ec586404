package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/snib-lock/snib/go/snibtest"
)

// server is one of the program's servers: a real one, or a memory server of this process.
type server struct {
	scheme, rest string // its URL, with room for a user between them
	raw          *raw
	memory       *snibtest.Server
}

func reach(address string) server {
	name, isMemory := strings.CutPrefix(address, "memory://")
	if !isMemory {
		return server{"unix://", address, dial(address), nil}
	}
	memory, err := snibtest.New(name)
	if err != nil {
		panic(err)
	}
	ids, err := os.Stat("/proc/self/ns/pid")
	if err != nil {
		panic(err)
	}
	path := fmt.Sprintf("@snib-memory/%d/%d/%s", ids.Sys().(*syscall.Stat_t).Ino, os.Getpid(), name)
	return server{"memory://", name, dial(path), memory}
}

func (s server) shutdown() string {
	if s.memory != nil {
		s.memory.Stop()
	} else if !s.raw.ends("SHUTDOWN", "NOSAVE") {
		return "stuck"
	}
	return "ok"
}

// sickness has the commands that put a real server in a state, and end it.
var sickness = map[string]string{
	"oom on":         "CONFIG SET maxmemory 1",
	"oom off":        "CONFIG SET maxmemory 0",
	"noreplicas on":  "CONFIG SET min-replicas-to-write 1",
	"noreplicas off": "CONFIG SET min-replicas-to-write 0",
	"readonly on":    "REPLICAOF 127.0.0.1 1",
	"readonly off":   "REPLICAOF NO ONE",
}

func (s server) sick(state, onOrOff string) string {
	if s.memory == nil {
		return ok(s.raw.do(strings.Fields(sickness[state+" "+onOrOff])...))
	}
	if err := s.memory.Fault(state, onOrOff); err != nil {
		return err.Error()
	}
	return "ok"
}

func ok(reply string) string {
	if strings.HasPrefix(reply, "error ") {
		return reply
	}
	return "ok"
}

// raw is a connection that speaks just enough RESP2.
type raw struct {
	conn   net.Conn
	reader *bufio.Reader
}

func dial(socket string) *raw {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		panic(err)
	}
	return &raw{conn, bufio.NewReader(conn)}
}

func (r *raw) do(words ...string) string {
	r.send(words)
	return r.reply()
}

// ends reports whether the connection ends instead of answering a command.
func (r *raw) ends(words ...string) bool {
	r.send(words)
	_, err := r.reader.ReadByte()
	return err == io.EOF
}

func (r *raw) send(words []string) {
	var request strings.Builder
	fmt.Fprintf(&request, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(&request, "$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := io.WriteString(r.conn, request.String()); err != nil {
		panic(err)
	}
}

func (r *raw) reply() string {
	line, err := r.reader.ReadString('\n')
	if err != nil {
		panic(err)
	}
	mark, rest := line[0], line[1:len(line)-2]
	n, _ := strconv.Atoi(rest)
	switch {
	case mark == '-':
		return "error " + rest
	case (mark == '$' || mark == '*') && n < 0:
		return "nil"
	case mark == '$':
		text := make([]byte, n+2)
		if _, err := io.ReadFull(r.reader, text); err != nil {
			panic(err)
		}
		return string(text[:n])
	case mark == '*':
		parts := make([]string, n)
		for i := range parts {
			parts[i] = r.reply()
		}
		return strings.Join(parts, " ")
	}
	return rest
}
