package settle

import (
	"fmt"
	"testing"
	"time"

	"bookend/internal/gpu"
)

// What every look lists has stayed, whatever the total does, and with the least that any of them shows.
func TestStayed(t *testing.T) {
	held := process(70, 20*gib)
	beside := func(ms int) gpu.Snapshot { // something else moves 64 MiB at each look
		return at(ms, 21*gib+uint64(ms/100%3)*64*mib, held, process(71, uint64(1+ms/100%3)*64*mib))
	}
	whole := constant(6*time.Second, beside)
	edited := func(i int, edit func(*gpu.Reading)) []gpu.Snapshot {
		looks := constant(6*time.Second, beside)
		looks[i] = change(looks[i], edit)
		return looks
	}
	figures := func(mibs ...uint64) []gpu.Snapshot { // of one process, a look a second
		var looks []gpu.Snapshot
		for i, n := range mibs {
			looks = append(looks, at(1000*i, 90*gib, process(70, n*mib)))
		}
		return looks
	}
	for name, tt := range map[string]struct {
		looks []gpu.Snapshot
		want  string // "<" marks one that gives memory back
	}{
		"gives all of it back":        {figures(70000, 60000, 45000, 30000, 15000, 9000, 1000), "70:1000< "},
		"gives back at the end":       {figures(70000, 70000, 70000, 70000, 70000, 70000, 69000), "70:69000< "},
		"takes more":                  {figures(1000, 2000, 3000, 4000, 5000, 6000, 7000), "70:1000 "},
		"varies by a page":            {figures(1002, 1002, 1000, 1002, 1000, 1002, 1000), "70:1000 "},
		"takes it again":              {figures(1000, 1000, 500, 500, 1000, 1000, 1000), "70:500 "},
		"beside something that moves": {whole, "70:20480 71:64 "},
		"shorter than the flat time":  {constant(3*time.Second, beside), ""},
		"not in one look":             {edited(3, func(r *gpu.Reading) { r.Processes = r.Processes[1:] }), "71:64 "},
		"less in one look": {edited(3, func(r *gpu.Reading) { r.Processes[0] = process(70, 300*mib) }),
			"70:300 71:64 "},
		"no figure in one look": {edited(3, func(r *gpu.Reading) {
			r.Processes = []gpu.Process{{PID: 70, Memory: gpu.Unknown("not available")}}
		}), "70:? "},
		"a list that is not trusted": {edited(3, noList), ""},
		"two looks":                  {every(beside, 0, 4000), ""},
		"no look":                    {nil, ""},
		"a long gap":                 {every(beside, 0, 100, 200, 4000, 4100, 4200), ""},
	} {
		got := ""
		for _, p := range Stayed(idle, gpu.Device{ID: card}, tt.looks) {
			figure := "?"
			if p.Memory.Known() {
				figure = fmt.Sprint(p.Memory.Bytes / mib)
			}
			if p.Falling {
				figure += "<"
			}
			got += fmt.Sprintf("%d:%s ", p.PID, figure)
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	if curve := judge(idle, card, whole); curve.State != Moving {
		t.Errorf("the total is %s", curve.State)
	}
}
