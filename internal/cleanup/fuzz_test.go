package cleanup

import (
	"strconv"
	"strings"
	"testing"
)

// Whatever an ancestor calls itself, its parent stays the one that the kernel names: clean-up must know its own
// ancestors.
func FuzzParseParent(f *testing.F) {
	f.Add("bash", 1)
	f.Add("a) S 1 (", 4194304)
	f.Add("x\n1 (init) S 7", 0)
	f.Add("", -5)
	f.Fuzz(func(t *testing.T, name string, parent int) {
		line := "42 (" + name + ") S " + strconv.Itoa(parent) + strings.Repeat(" 0", 48) + "\n"
		if got, err := parseParent([]byte(line)); (err == nil) != (parent >= 0) || err == nil && got != parent {
			t.Errorf("%q: %d, %v", line, got, err)
		}
		if got, err := parseParent([]byte(name)); got < 0 || err != nil && got != 0 {
			t.Errorf("%q: %d, %v", name, got, err)
		}
	})
}
