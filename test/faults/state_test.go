package faults

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/catalog"
	"bookend/test/must"
)

// A record that cannot be used is set aside and said, and is its job's loss alone; the epilog goes on as if there had
// been no prolog. Package state tries many kinds of garbage.
func TestDamagedRecord(t *testing.T) {
	each(t, "enforce", map[string]func(n *node, path string){
		"cut off":   func(n *node, path string) { must.Do(n, os.Truncate(path, 200)) },
		"a version": func(n *node, path string) { n.replace(path, `"version":1`, `"version":99`) },
		"a user's":  func(n *node, path string) { n.give(path, user) },
		"a link":    func(n *node, path string) { n.swap(path, func() error { return os.Symlink("/etc/passwd", path) }) },
		"a FIFO":    func(n *node, path string) { n.swap(path, func() error { return unix.Mkfifo(path, 0o600) }) },
	}, func(n *node, damage func(n *node, path string)) {
		fault{finds: catalog.StateDamage, says: "/100/", harm: func(n *node) {
			files := must.Have(filepath.Glob(n.inState("100/*.json")))(n)
			damage(n, files[0])
		}}.check(n, epilog, "drain", 38)
		found := n.findings(epilog)
		must.Not(n, !has(found, catalog.NoRecord) || !n.run(100).Closed(), "got %+v", found)
		aside, _ := os.ReadDir(n.inState("damaged"))
		must.Not(n, len(aside) != 1, "set aside: %v", aside)
	})
}

// The record of a job that still runs is damaged: what is on its GPU is not known to be another's, in that hook and in
// all later ones, until a check has seen the GPU without memory and processes. Another job's end there drains nothing.
func TestDamagedRecordOfALiveJob(t *testing.T) {
	n := parallel(t, "enforce")
	n.clean(prolog, newJob())
	n.clean(prolog, numbered(101)) // which shares the GPU by right, as gang-scheduled jobs do
	must.Do(t, os.Truncate(must.Have(filepath.Glob(n.inState("100/*.json")))(t)[0], 200))
	p := n.leftover()
	n.exits(0, epilog, numbered(101))
	found := codes(n.endOf(101).Findings)
	must.Not(t, found != "BKD-ST-DAMAGED BKD-STRAY?", "the end that met the damage found %s", found)
	for range 2 {
		f := n.checked("BKD-STRAY?").Findings[0]
		doubts := strings.Join(f.Doubts, "; ")
		must.Not(t, !strings.Contains(doubts, "the record of job 100 is damaged"), "%+v", f)
	}
	n.clean(prolog, bystanding())
	n.exits(0, prolog, numbered(102))
	n.exits(0, epilog, numbered(102))
	n.shows("job 100 may still run", "status")
	must.Do(t, p.Kill())
	n.checked("")
	n.leftover()
	n.checked("BKD-STRAY")
	aside, _ := os.ReadDir(n.inState("damaged"))
	must.Not(t, len(aside) != 1, "set aside: %v", aside)
}

func (n *node) replace(path, old, text string) {
	data := n.get(path)
	if !strings.Contains(data, old) {
		n.Fatalf("no %s in %s", old, data)
	}
	n.put(path, strings.Replace(data, old, text, 1), 0o600)
}

func (n *node) swap(path string, with func() error) {
	must.Do(n, os.Remove(path))
	must.Do(n, with())
}

// The folder of the state is made where it is missing; so is every one below. An end without a record of its start says
// so, and drains for nothing that is on the GPU.
func TestStateLostMeanwhile(t *testing.T) {
	for _, gone := range []string{"", "report", "drop", "state/" + nodeName + "/100"} {
		t.Run(gone, func(t *testing.T) {
			n := parallel(t, "enforce")
			n.configure(func(c *conf) { c.onUnknown = "drain" })
			n.clean(prolog, newJob())
			must.Do(t, os.RemoveAll(filepath.Join(n.conf.run, gone)))
			kept := gone == "report" || gone == "drop"
			if !kept {
				n.leftover()
			}
			n.exits(0, epilog, newJob())
			must.Not(t, !n.run(100).Closed() || has(n.findings(epilog), catalog.NoRecord) == kept,
				"%+v", n.findings(epilog))
		})
	}
}

// With more on record than a hook can read in its time, another job may have the GPU: what would drain is a warning
// then.
func TestTooManyRecordsDoNotDrain(t *testing.T) {
	n := parallel(t, "enforce")
	n.begun(epilog)
	text := n.record()
	old := time.Now().Add(-time.Hour)
	for id := range 520 {
		folder := n.inState(strconv.Itoa(1000 + id))
		must.Do(t, os.Mkdir(folder, 0o700))
		n.put(folder+"/w1.json", strings.Replace(text, `"id":7,`, fmt.Sprintf(`"id":%d,`, 1000+id), 1), 0o600)
		must.Do(t, os.Chtimes(folder, old, old))
	}
	n.inCgroup(n.leftover(), "100")
	n.exits(0, epilog, newJob())
	found := n.findings(epilog)
	f := n.found(found, catalog.Orphan)
	must.Not(t, !has(found, catalog.StateDamage) || !strings.Contains(strings.Join(f.Doubts, "; "), "not all records"),
		"%+v", found)
}

// versions are what Slurm tells of which run of a job id a hook is for: two runs each, the second later.
var versions = map[string][2][]string{
	"22.05": {nil, nil},
	"23.02": {{"SLURM_JOB_START_TIME", "1790000000"}, {"SLURM_JOB_START_TIME", "1790009000"}},
	"25.11": {{"SLURM_JOB_SLUID", "sCHNM7Y8WBK900"}, {"SLURM_JOB_SLUID", "sCHNM7Y8WBK901"}},
}

// A second epilog measures anew: the first verdict was about what is gone by now.
func TestEpilogTwice(t *testing.T) {
	n := parallel(t, "enforce")
	n.clean(prolog, bystanding())
	path := n.home()
	j := newJob().With("SLURM_JOB_STDOUT", path)
	n.clean(prolog, j)
	orphan := n.leftover()
	n.exits(10, epilog, j)
	said := n.get(path) + ranOut
	n.put(path, said, 0o644)
	must.Do(t, orphan.Kill())
	n.exits(0, epilog, j)
	r := n.run(100)
	must.Not(t, len(r.Ends) != 2 || codes(r.Ends[0].Findings) != "BKD-ORPHAN" ||
		codes(r.Ends[1].Findings) != "BKD-AGAIN" || len(r.Ends[1].Messages) > 0, "%+v", r.Ends)
	again := n.get(path)
	must.Not(t, again != said, "appended again: %q", again)
	n.unharmed()
}

// Of a requeued job whose second record is lost, Slurm 22.05 does not tell the second end from one more of the first run's.
// Nothing that this end finds is certain then, with a cgroup or without.
func TestRequeuedWithoutARecord(t *testing.T) {
	each(t, "enforce", map[string]bool{"in the job's cgroup": true, "in none": false}, func(n *node, tracked bool) {
		n.job(100)
		first := n.get(must.Have(filepath.Glob(n.inState("100/*.json")))(n)[0])
		n.clean(prolog, newJob())
		for _, path := range must.Have(filepath.Glob(n.inState("100/*.json")))(n) {
			if n.get(path) != first {
				must.Do(n, os.Remove(path))
			}
		}
		p := n.holder(user, []string{"SLURM_JOB_ID=100"}, "--mib", "2048")
		if tracked {
			n.inCgroup(p, "100")
		}
		n.exits(0, epilog, newJob())
		for _, f := range n.endOf(100).Findings {
			must.Not(n, f.Holder != nil && f.Unknown == "" && len(f.Doubts) == 0, "certain: %+v", f)
		}
	})
}

// A job that was requeued: what the first run's user was told is not true of the second, where its prolog is ended while
// it looks.
func TestRequeue(t *testing.T) {
	t.Parallel()
	n, second := newNode(t, "enforce"), newJob().With("SLURM_JOB_RESTART_COUNT", "1")
	n.job(100)
	n.set("on."+memoryCall, "hang-hard")
	p := n.start(prolog, second)
	o := p.terminate(p.child("backend"))
	must.Not(t, o.exit != 0, "%v", o)
	said := n.task(taskProlog, second)
	must.Not(t, said.exit != 0 || said.output != "", "the second run: %v", said)
}

// Slurm's own state was lost, and its job ids begin anew in the middle of a boot, or a job is requeued. The first run
// of the id is still on record, open or ended; what it left lies on the GPU. It is not the second's, whose user, if he
// is another, reads nothing of the first's, and finds nothing of it in his drop. Which run is which after a boot
// package ledger knows.
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
					n.foundAtStart(two, left.PID)
				}
				n.exits(0, epilog, two)
				all := n.runs(100)
				must.Not(t, len(all) != 2, "%d records of two runs: %+v", len(all), all)
				if first == "requeued" { // its first run, whose end may never come, no longer counts as live
					n.clean(prolog, numbered(101).On("1"))
					n.leftover("--gpu", "1")
					n.exits(10, epilog, numbered(101).On("1"))
				}
			})
		}
	}
}

// foundAtStart looks at what the start of a second user's job on a GPU with the first's process tells whom.
func (n *node) foundAtStart(j job, left int) {
	name := cmp.Or(j["SLURM_JOB_SLUID"], "100") // of the job id: the second user's now
	drop, report := n.ofUser("drop", bystander, name), n.ofUser("report", bystander, name)
	must.Not(n, n.get(drop) != "" || !reads(bystander, drop) || reads(user, drop) || !reads(bystander, report) ||
		reads(user, report), "the drop is not a new one, or not the second user alone reads drop and report")
	for _, r := range n.runs(100) {
		if text := r.Start.Report; r.Job.UID == bystander && (!strings.Contains(text, "already had") ||
			strings.Contains(text, strconv.Itoa(left)) || strings.Contains(text, "by your job")) {
			n.Errorf("the user reads\n%s", text)
		}
	}
}
