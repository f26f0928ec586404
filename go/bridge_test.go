//go:build cgo

package snib

import (
	"errors"
	"testing"
)

// An installed library is refused unless it has the header's major and minor version.
func TestInstalledVersion(t *testing.T) {
	for installed, fitting := range map[string]bool{"0.1.0": true, "0.1.9": true, "0.1.10-rc.1": true, "0.2.0": false,
		"1.1.0": false, "0.10.0": false, "": false} {
		err := fits(installed, "0.1.0")
		if fitting != (err == nil) || !fitting && !errors.Is(err, ErrNotSupported) {
			t.Errorf("%q: %v", installed, err)
		}
	}
	if text := fits("0.2.1", "0.1.0").Error(); text != "snib: the installed libsnib is 0.2.1, this package is written for 0.1.0" {
		t.Error(text)
	}
}
