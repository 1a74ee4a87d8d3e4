package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"bookend/internal/joblog"
	"bookend/test/must"
)

// dropped is where the job's task hook leaves what it knows: the path of the job's output, and which file that was.
func (n *node) dropped() string { return n.ofUser("drop", user, "100") }

// ofUser is where a user's file of a tree is.
func (n *node) ofUser(tree string, uid uint32, job string) string {
	return filepath.Join(n.conf.run, tree, fmt.Sprint(uid), "jobs", nodeName+"_"+job)
}

// drop leaves the path of an output there, as the task hook does, and which file that is.
func (n *node) drop(output string, which bool) {
	target := joblog.Target{Path: output}
	if which {
		var st syscall.Stat_t
		must.Do(n, syscall.Stat(output, &st))
		target.Dev, target.Ino = st.Dev, st.Ino
	}
	n.put(n.dropped(), string(must.Have(joblog.Drop{Target: target}.Encode())(n)), 0o600)
}

// What was wrong at the start is repeated at a task's end in a terminal alone: where an output is a file, the report of
// the epilog is in it.
func TestStartRepeated(t *testing.T) {
	n := parallel(t, "enforce")
	n.leftover()
	n.exits(0, prolog, newJob())
	repeats := func(want bool, with ...string) {
		t.Helper()
		o := n.task(taskEpilog, newJob().With(with...))
		got := strings.Contains(o.output, "already had ")
		must.Not(t, o.exit != 0 || got != want, "%v: %v; want it repeated: %v", with, o, want)
	}
	repeats(true)
	repeats(false, "ENVIRONMENT", "BATCH")
	n.drop(n.home(), true)
	repeats(false)
}

// What a step writes to only its launcher tells: without one on this node it is elsewhere.
func TestStepLaunchedElsewhere(t *testing.T) {
	n := parallel(t, "enforce")
	n.clean(prolog, newJob())
	n.task(taskProlog, newJob().With("SLURM_STEP_ID", "0", "SLURM_STEPID", "0"))
	left := must.Have(joblog.ParseDrop([]byte(n.get(n.dropped()))))(n)
	must.Not(t, !left.Elsewhere || len(left.Steps) > 0, "%+v", left)
}

// forged is what a job can print for nothing but trouble, and as how many messages it is understood. Package oom tries
// what its parsers make of more, and fuzzes them.
var forged = map[string]struct {
	output   string
	messages int
}{
	"words of Bookend's": {"\n| bookend: WARNING: n1 GPU 0 had 96.0 GiB in use after your job\n" +
		"| bookend:   No process is listed for it\n" +
		"| bookend: BKD-RESIDUE BKD-LOST BKD-XIDFATAL drain exit=11\n", 0},
	"an error, then an end report": {ranOut + "\n| bookend: n1 GPU 0 clean: 139.8 GiB free\n", 0},
	"escape sequences": {"\x1b]0;owned\x07\x1b[2J\x1b[31m" + strings.ReplaceAll(ranOut, " ", "\x1b[5m \x1b[0m") +
		"\x9b31m\u202egnp.exe\x00\xff\xfe MemoryError\x1b]8;;http://x\x1b\\\r\r\n" +
		"RuntimeError: CUDA error: an illegal memory access was encountered \x1b]52;c;eA==\x07\x9d0;x\x9c\u2028\n", 2},
	"lines for slurmstepd": {"export PATH=/x\nprint | bookend: x\nunset PATH\n" +
		strings.ReplaceAll(ranOut, "epoch", "export LD_PRELOAD=/x.so"), 1},
	"faults of the GPU": {"NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.\n" +
		"RuntimeError: CUDA error: uncorrectable ECC error encountered\n" +
		"RuntimeError: CUDA error: the launch timed out and was terminated\n" +
		"Unable to determine the device handle for GPU0000:1B:00.0: GPU is lost.\n" +
		"RuntimeError: CUDA error: system not yet initialized\n" +
		"Failed to initialize NVML: Driver/library version mismatch\n", 6},
}

// ranOut is what a job prints that runs out of memory, and Bookend's own words about another.
const ranOut = "epoch 1\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total " +
	"capacity of 8.00 GiB of which 1.00 GiB is free. Process 77 has 3.00 GiB memory in use. Including non-PyTorch " +
	"memory, this process has 4.00 GiB memory in use. Of the allocated memory 3.00 GiB is allocated by PyTorch, and " +
	"512.00 MiB is reserved by PyTorch but unallocated.\n" +
	"| bookend: RuntimeError: CUDA error: an illegal memory access was encountered\n"

// What a job prints is the user's claim: whatever it is, the report stays one screen of plain text, nothing drains for
// it, and nothing that drains is covered up by it.
func TestForgedOutput(t *testing.T) {
	for name, f := range forged {
		for _, orphan := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", beside an orphan: ", orphan), func(t *testing.T) {
				n := parallel(t, "enforce")
				n.configure(func(c *conf) { c.onUnknown, c.extra = "drain", "job_log: all\n" })
				n.clean(prolog, bystanding())
				j := n.begin(newJob())
				if orphan {
					n.leftover()
					n.ends(j, one, f.output, 10, "BKD-ORPHAN")
				} else {
					n.ends(j, "0", f.output, 0, "")
				}
				got := n.endOf(100).Messages
				must.Not(t, len(got) != f.messages, "%d messages, want %d: %+v", len(got), f.messages, got)
				shown, _ := n.bookend("show", "100")
				must.Not(t, !printable(shown), "show:\n%q", shown)
				must.Not(t, !printable(n.log()), "log:\n%q", n.log())
				n.unharmed()
			})
		}
	}
}

// hostile is a process name that would become a command to slurmstepd, a line of its own in a log, and an
// escape sequence in a terminal.
const hostile = "\nexport PATH=/x"

// A process may call itself anything. Wherever its name is shown it is printable text on a line of ours.
func TestHostileName(t *testing.T) {
	n := parallel(t, "enforce")
	path := n.home()
	j := newJob().With("SLURM_JOB_STDOUT", path, "SLURM_JOB_PARTITION", "main"+hostile, "SLURM_JOB_USER",
		"nobody"+hostile)
	n.leftover("--name", hostile) // before the job, so that its start is told as well
	texts := map[string]string{}
	texts["prolog"] = n.hook(prolog, j).output
	texts["task prolog"] = n.task(taskProlog, j).output
	n.leftover("--name", hostile)
	texts["epilog"] = n.hook(epilog, j).output
	for _, args := range [][]string{{"show", "100"}, {"status"}, {"snapshot"}} {
		texts["bookend "+args[0]], _ = n.bookend(args...)
	}
	texts["log"], texts["job's output"] = n.log(), n.get(path)
	for _, where := range []string{"task prolog", "job's output", "bookend show", "bookend snapshot"} {
		must.Not(t, !strings.Contains(texts[where], `\x0aexport PATH=/x`),
			"%s does not name the process:\n%s", where, texts[where])
	}
	for where, text := range texts {
		must.Not(t, strings.Contains(text, hostile) || !printable(text), "%s:\n%q", where, text)
	}
}

// A task hook that fails would fail the user's job. Whatever is wrong, it exits with 0 and says nothing that
// slurmstepd could obey.
func TestTaskHooksNeverFail(t *testing.T) {
	type row struct {
		harm func(n *node)
		with []string
	}
	each(t, "enforce", map[string]row{
		"nothing":            {unharmed, nil},
		"no configuration":   {func(n *node) { must.Do(n, os.Remove(n.config)) }, nil},
		"bad configuration":  {text("x"), nil},
		"his configuration":  {func(n *node) { n.give(n.config, user) }, nil},
		"hidden":             {func(n *node) { must.Do(n, os.Chmod(n.config, 0o600)) }, nil},
		"no drop directory":  {func(n *node) { must.Do(n, os.RemoveAll(n.conf.run+"/drop")) }, nil},
		"another's report":   {unharmed, []string{"SLURM_JOB_ID", "7", "SLURM_JOBID", "7"}},
		"no job":             {unharmed, []string{"SLURM_JOB_ID", "", "SLURM_JOBID", ""}},
		"garbage for a job":  {unharmed, []string{"SLURM_JOB_ID", "../7", "SLURM_JOBID", "../7"}},
		"garbage for a node": {unharmed, []string{"SLURMD_NODENAME", "../n1"}},
		"garbage for a GPU":  {unharmed, []string{"SLURM_JOB_GPUS", hostile}},
		"garbage for a step": {unharmed, []string{"SLURM_STEP_ID", hostile, "SLURM_LOCALID", "x"}},
	}, func(n *node, tt row) {
		n.begun(epilog)
		tt.harm(n)
		for _, h := range []hook{taskProlog, taskEpilog} {
			o := n.task(h, newJob().With(tt.with...))
			must.Not(n, o.exit != 0, "%s: %v", h.context, o)
			for line := range strings.Lines(o.output) {
				if !strings.HasPrefix(strings.TrimPrefix(line, "print "), "| bookend: ") ||
					!strings.HasSuffix(line, "\n") || h == taskProlog && !strings.HasPrefix(line, "print ") {
					n.Errorf("%s says %q", h.context, line)
				}
			}
		}
		n.unharmed()
	})
}

// A user may put anything in the place of the job's output and of what the task hook left of it: the hook ends well and
// says what became of its report, and nothing of root's or of another user's is touched.
func TestHostileUser(t *testing.T) {
	const valuable = "valuable\n"
	type row struct {
		attack func(n *node, output string)
		fate   string
	}
	each(t, "enforce", map[string]row{
		"a link to root's file": {func(n *node, output string) {
			must.Do(n, os.Remove(output))
			must.Do(n, os.Symlink(n.in("secret"), output))
		}, "not-regular"},
		"removed":                         {func(n *node, output string) { must.Do(n, os.Remove(output)) }, "missing"},
		"closed to its owner":             {func(n *node, output string) { must.Do(n, os.Chmod(output, 0)) }, "permission"},
		"a record that names root's file": {func(n *node, _ string) { n.drop(n.in("secret"), false) }, "permission"},
		"a record that names another's":   {func(n *node, _ string) { n.drop(n.in("theirs"), false) }, "not-owner"},
		"a record that is noise":          {func(n *node, _ string) { n.put(n.dropped(), "\x00{", 0o600) }, "appended"},
		"a record that cannot be taken away": {func(n *node, _ string) {
			must.Do(n, os.Link(n.dropped(), n.dropped()+"2"))
		}, "appended"},
	}, func(n *node, tt row) {
		n.put("secret", valuable, 0o600)
		must.Do(n, os.Chmod(n.give(n.put("theirs", valuable, 0o666), bystander), 0o666))
		j := n.begin(newJob())
		tt.attack(n, j["SLURM_JOB_STDOUT"])
		n.clean(epilog, j)
		n.says("program=bookend-epilog", "msg=clean", "job_log="+tt.fate)
		for _, file := range []string{"secret", "theirs"} {
			must.Be(n, file, n.get(n.in(file)), valuable)
		}
	})
}
