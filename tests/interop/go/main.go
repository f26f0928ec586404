// Command peer runs redsync behind a pipe: one command per line, one answer per line.
//
//	lock NAME LEASE_MS    waits; "ok"
//	try NAME LEASE_MS     "ok" or "taken"
//	extend NAME           "ok" or "lost"
//	unlock NAME           "ok" or "lost"
package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

func answer(held map[string]*redsync.Mutex, locks *redsync.Redsync, words []string) string {
	verb, name := words[0], words[1]
	switch verb {
	case "lock", "try":
		lease, _ := strconv.Atoi(words[2])
		tries := 1
		if verb == "lock" {
			tries = 10_000
		}
		mutex := locks.NewMutex(name,
			redsync.WithExpiry(time.Duration(lease)*time.Millisecond),
			redsync.WithTries(tries), redsync.WithRetryDelay(5*time.Millisecond))
		var taken *redsync.ErrTaken
		if err := mutex.Lock(); errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed) {
			return "taken"
		} else if err != nil {
			return err.Error()
		}
		held[name] = mutex
		return "ok"
	case "extend":
		if ok, _ := held[name].Extend(); !ok {
			return "lost"
		}
		return "ok"
	default:
		if ok, _ := held[name].Unlock(); !ok {
			return "lost"
		}
		return "ok"
	}
}

func main() {
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: os.Args[1]})
	locks := redsync.New(goredis.NewPool(client))
	held := map[string]*redsync.Mutex{}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println(answer(held, locks, strings.Fields(lines.Text())))
	}
}
