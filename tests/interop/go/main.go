// Command peer runs redsync or redislock, its first argument, behind a pipe: one command per line, one answer per line.
//
//	lock NAME LEASE_MS    waits; "ok"
//	try NAME LEASE_MS     "ok" or "taken"
//	extend NAME           "ok" or "lost"
//	unlock NAME           "ok" or "lost"
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// A lock of either library, with the same results.
type lock interface {
	extend() bool
	unlock() bool
}

// takes acquires a lock, waiting or not; nil and no error: it is taken.
type takes func(name string, lease time.Duration, wait bool) (lock, error)

const retry = 5 * time.Millisecond

type redsyncLock struct{ *redsync.Mutex }

func (l redsyncLock) extend() bool { ok, _ := l.Extend(); return ok }
func (l redsyncLock) unlock() bool { ok, _ := l.Unlock(); return ok }

func withRedsync(client *redis.Client) takes {
	locks := redsync.New(goredis.NewPool(client))
	return func(name string, lease time.Duration, wait bool) (lock, error) {
		tries := 1
		if wait {
			tries = 10_000
		}
		mutex := locks.NewMutex(name,
			redsync.WithExpiry(lease), redsync.WithTries(tries), redsync.WithRetryDelay(retry))
		var taken *redsync.ErrTaken
		if err := mutex.Lock(); errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
		return redsyncLock{mutex}, nil
	}
}

type redislockLock struct {
	*redislock.Lock
	lease time.Duration
}

func (l redislockLock) extend() bool { return l.Refresh(context.Background(), l.lease, nil) == nil }
func (l redislockLock) unlock() bool { return l.Release(context.Background()) == nil }

func withRedislock(client *redis.Client) takes {
	locks := redislock.New(client)
	return func(name string, lease time.Duration, wait bool) (lock, error) {
		options := &redislock.Options{}
		if wait {
			options.RetryStrategy = redislock.LinearBackoff(retry)
		}
		taken, err := locks.Obtain(context.Background(), name, lease, options)
		if errors.Is(err, redislock.ErrNotObtained) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
		return redislockLock{taken, lease}, nil
	}
}

func answer(held map[string]lock, take takes, words []string) string {
	verb, name := words[0], words[1]
	switch verb {
	case "lock", "try":
		lease, _ := strconv.Atoi(words[2])
		got, err := take(name, time.Duration(lease)*time.Millisecond, verb == "lock")
		if err != nil {
			return err.Error()
		} else if got == nil {
			return "taken"
		}
		held[name] = got
		return "ok"
	case "extend":
		if !held[name].extend() {
			return "lost"
		}
		return "ok"
	default:
		if !held[name].unlock() {
			return "lost"
		}
		return "ok"
	}
}

func main() {
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: os.Args[2]})
	take := map[string]func(*redis.Client) takes{"redsync": withRedsync, "redislock": withRedislock}[os.Args[1]](client)
	held := map[string]lock{}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println(answer(held, take, strings.Fields(lines.Text())))
	}
}
