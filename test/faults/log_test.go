package faults

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// What a hook and its children inherit from slurmd, and keep: no descriptor beyond their three, no umask, no core file.
func TestConfined(t *testing.T) {
	n := newNode(t, "enforce")
	n.set("on."+memoryCall, "hang")
	n.configure(func(c *conf) { c.tight = true })
	old := unix.Umask(0)
	r, w, err := os.Pipe()
	must(t, err)
	_, err = unix.FcntlInt(w.Fd(), unix.F_SETFD, 0) // as slurmd's own were, up to 21.08
	must(t, err)
	p := n.start(prolog, newJob())
	unix.Umask(old)
	w.Close()
	for name, pid := range map[string]int{"hook": p.cmd.Process.Pid, "backend": p.child("backend")} {
		proc := filepath.Join("/proc", strconv.Itoa(pid))
		umask, core := lines(n.get(proc+"/status"), "Umask:"), lines(n.get(proc+"/limits"), "Max core file size")
		if got := strings.Fields(strings.Join(append(umask, core...), " ")); !slices.Equal(got,
			strings.Fields("Umask: 0022 Max core file size 0 0 bytes")) {
			t.Errorf("%s: %q", name, got)
		}
	}
	if _, err := r.Read(make([]byte, 1)); err == nil || err.Error() != "EOF" {
		t.Errorf("somebody still has the inherited pipe: %v", err)
	}
	if o := p.wait(); o.exit != 0 {
		t.Errorf("%v", o)
	}
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
		"--bounding-set=-setpcap":                          "BKD-OUTPUT",
		"--bounding-set=-chown":                            "BKD-ST-WRITE",
		"--bounding-set=-all":                              "BKD-OUTPUT BKD-ST-WRITE",
	} {
		t.Run(flags, func(t *testing.T) {
			n := newNode(t, "enforce")
			output := n.give(n.put("job.out", "", 0o600), user)
			for _, h := range hooks {
				h.program = n.script("sandbox-"+h.program, "exec /usr/bin/setpriv "+flags+" "+program(h.program))
				n.exits(0, h, newJob().With("SLURM_JOB_STDOUT", output))
			}
			if got := saidCodes(n.log()); got != want {
				t.Errorf("said %s, want %s:\n%s", got, want, n.log())
			}
			if refused := strings.Contains(want, "OUTPUT"); refused == strings.Contains(n.get(output), "| bookend: ") {
				t.Errorf("the job's output: %q", n.get(output))
			}
		})
	}
}

// saidCodes are the codes of findings in a log, once each.
func saidCodes(log string) string {
	codes := strings.FieldsFunc(log, func(c rune) bool { return strings.ContainsRune(" \":\n", c) })
	codes = slices.DeleteFunc(codes, func(word string) bool { return !strings.HasPrefix(word, "BKD-") })
	slices.Sort(codes)
	return strings.Join(slices.Compact(codes), " ")
}

// What a user's processes may do to the report of his job's start: read it, through the task hook too, and nothing
// else. Which other jobs there are is nobody's business.
func TestReportCannotGrow(t *testing.T) {
	n := newNode(t, "enforce")
	n.configure(func(c *conf) { c.extra = "job_log: all\n" })
	n.clean(prolog, bystanding())
	n.clean(prolog, newJob())
	folder := filepath.Join(n.conf.run, "report")
	own, others := filepath.Join(folder, nodeName+"_100"), filepath.Join(folder, nodeName+"_7")
	if !reads(user, own) || reads(bystander, own) || reads(user, others) || does(user, "ls "+folder) {
		t.Error("not its user alone reads the report")
	}
	for _, try := range []string{
		"chmod 600 " + own, "cat /dev/zero >> " + own, "setfacl -m u:1:rw " + own, "rm -f " + own, "ln " + own + " " +
			n.in("x"),
	} {
		if does(user, try) {
			t.Errorf("his user can: %s", try)
		}
	}
	if o := n.task(taskProlog, newJob()); len(lines(o.output, "print | bookend: n1 GPU 0 clean")) != 1 {
		t.Errorf("%v", o)
	}
}
