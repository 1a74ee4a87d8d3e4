package health

import (
	"strings"
	"testing"
	"time"

	"bookend/internal/code"
	"bookend/internal/gpu"
	"bookend/test/golden"
	"bookend/test/must"
)

func logged(xids ...gpu.Xid) Input {
	in := look()
	in.Kernel = &gpu.KernelLog{Xids: xids}
	return in
}

// Every number of the table gives its row's code, and drains if NVIDIA calls for a reset without a doubt.
func TestEveryXid(t *testing.T) {
	fatal := map[int]bool{}
	for _, n := range xidRows {
		for _, number := range n.Xids {
			found := Judge(logged(gpu.Xid{BusID: busA, Code: number}))
			if len(found) != 1 || found[0].Code != n.Code || found[0].Xid != number ||
				!strings.Contains(found[0].Observed, n.Meaning) {
				t.Errorf("Xid %d: %+v", number, found)
				continue
			}
			fatal[number] = drains(found[0])
			if want := n.Code == code.XidFatal && n.Doubt == ""; fatal[number] != want {
				t.Errorf("Xid %d: drains %v", number, fatal[number])
			}
		}
	}
	for number, want := range map[int]bool{
		48: true, 64: true, 79: true, 95: true, 119: true, 140: true,
		13: false, 31: false, 43: false, 45: false, 63: false, 74: false, 92: false, 94: false, 109: false, 154: false,
	} {
		if got, known := fatal[number]; got != want || !known {
			t.Errorf("Xid %d: drains %v", number, got)
		}
	}
}

// All lines of one number are one finding: testdata/xids.txtar has what it says.
func TestXidsOfOneNumberAreOneFinding(t *testing.T) {
	golden.Archive(t, *update, "testdata/xids.txtar", func(given string) (said string) {
		var log []gpu.Xid
		for line := range strings.Lines(given) {
			seconds, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			x, is := gpu.NVIDIA.Fault("NVRM: Xid " + text)
			x.At = must.Have(time.ParseDuration(seconds + "s"))(t)
			if log = append(log, x); !is {
				t.Errorf("no Xid: %s", line)
			}
		}
		in := logged(log...)
		in.Own = map[int]bool{1: true, 2: false, 0: true}
		for _, f := range Judge(in) {
			if said += string(f.Code) + ": " + f.Observed + "\n"; f.Unknown != "" || f.GPU != gpuA {
				t.Errorf("%+v", f)
			}
		}
		return said
	})
}
