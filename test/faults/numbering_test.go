package faults

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/code"
	"bookend/internal/numbering"
	"bookend/internal/safefile"
	"bookend/internal/slurm"
	"bookend/internal/slurmd"
	"bookend/internal/state"
	"bookend/test/fakegpu"
)

// slurmd replaces the program that lists Slurm's GPUs, in the place of the old one.
func (n *node) slurmd(script string) {
	n.Helper()
	must(n, os.WriteFile(n.in("slurm.d/new"), []byte("#!/bin/sh\necho asked >>"+n.in("asked")+"\n"+script), 0o755))
	must(n, os.Rename(n.in("slurm.d/new"), n.in("slurm.d/slurmd")))
}

// slurmConf replaces the two files of Slurm's.
func (n *node) slurmConf(gres string, lines ...string) {
	n.Helper()
	must(n, os.WriteFile(n.in("slurm.d/slurm.conf"), []byte("GresTypes=gpu\nSlurmdPidFile="+n.in("slurm.d/slurmd.pid")+"\nNodeName="+nodeName+" Gres="+gres+"\n"), 0o644))
	must(n, os.WriteFile(n.in("slurm.d/gres.conf"), []byte(strings.Join(lines, "\n")+"\n"), 0o644))
}

// asked is how often slurmd was asked.
func (n *node) asked() int {
	text, _ := os.ReadFile(n.in("asked"))
	return strings.Count(string(text), "asked\n")
}

// lists is a script of slurmd's that lists these minors.
func lists(minors ...int) string {
	var b strings.Builder
	for _, m := range minors {
		fmt.Fprintf(&b, "echo 'slurmd: Gres Name=gpu Type=a Count=1 Index=%d ID=7696487 File=/dev/nvidia%d Links=(null) Flags=HAS_FILE' >&2\n", m, m)
	}
	return b.String()
}

// uuids are the GPUs of a job on record, and what told them.
func (n *node) uuids(job slurm.JobID) (string, numbering.Origin) {
	n.Helper()
	run := n.run(job)
	var all []string
	for _, d := range run.Devices {
		all = append(all, string(d.Device.ID)[:12])
	}
	return strings.Join(all, " "), run.Numbering
}

// Whatever becomes of slurmd -G, a job's GPU is the right one or none, and nothing drains.
func TestSlurmdTrouble(t *testing.T) {
	typed := []string{"Name=gpu Type=b File=/dev/nvidia0", "Name=gpu Type=a File=/dev/nvidia1"}
	for name, tt := range map[string]struct {
		script string
		gres   string // one untyped run where it is empty
		want   string
		source numbering.Source
		why    string
	}{
		"lists":                        {lists(1, 0), "gpu:a:1,gpu:b:1", "GPU-8f0b1c11", numbering.BySlurmd, ""},
		"lists fewer":                  {lists(1), "gpu:a:1,gpu:b:1", "", numbering.Ambiguous, "slurmd -G lists 1 GPUs, slurm.conf gives out 2"},
		"lists nothing, no doubt":      {"exit 0\n", "", "GPU-8f0b1c00", numbering.ByCount, ""},
		"lists nothing":                {"exit 0\n", "gpu:a:1,gpu:b:1", "", numbering.Ambiguous, "lists 0 GPUs"},
		"garbage":                      {"head -c 100000 /dev/urandom >&2\n", "gpu:a:1,gpu:b:1", "", numbering.Ambiguous, "slurmd -G"},
		"garbage behind the list":      {lists(1, 0) + "echo Gres Name=gpu Count=x File= >&2\n", "gpu:a:1,gpu:b:1", "", numbering.Ambiguous, "not a number of GPUs"},
		"fails":                        {"echo no munge >&2; exit 1\n", "gpu:a:1,gpu:b:1", "", numbering.Ambiguous, "no munge"},
		"fails, and there is no doubt": {"echo no munge >&2; exit 1\n", "", "GPU-8f0b1c00", numbering.ByCount, ""},
		"killed":                       {"kill -9 $$\n", "gpu:a:1,gpu:b:1", "", numbering.Ambiguous, "crashed"},
		"hangs":                        {"exec sleep 1000\n", "gpu:a:1,gpu:b:1", "", numbering.Ambiguous, "no answer within"},
		"hangs, and there is no doubt": {"exec sleep 1000\n", "", "GPU-8f0b1c00", numbering.ByCount, ""},
		"a device that is none":        {lists(1, 0) + "echo 'error: /x is not a valid character or block device, fix your gres.conf' >&2\n", "gpu:a:1,gpu:b:1", "", numbering.Ambiguous, "does not count a device"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			if tt.gres != "" {
				n.slurmConf(tt.gres, typed...)
			}
			n.slurmd(tt.script)
			for _, at := range []hook{prolog, epilog} {
				if o := n.hook(at, newJob()); o.exit != 0 {
					t.Errorf("%v: %v", at, o)
				}
			}
			got, origin := n.uuids(100)
			if got != tt.want || origin.Source != tt.source || !strings.Contains(origin.Why, tt.why) {
				t.Errorf("%q by %+v, want %q by %s: %s", got, origin, tt.want, tt.source, tt.why)
			}
			if has(n.findings(epilog), code.Ambiguous) != (tt.source == numbering.Ambiguous) {
				t.Errorf("%+v", n.findings(epilog))
			}
			if n.asked() != 1 {
				t.Errorf("slurmd was asked %d times", n.asked())
			}
		})
	}
}

// slurmd is asked again only where something that its answer depends on has changed, or a health check retries.
func TestSlurmdIsAskedOnce(t *testing.T) {
	n := newNode(t, "enforce")
	n.slurmd(lists(0, 1))
	for range 2 {
		n.clean(prolog, newJob())
		n.clean(epilog, newJob())
	}
	if n.asked() != 1 {
		t.Errorf("asked %d times for four hooks", n.asked())
	}
	n.slurmConf("gpu:2", "Name=gpu File=/dev/nvidia[0-1] # the same")
	n.clean(prolog, newJob())
	if n.asked() != 2 {
		t.Errorf("asked %d times after a change", n.asked())
	}
	n.hook(prolog, newJob().with("SLURM_JOB_ID", "101", "SLURM_JOBID", "101", "CUDA_VISIBLE_DEVICES", n.world.UUID(0)))
	if n.asked() != 2 {
		t.Error("asked for a job whose GPU Slurm names")
	}
}

// Many hooks may begin at once, and all have asked: who finds another at keeping the answer has nothing to tell.
func TestSlurmdsAnswerKeptByAnother(t *testing.T) {
	n := newNode(t, "enforce")
	n.slurmd(lists(0, 1))
	_ = n.store()
	release, err := safefile.Lock(filepath.Join(n.in("run/state"), nodeName, "lock-shared"), time.Second, true)
	must(n, err)
	n.clean(prolog, newJob())
	release()
	if found := n.findings(prolog); len(found) != 0 {
		t.Errorf("%+v", found)
	}
	n.clean(epilog, newJob())
}

// What failed is tried again by a health check, and by a hook a while later.
func TestSlurmdIsAskedAgain(t *testing.T) {
	for name, script := range map[string]string{"fails": "echo no munge >&2; exit 1\n", "lists fewer": lists(0)} {
		n := newNode(t, "enforce")
		n.slurmConf("gpu:a:1,gpu:b:1", "Name=gpu Type=b File=/dev/nvidia0", "Name=gpu Type=a File=/dev/nvidia1")
		n.slurmd(script)
		n.hook(prolog, newJob())
		key := n.kept().Key.Slurmd
		n.slurmd(lists(1, 0))
		old := n.kept()
		if old.Key.Slurmd, _ = slurmdID(n); old.Key.Slurmd == key { // only the failure is to be retried
			t.Fatal("the same program")
		}
		n.keep(old)
		n.hook(healthcheck, bySlurm)
		if now := n.kept(); now.List.Source != numbering.BySlurmd || n.asked() != 2 {
			t.Errorf("%s: asked %d times: %+v", name, n.asked(), now.List)
		}
	}
}

func slurmdID(n *node) (numbering.FileID, error) { return slurmd.Identify(n.in("slurm.d/slurmd")) }

func (n *node) store() *state.Store {
	n.Helper()
	store, err := state.Open(n.conf.run, nodeName)
	must(n, err)
	return store
}

// kept is the answer on record.
func (n *node) kept() numbering.Kept {
	n.Helper()
	kept, err := n.store().Numbering()
	must(n, err)
	if kept == nil {
		n.Fatal("no GPU numbering is kept")
	}
	return *kept
}

func (n *node) keep(k numbering.Kept) {
	n.Helper()
	must(n, n.store().PutNumbering(k))
}

// A file that changes while slurmd reads it may not be the one that it has read: nothing is kept.
func TestNumbersChangeWhileSlurmdIsAsked(t *testing.T) {
	n := newNode(t, "enforce")
	n.slurmConf("gpu:a:1,gpu:b:1", "Name=gpu Type=b File=/dev/nvidia0", "Name=gpu Type=a File=/dev/nvidia1")
	n.slurmd("echo '# new' >>" + n.in("slurm.d/gres.conf") + "\n" + lists(1, 0))
	n.hook(prolog, newJob())
	if got, origin := n.uuids(100); got != "" || origin.Source != numbering.Ambiguous || !strings.Contains(origin.Why, "changed while slurmd -G") {
		t.Errorf("%q by %+v", got, origin)
	}
	if kept, err := n.store().Numbering(); kept != nil || err != nil {
		t.Errorf("kept: %+v, %v", kept, err)
	}
}

// daemon runs a slurmd that hooks find by its PID file alone.
func (n *node) daemon() (stop func()) {
	n.Helper()
	path := n.in("bin/slurmd")
	must(n, os.MkdirAll(filepath.Dir(path), 0o755))
	sleep, err := os.ReadFile("/bin/sleep")
	must(n, err)
	must(n, os.WriteFile(path, sleep, 0o755))
	c := exec.Command(path, "1000")
	must(n, c.Start())
	must(n, os.WriteFile(n.in("slurm.d/slurmd.pid"), fmt.Appendln(nil, c.Process.Pid), 0o644))
	return func() { _ = c.Process.Kill(); _ = c.Wait(); must(n, os.Remove(path)) }
}

// A hook inside the job knows the slurmd by its PID file: a change settles once that has restarted.
func TestNumbersInsideTheJob(t *testing.T) {
	n := newNode(t, "enforce")
	n.slurmConf("gpu:a:1,gpu:b:1", "Name=gpu Type=b File=/dev/nvidia0", "Name=gpu Type=a File=/dev/nvidia1")
	n.slurmd(lists(1, 0))
	stop := n.daemon()
	n.clean(prolog, newJob())
	if d := n.kept().Key.Daemon; d.PID == 0 {
		t.Errorf("%+v", d)
	}
	stop()
	n.slurmConf("gpu:a:1,gpu:b:1", "Name=gpu Type=a File=/dev/nvidia0", "Name=gpu Type=b File=/dev/nvidia1")
	n.slurmd(lists(0, 1))
	defer n.daemon()()
	n.clean(prolog, newJob().with("SLURM_JOB_ID", "101", "SLURM_JOBID", "101"))
	if got, origin := n.uuids(101); got != "GPU-8f0b1c00" || origin.Source != numbering.BySlurmd {
		t.Errorf("%q by %+v", got, origin)
	}
}

// While a slurmd -G lives that could not be killed no other is started, and the driver is still asked.
func TestSlurmdStuck(t *testing.T) {
	n := newNode(t, "enforce")
	stat, err := os.ReadFile("/proc/self/stat")
	must(t, err)
	start, err := strconv.ParseUint(strings.Fields(string(stat))[21], 10, 64)
	must(t, err)
	// What cannot be killed cannot be made here: what matters is that it lives.
	must(t, n.store().AddReader(state.Reader{Stuck: state.Stuck{PID: os.Getpid(), StartTicks: start, Op: "slurmd -G"}},
		func(state.Stuck) bool { return true }))
	n.slurmConf("gpu:a:1,gpu:b:1", "Name=gpu Type=b File=/dev/nvidia0", "Name=gpu Type=a File=/dev/nvidia1")
	n.slurmd(lists(1, 0))
	for _, at := range []hook{prolog, epilog} {
		n.hook(at, newJob())
		if found := n.findings(at); has(found, code.Stuck) || !has(found, code.Ambiguous) {
			t.Errorf("%v: %+v", at, found)
		}
	}
	if _, origin := n.uuids(100); !strings.Contains(origin.Why, "cannot be killed") || n.asked() != 0 {
		t.Errorf("asked %d times: %+v", n.asked(), origin)
	}
}

// A job's end looks at the GPU that its start was given, whatever the configuration says by then.
func TestNumbersChangeDuringAJob(t *testing.T) {
	n := newNode(t, "enforce")
	n.clean(prolog, newJob())
	before, _ := n.uuids(100)
	n.leftover()
	n.slurmConf("gpu:a:1,gpu:b:1", "Name=gpu Type=b File=/dev/nvidia0", "Name=gpu Type=a File=/dev/nvidia1")
	n.slurmd(lists(1, 0))
	o := n.hook(epilog, newJob())
	after, origin := n.uuids(100)
	if after != before || origin.Source != numbering.BySlurmd || !has(n.findings(epilog), code.Orphan) || o.exit == 0 {
		t.Errorf("%q, then %q by %+v: %v, %+v", before, after, origin, o, n.findings(epilog))
	}
}

// Where nothing tells which slurmd runs, a change of its files leaves the numbers open.
func TestNumbersChangeBetweenJobs(t *testing.T) {
	n := newNode(t, "enforce")
	n.clean(prolog, newJob())
	n.clean(epilog, newJob())
	n.slurmConf("gpu:a:1,gpu:b:1", "Name=gpu Type=b File=/dev/nvidia0", "Name=gpu Type=a File=/dev/nvidia1")
	n.slurmd(lists(1, 0))
	n.hook(prolog, newJob().with("SLURM_JOB_ID", "101", "SLURM_JOBID", "101"))
	if got, origin := n.uuids(101); got != "" || origin.Source != numbering.Ambiguous || !strings.Contains(origin.Why, "which slurmd is running is not known") {
		t.Errorf("%q by %+v", got, origin)
	}
}

// What is on a GPU that Slurm does not give out is nobody's leftover: neither an end nor a health check says a word.
func TestGPUWithoutSlurm(t *testing.T) {
	n := newNode(t, "enforce", fakegpu.GPUs(2))
	n.slurmConf("gpu:1", "Name=gpu File=/dev/nvidia1")
	n.slurmd(lists(1))
	n.leftover() // a desktop on the first GPU
	n.clean(prolog, newJob())
	n.clean(epilog, newJob())
	if got, origin := n.uuids(100); got != "GPU-8f0b1c11" || origin.Source != numbering.BySlurmd {
		t.Errorf("%q by %+v", got, origin)
	}
	for _, f := range n.check().Findings {
		t.Errorf("%+v", f)
	}
}

// Files in whose place nothing answers keep no hook beyond its deadline, and say nothing of the driver.
func TestSlurmFilesOutOfUse(t *testing.T) {
	for name, spoil := range map[string]func(*node){
		"gone": func(n *node) { must(t, os.RemoveAll(n.in("slurm.d"))) },
		"a pipe": func(n *node) {
			must(t, os.Remove(n.in("slurm.d/slurm.conf")))
			must(t, unix.Mkfifo(n.in("slurm.d/slurm.conf"), 0o644))
		},
		"of no node": func(n *node) {
			must(t, os.WriteFile(filepath.Join(n.dir, "slurm.d/slurm.conf"), []byte("NodeName=x Gres=gpu:2\n"), 0o644))
		},
		"no gres.conf": func(n *node) { must(t, os.Remove(n.in("slurm.d/gres.conf"))); n.slurmd("exit 0\n") },
	} {
		n := newNode(t, "enforce")
		spoil(n)
		began := time.Now()
		o := n.hook(prolog, newJob())
		if found := n.findings(prolog); o.exit != 0 || len(found) != 1 || found[0].Code != code.Ambiguous {
			t.Errorf("%s, after %v: %v, %+v", name, time.Since(began), o, found)
		}
	}
}

// Another failure takes nothing from what the files say by themselves.
func TestSlurmdFailsAgain(t *testing.T) {
	n := newNode(t, "enforce")
	n.slurmd("echo no munge >&2; exit 1\n") // and there is no doubt without it
	n.check()
	n.hook(prolog, newJob())
	n.check()
	n.hook(prolog, numbered(101))
	if _, origin := n.uuids(101); n.asked() != 2 || origin.Source != numbering.ByCount {
		t.Errorf("asked %d times: %+v", n.asked(), origin)
	}
}
