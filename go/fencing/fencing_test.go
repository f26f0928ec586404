package fencing_test

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/snib-lock/snib/go/fencing"
)

// steps are requests in the order in which they reach the resource.
var steps = []struct {
	token  int64
	owner  string
	accept bool
}{
	{7, "a", true},
	{7, "a", true},  // the same hold again
	{7, "b", false}, // a counter that was lost and starts again
	{6, "a", false},
	{9, "b", true},
	{8, "a", false},
	{10, "a", true}, // more digits, although smaller as text
	{9, "b", false},
	{1<<53 + 1, "a", true},
	{1 << 53, "b", false}, // equal to the previous one as a float
	{1<<53 + 2, "b", true},
	{math.MaxInt64 - 1, "a", true},
	{math.MaxInt64, "b", true},
	{math.MaxInt64 - 1, "a", false},
}

func TestFence(t *testing.T) {
	var fence fencing.Fence
	for i, step := range steps {
		err := fence.Accept(step.token, step.owner)
		if step.accept != (err == nil) || err != nil && !errors.Is(err, fencing.ErrStale) {
			t.Errorf("step %d: %+v: %v", i, step, err)
		}
	}
	if seen := fence.Seen(); seen != (fencing.Mark{Token: math.MaxInt64, Owner: "b"}) {
		t.Errorf("seen %+v", seen)
	}
}

func TestFenceWithoutAToken(t *testing.T) {
	var fence fencing.Fence
	for _, token := range []int64{0, -1, math.MinInt64} {
		if err := fence.Accept(token, ""); !errors.Is(err, fencing.ErrNoToken) {
			t.Errorf("token %d: %v", token, err)
		}
	}
	if fence.Seen() != (fencing.Mark{}) {
		t.Errorf("seen %+v", fence.Seen())
	}
}

func TestDo(t *testing.T) {
	var fence fencing.Fence
	broken := errors.New("broken")
	if err := fence.Do(5, "a", func() error { return broken }); err != broken {
		t.Errorf("do: %v", err)
	}
	if err := fence.Do(4, "b", func() error { t.Error("ran"); return nil }); err != fencing.ErrStale {
		t.Errorf("stale: %v", err)
	}
}

func TestRestore(t *testing.T) {
	var fence fencing.Fence
	fence.Restore(fencing.Mark{Token: 5, Owner: "a"})
	fence.Restore(fencing.Mark{Token: 4, Owner: "b"})
	if err := fence.Accept(4, "b"); err != fencing.ErrStale {
		t.Errorf("below the mark: %v", err)
	}
	if err := fence.Accept(5, "a"); err != nil {
		t.Errorf("at the mark: %v", err)
	}
}

// Accepted marks increase, however many goroutines compete.
func TestFenceRises(t *testing.T) {
	var fence fencing.Fence
	var all sync.WaitGroup
	var inside []int64
	for i := range 8 {
		all.Add(1)
		go func() {
			defer all.Done()
			for token := int64(i + 1); token < 500; token += 8 {
				_ = fence.Do(token, "owner", func() error {
					inside = append(inside, token)
					return nil
				})
			}
		}()
	}
	all.Wait()
	for i := range len(inside) - 1 {
		if inside[i] >= inside[i+1] {
			t.Fatalf("%d after %d", inside[i+1], inside[i])
		}
	}
}

func ExampleFence() {
	var fence fencing.Fence // one for each protected resource
	fmt.Println(fence.Accept(33, "paused"))
	fmt.Println(fence.Accept(34, "next"))
	fmt.Println(fence.Accept(33, "paused"))
	// Output:
	// <nil>
	// <nil>
	// fencing: the token is stale: a newer hold has been accepted
}
