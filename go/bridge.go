//go:build cgo

package snib

// bridge.go is the only Go file that calls C.  C keeps no Go pointer after a call and never calls back.  Only
// startAcquire and startRelease (for their slice) and closeClient block.
// A lock and unlock pair creates no garbage here: the structs that C fills stay on the stack unless there is an error.

/*
#cgo noescape bridge_acquire
#cgo nocallback bridge_acquire
#cgo noescape bridge_acquire_here
#cgo nocallback bridge_acquire_here
#cgo noescape bridge_release
#cgo nocallback bridge_release
#cgo noescape bridge_ask
#cgo nocallback bridge_ask
#cgo noescape bridge_count
#cgo nocallback bridge_count
#cgo nocallback bridge_hold_state
#cgo nocallback bridge_hold_abandon
#cgo noescape bridge_hold_check
#cgo nocallback bridge_hold_check
#cgo nocallback bridge_hold_remaining
#cgo nocallback bridge_cancel
#cgo noescape bridge_drain
#cgo nocallback bridge_drain
#cgo nocallback bridge_queue_cork
#cgo nocallback bridge_queue_uncork
#include "bridge.h"
*/
import "C"

import (
	"bytes"
	"log/slog"
	"math"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

const (
	codeOK      Code = C.SNIB_OK
	codeAgain   Code = C.SNIB_AGAIN
	codeNotHeld Code = C.SNIB_NOT_HELD
)

func (c Code) text() string { return C.GoString(C.snib_code_text(C.int32_t(c))) }

func (c Code) name() string { return C.GoString(C.snib_code_name(C.int32_t(c))) }

func (c Code) is(flag C.int32_t) bool { return C.snib_code_is(C.int32_t(c), flag) != 0 }

// Retryable reports whether the same call may succeed later. A Code does not tell the call, see [Error.Retryable].
func (c Code) Retryable() bool { return c.is(C.SNIB_IS_RETRYABLE) }

// MaybeApplied reports whether the server may have carried out the request although the call failed.
func (c Code) MaybeApplied() bool { return c.is(C.SNIB_IS_MAYBE_APPLIED) }

// String returns the reason in a word or two.
func (r Reason) String() string { return C.GoString(C.snib_reason_text(C.int32_t(r))) }

// Version returns the version of the core.
func Version() string { return C.GoString(C.snib_version_string()) }

// BuildID returns a hash over the core's sources, the same in every package with the same core.
func BuildID() string { return C.GoString(C.snib_build_id()) }

func newError(code C.int32_t, err *C.snib_error) *Error {
	e := toldError(Code(code), textOf(err.text[:]), int(err.server), syscall.Errno(err.os_error))
	e.Reason = Reason(err.reason)
	return e
}

// textOf copies a zero-terminated C text. Unlike C.GoString, it does not make the source escape to the heap.
func textOf(text []C.char) string {
	raw := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(text))), len(text))
	if end := bytes.IndexByte(raw, 0); end >= 0 {
		raw = raw[:end]
	}
	return string(raw)
}

// chars lends a string's bytes to C for one call; they have no terminator.
func chars(s string) *C.char { return (*C.char)(unsafe.Pointer(unsafe.StringData(s))) }

// ---- Clients ------------------------------------------------------------------------------------

func openClient(url string, o *clientOptions) (uint64, error) {
	if err := fits(Version(), C.SNIB_VERSION_STRING); err != nil {
		return 0, err
	}
	raw := C.snib_client_options{}
	C.snib_client_options_init(&raw, C.sizeof_snib_client_options)
	var texts []*C.char
	hasNUL := false
	text := func(s *string) *C.char {
		if s == nil {
			return nil
		}
		if strings.Contains(*s, "\x00") { // not copied, because wipe would leave what follows it
			hasNUL = true
			return nil
		}
		texts = append(texts, C.CString(*s))
		return texts[len(texts)-1]
	}
	defer func() {
		for _, text := range texts {
			wipe(text)
		}
	}()
	o.fill(&raw, text)
	if o.login != nil {
		raw.ask_credentials = 1
	}
	if hasNUL {
		return 0, makeError(ErrInvalidOption, "the text of an option has a NUL character", 0)
	}
	cURL := text(unlessEmpty(url))
	if hasNUL {
		return 0, makeError(ErrInvalidURL, "the URL has a NUL character", 0)
	}
	var client C.uint64_t
	var err C.snib_error
	if code := C.bridge_open(cURL, &raw, &client, &err); code != C.SNIB_OK {
		return 0, newError(code, &err)
	}
	return uint64(client), nil
}

// fits refuses an installed library of another major or minor version than that of the header: it may understand the same
// calls in another way.
func fits(installed, written string) error {
	if release(installed) == release(written) {
		return nil
	}
	return makeError(ErrNotSupported, "the installed libsnib is "+installed+", this package is written for "+written, 0)
}

// release is a version's major and minor number.
func release(version string) string {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	return major + "." + minor
}

// unlessEmpty is nil for an empty text, which is one that was not given.
func unlessEmpty(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// setMillis sets a field; 0, for an option that was not given, leaves C's default.
func setMillis(field *C.int64_t, d time.Duration) {
	if d != 0 {
		*field = C.int64_t(d / time.Millisecond)
	}
}

// wipe frees a C string that may hold a password.
func wipe(text *C.char) {
	clear(unsafe.Slice((*byte)(unsafe.Pointer(text)), C.strlen(text)))
	C.free(unsafe.Pointer(text))
}

// clientSettings returns the patience that results from the options, the URL and the defaults, and whether the client
// has the option debug.
func clientSettings(client uint64) (patience time.Duration, debug bool) {
	raw := C.snib_client_options{}
	C.snib_client_options_init(&raw, C.sizeof_snib_client_options)
	C.bridge_client_get_options(C.uint64_t(client), &raw, nil)
	return millis(int64(raw.patience_ms)), raw.debug > 0
}

func clientID(client uint64) string {
	var id [37]C.char
	C.bridge_client_id(C.uint64_t(client), &id[0], nil)
	return C.GoString(&id[0])
}

func setClientLabel(client uint64, label string) error {
	text := C.CString(strings.ReplaceAll(label, "\x00", "\x01")) // which is refused, too, and seen by C
	defer C.free(unsafe.Pointer(text))
	var err C.snib_error
	if code := C.bridge_client_set_label(C.uint64_t(client), text, &err); code != C.SNIB_OK {
		return newError(code, &err)
	}
	return nil
}

// closeClient closes a client; timeoutMS -1 stands for the client's patience.
func closeClient(client uint64, timeoutMS int64) error {
	var err C.snib_error
	code := C.bridge_close(C.uint64_t(client), C.int64_t(timeoutMS), &err)
	if code != C.SNIB_OK {
		return newError(code, &err)
	}
	return nil
}

func freeClient(client uint64) { C.bridge_client_free(C.uint64_t(client)) }

// ---- Operations ---------------------------------------------------------------------------------

// started is the result of a call that starts an operation.
type started struct {
	code    Code // codeOK, codeAgain, or that of err
	hold    uint64
	op      uint64
	fencing int64
	err     error
}

func newStarted(code C.int32_t, result *C.bridge_result) started {
	s := started{code: Code(code)}
	switch s.code {
	case codeOK:
		s.hold, s.fencing = uint64(result.hold), int64(result.fencing)
	case codeAgain:
		s.op = uint64(result.op)
	default:
		s.err = newError(code, &result.error)
	}
	return s
}

// wish says what to acquire. count is the number of permits; owner 0 stands for a fresh one.
type wish struct {
	kind   kind
	lock   uint64
	owner  uint64
	count  uint32
	waitMS int64
	here   here
}

func startAcquire(w wish, sliceMS int64, queue, token uint64) started {
	var result C.bridge_result
	raw := C.bridge_wish{lock: C.uint64_t(w.lock), owner: C.uint64_t(w.owner), kind: C.int32_t(w.kind),
		count: C.uint32_t(w.count), wait_ms: C.int64_t(w.waitMS)}
	var code C.int32_t
	if w.here.actor != 0 {
		code = C.bridge_acquire_here(chars(w.here.place), C.size_t(len(w.here.place)), C.uint64_t(w.here.actor),
			&raw, C.int64_t(sliceMS), C.uint64_t(queue), C.uint64_t(token), &result)
	} else {
		code = C.bridge_acquire(&raw, C.int64_t(sliceMS), C.uint64_t(queue), C.uint64_t(token), &result)
	}
	return newStarted(code, &result)
}

// startRelease also frees the handle, unless the result is ErrLost.
func startRelease(hold uint64, sliceMS int64, queue, token uint64) started {
	var result C.bridge_result
	code := C.bridge_release(C.uint64_t(hold), C.int64_t(sliceMS), C.uint64_t(queue),
		C.uint64_t(token), &result)
	return newStarted(code, &result)
}

// question names an operation that returns no hold; its target is a client for a ping, a hold for an extension,
// otherwise a lock.
type question C.int32_t

const (
	askPing         question = C.BRIDGE_PING
	askInfo         question = C.BRIDGE_INFO
	askForceRelease question = C.BRIDGE_FORCE_RELEASE
	askExtend       question = C.BRIDGE_EXTEND
)

// startAsk starts it; ms is the wait for a ping and the lease for an extension.
func startAsk(what question, target uint64, ms int64, queue, token uint64) started {
	var result C.bridge_result
	code := C.bridge_ask(C.int32_t(what), C.uint64_t(target), C.int64_t(ms),
		C.uint64_t(queue), C.uint64_t(token), &result)
	return newStarted(code, &result)
}

// startList starts one step of the scan over the server's names; startDescribe asks for the lines about one name.
func startList(client uint64, pattern string, cursor, queue, token uint64) started {
	var result C.bridge_result
	code := C.bridge_list(C.uint64_t(client), chars(pattern), C.size_t(len(pattern)), C.uint64_t(cursor),
		C.uint64_t(queue), C.uint64_t(token), &result)
	return newStarted(code, &result)
}

func startDescribe(client uint64, name string, queue, token uint64) started {
	var result C.bridge_result
	code := C.bridge_describe(C.uint64_t(client), chars(name), C.size_t(len(name)), C.uint64_t(queue),
		C.uint64_t(token), &result)
	return newStarted(code, &result)
}

func startIdentity(client uint64, owner string, queue, token uint64) started {
	var result C.bridge_result
	code := C.bridge_identity(C.uint64_t(client), chars(owner), C.size_t(len(owner)), C.uint64_t(queue),
		C.uint64_t(token), &result)
	return newStarted(code, &result)
}

// tally names a query or a change of a counter.
type tally C.int32_t

const (
	tallyGet     tally = C.SNIB_COUNT_GET
	tallyInit    tally = C.SNIB_COUNT_INIT
	tallyAdd     tally = C.SNIB_COUNT_ADD
	tallySet     tally = C.SNIB_COUNT_SET
	tallyTotal   tally = C.SNIB_COUNT_TOTAL
	tallyRelease tally = C.SNIB_COUNT_RELEASE
	tallyDrain   tally = C.SNIB_COUNT_DRAIN
	tallyDown    tally = C.SNIB_COUNT_DOWN
)

func startCount(k kind, lock uint64, what tally, n int64, queue, token uint64) started {
	var result C.bridge_result
	code := C.bridge_count(C.int32_t(k), C.uint64_t(lock), C.int32_t(what), C.int64_t(n),
		C.uint64_t(queue), C.uint64_t(token), &result)
	return newStarted(code, &result)
}

// cancelOp reports whether the operation ended cancelled; if not, its result is already there.
func cancelOp(op uint64) bool { return C.bridge_cancel(C.uint64_t(op)) == C.SNIB_OK }

// ---- Locks and holds ----------------------------------------------------------------------------

type kind C.int32_t

const (
	kindMutex     kind = C.SNIB_MUTEX
	kindFair      kind = C.SNIB_FAIR
	kindRead      kind = C.SNIB_READ
	kindWrite     kind = C.SNIB_WRITE
	kindFenced    kind = C.SNIB_FENCED
	kindSpin      kind = C.SNIB_SPIN
	kindPlain     kind = C.SNIB_PLAIN
	kindSemaphore kind = C.SNIB_SEMAPHORE
	kindPermits   kind = C.SNIB_PERMITS
	kindLatch     kind = C.SNIB_LATCH
	kindMulti     kind = -1 // these two have no number in the core
	kindQuorum    kind = -2
)

var kinds = map[kind]string{kindMutex: "mutex", kindFair: "fair", kindRead: "read", kindWrite: "write",
	kindFenced: "fenced", kindSpin: "spin", kindPlain: "plain", kindSemaphore: "semaphore",
	kindPermits: "permits", kindLatch: "latch", kindMulti: "multi", kindQuorum: "quorum"}

// String returns the kind in a word.
func (k kind) String() string { return kinds[k] }

// title returns the name of the kind for use in a sentence.
func (k kind) title() string {
	switch k {
	case kindMutex, kindSemaphore, kindPermits, kindLatch:
		return k.String()
	}
	return k.String() + " lock"
}

const (
	flagFenced       = C.SNIB_LOCK_FENCED
	flagPreferWriter = C.SNIB_LOCK_PREFER_WRITER
	flagNoQuarantine = C.SNIB_LOCK_NO_QUARANTINE
)

func rawLockOptions(o *lockOptions) C.snib_lock_options {
	raw := C.snib_lock_options{}
	C.snib_lock_options_init(&raw, C.sizeof_snib_lock_options)
	raw.flags = C.uint32_t(o.flags)
	setMillis(&raw.lease_ms, o.lease)
	setMillis(&raw.max_hold_ms, o.maxHold)
	return raw
}

func newLock(client uint64, k kind, name string, o *lockOptions) (uint64, error) {
	raw := rawLockOptions(o)
	var lock C.uint64_t
	var err C.snib_error
	code := C.bridge_lock_new(C.uint64_t(client), C.int32_t(k), chars(name), C.size_t(len(name)), &raw, &lock,
		&err)
	if code != C.SNIB_OK {
		return 0, newError(code, &err)
	}
	return uint64(lock), nil
}

// newGroup combines several locks into one; k is kindMulti or kindQuorum.
func newGroup(k kind, members []uint64, o *lockOptions) (uint64, error) {
	which := C.int32_t(C.BRIDGE_MULTI)
	if k == kindQuorum {
		which = C.BRIDGE_QUORUM
	}
	raw := rawLockOptions(o)
	var lock C.uint64_t
	var err C.snib_error
	code := C.bridge_group_new(which, (*C.uint64_t)(unsafe.SliceData(members)), C.uint32_t(len(members)), &raw,
		&lock, &err)
	if code != C.SNIB_OK {
		return 0, newError(code, &err)
	}
	return uint64(lock), nil
}

func freeLock(lock uint64) { C.bridge_lock_free(C.uint64_t(lock)) }

func freeHold(hold uint64) { C.bridge_hold_free(C.uint64_t(hold)) }

// giveBack releases a hold that no caller gets, in the background. To free its handle would not be enough: a re-entry
// would go on to count, and the owner's last Unlock would not be told what became of the lock.
func giveBack(hold uint64) {
	if s := startRelease(hold, 0, 0, 0); s.code == ErrLost {
		freeHold(hold)
	}
}

// abandonHold stops renewing a hold, so its lease runs out.
func abandonHold(hold uint64) { C.bridge_hold_abandon(C.uint64_t(hold)) }

// holdState is negative for a handle that was freed.
func holdState(hold uint64) State { return State(C.bridge_hold_state(C.uint64_t(hold))) }

// checkHold returns nil while the hold is safe, otherwise the core's sentence about it.
func checkHold(hold uint64) *Error {
	var err C.snib_error
	code := C.bridge_hold_check(C.uint64_t(hold), &err)
	if code == C.SNIB_OK {
		return nil
	}
	return newError(code, &err)
}

func holdRemaining(hold uint64) time.Duration {
	return max(0, millis(int64(C.bridge_hold_remaining(C.uint64_t(hold)))))
}

// millis converts a time of the core or of a server; one that is too long, or has no end, becomes the longest duration.
func millis(ms int64) time.Duration {
	const longest = math.MaxInt64 / int64(time.Millisecond)
	switch {
	case ms > longest:
		return math.MaxInt64
	case ms < -longest:
		return math.MinInt64
	}
	return time.Duration(ms) * time.Millisecond
}

func holdReplicas(hold uint64) int {
	return int(C.bridge_hold_replicas(C.uint64_t(hold)))
}

func holdOwner(hold uint64) string {
	var owner [128]C.char
	C.bridge_hold_owner(C.uint64_t(hold), &owner[0], nil)
	return C.GoString(&owner[0])
}

// ---- Queues -------------------------------------------------------------------------------------

// newQueue also returns a descriptor for the caller to poll and to close.
func newQueue(client uint64) (queue uint64, fd int, _ error) {
	var handle C.uint64_t
	var descriptor C.int32_t
	var err C.snib_error
	code := C.bridge_queue_new(C.uint64_t(client), &handle, &descriptor, &err)
	if code != C.SNIB_OK {
		return 0, 0, newError(code, &err)
	}
	return uint64(handle), int(descriptor), nil
}

// corkQueue lets submissions be collected until uncorkQueue.
func corkQueue(queue uint64) { C.bridge_queue_cork(C.uint64_t(queue)) }

func uncorkQueue(queue uint64) { C.bridge_queue_uncork(C.uint64_t(queue)) }

func freeQueue(queue uint64) { C.bridge_queue_free(C.uint64_t(queue)) }

// event is one record of a queue.
type event struct {
	lost      bool // a hold was lost
	log       bool // a log record, with its level in reason; neither: an operation ended
	code      Code
	reason    Reason
	token     uint64
	hold      uint64
	fencing   int64
	remaining time.Duration
	count     int64
	waiting   int64
	held      bool
	mine      bool
	osError   syscall.Errno
	text      string
	server    int      // where the server's own words begin in the text of an error; 0: there are none
	texts     []string // of a list or a description
	cursor    uint64   // where a list continues; 0: it is complete
}

func (e *event) err() error {
	if e.code == codeOK {
		return nil
	}
	err := toldError(e.code, e.text, e.server, e.osError)
	if e.code == ErrLost {
		err.Reason = e.reason
	}
	return err
}

const batch = 64 // most events per drain

// drainBuffer is C memory, in which the collector does not mistake a handle for a Go pointer.
type drainBuffer struct{ raw *[batch]C.snib_event }

func newDrainBuffer() drainBuffer {
	return drainBuffer{(*[batch]C.snib_event)(C.calloc(batch, C.sizeof_snib_event))}
}

func (b drainBuffer) free() { C.free(unsafe.Pointer(b.raw)) }

// drain moves waiting events to the front of events and returns their number.
func (b drainBuffer) drain(queue uint64, events *[batch]event) int {
	n := int(C.bridge_drain(C.uint64_t(queue), &b.raw[0], batch))
	for i := range max(n, 0) {
		raw := &b.raw[i]
		events[i] = event{
			lost:      raw.kind == C.SNIB_EVENT_LOST,
			log:       raw.kind == C.SNIB_EVENT_LOG,
			code:      Code(raw.code),
			reason:    Reason(raw.reason),
			token:     uint64(raw.token),
			hold:      *(*uint64)(unsafe.Pointer(&raw.hold)),
			fencing:   int64(raw.fencing),
			remaining: millis(int64(raw.remaining_ms)),
			count:     int64(raw.count),
			waiting:   int64(raw.waiting),
			held:      raw.held != 0,
			mine:      raw.mine != 0,
			osError:   syscall.Errno(raw.os_error),
			server:    int(raw.server),
		}
		if raw.text[0] != 0 {
			events[i].text = textOf(raw.text[:])
		}
		if raw.texts != nil {
			events[i].texts, events[i].cursor = takeTexts(raw.texts)
		}
	}
	return max(n, 0)
}

// takeTexts splits the core's texts, each of which ends with a zero byte.
func takeTexts(texts *C.snib_texts) (all []string, cursor uint64) {
	defer C.snib_texts_free(texts)
	if texts.used > 0 {
		all = strings.Split(C.GoStringN(texts.text, C.int(texts.used-1)), "\x00")
	}
	return all, uint64(texts.cursor)
}

// ---- Login ---------------------------------------------------------------------------------------

func startLogins(client, queue uint64) error {
	var err C.snib_error
	if code := C.bridge_credentials(C.uint64_t(client), C.uint64_t(queue), &err); code != C.SNIB_OK {
		return newError(code, &err)
	}
	return nil
}

// answerLogin answers a request for credentials; why is "" unless there are none.
func answerLogin(client, token uint64, login *Login, why string) {
	validMS := login.Valid.Milliseconds()
	if login.Valid > 0 && validMS == 0 {
		validMS = 1
	}
	C.bridge_login(C.uint64_t(client), C.uint64_t(token), chars(login.Username), C.size_t(len(login.Username)),
		chars(login.Password), C.size_t(len(login.Password)), C.int64_t(validMS), chars(why), C.size_t(len(why)))
}

// ---- Log ----------------------------------------------------------------------------------------

const (
	logWarnings = C.SNIB_LOG_WARNING
	logAll      = C.SNIB_LOG_INFO
)

// levels maps the core's levels to slog's.
var levels = map[Reason]slog.Level{
	C.SNIB_LOG_ERROR: slog.LevelError, C.SNIB_LOG_WARNING: slog.LevelWarn, C.SNIB_LOG_INFO: slog.LevelInfo}

// startLog sends records of this level and above to a queue.
func startLog(client, queue uint64, level int32) error {
	var err C.snib_error
	code := C.bridge_log(C.uint64_t(client), C.uint64_t(queue), C.int32_t(level), &err)
	if code != C.SNIB_OK {
		return newError(code, &err)
	}
	return nil
}
