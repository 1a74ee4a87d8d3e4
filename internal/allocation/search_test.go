package allocation

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"bookend/internal/backendkit"
	"bookend/internal/gpu"
)

// pretended is memory without a driver: of each search it gives blocks up to a bound.
type pretended struct {
	frees  []uint64 // bytes, one for each time of asking; the last stays
	bounds []uint64 // bytes, of each search
	nos    []string // reasons not to go on, one for each time of asking
	broken int      // a code that the attempt after so many gives
	after  int
	limit  int // attempts that there is time for; 0: any number
	noRest bool

	asked, attempts int
	most            uint64 // the largest request
	taken           []uint64
}

func at[T any](list []T, i int) (value T) {
	if len(list) > 0 {
		value = list[min(i, len(list)-1)]
	}
	return value
}

func (m *pretended) free() (uint64, string) {
	free, no := at(m.frees, m.asked), ""
	if m.asked < len(m.nos) {
		no = m.nos[m.asked]
	}
	m.asked++
	return free, no
}

func (m *pretended) take(bytes uint64) *outcome {
	m.attempts++
	m.most = max(m.most, bytes)
	m.taken = append(m.taken, bytes>>20)
	switch {
	case m.broken != 0 && m.attempts > m.after:
		return &outcome{of: made, call: "xMemCreate", code: m.broken}
	case bytes > at(m.bounds, m.asked-1):
		return &outcome{of: made, call: "xMemCreate", code: outOfMemory}
	}
	return nil
}

func (m *pretended) more() bool { return m.limit == 0 || m.attempts < m.limit }
func (m *pretended) rest() bool { return !m.noRest }

const mib = 1 << 20

var made = &Library{
	Prefix: "x",
	Means:  []gpu.ReturnCode{{Code: outOfMemory, Name: "no block"}, {Code: 214, Call: "xMemCreate", Name: "sick"}},
}

func mibs(n ...uint64) (bytes []uint64) {
	for _, m := range n {
		bytes = append(bytes, m*mib)
	}
	return bytes
}

func TestExamine(t *testing.T) {
	tests := map[string]struct {
		m        pretended
		result   gpu.ProbeResult
		largest  uint64 // MiB
		attempts int
		why      string
	}{
		"healthy":           {pretended{frees: mibs(143156), bounds: mibs(143154)}, gpu.ProbeOK, 143154, 1, ""},
		"4 MiB less":        {pretended{frees: mibs(143156), bounds: mibs(143152)}, gpu.ProbeOK, 143152, 2, ""},
		"3 MiB free":        {pretended{frees: mibs(3), bounds: mibs(0)}, gpu.ProbeOK, 0, 1, ""},
		"3 MiB free, given": {pretended{frees: mibs(3), bounds: mibs(3)}, gpu.ProbeOK, 2, 1, ""},
		"nothing free":      {pretended{frees: mibs(0)}, gpu.ProbeOK, 0, 0, ""},

		"a gap":           {pretended{frees: mibs(143156), bounds: mibs(100000)}, gpu.ProbeGap, 100000, 0, ""},
		"64 MiB missing":  {pretended{frees: mibs(1000), bounds: mibs(936)}, gpu.ProbeGap, 936, 0, ""},
		"a gap once":      {pretended{frees: mibs(1000), bounds: mibs(500, 1000)}, gpu.ProbeOK, 998, 0, ""},
		"nothing once":    {pretended{frees: mibs(1000), bounds: mibs(0, 1000)}, gpu.ProbeOK, 998, 0, ""},
		"a smaller gap":   {pretended{frees: mibs(1000), bounds: mibs(500, 800)}, gpu.ProbeGap, 800, 0, ""},
		"free grows":      {pretended{frees: mibs(1000, 2000), bounds: mibs(500, 1998)}, gpu.ProbeOK, 1998, 0, ""},
		"free falls once": {pretended{frees: mibs(1000, 500), bounds: mibs(498)}, gpu.ProbeOK, 498, 0, ""},
		"free falls twice": {pretended{frees: mibs(1000, 700, 500), bounds: mibs(498)}, gpu.ProbeSkipped, 498, 0,
			"700 MiB were free, then 500 MiB"},
		"62 MiB missing":    {pretended{frees: mibs(1000), bounds: mibs(938)}, gpu.ProbeOK, 938, 0, ""},
		"falls, a gap left": {pretended{frees: mibs(1000, 1000, 900), bounds: mibs(498)}, gpu.ProbeGap, 498, 0, ""},
		"no block": {pretended{frees: mibs(143156), bounds: mibs(0)}, gpu.ProbeBlocked, 0, 0,
			"xMemCreate: no block (2)"},

		"somebody there": {pretended{nos: []string{"somebody"}}, gpu.ProbeSkipped, 0, 0, "somebody"},
		"somebody comes": {pretended{frees: mibs(1000), bounds: mibs(500), nos: []string{"", "somebody"}},
			gpu.ProbeSkipped, 500, 0, "somebody"},
		"somebody comes late": {pretended{frees: mibs(1000), bounds: mibs(500), nos: []string{"", "", "somebody"}},
			gpu.ProbeSkipped, 500, 0, "somebody"},
		"no time to search": {pretended{frees: mibs(1000), bounds: mibs(500), limit: 6}, gpu.ProbeSkipped, 372, 6,
			"block of 372 MiB was given so far"},
		"no time, near": {pretended{frees: mibs(1000), bounds: mibs(990), limit: 3}, gpu.ProbeOK, 984, 3, ""},
		"no time to rest": {pretended{frees: mibs(1000), bounds: mibs(500), noRest: true}, gpu.ProbeSkipped, 500, 0,
			"a second time"},

		"broken midway": {pretended{frees: mibs(1000), bounds: mibs(500), broken: 214, after: 4}, gpu.ProbeBroken, 0,
			5, "xMemCreate: sick (214)"},
		"takes no one in": {pretended{frees: mibs(1000), broken: 46}, gpu.ProbeBlocked, 0, 1,
			"xMemCreate: unknown to the driver (46)"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := skipped("GPU-1", "")
			search(&tt.m, searchStep, 64*mib, &p)
			if p.Result != tt.result || p.Largest.Bytes != tt.largest*mib || tt.attempts > 0 &&
				p.Attempts != tt.attempts {
				t.Errorf("got %s, %d MiB after %d attempts %v: %s", p.Result, p.Largest.Bytes>>20, p.Attempts,
					tt.m.taken, p.Why)
			}
			if told := p.Result == gpu.ProbeOK || p.Result == gpu.ProbeGap; told == (p.Why != "") || !told &&
				!strings.Contains(p.Why, tt.why) {
				t.Errorf("why: %q, want %q", p.Why, tt.why)
			}
			if failed := p.Result == gpu.ProbeBroken || p.Result == gpu.ProbeBlocked; failed != (p.Error != nil) {
				t.Errorf("%s with error %+v", p.Result, p.Error)
			}
			if p.Attempts != tt.m.attempts || tt.m.most > at(tt.m.frees, 0) && tt.m.asked == 1 {
				t.Errorf("told of %d attempts, made %d, asked for %d MiB", p.Attempts, tt.m.attempts, tt.m.most>>20)
			}
		})
	}
}

// Wherever the bound lies, the search finds it, within its attempts and without asking for more than is free.
func TestLargest(t *testing.T) {
	const gib = 1 << 30
	for _, step := range []uint64{searchStep, 32 * mib} {
		for _, free := range []uint64{0, 1, step - 1, step, 2*step + 1, 3 * step, 129 * mib, 143156 * mib, 512 * gib} {
			for _, bound := range []uint64{0, 1, step, free / 3, free / 2, free - free/100, free - min(free, 2*step),
				free - min(free, step), free, 2 * free} {
				t.Run(fmt.Sprintf("%d of %d by %d", bound, free, step), func(t *testing.T) {
					m := &pretended{asked: 1, bounds: []uint64{bound}}
					gap := 4 * step
					b := largest(m, free, step, gap)
					want := min(bound, free) / step * step
					if near := b.bytes > 0 && free-b.bytes < gap && b.bytes <= want; near {
						want = b.bytes // what is no gap is not looked for any further
					}
					if b.bytes != want || b.cut || b.attempts > 28 || m.most > free || b.attempts != m.attempts {
						t.Errorf("got %d after %d attempts, want %d; asked for %d", b.bytes, b.attempts, want, m.most)
					}
				})
			}
		}
	}
}

// A gap below what the driver itself keeps is none, whatever was asked for.
func TestLeastGap(t *testing.T) {
	for _, step := range []uint64{searchStep, 32 * mib} {
		m, p := &pretended{frees: []uint64{1000*mib + 1}, bounds: []uint64{1000*mib - step}}, skipped("GPU-1", "")
		if search(m, step, 0, &p); p.Result != gpu.ProbeOK {
			t.Errorf("step %d: got %s", step, p.Result)
		}
	}
}

func TestNoTimeLeft(t *testing.T) {
	tests := &tests{
		Session: backendkit.Session{Boot: func() time.Duration { return 5 * time.Second }},
		Vendor:  Vendor{Library: &Library{Name: "CUDA"}}, init: 4*time.Second + 321*time.Microsecond,
	}
	p := skipped("GPU-1", "")
	if tests.test(Device{}, &p); p.Result != gpu.ProbeSkipped ||
		p.Why != "no time left for the test: CUDA took 4s to start" {
		t.Errorf("%s: %s", p.Result, p.Why)
	}
}
