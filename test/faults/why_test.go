package faults

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"bookend/internal/code"
	"bookend/internal/diagnosis"
	"bookend/internal/report"
	"bookend/internal/slurm"
	"bookend/test/fakegpu"
)

// failed is the wait status of a script that ended with exit code 1.
const failed = "256"

// ending is an epilog of a job that ended as its environment says.
var ending = hook{"bookend-epilog", "", epilog.limit}

// begin starts a job with an output file of its own, whose owner reads the start report there by the task hook.
func (n *node) begin(j job) job {
	n.Helper()
	j = j.with("SLURM_JOB_STDOUT", n.home())
	if o := n.hook(prolog, j); o.exit != 0 {
		n.Fatalf("%v", o)
	}
	if o := n.task(taskProlog, j.with("SLURM_JOB_STDOUT", "")); o.exit != 0 {
		n.Fatalf("%v", o)
	}
	return j
}

// program runs a CUDA program of the user's to its end, and returns what it said and its PID.
func (n *node) program(args ...string) (said string, pid int) {
	n.Helper()
	return n.wrapped(exec.Command(n.world.FakeCUDA(), args...))
}

func (n *node) wrapped(cmd *exec.Cmd) (said string, pid int) {
	n.Helper()
	cmd.Env, cmd.Dir = []string{}, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	text, err := cmd.CombinedOutput()
	if ended := new(exec.ExitError); err != nil && !errors.As(err, &ended) {
		n.Fatal(err)
	}
	return string(text), cmd.Process.Pid
}

// finish ends a job with a wait status, after it has written so much, and returns what Bookend appended: well-formed,
// whatever it was told. A drain is none of what these jobs are for.
func (n *node) finish(j job, status, output string) []string {
	n.Helper()
	told, exit := n.end(j, status, output)
	if exit != 0 {
		n.Errorf("exit %d\n%s", exit, n.log())
	}
	return told
}

func (n *node) end(j job, status, output string) (told []string, exit int) {
	n.Helper()
	path := j["SLURM_JOB_STDOUT"]
	must(n, os.WriteFile(path, []byte(output), 0o644))
	o := n.hook(ending, j.with("SLURM_SCRIPT_CONTEXT", string(slurm.Epilog), "SLURM_JOB_EXIT_CODE", status, "SLURM_JOB_DERIVED_EC", "0"))
	if o.output != "" {
		n.Errorf("%v", o)
	}
	text, err := os.ReadFile(path)
	must(n, err)
	appended, ok := strings.CutPrefix(string(text), output)
	if !ok || !strings.HasPrefix(appended, "\n") || !strings.HasSuffix(appended, "\n") {
		n.Fatalf("appended %q\n%s", appended, n.log())
	}
	told = strings.Split(strings.Trim(appended, "\n"), "\n")
	for _, line := range told {
		if !strings.HasPrefix(line, "| bookend: ") || len(line) > 80 || !printable(line) {
			n.Errorf("the user reads %q", line)
		}
	}
	if len(told) > report.MaxLines {
		n.Errorf("the user reads %d lines:\n%s", len(told), strings.Join(told, "\n"))
	}
	return told, o.exit
}

func printable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && (r < ' ' || r > '~') })
}

// unfolded is a text as one line, without the marks of lines.
func unfolded(told []string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(strings.Join(told, " "), "| bookend: ", "")), " ")
}

// causes are the names of those that an end answered with yes.
func (n *node) causes() (yes []diagnosis.Name) {
	n.Helper()
	d := n.endOf(100).Diagnosis
	if d == nil {
		n.Fatalf("nobody asked why: %+v", n.endOf(100))
	}
	for _, c := range d.Causes {
		if c.Answer == diagnosis.Yes {
			yes = append(yes, c.Name)
		}
	}
	return yes
}

// exported is memory of the first card that no process is listed for: its descriptor lives on in another process.
func (n *node) exported(mib int) {
	n.Helper()
	folder := n.in("sockets")
	must(n, os.Mkdir(folder, 0o755))
	must(n, os.Chown(folder, user, user))
	as, socket := &syscall.Credential{Uid: user, Gid: user}, filepath.Join(folder, "export")
	holder, err := n.world.StartAs(as, nil, "holdfd", socket)
	must(n, err)
	n.Cleanup(holder.End)
	exporter, err := n.world.StartAs(as, nil, "alloc", "--mib", fmt.Sprint(mib), "--export", socket)
	must(n, err)
	must(n, exporter.Kill())
}

// What those who run out of memory are in, told in the job's own output by both hooks of real processes on a card.
func TestWhyOutOfMemory(t *testing.T) {
	for name, tt := range map[string]struct {
		before func(n *node)               // the job
		runs   func(n *node) (said string) // the job's program
		yes    []diagnosis.Name
		reads  []string
	}{
		"its own use": {
			runs: func(n *node) string {
				said, _ := n.program("alloc", "--mib", "130000", "--ask", "20000", "--torch")
				return said
			},
			yes: []diagnosis.Name{diagnosis.Own},
			reads: []string{"Why out of memory: your job itself used up the GPU", "no another process: none at start, end or failure",
				"YES your own use: 127.5 GiB in use, 19.5 GiB more asked, of 139.8 GiB", "Try: a smaller batch, or a larger GPU"},
		},
		"its pool": {
			runs: func(n *node) string {
				said, _ := n.program("alloc", "--mib", "130000", "--idle", "40000", "--ask", "20000", "--torch")
				return said
			},
			yes: []diagnosis.Name{diagnosis.Pool},
			reads: []string{"Why out of memory: your framework's pool was in pieces",
				"YES framework's pool: 39.1 GiB unused, but in pieces; 19.5 GiB asked, 12.3 GiB free", "Try: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"},
		},
		"somebody else's process": {
			before: func(n *node) { n.holder(bystander, nil, "--mib", "100000", "--name", "neighbour") },
			runs: func(n *node) string {
				said, _ := n.program("alloc", "--mib", "20000", "--ask", "40000", "--torch")
				return said
			},
			yes: []diagnosis.Name{diagnosis.Others},
			reads: []string{"Why out of memory: another process held memory of your GPU", "YES another process: 98.2 GiB when your job began, since ",
				"no your own use: 20.0 + 39.1 GiB asked fit in 139.8 GiB", "Try: another node: sbatch --exclude=n1"},
		},
		"memory of an earlier job, without a process": {
			before: func(n *node) {
				n.clean(prolog, numbered(99))
				n.exported(100000)
				if o := n.hook(epilog, numbered(99)); o.exit != 0 || !has(n.endOf(99).Findings, code.Residue) {
					n.Fatalf("%v %+v", o, n.endOf(99).Findings)
				}
			},
			runs: func(n *node) string {
				said, _ := n.program("alloc", "--mib", "20000", "--ask", "40000", "--torch")
				return said
			},
			yes: []diagnosis.Name{diagnosis.Leftover, diagnosis.Unlisted},
			reads: []string{"Why out of memory: an earlier job left GPU memory in use", "YES left by an earlier job: 97.7 GiB when your job began",
				"YES memory without process: the same: no process is listed for it", "Try: another node: sbatch --exclude=n1"},
		},
		"ulimit -v": {
			runs: func(n *node) string {
				if o := n.task(taskProlog, newJob().with("SLURM_RLIMIT_AS", "U8589934592")); o.exit != 0 {
					n.Errorf("%v", o)
				}
				said, _ := n.wrapped(exec.Command("/bin/sh", "-c", "ulimit -v 8388608; exec "+n.world.FakeCUDA()+" alloc --mib 100 --torch"))
				return said
			},
			yes: []diagnosis.Name{diagnosis.Limits},
			reads: []string{"Why CUDA did not start: a limit of your job, not the GPU",
				"YES limits, host memory: ulimit -v is 8.0 GiB; CUDA needs far more than the GPU's memory", "Try: ulimit -v unlimited"},
		},
		"ulimit -v in the script": { // which no task hook can see
			runs: func(n *node) string {
				said, _ := n.wrapped(exec.Command("/bin/sh", "-c", "ulimit -v 8388608; exec "+n.world.FakeCUDA()+" alloc --mib 100 --torch"))
				return said
			},
			yes:   []diagnosis.Name{diagnosis.Limits},
			reads: []string{"YES limits, host memory: CUDA could not start with 139.8 GiB of GPU memory free: a limit such as ulimit -v"},
		},
		"a fault of the card": {
			before: func(n *node) { n.silent(); n.kernel("eth0: link is up") },
			runs: func(n *node) string {
				n.kernel(n.xidLine(0, 79, "pid=1, name=x, GPU has fallen off the bus."))
				return "RuntimeError: CUDA error: out of memory\n"
			},
			yes:   []diagnosis.Name{diagnosis.Fault},
			reads: []string{"Why out of memory: GPU or driver had a fault", "YES GPU or driver fault: the driver reported a fault of the GPU"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "observe")
			if tt.before != nil {
				tt.before(n)
			}
			j := n.begin(newJob())
			said := tt.runs(n)
			told := n.finish(j, failed, "epoch 1\n"+said)
			if yes := n.causes(); !slices.Equal(yes, tt.yes) {
				t.Errorf("yes is answered for %v: %+v\nof %s", yes, n.endOf(100).Diagnosis, said)
			}
			for _, part := range tt.reads {
				if !strings.Contains(unfolded(told), part) {
					t.Errorf("want %q, the user reads:\n%s", part, strings.Join(told, "\n"))
				}
			}
			if shown, _ := n.bookend("show", "100"); len(lines(shown, "    YES ")) != len(tt.yes) || len(lines(shown, "its output says (")) != 1 {
				t.Errorf("show:\n%s", shown)
			}
		})
	}
}

// Nobody is told a story without a reason, or where the admin wants none; an admin may want one of every job.
func TestWhyIsAsked(t *testing.T) {
	own := func(n *node) string {
		said, _ := n.program("alloc", "--mib", "130000", "--ask", "20000", "--torch")
		return said
	}
	well := func(*node) string { return "done\n" }
	for name, tt := range map[string]struct {
		why    string
		runs   func(n *node) string
		status string
		lines  int // of the report; 0: a table
		reads  string
	}{
		"never":                   {"never", own, failed, 1, "left clean by your job"},
		"always":                  {"always", well, "0", 0, "Nothing was seen that kept GPU memory from your job"},
		"ended well":              {"unclean", well, "0", 1, "left clean by your job"},
		"cancelled":               {"unclean", well, "15", 2, "Your job was ended by signal 15; no known message in its output"},
		"failed":                  {"unclean", well, failed, 2, "Your job failed (exit code 1); no known message in its output"},
		"ended well all the same": {"unclean", own, "0", 0, "It ran out of memory, but ended without an error: your job itself used up the GPU"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			n.configure(func(c *conf) { c.extra = "job_log: {why: " + tt.why + "}\n" })
			n.kernel("eth0: link is up")
			j := n.begin(newJob())
			told := n.finish(j, tt.status, tt.runs(n))
			if !strings.Contains(unfolded(told), tt.reads) || tt.lines != 0 && len(told) != tt.lines || tt.lines == 0 && len(told) < 3 {
				t.Errorf("want %q, the user reads:\n%s", tt.reads, strings.Join(told, "\n"))
			}
			if d := n.endOf(100).Diagnosis; (d == nil) != (name == "ended well") { // an admin may ask later
				t.Errorf("%+v", d)
			}
		})
	}
}

// To one whose job ended well the findings say it all; where there are none left, no more is told than what was there.
func TestWhyOfAJobThatEndedWell(t *testing.T) {
	for name, stays := range map[string]bool{"somebody is there": true, "somebody was there": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "observe")
			var p *fakegpu.Program
			if !stays {
				p = n.holder(bystander, nil, "--mib", "100000")
			}
			j := n.begin(newJob())
			if stays {
				p = n.holder(bystander, nil, "--mib", "100000")
			} else {
				p.End()
			}
			told := n.finish(j, "0", "done\n")
			want := "Seen while your job ran: another process held memory of your GPU YES another process: 98.2 GiB when your job began, since "
			if stays {
				want = "Found: 100518 MiB held by a process that is not yours"
			}
			text := unfolded(told)
			if !strings.Contains(text, want) || strings.Contains(text, "Seen while") == stays || strings.Contains(text, "cannot tell") || strings.Contains(text, fmt.Sprint(p.PID)) {
				t.Errorf("want %q, the user reads:\n%s", want, strings.Join(told, "\n"))
			}
			if d := n.endOf(100).Diagnosis; d == nil || d.Reason != diagnosis.ByCause {
				t.Errorf("%+v", d)
			}
		})
	}
}

// Whose the process is that kept memory from a job is for admins alone.
func TestWhyKeepsOthersPrivate(t *testing.T) {
	const job, name = "70077", "confidential"
	other := bystanding().with("SLURM_JOB_ID", job, "SLURM_JOBID", job)
	for when, there := range map[string]func(n *node) *fakegpu.Program{
		"nobody's": func(n *node) *fakegpu.Program { return n.holder(bystander, nil, "--mib", "100000", "--name", name) },
		"another job's": func(n *node) *fakegpu.Program {
			p := n.holder(bystander, nil, "--mib", "100000", "--name", name)
			n.inCgroup(p, job)
			return p
		},
	} {
		for _, first := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, before the job: %v", when, first), func(t *testing.T) {
				t.Parallel()
				n := newNode(t, "observe")
				n.clean(prolog, other)
				var p *fakegpu.Program
				if first {
					p = there(n)
				}
				j := n.begin(newJob())
				if !first {
					p = there(n)
				}
				pid := fmt.Sprint(p.PID)
				said, _ := n.program("alloc", "--mib", "20000", "--ask", "40000", "--torch", "--other", pid+":100518")
				told := strings.Join(n.finish(j, failed, said), "\n")
				for where, text := range map[string]string{"start": n.startOf(100).Report, "end": told} {
					for _, secret := range []string{pid, name, job, fmt.Sprint(bystander)} {
						if slices.Contains(strings.FieldsFunc(text, func(r rune) bool { return !word(r) }), secret) {
							t.Errorf("the %s tells %q:\n%s", where, secret, text)
						}
					}
				}
				if !strings.Contains(told, "Why out of memory: another process held memory of your GPU") {
					t.Errorf("the user reads:\n%s", told)
				}
				shown, _ := n.bookend("show", "100")
				if len(lines(shown, "PID "+pid, name, fmt.Sprintf("uid %d", bystander))) == 0 || when == "another job's" && !strings.Contains(shown, "job "+job) {
					t.Errorf("show:\n%s", shown)
				}
			})
		}
	}
}

func word(r rune) bool { return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' }
