//go:build cgo

package snib

import (
	"errors"
	"syscall"
	"testing"
)

// A descriptor that the runtime cannot poll is an error, not a client that never answers.
func TestDescriptorThatCannotBePolled(t *testing.T) {
	fd, err := syscall.Open("/dev/null", syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pumpOf(0, fd); !errors.Is(err, ErrSystem) {
		t.Error(err)
	}
}
