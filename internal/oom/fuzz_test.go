package oom

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// Messages could be so, and quote what the job wrote.
func FuzzFind(f *testing.F) {
	for _, text := range parts(f) {
		f.Add([]byte(text))
	}
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
	})
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
		if got, length, _ := sized(text); length > 0 && (!possible(got) || text[0] != '.' && text[0] != ',' && (text[0] < '0' || text[0] > '9')) {
			t.Errorf("%q: %+v", text, got)
		}
		got, _, ok := sized(fmt.Sprintf("%d bytes", n))
		if known := n < maxFigure; !ok || got.Known() != known || known && got.Bytes != n {
			t.Errorf("%d bytes: %+v, %v", n, got, ok)
		}
		n %= 1 << 20
		for unit, size := range map[string]uint64{"KiB": 1 << 10, "MB": 1 << 20, "GiB": 1 << 30} {
			if got, _, ok := sized(fmt.Sprint(n) + unit + " of"); !ok || got.Known() && got.Bytes != n*size || !got.Known() && n*size < maxFigure {
				t.Errorf("%d %s: %+v, %v", n, unit, got, ok)
			}
		}
	})
}
