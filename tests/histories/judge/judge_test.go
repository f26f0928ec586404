package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A stored history is good, or bad for the reasons that its lines "# refused: ..." give.
func TestStoredHistories(t *testing.T) {
	paths, _ := filepath.Glob("../stored/*.log")
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			logs, err := read(path)
			if err != nil {
				t.Fatal(err)
			}
			v := judge(logs.histories["a"], time.Minute, "")
			found := strings.Join(v.refused, "\n") + "\n" + lastLine(v.shown)
			wanted := reasons(t, path)
			if bad := strings.HasPrefix(filepath.Base(path), "bad-"); bad != (len(wanted) > 0) || bad != (len(v.refused) > 0) {
				t.Fatalf("refused: %q\n%s", v.refused, v.shown)
			}
			for _, reason := range wanted {
				if !strings.Contains(found, reason) {
					t.Errorf("not refused for %q but:\n%s", reason, found)
				}
			}
		})
	}
	if len(paths) < 20 {
		t.Errorf("only %d histories in ../stored", len(paths))
	}
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(strings.Fields(lines[len(lines)-1]), " ")
}

func reasons(t *testing.T, path string) (found []string) {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if reason, ok := strings.CutPrefix(line, "# refused: "); ok {
			found = append(found, strings.TrimSpace(reason))
		}
	}
	return found
}

// A log that cannot be understood is no history that may be judged.
func TestLogsThatMakeNoSense(t *testing.T) {
	for _, text := range []string{"", "plan 0 a mutex 0 500\ngrant 1 c0/0 b c0-1 0 x u\n",
		"plan 0 a mutex 0 500\nrelease 1 c0/0 a c0-1 1 1 0\n", "plan 0 a mutex\n", "plan x a mutex 0 500\n", "what 1 2 3\n"} {
		path := filepath.Join(t.TempDir(), "one.log")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := read(path); err == nil {
			t.Errorf("understood: %q", text)
		}
	}
}
