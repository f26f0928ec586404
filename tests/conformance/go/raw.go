package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

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
