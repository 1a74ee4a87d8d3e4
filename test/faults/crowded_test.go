package faults

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"bookend/internal/code"
	"bookend/internal/finding"
)

// A node was seen with so many processes that had the driver open.
const (
	holders = 480
	gone    = 8 // further processes that the driver still lists: each may be held by any of those
)

// crowd adds processes of another user that have the driver open to this node's /proc, with programs in a deep directory.
func (n *node) crowd(proc string) {
	n.Helper()
	program := "/" + strings.Repeat("environment/", 15) + "bin/python3.12"
	for pid := 3_000_000; pid < 3_000_000+holders; pid++ {
		entry := filepath.Join(proc, strconv.Itoa(pid))
		must(n, os.MkdirAll(filepath.Join(entry, "fd"), 0o755))
		must(n, os.Symlink(filepath.Join(n.world.Dev(), "nvidiactl"), filepath.Join(entry, "fd/3")))
		must(n, os.Symlink(filepath.Join(n.world.Dev(), "nvidia0"), filepath.Join(entry, "fd/4")))
		must(n, os.Symlink(program, filepath.Join(entry, "exe")))
		for name, text := range map[string]string{
			"stat":    fmt.Sprintf("%d (dataloader_work) S 1 1 1 0 -1 0%s\n", pid, strings.Repeat(" 0", 12)+" 9 0 0"),
			"status":  fmt.Sprintf("Name:\tdataloader_work\nUid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\n", bystander),
			"cgroup":  "0::/user.slice/user-65533.slice/session-3.scope\n",
			"environ": "", "maps": "",
		} {
			must(n, os.WriteFile(filepath.Join(entry, name), []byte(text), 0o644))
		}
	}
}

// However many processes have the driver open, an end is on record with its verdict, and so is a health check.
func TestCrowdOfHoldersIsOnRecord(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	n.clean(prolog, newJob())
	proc := n.copiedProc()
	for range gone { // of these /proc has nothing: the driver lists processes that are gone
		n.leftover()
	}
	left := n.leftover().PID
	entry := filepath.Join(proc, strconv.Itoa(left))
	must(t, os.Mkdir(entry, 0o755))
	for _, name := range []string{"stat", "status", "environ"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", left, name))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(entry, name), text, 0o644))
	}
	must(t, os.WriteFile(filepath.Join(entry, "cgroup"), []byte("0::/system.slice/n1_slurmstepd.scope/job_100/step_0/user/task_0\n"), 0o644))
	n.crowd(proc)
	n.configure(func(c *conf) { c.proc = proc })

	o := n.hook(epilog, newJob())
	r := n.run(100)
	if o.exit == 0 || len(r.Ends) != 1 {
		t.Fatalf("%v\n%d ends on record\n%s", o, len(r.Ends), n.log())
	}
	end := r.Ends[0]
	counts := map[code.Code]int{}
	for _, f := range end.Findings {
		counts[f.Code]++
	}
	if end.Verdict.Exit != o.exit || counts[code.Phantom] != gone || counts[code.StateWrite] != 0 || !named(end.Findings, left) {
		t.Errorf("%v\non record: %+v\n%+v", o, end.Verdict, end.Findings)
	}
	if c := n.check(); !has(c.Findings, code.Phantom) || c.Stopped {
		t.Errorf("the health check's record: %+v", c)
	}
}

// named reports whether one of the findings is about a process.
func named(found []finding.Finding, pid int) bool {
	for _, f := range found {
		if f.Holder != nil && f.Holder.PID == pid {
			return true
		}
	}
	return false
}

// With more on record than a hook can read in its time, another job may have the GPU: what would drain is a warning then.
func TestTooManyRecordsDoNotDrain(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	n.clean(prolog, bystanding())
	n.clean(prolog, newJob())
	text := append(bytes.Repeat([]byte(" "), 1000<<10), n.record()...)
	old := time.Now().Add(-time.Hour)
	for id := range 80 {
		name := strconv.Itoa(1000 + id)
		dir := filepath.Join(n.conf.run, "state", nodeName, name)
		must(t, os.Mkdir(dir, 0o700))
		must(t, os.WriteFile(filepath.Join(dir, "w1.json"), bytes.Replace(text, []byte(`"id":7,`), []byte(`"id":`+name+`,`), 1), 0o600))
		must(t, os.Chtimes(dir, old, old))
	}
	n.inCgroup(n.leftover(), "100")
	o := n.hook(epilog, newJob())
	found := n.findings(epilog)
	if o.exit != 0 || !has(found, code.StateDamage) || !slices.ContainsFunc(found, func(f finding.Finding) bool {
		return f.Code == code.Orphan && slices.ContainsFunc(f.Doubts, func(d string) bool { return strings.Contains(d, "not all records") })
	}) {
		t.Errorf("%v\n%+v", o, found)
	}
}
