package diagnosis

import (
	"strings"
	"testing"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

// That the GPUs of a failed job were in order is said only if all that tells was read and nothing was found.
func TestInOrder(t *testing.T) {
	probe := func(why string) func(*Input) {
		return func(in *Input) { in.Probes = []gpu.Probe{{Device: gpu0, Result: gpu.ProbeSkipped, Why: why}} }
	}
	unsure := there(catalog.Recovery, 0, 0, nil)
	unsure.Unknown = "not read"
	xid := func(number int, note string) func(*Input) {
		f := there(catalog.Xid, 0, 0, nil)
		f.Xid, f.NoteOnly = number, note
		return finds(f)
	}
	note := there(catalog.Persistence, 0, 0, nil)
	note.Doubts = []string{"it is a part of a GPU"}
	hung := there(catalog.XidFatal, 0, 0, nil)
	hung.Xid, hung.Doubts = 109, []string{"a program's own kernel can hang a GPU so"}
	for name, tt := range map[string]struct {
		change func(*Input)
		want   record.Answer
		says   string
	}{
		"all is known":                   {func(*Input) {}, record.Yes, "from start to end"},
		"it ended well":                  {endedWell, "", ""},
		"no one knows how":               {func(in *Input) { in.Job.Exit = slurm.ExitStatus{} }, "", ""},
		"no test by design":              {probe(gpu.NoTestAtStart), record.Yes, "from start to end"},
		"no test, though it was due":     {probe("no time left"), record.Yes, "not tested by an allocation: no time left"},
		"and no kernel log":              {both(probe("no time left"), func(in *Input) { in.Kernel = nil }), record.CannotTell, "kernel log"},
		"part of the log lost":           {func(in *Input) { in.Kernel.Lost = true }, record.CannotTell, "kernel log"},
		"an error in the log":            {func(in *Input) { in.Kernel.Xids = []gpu.Xid{{BusID: "0000:1b:00.0", Code: 79}} }, record.CannotTell, "kernel log"},
		"no condition":                   {func(in *Input) { in.Health = nil }, record.CannotTell, "condition not read"},
		"part of the condition":          {func(in *Input) { in.Health[0].Facts = append(in.Health[0].Facts, gpu.Fact{Unknown: "999"}) }, record.CannotTell, "part of"},
		"no start":                       {func(in *Input) { in.Start = nil }, record.CannotTell, "both ends"},
		"not clean at its end":           {func(in *Input) { in.End.Curves[gpu0] = record.Curve{State: record.Flat} }, record.CannotTell, "both ends"},
		"a finding at its start":         {func(in *Input) { in.StartFindings = []record.Finding{there(catalog.RemapFailed, 0, 0, nil)} }, record.No, "remapping"},
		"a finding in doubt":             {finds(unsure), record.CannotTell, "recovery"},
		"a note":                         {finds(there(catalog.Persistence, 0, 0, nil)), record.Yes, "from start"},
		"a note in doubt":                {finds(note), record.Yes, "from start"},
		"its output says something else": {saying(failing("uncorrectable ECC error encountered")), record.CannotTell, "uncorrectable memory error"},
		"an error of the program":        {saying(failing("device-side assert triggered")), record.Yes, "from start"},
		"a program's error in the log":   {xid(31, ""), record.Yes, "from start"},
		"the clean-up of a program":      {xid(45, ""), record.Yes, "from start"},
		"a notice of an NVSwitch":        {xid(gpu.FirstSXid+20001, "it needs no repair"), record.Yes, "from start"},
		"anyone's error in the log":      {xid(8, ""), record.CannotTell, "Xid"},
		"hardware's error in the log":    {xid(94, ""), record.No, "Xid"},
		"a hang that a program can be":   {finds(hung), record.CannotTell, "Xid"},
		"another's process meanwhile":    {seeing(seen(500, 5150, 30, false)), record.CannotTell, "may not be the job's was on one"},
		"its own, without a cgroup":      {seeing(Sighting{Device: gpu0, PID: 900, Bytes: gib(30), Likely: true}), record.Yes, "from start"},
		"several nodes":                  {func(in *Input) { in.Job.NodeList = "n[1-2]" }, record.CannotTell, "other nodes"},
	} {
		in := well(1)
		tt.change(&in)
		if c := Why(in).InOrder; c.Answer != tt.want || !strings.Contains(c.Evidence, tt.says) {
			t.Errorf("%s: %+v, want %q, %q", name, c, tt.want, tt.says)
		}
	}
}
