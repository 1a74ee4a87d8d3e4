package gpu

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"bookend/test/must"
)

var busForm = regexp.MustCompile(`^[0-9A-Fa-f]+:[0-9A-Fa-f]+:[0-9A-Fa-f]+\.0*[0-7]$`)

// A bus id has one normal form, which names the same place and is its own normal form.
func FuzzParseBusID(f *testing.F) {
	for _, seed := range []string{"0000:1b:00.0", "00000000:1B:00.0", "0000:9D:00.7", "ffffffff:ff:1f.7", "0:0:0.0",
		"0000:1b:00", "0000:1b:20.0",
		"0000:1b:00.8", "+000:1b:00.0", "0000:1b:00.0 ", "1b:00.0", "0000:0x1b:00.0", "0_0:1b:00.0", ":::", "é:1:1.1",
		"0:0:0.00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseBusID(s)
		if err != nil {
			if id != "" {
				t.Errorf("%q: %q and %v", s, id, err)
			}
			return
		}
		if again, err := ParseBusID(string(id)); err != nil || again != id || !busForm.MatchString(s) {
			t.Errorf("%q: %q, then %q, %v", s, id, again, err)
		}
		if numbers(t, s) != numbers(t, string(id)) || string(id) != strings.ToLower(string(id)) {
			t.Errorf("%q names another place than %q", id, s)
		}
	})
}

func numbers(t *testing.T, s string) string {
	t.Helper()
	var out []uint64
	for field := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == ':' || r == '.' }) {
		n := must.Have(strconv.ParseUint(field, 16, 32))(t)
		out = append(out, n)
	}
	return fmt.Sprint(out)
}
