//go:build cgo

package snib_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	snib "github.com/snib-lock/snib/go"
)

// TestReplicas acquires on a server without replicas, and then on one with a replica.
func TestReplicas(t *testing.T) {
	port := freePort(t)
	master, err := launch("--port", port, "--repl-diskless-sync-delay", "0")
	if err != nil {
		t.Fatal(err)
	}
	defer master.stop()
	if had := replicasOf(t, master); had != 0 {
		t.Errorf("%d replicas had a grant of a server that has none", had)
	}
	replica, err := launch("--replicaof", "127.0.0.1 "+port)
	if err != nil {
		t.Fatal(err)
	}
	defer replica.stop()
	for end := time.Now().Add(patience); replicasOf(t, master) != 1; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the replica never had a grant")
		}
	}
	if !errors.Is(&snib.Error{Code: snib.ErrTooFewReplicas}, snib.ErrTooFewReplicas) ||
		!strings.Contains(snib.ErrTooFewReplicas.Error(), "replicas") {
		t.Error("ErrTooFewReplicas does not match itself")
	}
}

// replicasOf returns how many replicas had a grant that waited for one.
func replicasOf(t *testing.T, s *server) int {
	t.Helper()
	client, err := snib.Open(context.Background(), s.url(), snib.Durability(1), snib.DurabilityPolicy(snib.DurabilityReport))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	mutex := client.Reentrant("replicas", 7)
	hold, again := lock(t, mutex), lock(t, mutex)
	had := hold.Replicas()
	must(t, hold.Unlock(context.Background()))
	if n := hold.Replicas(); n != 0 || again.Replicas() != had {
		t.Errorf("unlocked: %d; held: %d, which was %d", n, again.Replicas(), had)
	}
	must(t, again.Unlock(context.Background()))
	return had
}
