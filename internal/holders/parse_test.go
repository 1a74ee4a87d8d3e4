package holders

import (
	"strings"
	"testing"
	"time"
)

// statTail is what a kernel writes behind state and name, up to and with a start time of 1234.56 s.
const statTail = " 1 2 3 0 -1 4194560 100 0 0 0 5 6 0 0 20 0 1 0 123456 1000 200 18446744073709551615 1 1 0\n"

func TestParseStat(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want stat
	}{
		"plain":         {"42 (python3) S" + statTail, stat{"python3", "S", 1234560 * time.Millisecond}},
		"brackets":      {"4259 (a) R (b) S" + statTail, stat{"a) R (b", "S", 1234560 * time.Millisecond}},
		"newline":       {"42 (a\n1 (b) Z" + statTail, stat{"a\n1 (b", "Z", 1234560 * time.Millisecond}},
		"forged line":   {"42 (x) R 1 1 1) T" + statTail, stat{"x) R 1 1 1", "T", 1234560 * time.Millisecond}},
		"empty name":    {"42 () D" + statTail, stat{"", "D", 1234560 * time.Millisecond}},
		"not valid utf": {"42 (\xff\xfe) S" + statTail, stat{"\xff\xfe", "S", 1234560 * time.Millisecond}},
	} {
		got, err := parseStat(tc.text)
		if err != nil || got != tc.want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, tc.want)
		}
	}
	for _, bad := range []string{"", "42", "42 (x", "42 x) S", ")(", "42 (x) S 1 2", "42 (x) SS" + statTail,
		strings.Replace("42 (x) S"+statTail, "123456", "-1", 1),
		strings.Replace("42 (x) S"+statTail, "123456", "18446744073709551615", 1)} {
		if got, err := parseStat(bad); err == nil {
			t.Errorf("%q was accepted: %+v", bad, got)
		}
	}
}

func TestParseUID(t *testing.T) {
	const rest = "\nUmask:\t0022\nState:\tS (sleeping)\nUid:\t1000\t0\t0\t0\nGid:\t1\t1\t1\t1\n"
	for name, text := range map[string]string{
		"plain":  "Name:\tsleep" + rest,
		"forged": "Name:\tx\nUid:\t0\t0\t0\t0" + rest,
	} {
		if uid, err := parseUID(text); err != nil || uid != 1000 {
			t.Errorf("%s: %d, %v", name, uid, err)
		}
	}
	for _, bad := range []string{"", "Uid:\t1\t1\t1\t1", "\nUid:\t1\t1\t1", "\nUid:\t-1\t1\t1\t1",
		"\nUid:\t4294967296\t1\t1\t1"} {
		if uid, err := parseUID(bad); err == nil {
			t.Errorf("%q was accepted: %d", bad, uid)
		}
	}
}
