package faults

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/code"
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

// The node went down in the middle of a job, or after one that had left something, and its state outlived that, as
// where paths.run is no tmpfs. After the boot the same job id is another run, the same user's or not, and nothing of
// the old one counts. Where the state is lost, as with every boot where it is a tmpfs, the history has all runs.
func TestReusedAfterBoot(t *testing.T) {
	const uptime = 1_000_000 // of the first boot: the second begins from 0
	for version, identity := range versions {
		for _, first := range []string{"open", "left something", "state lost"} {
			t.Run(version+" "+first, func(t *testing.T) {
				t.Parallel()
				n, uid := newNode(t, "enforce"), bystander
				if first == "open" {
					uid = user
				}
				one, two := newJob().With(identity[0]...), newJob().Of(uid).With(identity[1]...)
				n.boots("first")
				n.clean(n.later(prolog, uptime), one)
				if first == "left something" {
					left := n.leftover()
					n.exits(10, n.later(epilog, uptime), one)
					must(t, left.Kill())
				} else if first == "state lost" {
					n.clean(n.later(epilog, uptime), one)
					must(t, os.RemoveAll(n.conf.run))
				}
				n.boots("second")
				n.clean(prolog, two)
				n.twoEnds(uid, two)
				if all := n.everyRecord(100); first == "state lost" && len(all) != 3 {
					t.Errorf("%d records of three runs: %+v", len(all), all)
				}
			})
		}
	}
}

// twoEnds ends job 100 clean, and once more with a process left by its next run, which alone is told for it.
func (n *node) twoEnds(uid int, j job) {
	n.Helper()
	n.clean(epilog, j)
	if r := n.latest(); len(r.Start.Findings)+len(r.Ends[0].Findings) != 0 || int(r.Job.UID) != uid {
		n.Errorf("left nothing: %+v", r)
	}
	n.shows("jobs with GPUs now: 0\n", "status")
	again, want := j, 10
	switch {
	case j["SLURM_JOB_SLUID"] != "":
		again = j.With("SLURM_JOB_SLUID", "sCHNM7Y8WBK902")
	case j["SLURM_JOB_START_TIME"] != "":
		again = j.With("SLURM_JOB_START_TIME", "1790010000")
	default:
		want = 0 // it may be the second epilog of the run that ended a moment ago
	}
	n.clean(prolog, again)
	left := n.holder(uid, nil, "--mib", "2048")
	n.exits(want, epilog, again)
	r := n.latest()
	f := n.found(r.Ends[0].Findings, code.Orphan)
	if f.Owner == nil || f.Owner.Job != 100 || int(f.Owner.UID) != uid || f.Holder.PID != left.PID ||
		len(r.Start.Findings) != 0 {
		n.Errorf("left process %d: %+v", left.PID, r)
	}
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
				n.notBlamed(left)
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

// notBlamed checks that what is said of the process accuses not the second run.
func (n *node) notBlamed(left *fakegpu.Program) {
	n.Helper()
	r := n.latest()
	all := append(r.Start.Findings, r.Ends[0].Findings...)
	for _, f := range all {
		if f.Holder == nil || f.Holder.PID != left.PID || f.Code == code.Orphan || f.Owner != nil &&
			f.Owner.UID != user {
			n.Errorf("the second job is blamed: %+v", f)
		}
	}
	if len(all) == 0 {
		n.Error("no one says a word of what was on the GPU")
	}
}

// An epilog that comes twice, the second time while the requeued job runs, drains for nothing of that: up to 22.05
// Slurm does not say which run an epilog is for.
func TestRequeueBesideASecondEpilog(t *testing.T) {
	for _, identity := range versions {
		for _, proven := range []bool{true, false} {
			n := newNode(t, "enforce")
			first, second := newJob().With(identity[0]...), newJob().With(identity[1]...)
			n.clean(prolog, first)
			n.clean(epilog, first)
			n.clean(prolog, second)
			if p := n.leftover(); proven {
				n.inCgroup(p, "100")
			}
			n.exits(0, epilog, first)
		}
	}
}

// wallOf gives the job's start on record the time of another clock: the machine's was set anew since.
func (n *node) wallOf(wall time.Time) {
	n.Helper()
	path := n.ownRecord()
	var r ledger.Run
	must(n, json.Unmarshal([]byte(n.get(path)), &r))
	r.Start.Wall = wall
	if strings.HasPrefix(r.Key, "w") {
		r.Key = fmt.Sprintf("w%d", max(0, wall.UnixNano()))
	}
	text, err := json.Marshal(r)
	must(n, err)
	must(n, os.Remove(path))
	n.put(filepath.Join(filepath.Dir(path), r.Key+".json"), string(text), 0o600)
}

// The clock on the wall is set forward or back while a job runs. Nothing is judged by it: what the job left is found
// and is its own, and what it did not leave is not; no run is lost, and the words for people name no time that cannot
// be.
func TestWallClockSteps(t *testing.T) {
	for name, wall := range map[string]time.Time{
		"set back by years": time.Now().AddDate(10, 0, 0), "set forward by years": time.Now().AddDate(-10, 0, 0),
		"was in 1970": time.Unix(3, 0), "set back by seconds": time.Now().Add(30 * time.Second),
	} {
		for version, identity := range versions {
			for exit, leaves := range map[int]bool{0: false, 10: true} {
				t.Run(fmt.Sprint(version, " ", name, " ", leaves), func(t *testing.T) {
					t.Parallel()
					n := newNode(t, "enforce")
					j := newJob().With(identity[0]...)
					n.clean(prolog, j)
					n.wallOf(wall)
					if leaves {
						n.leftover()
					}
					n.exits(exit, epilog, j)
					if r := n.run(100); r.Start == nil || len(r.Ends) != 1 ||
						codes(r.Ends[0].Findings) == "" == leaves {
						t.Errorf("%+v", r)
					}
					if shown, exit := n.bookend("show", "100"); exit != 0 || strings.Contains(shown, "took -") {
						t.Errorf("exit %d\n%s", exit, shown)
					}
				})
			}
		}
	}
}

// A machine that was suspended while the job ran has been up for longer than it worked: CLOCK_BOOTTIME goes on, and the
// start times of processes with it. After a restored checkpoint it may have gone back.
func TestBootClockSteps(t *testing.T) {
	for _, tt := range []struct {
		atStart, atEnd int
		leaves         bool
	}{{0, 8 * 3600, false}, {0, 8 * 3600, true}, {8 * 3600, 0, false}, {8 * 3600, 0, true}} {
		t.Run(fmt.Sprint(tt), func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			n.boots("only")
			n.clean(n.later(prolog, tt.atStart), newJob())
			if tt.leaves {
				n.leftover()
			}
			o := n.hook(n.later(epilog, tt.atEnd), newJob())
			found := n.latest().Ends[0].Findings
			switch forward := tt.atEnd > tt.atStart; {
			case !tt.leaves && (o.exit != 0 || len(found) != 0), tt.leaves && forward &&
				(o.exit != 10 || !has(found, code.Orphan)),
				tt.leaves && !forward && (len(found) == 0 || found[0].Owner != nil && found[0].Owner.Job != 100):
				t.Errorf("%v %+v\n%s", o, found, n.log())
			}
		})
	}
}
