package snibotel

import (
	"container/list"
	"sync"
	"weak"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	snib "github.com/snib-lock/snib/go"
	"github.com/snib-lock/snib/go/internal/place"
)

// limit is of how many locks the last holder is remembered; the one that was held least recently is forgotten.
const limit = 1024

var says = attribute.String("snib.link", "previous_hold")

// lockKey tells locks apart.
type lockKey struct{ kind, place string }

// chain is the holders of one lock, which are noted only if their spans are recorded.
type chain struct {
	key    lockKey // without a place: of a fake
	shared bool    // several may hold it at the same time
}

func newChain(lock any, kind string) chain {
	c := chain{lockKey{kind, place.Of(lock)}, kind == "read" || kind == "permits" || kind == "semaphore"}
	if kind == "read" || kind == "write" {
		c.key.kind = "rw"
	}
	return c
}

// readers is the chain of those who have the lock after its writer became one of them.
func (c chain) readers() chain { return chain{c.key, true} }

// holder is a hold with a span. It does not keep the hold, which may be dropped.
type holder struct {
	chain chain
	span  trace.SpanContext
	hold  weak.Pointer[snib.Hold]
	owner string
	ended bool
}

// letsIn returns whether a reader that comes in now is within its hold: it is a writer's, and has the lock.
func (h *holder) letsIn() bool {
	hold := h.hold.Value()
	if h.ended || hold == nil {
		return false
	}
	state, _ := hold.State()
	return state != snib.StateLost
}

// table has the last holder of each lock.
type table struct {
	mu    sync.Mutex
	order *list.List // of *holder, by the time at which they were noted
	last  map[lockKey]*list.Element
}

var holders = newTable()

func newTable() *table {
	return &table{order: list.New(), last: map[lockKey]*list.Element{}}
}

// find returns the last holder, or nil.
func (t *table) find(key lockKey) *holder {
	if at := t.last[key]; at != nil {
		return at.Value.(*holder)
	}
	return nil
}

func (t *table) note(h *holder) {
	if at := t.last[h.chain.key]; at != nil {
		t.order.Remove(at)
	}
	t.last[h.chain.key] = t.order.PushBack(h)
	if len(t.last) > limit {
		oldest := t.order.Remove(t.order.Front()).(*holder)
		delete(t.last, oldest.chain.key)
	}
}

// begin links the span of a new hold to that of the last holder. One that has the lock alone is the last holder at
// once: if it is lost, the next one may begin before the program hears of it.
func (c chain) begin(span trace.Span, hold *snib.Hold, owner string) *holder {
	if c.key.place == "" {
		return nil
	}
	h := &holder{chain: c, span: span.SpanContext(), hold: weak.Make(hold), owner: owner}
	holders.mu.Lock()
	last := holders.find(c.key)
	again := last != nil && !last.ended && last.owner == h.owner // it still has the lock, and this is another hold of it
	within := c.shared && last != nil && last.letsIn()
	if !c.shared && !again {
		holders.note(h)
	}
	holders.mu.Unlock()
	if last != nil && !again && !within {
		span.AddLink(trace.Link{SpanContext: last.span, Attributes: []attribute.KeyValue{says}})
	}
	if again && !c.shared {
		return nil
	}
	return h
}

// end is called before the release is sent, because the next holder does not wait for its answer.
func (h *holder) end() {
	if h == nil {
		return
	}
	holders.mu.Lock()
	defer holders.mu.Unlock()
	if h.ended {
		return
	}
	h.ended = true
	if last := holders.find(h.chain.key); h.chain.shared && (last == nil || last.ended) { // not within a writer's hold
		holders.note(h)
	}
}
