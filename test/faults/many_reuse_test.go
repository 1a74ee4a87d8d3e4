package faults

import (
	"cmp"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/ledger"
	"bookend/test/fakegpu"
)

// versions are what Slurm tells of which run of a job id a hook is for: two runs each, the second later.
var versions = map[string][2][]string{
	"22.05": {nil, nil},
	"23.02": {{"SLURM_JOB_START_TIME", "1790000000"}, {"SLURM_JOB_START_TIME", "1790009000"}},
	"25.11": {{"SLURM_JOB_SLUID", "sCHNM7Y8WBK900"}, {"SLURM_JOB_SLUID", "sCHNM7Y8WBK901"}},
}

// of is a job as its user's.
func (j job) of(uid int) job {
	id := strconv.Itoa(uid)
	return j.with("SLURM_JOB_UID", id, "SLURM_UID", id, "SLURM_JOB_GID", id)
}

// boots gives the node a /proc that names the boot. Called again, the node has booted anew.
func (n *node) boots(id string) {
	n.Helper()
	file := n.in("boot_id")
	must(n, os.WriteFile(file, []byte(id+"\n"), 0o444))
	if n.conf.proc != "" {
		return
	}
	must(n, os.Mkdir(n.in("proc"), 0o755))
	must(n, unix.Mount("/proc", n.in("proc"), "", unix.MS_BIND|unix.MS_REC, ""))
	n.Cleanup(func() { must(n, unix.Unmount(n.in("proc"), unix.MNT_DETACH)) })
	must(n, unix.Mount(file, n.in("proc/sys/kernel/random/boot_id"), "", unix.MS_BIND, ""))
	n.configure(func(c *conf) { c.proc = n.in("proc") })
}

// later is a hook on a machine that has been up for so many seconds more, which processes' start times show as well.
func (n *node) later(h hook, seconds int) hook {
	n.Helper()
	name := h.program + "-" + strconv.Itoa(seconds)
	h.program = n.script(name, "exec /usr/bin/unshare --time --boottime "+strconv.Itoa(seconds)+" "+program(h.program))
	return h
}

// the job's run whose prolog ran last.
func (n *node) latest() ledger.Run {
	n.Helper()
	var last ledger.Run
	for _, runs := range n.everyRecord() {
		for _, r := range runs {
			if r.Job.ID == 100 && (last.Start == nil || r.Start != nil && r.Start.Wall.After(last.Start.Wall)) {
				last = r
			}
		}
	}
	return last
}

// proven checks that the newest run of the job has both ends, and that it alone is told for the process it left.
func (n *node) proven(uid uint32, left *fakegpu.Program) {
	n.Helper()
	r := n.latest()
	if r.Start == nil || len(r.Ends) != 1 || r.Job.UID != uid {
		n.Errorf("record: %+v", r)
		return
	}
	if len(r.Start.Findings) != 0 {
		n.Errorf("at the start: %+v", r.Start.Findings)
	}
	found := r.Ends[0].Findings
	if left == nil {
		if len(found) != 0 {
			n.Errorf("left nothing: %+v", found)
		}
		return
	}
	if len(found) != 1 || found[0].Code != code.Orphan || found[0].Owner == nil || found[0].Owner.Job != 100 ||
		found[0].Owner.UID != uid || found[0].Holder.PID != left.PID {
		n.Errorf("left process %d: %+v", left.PID, found)
	}
}

// The node went down in the middle of a job, or after one that had left something, and its state outlived that, as where
// paths.run is no tmpfs. After the boot the same job id is another run, the same user's or not, and nothing of the old one
// counts.
func TestReusedAfterBoot(t *testing.T) {
	const uptime = 1_000_000 // of the first boot: the second begins from 0
	for version, identity := range versions {
		for _, uid := range []int{user, bystander} {
			for _, ended := range []bool{false, true} {
				t.Run(version+" "+strconv.Itoa(uid)+" "+strconv.FormatBool(ended), func(t *testing.T) {
					t.Parallel()
					n := newNode(t, "enforce")
					first, second := newJob().with(identity[0]...), newJob().of(uid).with(identity[1]...)
					n.boots("first")
					n.clean(n.later(prolog, uptime), first)
					if ended {
						left := n.leftover()
						if o := n.hook(n.later(epilog, uptime), first); o.exit != 10 {
							t.Fatalf("%v\n%s", o, n.log())
						}
						must(t, left.Kill())
					}
					n.boots("second")
					n.clean(prolog, second)
					n.twoEnds(uid, second)
				})
			}
		}
	}
}

// twoEnds ends job 100 clean, and once more with a process left by its next run.
func (n *node) twoEnds(uid int, j job) {
	n.Helper()
	n.clean(epilog, j)
	n.proven(uint32(uid), nil)
	if status, _ := n.bookend("status"); !strings.Contains(status, "jobs with GPUs now: 0\n") {
		n.Errorf("status:\n%s", status)
	}
	again := j
	if j["SLURM_JOB_SLUID"] != "" {
		again = j.with("SLURM_JOB_SLUID", "sCHNM7Y8WBK902")
	} else if j["SLURM_JOB_START_TIME"] != "" {
		again = j.with("SLURM_JOB_START_TIME", "1790010000")
	}
	n.clean(prolog, again)
	left := n.holder(uint32(uid), nil, "--mib", "2048")
	want := 10
	if again["SLURM_JOB_START_TIME"] == "" && again["SLURM_JOB_SLUID"] == "" {
		want = 0 // it may be the second epilog of the run that ended a moment ago
	}
	if o := n.hook(epilog, again); o.exit != want {
		n.Errorf("%v\n%s", o, n.log())
	}
	n.proven(uint32(uid), left)
}

// The state is lost, as with every boot where it is a tmpfs, and the job id comes again. The history has both.
func TestReusedWithoutState(t *testing.T) {
	for version, identity := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			n.boots("first")
			n.clean(prolog, newJob().with(identity[0]...))
			n.clean(epilog, newJob().with(identity[0]...))
			must(t, os.RemoveAll(n.conf.run))
			n.boots("second")
			second := newJob().of(bystander).with(identity[1]...)
			n.clean(prolog, second)
			n.twoEnds(bystander, second)
			if all := n.everyRecord()[100]; len(all) != 3 {
				t.Errorf("%d records of three runs: %+v", len(all), all)
			}
		})
	}
}

// The state is lost while the job runs: its end finds no record of its start, says so, and drains for nothing.
func TestStateLostMeanwhile(t *testing.T) {
	n := newNode(t, "enforce")
	n.configure(func(c *conf) { c.onUnknown = "drain" })
	n.clean(prolog, newJob())
	n.leftover()
	must(t, os.RemoveAll(n.conf.run))
	if o := n.hook(epilog, newJob()); o.exit != 0 || !has(n.findings(epilog), code.NoRecord) {
		t.Errorf("%v %+v", o, n.findings(epilog))
	}
}

// Slurm's own state was lost, and its job ids begin anew in the middle of a boot. The first job of the id is still on
// record, open or ended; what it left lies on the card. It is not the second's, whose user reads nothing of the first's.
func TestJobCounterBegunAnew(t *testing.T) {
	for version, identity := range versions {
		for _, ended := range []bool{false, true} {
			t.Run(version+" "+strconv.FormatBool(ended), func(t *testing.T) {
				t.Parallel()
				n := newNode(t, "observe")
				first, second := newJob().with(identity[0]...), newJob().of(bystander).with(identity[1]...)
				n.clean(prolog, first)
				left := n.leftover()
				if ended {
					n.hook(epilog, first)
				}
				n.configure(func(c *conf) { c.mode = "enforce" })
				n.foundAtStart(second, left)
				if o := n.hook(epilog, second); o.exit != 0 {
					t.Errorf("drained for what it found: %v\n%s", o, n.log())
				}
				r := n.latest()
				if r.Start == nil || len(r.Ends) != 1 || r.Job.UID != bystander {
					t.Fatalf("%+v", r)
				}
				n.notBlamed(append(r.Start.Findings, r.Ends[0].Findings...), left)
				if all := n.everyRecord()[100]; len(all) != 2 {
					t.Errorf("%d records of two runs: %+v", len(all), all)
				}
			})
		}
	}
}

// foundAtStart begins a job on a card with somebody else's process.
func (n *node) foundAtStart(j job, left *fakegpu.Program) {
	n.Helper()
	if o := n.hook(prolog, j); o.exit != 0 {
		n.Errorf("%v\n%s", o, n.log())
	}
	name := nodeName + "_" + cmp.Or(j["SLURM_JOB_SLUID"], "100") // of the job id: the second user's now
	var st unix.Stat_t
	must(n, unix.Stat(filepath.Join(n.conf.run, "drop", name), &st))
	if st.Uid != bystander {
		n.Errorf("the drop folder belongs to user %d", st.Uid)
	}
	must(n, os.Chmod(n.dir, 0o755))
	if report := filepath.Join(n.conf.run, "report", name); !reads(bystander, report) || reads(user, report) {
		n.Errorf("not the second user alone reads the report")
	}
	if text := n.latest().Start.Report; !strings.Contains(text, "was not clean") || strings.Contains(text, strconv.Itoa(left.PID)) ||
		strings.Contains(text, "probably your job") {
		n.Errorf("the user reads\n%s", text)
	}
}

// notBlamed checks that what is said of the process accuses no run of the second user.
func (n *node) notBlamed(found []finding.Finding, left *fakegpu.Program) {
	n.Helper()
	told := 0
	for _, f := range found {
		if f.Holder == nil || f.Holder.PID != left.PID {
			n.Errorf("%+v", f)
			continue
		}
		told++
		if f.Code == code.Orphan || f.Owner != nil && f.Owner.UID != user {
			n.Errorf("the second job is blamed: %+v", f)
		}
	}
	if told == 0 {
		n.Error("nobody says a word of what was on the card")
	}
}

// A job is requeued after its first run left a process: the second, of the same id and user, is not told for it.
func TestRequeueBesideTheOrphan(t *testing.T) {
	for version, identity := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "observe")
			n.clean(prolog, newJob().with(identity[0]...))
			left := n.leftover()
			n.hook(epilog, newJob().with(identity[0]...).with("SLURM_JOB_RESTART_COUNT", "1"))
			n.configure(func(c *conf) { c.mode = "enforce" })
			second := newJob().with(identity[1]...).with("SLURM_JOB_RESTART_COUNT", "1")
			if o := n.hook(prolog, second); o.exit != 0 {
				t.Errorf("%v", o)
			}
			if o := n.hook(epilog, second.with("SLURM_JOB_RESTART_COUNT", "2")); o.exit != 0 {
				t.Errorf("%v\n%s", o, n.log())
			}
			r := n.latest()
			if r.Start == nil || len(r.Ends) != 1 || len(n.everyRecord()[100]) != 2 {
				t.Fatalf("%+v", n.everyRecord()[100])
			}
			n.notBlamed(append(r.Start.Findings, r.Ends[0].Findings...), left)
		})
	}
}

// An epilog that comes twice, the second time while the requeued job runs, drains for nothing of that: up to 22.05 Slurm does
// not say which run an epilog is for.
func TestSecondEpilogBesideTheNextRun(t *testing.T) {
	for version, identity := range versions {
		for _, proven := range []bool{true, false} {
			n := newNode(t, "enforce")
			first, second := newJob().with(identity[0]...), newJob().with(identity[1]...)
			n.clean(prolog, first)
			n.clean(epilog, first)
			n.clean(prolog, second)
			p := n.leftover()
			if proven {
				n.inCgroup(p, "100")
			}
			if o := n.hook(epilog, first); o.exit != 0 {
				t.Errorf("%s, in its cgroup: %v: %v\n%s", version, proven, o, n.log())
			}
		}
	}
}
