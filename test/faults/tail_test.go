package faults

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/code"
	"bookend/internal/diagnosis"
	"bookend/internal/joblog"
	"bookend/internal/oom"
	"bookend/internal/state"
)

// ranOut is what a job prints that runs out of memory, and Bookend's own words about another.
const ranOut = `epoch 1
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB of which 1.00 GiB is free. Process 77 has 3.00 GiB memory in use. Including non-PyTorch memory, this process has 4.00 GiB memory in use. Of the allocated memory 3.00 GiB is allocated by PyTorch, and 512.00 MiB is reserved by PyTorch but unallocated.
| bookend: RuntimeError: CUDA error: an illegal memory access was encountered
`

// tailRequest is what the epilog asks its child.
type tailRequest struct {
	UID     uint32          `json:"uid"`
	GID     uint32          `json:"gid"`
	User    string          `json:"user"`
	Targets []joblog.Target `json:"targets"`
	Back    bool            `json:"back"`
	Within  time.Duration   `json:"within_ns"`
}

type tailReply struct {
	Messages []oom.Message `json:"messages"`
	Files    []tailed      `json:"files"`
}

type tailed struct {
	Refused string `json:"refused"`
	Same    bool   `json:"same"`
	Size    int64  `json:"size"`
	Read    int64  `json:"read"`
	Earlier bool   `json:"earlier"`
}

// tail runs the shipped epilog as its own child, as root, and returns what it wrote.
func tail(t *testing.T, r tailRequest) (reply tailReply, raw string, err error) {
	t.Helper()
	text, err := json.Marshal(r)
	must(t, err)
	cmd := exec.Command(program("bookend-epilog"), "--child", "tail")
	cmd.Stdin, cmd.Env, cmd.Dir = bytes.NewReader(text), []string{}, "/"
	out, err := cmd.Output()
	if err == nil {
		must(t, json.Unmarshal(out, &reply))
	}
	return reply, string(out), err
}

// request asks for all of these files.
func request(paths ...string) tailRequest {
	r := tailRequest{UID: user, GID: user, User: "nobody", Back: true, Within: time.Minute}
	for _, path := range paths {
		r.Targets = append(r.Targets, joblog.Target{Path: path})
	}
	return r
}

// The child says what it understood of the files that are the user's, one reason for each of the others, and hands on
// nothing else of what they hold.
func TestTailChild(t *testing.T) {
	n := newNode(t, "enforce")
	output := n.home()
	must(t, os.WriteFile(output, []byte("password: swordfish\n"+ranOut+"swordfish\n"), 0o600))
	for name, tt := range outputs {
		if name == "full" || name == "read-only" || name == "not to be written" {
			continue // hinders only a writer
		}
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "enforce")
			path := n.home()
			must(t, os.WriteFile(n.in("secret"), []byte(ranOut), 0o600))
			must(t, os.WriteFile(path, []byte(ranOut), 0o600))
			must(t, os.Chmod(path, 0o600))
			tt.harm(n, path)
			reply, raw, err := tail(t, request(path, output, filepath.Dir(output)+"/./"+filepath.Base(output)))
			size := int64(len("password: swordfish\n" + ranOut + "swordfish\n"))
			if err != nil || !slices.Equal(reply.Files, []tailed{{Refused: tt.reason}, {Size: size, Read: size}, {Same: true}}) || len(reply.Messages) != 1 {
				t.Fatalf("%v: %s", err, raw)
			}
			m := reply.Messages[0]
			if oom.Valid(m) != nil || m.Framework != oom.PyTorch || m.Asked.Bytes != 2<<30 || m.Idle.Bytes != 512<<20 || len(m.Others) != 1 || m.Count != 1 || m.File != 1 {
				t.Errorf("%+v", m)
			}
			if strings.Contains(raw, "swordfish") || strings.Contains(raw, "epoch") {
				t.Errorf("the reply holds what the job wrote: %s", raw)
			}
		})
	}
}

// What is far from the end of a file is looked for in every file, where the job failed and none says at its end why.
func TestTailChildLooksBack(t *testing.T) {
	n := newNode(t, "enforce")
	first, far := n.home(), strings.Repeat("epoch 1 loss 0.5\n", 60_000)
	put := func(name, text string) string {
		path := filepath.Join(filepath.Dir(first), name)
		must(t, os.WriteFile(path, []byte(text), 0o600))
		must(t, os.Chown(path, user, user))
		return path
	}
	a, b, near := put("a", ranOut+far), put("b", far+ranOut+far), put("near", far+ranOut)
	deep := put("deep", ranOut+strings.Repeat(far, 8)) // more than a fourth of what is searched in all
	for name, tt := range map[string]struct {
		request tailRequest
		files   []int // of the messages
	}{
		"a large one":   {request(deep, put("c", far), put("d", far), put("e", far)), []int{0}},
		"far in both":   {request(a, b), []int{0, 1}},
		"near in one":   {request(a, near, b), []int{1}},
		"the job ended": {tailRequest{UID: user, GID: user, User: "nobody", Targets: []joblog.Target{{Path: a}}, Within: time.Minute}, nil},
		"no time":       {tailRequest{UID: user, GID: user, User: "nobody", Targets: []joblog.Target{{Path: a}}, Back: true}, nil},
	} {
		reply, raw, err := tail(t, tt.request)
		var files []int
		for _, m := range reply.Messages {
			files = append(files, m.File)
		}
		if err != nil || !slices.Equal(files, tt.files) {
			t.Errorf("%s: %v: %s", name, err, raw)
		}
		for _, f := range reply.Files {
			if f.Size < int64(len(far)) || f.Read > f.Size || f.Read < 64<<10 || f.Refused != "" {
				t.Errorf("%s: %+v", name, f)
			}
		}
	}
}

// Nobody is read for as root, or as somebody of root's group.
func TestTailChildRefusesRoot(t *testing.T) {
	n := newNode(t, "enforce")
	must(t, os.WriteFile(n.in("out"), []byte(ranOut), 0o644))
	for _, r := range []tailRequest{{UID: 0, GID: user}, {UID: user, GID: 0}, {UID: 1<<32 - 1, GID: user}} {
		r.Targets = []joblog.Target{{Path: n.in("out")}}
		if _, raw, err := tail(t, r); err == nil || raw != "" {
			t.Errorf("%+v: %s", r, raw)
		}
	}
}

// messages are those on the record of job 100's end.
func (n *node) messages() []oom.Message {
	n.Helper()
	r := n.run(100)
	if len(r.Ends) == 0 {
		n.Fatalf("no end on record: %+v", r)
	}
	return r.Ends[0].Messages
}

// What the job said of its end is on the record of its end, wherever its output and its errors went.
func TestMessages(t *testing.T) {
	for name, tt := range map[string]struct {
		stdout, stderr, drop string // of the job's environment, and of its task hook's record
		said                 string // the file with the message
		found                int
	}{
		"output, by its name":               {"slurm-%j.out", "", "", "slurm-100.out", 1},
		"output, by the task hook":          {"", "", "slurm-100.out", "slurm-100.out", 1},
		"errors apart, by their name":       {"slurm-%j.out", "%u.err", "", "nobody.err", 1},
		"errors apart, by the task hook":    {"slurm-%j.out", "%x.err", "nobody.err", "nobody.err", 1},
		"output beside errors":              {"slurm-%j.out", "nobody.err", "nobody.err", "slurm-100.out", 1},
		"errors of a name nobody can tell":  {"slurm-%j.out", "%x.err", "", "nobody.err", 0},
		"a file of the user's, not the job": {"slurm-%j.out", "", "", "nobody.err", 0},
		"no file":                           {"", "", "", "slurm-100.out", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			folder := filepath.Dir(n.home())
			in := func(name string) string {
				if name == "" {
					return ""
				}
				return filepath.Join(folder, name)
			}
			must(t, os.WriteFile(in("nobody.err"), nil, 0o600))
			must(t, os.Chown(in("nobody.err"), user, user))
			must(t, os.WriteFile(in(tt.said), []byte(ranOut), 0o600))
			j := newJob().with("SLURM_JOB_STDOUT", in(tt.stdout), "SLURM_JOB_STDERR", in(tt.stderr))
			n.clean(prolog, j)
			if tt.drop != "" {
				n.drop(joblog.Target{Path: in(tt.drop)})
			}
			n.clean(epilog, j)
			got := n.messages()
			if len(got) != tt.found {
				t.Fatalf("%+v\n%s", got, n.log())
			}
			if tt.found > 0 && (got[0].Framework != oom.PyTorch || *got[0].GPU != 0 || got[0].Free.Bytes != 1<<30 || got[0].Limit.Known()) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// Output that may not be read is not read, and the diagnosis says why; what a user puts in its place leads nowhere.
func TestMessagesNotLookedFor(t *testing.T) {
	type change struct {
		job  func(job) job
		harm func(n *node, path string)
	}
	changes := map[string]change{
		"job_log.read is off": {harm: func(n *node, _ string) {
			n.configure(func(c *conf) { c.extra = "job_log: {read: false, why: always}\n" })
		}},
		"root's job": {job: func(j job) job { return j.with("SLURM_JOB_UID", "0", "SLURM_UID", "0") }},
		"another file": {harm: func(n *node, path string) { n.drop(joblog.Target{Path: path, Dev: 1, Ino: 2}) },
			job: func(j job) job { return j.with("SLURM_JOB_STDOUT", "") }},
		"another node's": {job: func(j job) job { return j.with("SLURM_NODELIST", "a1,n1") }},
	}
	for name, o := range outputs {
		if !slices.Contains([]string{"full", "read-only", "not to be written"}, name) {
			changes[name] = change{harm: o.harm}
		}
	}
	for name, tt := range changes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			n.configure(func(c *conf) { c.onUnknown, c.extra = "drain", "job_log: {why: always}\n" })
			path := n.home()
			must(t, os.WriteFile(path, []byte(ranOut), 0o644))
			must(t, os.WriteFile(n.in("secret"), []byte(ranOut), 0o600))
			n.clean(prolog, bystanding())
			others, j := n.record(), newJob().with("SLURM_JOB_STDOUT", path)
			if tt.job != nil {
				j = tt.job(j)
			}
			n.clean(prolog, j)
			if tt.harm != nil {
				tt.harm(n, path)
			}
			if o := n.hook(epilog, j); o.exit != 0 {
				t.Errorf("%v\n%s", o, n.log())
			}
			if got := n.messages(); len(got) != 0 {
				t.Errorf("%+v", got)
			}
			if d := n.endOf(100).Diagnosis; d == nil || !strings.HasPrefix(d.Cause(diagnosis.Pool).Evidence, "its output was not read (") {
				t.Errorf("the diagnosis does not say that the output was not searched: %+v", d)
			}
			n.unharmed(others)
		})
	}
}

// An epilog that runs again reads the end report of the first, and does not look.
func TestMessagesOnce(t *testing.T) {
	n := newNode(t, "enforce")
	path := n.home()
	j := newJob().with("SLURM_JOB_STDOUT", path)
	n.clean(prolog, j)
	n.clean(epilog, j)
	must(t, os.WriteFile(path, []byte(ranOut), 0o644))
	if o := n.hook(epilog, j); o.exit != 0 {
		t.Errorf("%v", o)
	}
	ends := n.run(100).Ends
	if len(ends) != 2 {
		t.Errorf("%d ends on record, want both", len(ends))
	}
	for _, e := range ends {
		if len(e.Messages) != 0 {
			t.Errorf("%+v", e.Messages)
		}
	}
}

// A file system that does not answer costs its time once: it is no driver that hangs, and the append is spared.
func TestMessagesOnHungFileSystem(t *testing.T) {
	n := newNode(t, "enforce")
	n.configure(func(c *conf) { c.tight = true })
	path := n.home()
	j := newJob().with("SLURM_JOB_STDOUT", path)
	n.clean(prolog, j)
	n.silence(filepath.Dir(path))
	if o := n.hook(epilog, j); o.exit != 0 {
		t.Errorf("%v", o)
	}
	found := n.findings(epilog)
	if has(found, code.Hang) || has(found, code.Stuck) || !n.run(100).Closed() || len(n.messages()) != 0 {
		t.Errorf("%+v", found)
	}
	if len(lines(n.log(), string(code.Output), "does not answer")) != 1 || len(lines(n.log(), "bookend-epilog", "job_log=failed")) != 1 {
		t.Errorf("log:\n%s", n.log())
	}
	later := newJob().with("SLURM_JOB_ID", "101", "SLURM_JOBID", "101")
	n.clean(prolog, later)
	n.clean(epilog, later)
}

// Both task hooks leave what Slurm tells them of the job's limit of address space; the later one adds where its output goes.
func TestAddressSpaceRecorded(t *testing.T) {
	n := newNode(t, "enforce")
	n.clean(prolog, newJob())
	for _, h := range []hook{taskProlog, taskEpilog} {
		for carried, want := range map[string]uint64{"U4294967296": 4 << 30, "18446744073709551615": joblog.Unlimited, "much": 0} {
			if o := n.task(h, newJob().with("SLURM_RLIMIT_AS", carried)); o.exit != 0 {
				t.Errorf("%v", o)
			}
			raw, err := os.ReadFile(filepath.Join(n.conf.run, "drop", nodeName+"_100", state.DropFile))
			must(t, err)
			if drop, err := joblog.ParseDrop(raw); err != nil || drop.AddressSpace != want {
				t.Errorf("%s, SLURM_RLIMIT_AS=%s: %s, %v", h.context, carried, raw, err)
			}
		}
	}
}

// silence mounts a file system on a folder whose server never answers.
func (n *node) silence(folder string) {
	n.Helper()
	fuse, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	must(n, err)
	must(n, unix.Mount("none", folder, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40755,user_id=0,group_id=0,allow_other", fuse.Fd())))
	n.Cleanup(func() {
		_ = syscall.Unmount(folder, unix.MNT_DETACH)
		fuse.Close()
	})
}
