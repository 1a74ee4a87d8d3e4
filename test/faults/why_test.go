package faults

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"bookend/internal/code"
	"bookend/internal/diagnosis"
	"bookend/internal/gpu"
	"bookend/test/rig"
)

// runsOut is a job's program that runs out of memory as its arguments say.
func runsOut(args ...string) func(*node) string {
	return func(n *node) string {
		said, _ := n.program(exec.Command(n.world.FakeCUDA(), append([]string{"alloc", "--torch"}, args...)...))
		return "epoch 1\n" + said
	}
}

// because requires the causes that an end answers with yes, in its record and in what the command line shows of it.
func because(want ...diagnosis.Name) func(*node) {
	return func(n *node) {
		n.Helper()
		d, yes := n.endOf(100).Diagnosis, []diagnosis.Name(nil)
		if d == nil {
			n.Fatalf("no one asked why: %+v", n.endOf(100))
		}
		for _, c := range d.Causes {
			if c.Answer == diagnosis.Yes {
				yes = append(yes, c.Name)
			}
		}
		if !slices.Equal(yes, want) {
			n.Errorf("yes is answered for %v: %+v", yes, d)
		}
		if shown, _ := n.bookend("show", "100"); len(lines(shown, "    YES ")) != len(want) {
			n.Errorf("show:\n%s", shown)
		}
	}
}

// unasked: an admin may want to know later; nobody has asked yet.
func unasked(n *node) {
	n.Helper()
	if d := n.endOf(100).Diagnosis; d != nil {
		n.Errorf("%+v", d)
	}
}

// asks is a site's job_log.
func asks(show string) func(*conf) { return func(c *conf) { c.extra = "job_log: " + show + "\n" } }

// What those who run out of memory are in, told in the job's own output by both hooks of real processes on a GPU;
// nobody is told a story without a reason, or where the admin wants none. The table of package diagnosis has every
// cause, that of package report every form.
func TestWhyOutOfMemory(t *testing.T) {
	own, asked := runsOut("--mib", "130000", "--ask", "20000"), runsOut("--mib", "20000", "--ask", "40000")
	well := func(*node) string { return "done\n" }
	stories := map[string]story{
		"somebody else's process": {runs: asked, status: failed,
			before: func(n *node) { n.holder(bystander, nil, "--mib", "100000") },
			check:  because(diagnosis.Others),
			reads: []string{"OUT OF MEMORY on n1 GPU 0: another process held memory of your GPU",
				"98.2 GiB when your job began, since ", "Try: another node: sbatch --exclude=n1"}},
		"memory of an earlier job, without a process": {
			before: func(n *node) {
				n.clean(prolog, numbered(99))
				must(n, os.Mkdir(n.in("sockets"), 0o755)) // a memory's descriptor lives on in another process
				socket := n.give(n.in("sockets"), user) + "/export"
				keeper, err := n.world.StartAs(rig.As(user).Credential, nil, "holdfd", socket)
				must(n, err)
				n.Cleanup(keeper.End)
				must(n, n.leftover("--mib", "100000", "--export", socket).Kill())
				n.exits(0, epilog, numbered(99))
				n.found(n.endOf(99).Findings, code.Residue)
			},
			runs: asked, status: failed, check: because(diagnosis.Leftover, diagnosis.Unlisted),
			reads: []string{"OUT OF MEMORY on n1 GPU 0: an earlier job left GPU memory in use",
				"97.7 GiB when your job began, probably by your job 99"}},

		"none":     {config: asks("none"), runs: own, status: failed, silent: true, check: because(diagnosis.Own)},
		"problems": {config: asks("problems"), runs: well, silent: true, check: unasked},
		"ended well": {config: asks("summary"), runs: well, check: unasked,
			reads: []string{"n1 GPU 0 clean: 139.8 of 139.8 GiB free"}},
		"ended well all the same": {config: asks("summary"), runs: own, check: because(diagnosis.Own), reads: []string{
			"OUT OF MEMORY on n1 GPU 0, but your job ended without an error: your job itself used up the GPU",
			"Ruled out: other users, ", "Used 127.5 of 139.8 GiB, then requested 19.5 GiB more"}},
	}
	for name, s := range stories {
		s.mode = "observe"
		stories[name] = s
	}
	tell(t, stories)
}

// The driver kept what the job's process had at most, though it was gone long before the job's end. Where the admin
// wants it, a start switches that on for the job's GPUs; nothing ever switches it off.
func TestPeak(t *testing.T) {
	n := newNode(t, "enforce")
	n.configure(func(c *conf) { c.library += ", accounting: true" })
	// an earlier job's
	n.set("gpu0.accounted", fmt.Sprintf("4711:140000:%d:1000:0", time.Now().Add(-time.Hour).UnixMicro()))
	j := n.begin(newJob())
	said, pid := n.program(exec.Command(n.world.FakeCUDA(), "alloc", "--mib", "100000", "--ask", "60000", "--torch"))
	n.end(j, failed, said)
	const peak = 100000 + 527 - 9 // MiB: what the driver shows of a process, its context included
	e := n.endOf(100)
	peaks, kept := e.Diagnosis.Peaks, e.Health[0].Accounting.Processes
	if len(peaks) != 1 || peaks[0].PID != pid || peaks[0].Peak != gpu.Bytes(peak<<20) || len(kept) != 1 ||
		kept[0].PID != pid {
		t.Errorf("%+v, %+v", peaks, kept)
	}
	n.shows(fmt.Sprintf("peak: PID %d had 98.2 GiB at most", pid), "show", "100")
	n.configure(func(c *conf) { c.library = n.world.NVML() }) // the admin has thought better of it
	n.job(102)
	if all, err := n.world.AccountingSwitches(); err != nil || !slices.Equal(all, []string{"0 1"}) {
		t.Errorf("switched: %q, %v", all, err)
	}
}
