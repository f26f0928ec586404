package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	"github.com/snib-lock/snib/go"
)

const lease = 30 * time.Second

func newSnib(ctx context.Context, at place, _ string, n int) ([]pair, error) {
	client, err := snib.Open(ctx, at.url)
	if err != nil {
		return nil, err
	}
	return snibPairs(client, n), nil
}

func snibPairs(client *snib.Client, n int) []pair {
	pairs := make([]pair, n)
	for i := range pairs {
		mutex := client.Mutex(lockName(i))
		pairs[i] = func(ctx context.Context) error {
			hold, err := mutex.Lock(ctx)
			if err != nil {
				return err
			}
			return hold.Unlock(ctx)
		}
	}
	return pairs
}

func newRueidis(ctx context.Context, at place, scripts string, n int) ([]pair, error) {
	// A client of a cluster, if these are its nodes.
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: at.addrs, TLSConfig: at.secure})
	if err != nil {
		return nil, err
	}
	acquire, err := load(ctx, client, scripts, "mutex_acquire")
	if err != nil {
		return nil, err
	}
	release, err := load(ctx, client, scripts, "mutex_release")
	if err != nil {
		return nil, err
	}
	pairs := make([]pair, n)
	for i := range pairs {
		pairs[i] = scriptPair(client, acquire, release, lockName(i))
	}
	return pairs, nil
}

// load loads a script into every server.
func load(ctx context.Context, client rueidis.Client, folder, name string) (sha1 string, err error) {
	text, err := os.ReadFile(filepath.Join(folder, name+".lua"))
	if err != nil {
		return "", err
	}
	for _, node := range client.Nodes() {
		load := node.B().ScriptLoad().Script(string(text)).Build()
		if sha1, err = node.Do(ctx, load).ToString(); err != nil {
			return "", err
		}
	}
	return sha1, nil
}

// scriptPair sends the scripts with a fresh owner for each acquisition, as Snib does.
func scriptPair(client rueidis.Client, acquire, release, key string) pair {
	channel := "redisson_lock__channel:{" + key + "}"
	leaseMs := strconv.FormatInt(lease.Milliseconds(), 10)
	number := 0
	return func(ctx context.Context) error {
		number++
		owner := "5b3c1f9e-8a52-8d11-9c39-6f0d2a4be7c1:" + strconv.Itoa(number)
		got := client.Do(ctx, client.B().Evalsha().Sha1(acquire).Numkeys(1).Key(key).
			Arg(owner, leaseMs).Build())
		if err := got.Error(); !rueidis.IsRedisNil(err) {
			return fmt.Errorf("not acquired: %w", err)
		}
		receivers, err := client.Do(ctx, client.B().Evalsha().Sha1(release).Numkeys(1).Key(key).
			Arg(owner, channel).Build()).AsInt64()
		if err == nil && receivers < 1 {
			err = fmt.Errorf("not released")
		}
		return err
	}
}

func newRueidislock(_ context.Context, at place, _ string, n int) ([]pair, error) {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: at.addrs[:1]},
		KeyMajority:    1,
		NoLoopTracking: true,
		KeyValidity:    lease,
	})
	if err != nil {
		return nil, err
	}
	pairs := make([]pair, n)
	for i := range pairs {
		name := lockName(i)
		pairs[i] = func(ctx context.Context) error {
			_, unlock, err := locker.WithContext(ctx, name)
			if err == nil {
				unlock()
			}
			return err
		}
	}
	return pairs, nil
}

// pool has a connection for each goroutine, so that none of them waits for another.
func pool(addr string, n int) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, PoolSize: n})
}

func newRedislock(_ context.Context, at place, _ string, n int) ([]pair, error) {
	locker := redislock.New(pool(at.addrs[0], n))
	pairs := make([]pair, n)
	for i := range pairs {
		name := lockName(i)
		pairs[i] = func(ctx context.Context) error {
			lock, err := locker.Obtain(ctx, name, lease, nil)
			if err != nil {
				return err
			}
			return lock.Release(ctx)
		}
	}
	return pairs, nil
}

// nodeTimeout is how long redsync waits for one of several servers: long for a server, but short compared with
// go-redis' own 3 s with 3 more tries.
const nodeTimeout = 250 * time.Millisecond

func newRedsync(_ context.Context, at place, _ string, n int) ([]pair, error) {
	return redsyncPairs(at.addrs, n), nil
}

// newRedsyncFast returns with the majority's answers, without waiting for the rest.
func newRedsyncFast(_ context.Context, at place, _ string, n int) ([]pair, error) {
	return redsyncPairs(at.addrs, n, redsync.WithFailFast(true)), nil
}

func redsyncPairs(addrs []string, n int, options ...redsync.Option) []pair {
	pools := make([]redsyncredis.Pool, len(addrs))
	for i, addr := range addrs {
		options := &redis.Options{Addr: addr, PoolSize: n}
		if len(addrs) > 1 {
			options.ReadTimeout, options.PoolTimeout, options.MaxRetries = nodeTimeout, nodeTimeout, -1
		}
		pools[i] = goredis.NewPool(redis.NewClient(options))
	}
	sync := redsync.New(pools...)
	options = append(options, redsync.WithExpiry(lease))
	pairs := make([]pair, n)
	for i := range pairs {
		name := lockName(i)
		pairs[i] = func(ctx context.Context) error {
			mutex := sync.NewMutex(name, options...)
			if err := mutex.LockContext(ctx); err != nil {
				return err
			}
			_, err := mutex.UnlockContext(ctx)
			return err
		}
	}
	return pairs
}
