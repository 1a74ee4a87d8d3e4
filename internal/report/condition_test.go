package report

import (
	"strings"
	"testing"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/settle"
)

// Every finding of a card's condition has words for whoever gets or leaves the card: none blames a process.
func TestCondition(t *testing.T) {
	const startDo = `
bookend:   Do:     if that is too little: sbatch --exclude=n1, and tell your
bookend:           admin: bookend show 42 on n1`
	const startFail = `
bookend:   Means:  not caused by this job; GPU programs may fail on it
bookend:   Do:     if yours does: sbatch --exclude=n1, and tell your admin:
bookend:           bookend show 42 on n1`
	const startFree = `
bookend:   Means:  not caused by this job; you have 143155 MiB free` + startDo
	const more = `
bookend:   More:   for your admin: bookend show 42 on n1`
	for _, tt := range []struct {
		code     code.Code
		observed string
		title    string
		found    string
		start    string // what the start says of it
	}{
		{code.Gap, "143155 MiB free, the largest single block was 61204 MiB, after 34 attempts", "had a fault", `
bookend:   Found:  143155 MiB free, the largest single block was 61204 MiB`, startFree},
		{code.Blocked, "no memory to be had of 143155 MiB free: cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY (2); process 4711", "had a fault", `
bookend:   Found:  a test could not get any of its free memory`, startFail},
		{code.Broken, "cuInit: CUDA_ERROR_SYSTEM_NOT_READY (802); the fabric is not ready; start nvidia-fabricmanager", "had a fault", `
bookend:   Found:  a test of CUDA failed: cuInit: CUDA_ERROR_SYSTEM_NOT_READY
bookend:           (802)`, startFail},
		{code.Recovery, "the driver asks for a reset of the card", "had a fault", `
bookend:   Found:  the driver asks for a reset of the card`, startFail},
		{code.RemapFailed, "the remapping of a memory row has failed", "had a fault", `
bookend:   Found:  the remapping of a memory row has failed`, startFree},
		{code.RemapPending, "memory rows wait for a reset to be remapped", "had a fault", `
bookend:   Found:  memory rows wait for a reset to be remapped`, startFree},
		{code.Pages, "memory pages wait for a reset to be retired", "had a fault", `
bookend:   Found:  memory pages wait for a reset to be retired`, startFree},
		{code.ECC, "3 uncorrectable memory errors more than at the last look (0 then, 3 now)", "had a fault", `
bookend:   Found:  3 uncorrectable memory errors more than at the last look (0
bookend:           then, 3 now)`, startFree},
		{code.Fabric, "joining the NVLink fabric has failed", "had a fault", `
bookend:   Found:  joining the NVLink fabric has failed`, startFail},
		{code.BAR1, "300 MiB of BAR1 mapped", "was not clean", `
bookend:   Found:  300 MiB of BAR1 mapped`, startFree},
		{code.Xid, "PID 4711: name=secret", "met an error of a program", `
bookend:   Found:  the driver's error Xid 31: `, startFree},
		{code.XidFatal, "PID 4711: name=secret", "had a fault", `
bookend:   Found:  the driver's error Xid 79: `, startFail},
		{code.Throttle, "clocks are held down: sw_thermal", "was slow", `
bookend:   Found:  clocks are held down: sw_thermal`, startFree},
		{code.Persistence, "persistence mode is off", "was slow to wake up", `
bookend:   Found:  persistence mode is off`, startFree},
	} {
		t.Run(string(tt.code), func(t *testing.T) {
			f := finding.Finding{Code: tt.code, GPU: "GPU-a", Observed: tt.observed, Xid: map[code.Code]int{code.Xid: 31, code.XidFatal: 79}[tt.code]}
			s := scene(1, settle.Clean, f)
			check := func(got, when, after string) {
				t.Helper()
				head := "\nbookend: GPU 0 of n1 " + tt.title + " " + when + tt.found
				tail, isXid := "", strings.HasSuffix(tt.found, ": ")
				if _, rest, ok := strings.Cut(got, head); ok {
					tail = rest
				}
				if !isXid && got != head+after || isXid && (!strings.HasPrefix(got, head) || !strings.HasSuffix(tail, after) || len(tail) < len(after)+10) ||
					strings.Contains(got, "secret") || strings.Contains(got, "4711") {
					t.Errorf("got:%s\nwant:%s", got, head+after)
				}
			}
			check(text(Start(s)), "when your job got it", tt.start)
			after := "after your job"
			if f.Xid != 0 { // the kernel's log since the job's start, read as its end begins
				after = "during your job"
			}
			check(text(End(s)), after, more)
		})
	}
}

// Beside what is on the GPU after the job, an error of the driver keeps its own time.
func TestXidBesideALeftover(t *testing.T) {
	residue := finding.Finding{Code: code.Residue, GPU: "GPU-a", Bytes: gpu.Bytes(20480 * mebi)}
	got := text(End(scene(1, settle.Flat, residue, finding.Finding{Code: code.Xid, GPU: "GPU-a", Xid: 43})))
	for _, want := range []string{"was not clean after your job", "Xid 43: ", "during your job"} {
		if !strings.Contains(strings.Join(strings.Fields(strings.ReplaceAll(got, "bookend:", "")), " "), want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
}

// GPUs that differ have no figure in common.
func TestFreeOfSeveral(t *testing.T) {
	for _, tt := range []struct {
		free []gpu.Figure
		want string
	}{
		{[]gpu.Figure{gpu.Bytes(143155 * mebi)}, "143155 MiB free"},
		{[]gpu.Figure{gpu.Bytes(143155 * mebi), gpu.Bytes(143155 * mebi)}, "143155 MiB free each"},
		{[]gpu.Figure{gpu.Bytes(143155 * mebi), gpu.Bytes(143149 * mebi)}, "143149 MiB free each"},
		{[]gpu.Figure{gpu.Bytes(143155 * mebi), gpu.Bytes(122675 * mebi)}, "at least 122675 MiB free on each GPU"},
		{[]gpu.Figure{gpu.Unknown("lost"), gpu.Bytes(122675 * mebi)}, "at least 122675 MiB free on each GPU that could be read"},
		{[]gpu.Figure{gpu.Unknown("lost"), gpu.Unknown("lost")}, "free memory unknown"},
	} {
		s := scene(len(tt.free), settle.Flat)
		for i, f := range tt.free {
			s.Now.Snapshot.Readings[i].Memory.Free = f
		}
		if got := s.free(); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

// A fault outweighs what is milder, in whichever order they come, and what is on the card outweighs both.
func TestStrongestState(t *testing.T) {
	slow, xid, lost := finding.Finding{Code: code.Throttle}, finding.Finding{Code: code.Xid}, finding.Finding{Code: code.Lost}
	for _, tt := range []struct {
		about []finding.Finding
		want  string
	}{
		{[]finding.Finding{slow, lost}, "had a fault"},
		{[]finding.Finding{lost, slow}, "had a fault"},
		{[]finding.Finding{xid}, "met an error of a program"},
		{[]finding.Finding{lost, {Code: code.Residue}, slow}, "was not clean"},
		{[]finding.Finding{{Code: code.Recovery, Unknown: "not read"}}, "could not be checked"},
	} {
		if got := state(tt.about); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.about, got, tt.want)
		}
	}
}

// A finding without the number, and a number without a meaning, are told as far as they go.
func TestXidWithoutWords(t *testing.T) {
	for number, want := range map[int]string{0: "the driver reported an error (Xid)", 9999: "the driver's error Xid 9999: of a kind that is not known"} {
		s := scene(1, settle.Clean, finding.Finding{Code: code.Xid, GPU: "GPU-a", Xid: number, Observed: "Xid 31 (x)"})
		if got := text(End(s)); !strings.Contains(got, want) {
			t.Errorf("%d: %s", number, got)
		}
	}
}

// The one line of a clean start has the largest block where every card was tested and the line has room.
func TestLargestBlock(t *testing.T) {
	tested := func(largest ...uint64) []gpu.Probe {
		var all []gpu.Probe
		for i, n := range largest {
			all = append(all, gpu.Probe{Device: gpu.ID("GPU-" + string(rune('a'+i))), Result: gpu.ProbeOK, Largest: gpu.Bytes(n * mebi)})
		}
		return all
	}
	skipped := []gpu.Probe{{Device: "GPU-a", Result: gpu.ProbeSkipped, Largest: gpu.Unknown("not tested")}}
	for _, tt := range []struct {
		cards  int
		node   string
		probes []gpu.Probe
		want   string
	}{
		{1, "n1", tested(143153), "bookend: GPU 0 of n1 clean: 143155 MiB free, 143153 in one block, nobody on it"},
		{1, "gpu-017", tested(143153), "bookend: GPU 0 of gpu-017 clean: 143155 MiB free, 143153 in one block"},
		{1, "gpu-node-017.example", tested(143153), "bookend: GPU 0 of gpu-node-017.example clean: 143155 MiB free, nobody on it"},
		{2, "n1", tested(143153, 143151), "bookend: GPUs 0,1 of n1 clean: 143155 MiB free each, 143151 in one block"},
		{2, "n1", tested(143153), "bookend: GPUs 0,1 of n1 clean: 143155 MiB free each, nobody on them"},
		{1, "n1", skipped, "bookend: GPU 0 of n1 clean: 143155 MiB free, nobody on it"},
	} {
		s := scene(tt.cards, settle.Clean)
		s.Node, s.Probes = tt.node, tt.probes
		if got := Start(s); len(got) != 1 || string(got[0]) != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

// What a drain says of a faulty card keeps its place below what was found.
func TestFaultThatDrains(t *testing.T) {
	s := scene(1, settle.Clean, finding.Finding{Code: code.XidFatal, GPU: "GPU-a", Xid: 79})
	s.Verdict = finding.Verdict{Action: config.Drain, Judged: s.Verdict.Judged}
	if got := text(End(s)); !strings.Contains(got, "this node takes no new jobs") || strings.Contains(got, "background") {
		t.Errorf("%s", got)
	}
}
