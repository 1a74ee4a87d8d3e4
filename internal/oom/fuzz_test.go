package oom

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// earlier is an end report of Bookend's, as an earlier run of the job has it in the same file.
const earlier = "\n\n| bookend: GPU 0 of n1 left clean by your job\n"

// Messages could be so, quote what the job wrote, and are none of an earlier run's.
func FuzzFind(f *testing.F) {
	for _, text := range parts(f) {
		f.Add([]byte(text))
	}
	f.Add([]byte(earlier))
	f.Add([]byte("CUDA out of memory. Tried to allocate 99999999999999999999999999 GiB. GPU 99999999999999999999 has a total capacity of . of which"))
	f.Add([]byte("Free memory on device cuda: (/ on startup is less than desired GPU memory utilization"))
	f.Fuzz(func(t *testing.T, tail []byte) {
		found := Find(tail)
		if len(found) > MaxMessages {
			t.Errorf("%d messages", len(found))
		}
		for _, m := range found {
			if err := Valid(m); err != nil {
				t.Errorf("%v: %+v", err, m)
			}
		}
		quoted(t, tail, found)
		if again := Find(tail); !reflect.DeepEqual(again, found) {
			t.Errorf("%+v, then %+v", found, again)
		}
		const said = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
		lines := split(append([]byte(earlier), tail...))
		if len(tail)+len(said)+len(earlier) >= MaxTail || strings.ContainsRune(string(tail), 0x1b) || own(lines[3:]) {
			return
		}
		after := Find([]byte(said + earlier + string(tail)))
		if alone := Find([]byte(earlier + string(tail))); !reflect.DeepEqual(after, alone) {
			t.Errorf("after an earlier run %+v, alone %+v", after, alone)
		}
	})
}

// own: Bookend wrote one of the lines, or a user who says so.
func own(lines []line) bool {
	for _, l := range lines {
		if l.own() {
			return true
		}
	}
	return false
}

// quoted: each line shown stands in the job's output.
func quoted(t *testing.T, tail []byte, found []Message) {
	t.Helper()
	var all strings.Builder
	for _, l := range split(tail) {
		all.WriteString(l.body + "\n")
	}
	for _, m := range found {
		if !strings.Contains(all.String(), strings.TrimSuffix(m.Line, "...")) {
			t.Errorf("%q does not stand in %q", m.Line, all.String())
		}
	}
}

// A size is its number times its unit, and never more than any node has.
func FuzzAmount(f *testing.F) {
	for _, seed := range []string{"9.61 GiB", "2.00GiB", "1,024 bytes", "4096", "17179869184.00 GiB", ".", "1.2.3", "1e9", "NaN", "0 x", "99999999999999999999999"} {
		f.Add(seed, uint64(5))
	}
	f.Add("", uint64(1)<<52)
	f.Fuzz(func(t *testing.T, text string, n uint64) {
		if got, ok := amount(text); ok && (possible(got) != nil || text[0] != '.' && text[0] != ',' && (text[0] < '0' || text[0] > '9')) {
			t.Errorf("%q: %+v", text, got)
		}
		got, ok := amount(fmt.Sprintf("%d bytes", n))
		if known := n < maxFigure; !ok || got.Known() != known || known && got.Bytes != n {
			t.Errorf("%d bytes: %+v, %v", n, got, ok)
		}
		n %= 1 << 20
		for unit, size := range map[string]uint64{"KiB": 1 << 10, "MB": 1 << 20, "GiB": 1 << 30} {
			if got, ok := amount(fmt.Sprint(n) + unit + " of"); !ok || got.Known() && got.Bytes != n*size || !got.Known() && n*size < maxFigure {
				t.Errorf("%d %s: %+v, %v", n, unit, got, ok)
			}
		}
	})
}
