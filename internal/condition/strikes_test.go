package condition

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/test/must"
)

var firstSeen = time.Date(2026, 11, 1, 8, 0, 0, 0, time.UTC)

// runOf parses "HOUR GPUS WORD...", one end of a job that had the GPUs, of which the first letter is that at bus id 0. A
// word is a finding on the first GPU ("recovery", "xid48"), on another ("b:recovery"), doubted ("?xid48"), unknown
// ("~xid48"), a finding with a line of the kernel log ("xid48@7", entry 7) or another boot than the first ("boot=2").
func runOf(t *testing.T, text string) record.Run {
	words := strings.Fields(text)
	hours, err := strconv.ParseFloat(words[0], 64)
	must.Do(t, err)
	past := time.Duration(hours * float64(time.Hour))
	e := record.End{At: time.Hour + past, Wall: firstSeen.Add(past)}
	r := record.Run{Job: slurm.Job{ID: slurm.JobID(100 + hours)}, Epoch: gpu.Epoch{Boot: "b"}}
	for i, letter := range words[1] {
		d := gpu.Device{ID: gpu.ID(letter), BusID: gpu.BusID(fmt.Sprintf("0000:0%d:00.0", i))}
		r.Devices = append(r.Devices, record.Assigned{Index: i, Device: d})
	}
	for _, w := range words[2:] {
		if boot, is := strings.CutPrefix(w, "boot="); is {
			r.Epoch.Boot = boot
			continue
		}
		f := record.Finding{GPU: gpu.ID(words[1][:1])}
		if id, rest, other := strings.Cut(w, ":"); other {
			f.GPU, w = gpu.ID(id), rest
		}
		if rest, doubted := strings.CutPrefix(w, "?"); doubted {
			f.Doubts, w = []string{"a doubt"}, rest
		}
		if rest, unknown := strings.CutPrefix(w, "~"); unknown {
			f.Unknown, w = "not read", rest
		}
		name, entry, _ := strings.Cut(w, "@")
		f.Code, _ = catalog.Parse(name)
		if number, is := strings.CutPrefix(name, "xid"); is {
			f.Xid, _ = strconv.Atoi(number)
			x, _ := catalog.LookupXid(f.Xid)
			f.Code = x.Code
		}
		if seq, err := strconv.ParseUint(entry, 10, 64); err == nil {
			x := gpu.Xid{KernelMark: gpu.KernelMark{Seq: seq}, BusID: r.Devices[0].Device.BusID, Code: f.Xid}
			e.Kernel = &gpu.KernelLog{Last: x.KernelMark, Xids: []gpu.Xid{x}}
		}
		e.Findings = append(e.Findings, f)
	}
	r.Ends = []record.End{e}
	return r
}

func TestStrikes(t *testing.T) {
	for name, tt := range map[string]struct {
		ends []string
		want string // the faults of the GPU at bus id 0 by hour, at hour 100, within 100 hours
	}{
		"nothing":                          {[]string{"1 a", "2 a"}, ""},
		"three faults":                     {[]string{"1 a xid48@1", "20 a xid94@2", "40 a lost"}, "1,20,40 repeats"},
		"two are no repeat offender":       {[]string{"1 a xid48@1", "20 a xid94@2"}, "1,20"},
		"several findings at once are one": {[]string{"1 a xid48@1 xid63@1 ecc recovery"}, "1"},
		"and several within minutes":       {[]string{"1 a xid48@1", "1.1 a recovery", "1.2 a xid64@2"}, "1"},
		"a program's errors":               {[]string{"1 a xid13@1", "9 a xid31@2", "20 a xid43@3", "30 a xid45@4"}, ""},
		"numbers without a known cause":    {[]string{"1 a xid8@1", "9 a xid999@2", "20 a xid69@3"}, ""},
		"notices":                          {[]string{"1 a xid92@1", "9 a xid162@2", "20 a xid176@3", "30 a xid148@4"}, ""},
		"rather PCIe than a program":       {[]string{"1 a xid32@1"}, ""},
		"the driver's own, unless fatal":   {[]string{"1 a xid60@1", "9 a xid119@2", "20 a xid78@3"}, "9"},
		"doubts":                           {[]string{"1 a ?xid48@1", "9 a ?recovery"}, ""},
		"unknown":                          {[]string{"1 a ~ecc", "9 a ~xid48@1"}, ""},
		"memory and the site's affairs":    {[]string{"1 a orphan residue fabric missing broken persistence throttle"}, ""},
		"a standing fault is one":          {[]string{"1 a recovery", "20 a recovery", "40 a recovery"}, "1"},
		"also after a boot if it stays":    {[]string{"1 a remapfailed", "20 a remapfailed boot=2"}, "1"},
		"in each boot":                     {[]string{"1 a recovery", "9 a recovery boot=2", "20 a ecc boot=2", "30 a ecc boot=2"}, "1,9,20 repeats"},
		"a line that two ends find":        {[]string{"1 a xid48@5", "9 a xid48@5"}, "1"},
		"a new line of the same number":    {[]string{"1 a xid48@5", "9 a xid48@6"}, "1,9"},
		"of long ago":                      {[]string{"-20 a xid48@1", "-9 a xid64@2", "1 a xid79@3"}, "1"},
		"of another GPU":                   {[]string{"1 ab b:xid48"}, ""},
		"of this GPU at another bus id":    {[]string{"1 ab b:xid48", "9 ba lost"}, "1,9"},
		"of a GPU that was replaced":       {[]string{"1 a xid48@1", "9 a lost", "20 a xid79@2", "30 c"}, ""},
		"of its successor":                 {[]string{"1 a xid48@1", "9 c xid48@2"}, "9"},
		"of all GPUs at once":              {[]string{"1 ab lost b:lost", "9 ab xid79@1 b:xid79"}, ""},
		"of two GPUs, each with its own":   {[]string{"1 ab xid48@1 b:recovery"}, "1"},
	} {
		var runs []record.Run
		for _, end := range tt.ends {
			runs = append(runs, runOf(t, end))
		}
		got := ""
		for _, s := range StruckBy(runs, gpu.Snapshot{}, 3, 100*time.Hour, firstSeen.Add(100*time.Hour)) {
			if s.Device.BusID != "0000:00:00.0" {
				continue
			}
			var hours []string
			for _, one := range s.Faults {
				hours = append(hours, fmt.Sprint(one.At.Sub(firstSeen).Hours()))
			}
			got = strings.Join(hours, ",")
			if s.Repeats {
				got += " repeats"
			}
		}
		if got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

// A GPU that the driver does not have any more is not shown, though no record knows its successor.
func TestStrikesOfPresent(t *testing.T) {
	r := runOf(t, "1 a xid48@1")
	for id, want := range map[gpu.ID]string{"a": "GPU 0: 1 faults in 4 days: repeat offender; bookend rma 0", "c": ""} {
		now := gpu.Snapshot{Readings: []gpu.Reading{{Device: gpu.Device{ID: id, BusID: "0000:00:00.0"}}}}
		var got string
		for _, s := range StruckBy([]record.Run{r}, now, 1, 96*time.Hour, firstSeen.Add(50*time.Hour)) {
			got = s.Words()
			if want := "Xid 48 (uncorrectable (double bit) memory error; NVIDIA asks: reset the GPU; " +
				"with 63 or 64, drain and reset)"; s.Faults[0].Words() != want || s.Faults[0].Job != 101 {
				t.Errorf("got %+v, want %q", s.Faults[0], want)
			}
		}
		if got != want {
			t.Errorf("GPU %s: got %q, want %q", id, got, want)
		}
	}
}
