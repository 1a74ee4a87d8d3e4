package faults

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/internal/catalog"
	"bookend/test/build"
	"bookend/test/must"
)

// What a hook and its children inherit from slurmd, and keep: no descriptor beyond their three, no umask, no core file.
func TestConfined(t *testing.T) {
	n := newNode(t, "enforce")
	n.set("on."+memoryCall, "hang")
	n.configure(func(c *conf) { c.tight = true })
	old := unix.Umask(0)
	r, w, err := os.Pipe()
	must.Do(t, err)
	_, err = unix.FcntlInt(w.Fd(), unix.F_SETFD, 0) // as slurmd's own were, up to 21.08
	must.Do(t, err)
	p := n.start(prolog, newJob())
	unix.Umask(old)
	w.Close()
	for name, pid := range map[string]int{"hook": p.cmd.Process.Pid, "backend": p.child("backend")} {
		proc := fmt.Sprint("/proc/", pid)
		umask, core := lines(n.get(proc+"/status"), "Umask:"), lines(n.get(proc+"/limits"), "Max core file size")
		got := strings.Fields(strings.Join(append(umask, core...), " "))
		must.Not(t, !slices.Equal(got, strings.Fields("Umask: 0022 Max core file size 0 0 bytes")), "%s: %q", name, got)
	}
	if _, err := r.Read(make([]byte, 1)); err == nil || err.Error() != "EOF" {
		t.Errorf("somebody still has the inherited pipe: %v", err)
	}
	o := p.wait()
	must.Not(t, o.exit != 0, "%v", o)
}

// A sandbox around slurmd takes rights from its hooks too. Whatever it takes, the node of a clean job is not drained,
// each hook ends by itself, and what could not be done is said: the table of deploy/systemd.md.
func TestSandboxNeverDrains(t *testing.T) {
	for flags, want := range map[string]string{
		"--no-new-privs": "",
		"--bounding-set=-sys_ptrace,-syslog,-kill,-fowner": "",
		"--bounding-set=-dac_override,-dac_read_search":    "",
		"--bounding-set=-setuid":                           "BKD-OUTPUT",
		"--bounding-set=-setgid":                           "BKD-OUTPUT",
		"--bounding-set=-setpcap":                          "",
		"--bounding-set=-chown":                            "",
		"--bounding-set=-all":                              "BKD-OUTPUT",
	} {
		t.Run(flags, func(t *testing.T) {
			n := parallel(t, "enforce")
			output := n.give(n.put("job.out", "", 0o600), user)
			for _, h := range hooks {
				h.program = n.script("sandbox-"+h.program, "exec /usr/bin/setpriv "+flags+" "+program(h.program))
				n.exits(0, h, newJob().With("SLURM_JOB_STDOUT", output))
			}
			said := strings.FieldsFunc(n.log(), func(c rune) bool { return strings.ContainsRune(" \":\n", c) })
			said = slices.DeleteFunc(said, func(word string) bool { return !strings.HasPrefix(word, "BKD-") })
			slices.Sort(said)
			got := strings.Join(slices.Compact(said), " ")
			must.Not(t, got != want, "said %s, want %s:\n%s", got, want, n.log())
			refused := strings.Contains(want, "OUTPUT") && !strings.Contains(flags, "dac")
			must.Not(t, refused == strings.Contains(n.get(output), "| bookend: "),
				"the job's output: %q", n.get(output))
		})
	}
}

// What a user's processes may do to the report of his job's start: read it, through the task hook too, and nothing
// else. Which other jobs there are is nobody's business.
func TestReportCannotGrow(t *testing.T) {
	n := parallel(t, "enforce")
	n.configure(func(c *conf) { c.extra = "job_log: all\n" })
	n.begun(epilog)
	own, others := n.ofUser("report", user, "100"), n.ofUser("report", bystander, "7")
	folder := filepath.Dir(own)
	if !reads(user, own) || reads(bystander, own) || reads(user, others) || does(user, "ls "+folder) ||
		does(user, "stat "+others) || does(user, "stat "+n.ofUser("drop", bystander, "7")) {
		t.Error("not its user alone reads the report")
	}
	for _, try := range []string{
		"chmod 600 " + own, "cat /dev/zero >> " + own, "setfacl -m u:1:rw " + own, "rm -f " + own, "ln " + own + " " +
			n.in("x"),
	} {
		must.Not(t, does(user, try), "his user can: %s", try)
	}
	o := n.task(taskProlog, newJob())
	must.Not(t, len(lines(o.output, "print | bookend: n1 GPU 0 clean")) != 1, "%v", o)
}

// A panic ends a part of a hook, never the node: it is said with its stack, logged, and the exit code is the
// documented one and not Go's own 2. No program has a switch for its own tests: they are built with one source file
// replaced.
func TestPanicInMain(t *testing.T) { panics(t, prolog, "prolog/main.go", "clock", "no time") }

func TestPanicInGoroutine(t *testing.T) {
	panics(t, epilog, "internal/child/seal.go", "seal", "no seal")
}

// panics builds a hook with a file of testdata in the place of one of its own.
func panics(t *testing.T, h hook, file, defect, says string) {
	t.Parallel()
	dir := t.TempDir()
	original := must.Have(filepath.Abs(filepath.Join("../..", file)))(t)
	must.Have(os.Stat(original))(t)
	source := must.Have(filepath.Abs("testdata/" + defect + ".go.txt"))(t)
	overlay := must.Have(json.Marshal(map[string]any{"Replace": map[string]string{original: source}}))(t)
	must.Do(t, os.WriteFile(dir+"/overlay.json", overlay, 0o600))
	broken := h
	broken.program = program("defective-" + h.program)
	must.Do(t, build.Programs(broken.program, dir+"/overlay.json", h.program))
	broken.program += "/" + h.program
	for onUnknown, exit := range map[string]int{"warn": 0, "drain": 41} {
		n := newNode(t, "enforce")
		n.configure(func(c *conf) { c.onUnknown = onUnknown })
		n.begun(h)
		o := n.hook(broken, newJob())
		must.Not(t, o.exit != exit || !strings.Contains(o.output, "panic: "+says) ||
			!strings.Contains(o.output, "goroutine "), "%s %s: %v", h.program, onUnknown, o)
		n.saysTimes(1, "findings: ", string(catalog.Panicked), h.program)
		n.saysTimes(1, "BKD-PANIC: ", says)
		must.Not(t, n.metric(`bookend_own_errors_total{code="BKD-PANIC"}`) != 1,
			"%s counted:\n%s", h.program, n.metrics())
		if found := n.findings(h); !has(found, catalog.Panicked) || len(n.run(100).Ends) > 1 {
			t.Errorf("%s recorded: %+v", h.program, n.run(100))
		}
		n.unharmed()
	}
}
