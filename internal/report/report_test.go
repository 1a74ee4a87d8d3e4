package report

import (
	"strings"
	"testing"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/settle"
	"bookend/internal/slurm"
)

const mebi = 1 << 20

func scene(cards int, state settle.State, found ...finding.Finding) Scene {
	s := Scene{
		Node: "n1", Job: slurm.Job{ID: 42, UID: 1001},
		Now:     finding.Side{Curves: map[gpu.ID]settle.Curve{}},
		WallNow: time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC), BootNow: 1000 * time.Second,
		Findings: found, Privacy: config.PrivacyOwn,
	}
	for i := range cards {
		id := gpu.ID("GPU-" + string(rune('a'+i)))
		s.Cards = append(s.Cards, finding.Card{Index: i, Device: gpu.Device{ID: id}})
		s.Now.Curves[id] = settle.Curve{State: state}
		s.Now.Snapshot.Readings = append(s.Now.Snapshot.Readings, gpu.Reading{
			Device: gpu.Device{ID: id}, Memory: gpu.Memory{Free: gpu.Bytes(143155 * mebi)}})
	}
	for range found {
		s.Verdict.Judged = append(s.Verdict.Judged, finding.Judged{Action: config.Warn})
	}
	return s
}

func holder(uid uint32) *finding.Holder {
	return &finding.Holder{Process: attrib.Process{PID: 4711, UID: uid, Name: "python", Start: 400 * time.Second}}
}

func found(c code.Code, h *finding.Holder, o *finding.Owner) finding.Finding {
	index := 0
	return finding.Finding{Code: c, GPU: "GPU-a", Index: &index, Bytes: gpu.Bytes(20480 * mebi), Holder: h, Owner: o}
}

func TestStartAndEnd(t *testing.T) {
	mine := &finding.Owner{Job: 12, UID: 1001, Level: attrib.ByExclusive}
	theirs := &finding.Owner{Job: 12, UID: 1002, Level: attrib.ByCgroup}
	self := &finding.Owner{Job: 42, UID: 1001, Level: attrib.ByCgroup}
	drained := scene(1, settle.Flat, found(code.Orphan, holder(1001), self))
	drained.Verdict.Action = config.Drain
	dirtyBefore := scene(1, settle.Clean)
	dirtyBefore.Before = &finding.Side{Curves: map[gpu.ID]settle.Curve{"GPU-a": {State: settle.Flat}}}
	unread := scene(1, settle.Unknown,
		finding.Finding{Code: code.Unread, GPU: "GPU-a", Unknown: "the driver gave no reading of this GPU"},
		finding.Finding{Code: code.DriverKO, Observed: "dlopen: no such file"})
	unread.Now.Snapshot.Readings = nil
	tests := []struct {
		name string
		text []Safe
		want string
	}{
		{"start, clean", Start(scene(1, settle.Clean)), `
bookend: GPU 0 of n1 clean: 143155 MiB free, nobody on it`},
		{"start, several clean", Start(scene(3, settle.Clean)), `
bookend: GPUs 0,1,2 of n1 clean: 143155 MiB free each, nobody on them`},
		{"start, a process of the user's earlier job", Start(scene(1, settle.Flat, found(code.Dirty, holder(1001), mine))), `
bookend: GPU 0 of n1 was not clean when your job got it
bookend:   Found:  20480 MiB held by process 4711 (python) since 08:50:00
bookend:   Who:    probably your job 12
bookend:   Means:  not caused by this job; you have 143155 MiB free
bookend:   Do:     if that is too little: sbatch --exclude=n1, and tell your
bookend:           admin: bookend show 42 on n1`},
		{"start, another user's job is not named", Start(scene(1, settle.Flat, found(code.Foreign, holder(1002), theirs))), `
bookend: GPU 0 of n1 was not clean when your job got it
bookend:   Found:  20480 MiB held by a process that is not yours
bookend:   Who:    another user's job
bookend:   Means:  not caused by this job; you have 143155 MiB free
bookend:   Do:     if that is too little: sbatch --exclude=n1, and tell your
bookend:           admin: bookend show 42 on n1`},
		{"start, not checked because of an own fault", Start(scene(1, settle.Unknown, finding.Finding{Code: code.BackendMissing})), `
bookend: GPUs of n1 not checked: backend is missing; your job is not affected
bookend: by this`},
		{"start, nothing could be read", Start(unread), `
bookend: GPU 0 of n1 could not be checked when your job got it
bookend:   Found:  could not tell: the driver gave no reading of this GPU
bookend: the GPU driver of n1 had a fault when your job got it
bookend:   Found:  dlopen: no such file
bookend:   Means:  not caused by this job; how much memory is free is unknown
bookend:   Do:     if your job runs out of memory: sbatch --exclude=n1, and
bookend:           tell your admin: bookend show 42 on n1`},
		{"end, a lost card", End(scene(1, settle.Unknown, finding.Finding{Code: code.Lost, GPU: "GPU-a", Observed: "GPU is lost"})), `
bookend: GPU 0 of n1 had a fault after your job
bookend:   Found:  GPU is lost
bookend:   More:   for your admin: bookend show 42 on n1`},
		{"end, clean", End(scene(1, settle.Clean)), `
bookend: GPU 0 of n1 left clean by your job`},
		{"end, as dirty as it was", End(dirtyBefore), `
bookend: GPU 0 of n1 as your job found it: nothing more on it than before`},
		{"end, orphan", End(drained), `
bookend: GPU 0 of n1 was not clean after your job
bookend:   Found:  20480 MiB held by process 4711 (python) since 08:50:00
bookend:   Who:    this job
bookend:   Do:     end background processes before your script ends (wait, or
bookend:           trap 'kill 0' EXIT)
bookend:   Means:  this node takes no new jobs until an admin has looked at it
bookend:   More:   for your admin: bookend show 42 on n1`},
		{"end, memory without a process", End(scene(1, settle.Flat, found(code.Residue, nil, self))), `
bookend: GPU 0 of n1 was not clean after your job
bookend:   Found:  20480 MiB in use that no listed process accounts for
bookend:   Who:    this job
bookend:   More:   for your admin: bookend show 42 on n1`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got strings.Builder
			for _, line := range tt.text {
				got.WriteString("\n" + string(line))
			}
			if got.String() != tt.want {
				t.Errorf("got:%s\nwant:%s", got.String(), tt.want)
			}
		})
	}
}

// In a container another user's process may have the reader's UID: whose it is says the job that it is of.
func TestContainersOfOthers(t *testing.T) {
	theirs := &finding.Owner{Job: 12, UID: 1002, Level: attrib.ByCgroup}
	mine := &finding.Owner{Job: 42, UID: 1001, Level: attrib.ByExclusive}
	boxed := func(owner *finding.Owner) *finding.Holder {
		h := holder(1001)
		h.OtherPIDs, h.Owner = true, owner
		return h
	}
	exported := found(code.Residue, nil, nil)
	exported.Candidates = []finding.Holder{*boxed(theirs), *boxed(nil)}
	for name, tt := range map[string]struct {
		f     finding.Finding
		names bool
		want  string
	}{
		"another user's job":           {found(code.Foreign, holder(1001), theirs), false, "held by a process that is not yours"},
		"no job that is known":         {found(code.Stray, boxed(nil), nil), false, "held by a process that is not known to be yours"},
		"the job's own":                {found(code.Orphan, boxed(nil), mine), true, "held by process 4711 (python)"},
		"a job without a record":       {found(code.Foreign, holder(1001), &finding.Owner{Job: 77, Level: attrib.ByCgroup}), true, "held by process 4711"},
		"that may hold what is unseen": {exported, false, "2 processes that are not yours"},
	} {
		got := text(End(scene(1, settle.Flat, tt.f)))
		flat := strings.Join(strings.Fields(strings.ReplaceAll(got, "bookend:", "")), " ")
		if strings.Contains(got, "python") != tt.names || !strings.Contains(flat, tt.want) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// Nothing of another user's job or process reaches a reader, whatever the finding.
func TestPrivacy(t *testing.T) {
	h := holder(1002)
	h.Name = "secret-project"
	for _, entry := range code.All() {
		o := &finding.Owner{Job: 98765, UID: 1002, Level: attrib.ByCgroup}
		s := scene(1, settle.Flat, found(entry.Code, h, o))
		for _, line := range append(Start(s), End(s)...) {
			for _, secret := range []string{"secret", "98765", "4711"} {
				if strings.Contains(string(line), secret) {
					t.Errorf("%s: %q names %q", entry.Code, line, secret)
				}
			}
		}
	}
}

// Names from the card stay on their line, and a report stays on one screen.
func TestBounds(t *testing.T) {
	h := holder(1001)
	h.Name = "\nexport PATH=/x\n" + strings.Repeat("w", 500)
	var many []finding.Finding
	for range 40 {
		many = append(many, found(code.Orphan, h, nil))
	}
	text := End(scene(1, settle.Flat, many...))
	if len(text) != MaxLines || !strings.Contains(string(text[MaxLines-1]), "More:") {
		t.Errorf("%d lines, the last is %q", len(text), text[len(text)-1])
	}
	for _, line := range text {
		if !strings.HasPrefix(string(line), "bookend: ") || len(line) > Width || strings.ContainsAny(string(line), "\n\r\x00") {
			t.Errorf("bad line %q", line)
		}
	}
}
