package faults

import (
	"cmp"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/internal/ledger"
	"bookend/internal/state"
	"bookend/test/fakegpu"
)

// everyRecord are the node's records of a job in memory and on disk. What is in both is one record.
func (n *node) everyRecord(id int) (records []ledger.Run) {
	n.Helper()
	_, damaged := n.store().Runs()
	history, lost := state.History(n.conf.varDir, nodeName)
	if len(damaged)+len(lost) > 0 {
		n.Errorf("damaged: %v %v", damaged, lost)
	}
	known := map[string]bool{}
	for _, r := range append(n.runs(id), history...) {
		if int(r.Job.ID) == id && !known[r.Key] {
			known[r.Key] = true
			records = append(records, r)
		}
	}
	return records
}

// latest is job 100's run whose prolog ran last.
func (n *node) latest() (last ledger.Run) {
	n.Helper()
	for _, r := range n.everyRecord(100) {
		if last.Start == nil || r.Start != nil && r.Start.Wall.After(last.Start.Wall) {
			last = r
		}
	}
	if last.Start == nil || len(last.Ends) > 1 {
		n.Fatalf("record: %+v", last)
	}
	return last
}

// boots gives the node a /proc that names the boot. Called again, the node has booted anew.
func (n *node) boots(id string) {
	n.Helper()
	file := n.put("boot_id", id+"\n", 0o444)
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
	up := strconv.Itoa(seconds)
	h.program = n.script(h.program+"-"+up, "exec /usr/bin/unshare --time --boottime "+up+" "+program(h.program))
	return h
}

// The node went down in the middle of a job, and its state outlived that, as
// where paths.run is no tmpfs. After the boot the same job id is another run, the same user's or not, and nothing of
// the old one counts. Where the state is lost, as with every boot where it is a tmpfs, the history has all runs.
func TestReusedAfterBoot(t *testing.T) {
	const uptime = 1_000_000 // of the first boot: the second begins from 0
	for version, identity := range versions {
		for _, first := range []string{"open", "state lost"} {
			t.Run(version+" "+first, func(t *testing.T) {
				t.Parallel()
				n, uid := newNode(t, "enforce"), bystander
				if first == "open" {
					uid = user
				}
				one, two := newJob().With(identity[0]...), newJob().Of(uid).With(identity[1]...)
				n.boots("first")
				n.clean(n.later(prolog, uptime), one)
				if first == "state lost" {
					n.clean(n.later(epilog, uptime), one)
					must(t, os.RemoveAll(n.conf.run))
				}
				n.boots("second")
				n.clean(prolog, two)
				n.endsClean(uid, two)
				if all := n.everyRecord(100); first == "state lost" && len(all) != 2 {
					t.Errorf("%d records of two runs: %+v", len(all), all)
				}
			})
		}
	}
}

// endsClean ends job 100, of which nothing is found.
func (n *node) endsClean(uid int, j job) {
	n.Helper()
	n.clean(epilog, j)
	if r := n.latest(); len(r.Start.Findings)+len(r.Ends[0].Findings) != 0 || int(r.Job.UID) != uid {
		n.Errorf("left nothing: %+v", r)
	}
	n.shows("no problems", "status")
}

// Slurm's own state was lost, and its job ids begin anew in the middle of a boot, or a job is requeued. The first run
// of the id is still on record, open or ended; what it left lies on the GPU. It is not the second's, whose user, if he
// is another, reads nothing of the first's.
func TestJobCounterBegunAnew(t *testing.T) {
	for version, identity := range versions {
		for _, first := range []string{"open", "ended", "requeued"} {
			t.Run(version+" "+first, func(t *testing.T) {
				t.Parallel()
				n := newNode(t, "observe")
				one, two := newJob().With(identity[0]...), newJob().Of(bystander).With(identity[1]...)
				if first == "requeued" {
					two = newJob().With(identity[1]...).With("SLURM_JOB_RESTART_COUNT", "1")
				}
				n.clean(prolog, one)
				left := n.leftover()
				if first != "open" {
					n.hook(epilog, one.With("SLURM_JOB_RESTART_COUNT", two["SLURM_JOB_RESTART_COUNT"]))
				}
				n.configure(func(c *conf) { c.mode = "enforce" })
				n.exits(0, prolog, two)
				if first != "requeued" {
					n.foundAtStart(two, left)
				}
				n.exits(0, epilog, two)
				if all := n.everyRecord(100); len(all) != 2 {
					t.Errorf("%d records of two runs: %+v", len(all), all)
				}
			})
		}
	}
}

// foundAtStart looks at what the start of a second user's job on a GPU with the first's process tells whom.
func (n *node) foundAtStart(j job, left *fakegpu.Program) {
	n.Helper()
	name := nodeName + "_" + cmp.Or(j["SLURM_JOB_SLUID"], "100") // of the job id: the second user's now
	var st unix.Stat_t
	must(n, unix.Stat(filepath.Join(n.conf.run, "drop", name), &st))
	report := filepath.Join(n.conf.run, "report", name)
	if st.Uid != bystander || !reads(bystander, report) || reads(user, report) {
		n.Errorf("the drop belongs to user %d, or not the second user alone reads the report", st.Uid)
	}
	if text := n.latest().Start.Report; !strings.Contains(text, "already had") ||
		strings.Contains(text, strconv.Itoa(left.PID)) || strings.Contains(text, "by your job") {
		n.Errorf("the user reads\n%s", text)
	}
}
