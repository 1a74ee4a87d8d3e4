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
	for name, tt := range map[string]struct {
		looks []gpu.Snapshot
		want  string
	}{
		"beside something that moves": {whole, "70:20480 71:64 "},
		"shorter than the flat time":  {constant(3*time.Second, beside), ""},
		"not in one look":             {edited(3, func(r *gpu.Reading) { r.Processes = r.Processes[1:] }), "71:64 "},
		"less in one look":            {edited(3, func(r *gpu.Reading) { r.Processes[0] = process(70, 300*mib) }), "70:300 71:64 "},
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
