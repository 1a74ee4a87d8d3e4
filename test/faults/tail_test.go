package faults

import (
	"bytes"
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/internal/diagnosis"
	"bookend/internal/joblog"
	"bookend/internal/oom"
	"bookend/internal/operation"
)

// ranOut is what a job prints that runs out of memory, and Bookend's own words about another.
var ranOut = "epoch 1\n" + strings.Replace(torchSays([6]string{"2.00 GiB", "8.00 GiB", "1.00 GiB", "4.00 GiB",
	"3.00 GiB", "512.00 MiB"}), "Including", "Process 77 has 3.00 GiB memory in use. Including", 1) +
	"| bookend: RuntimeError: CUDA error: an illegal memory access was encountered\n"

// tail runs the shipped epilog as its own child, as root, and returns what it wrote.
func tail(t *testing.T, r operation.TailRequest) (reply operation.TailReply, raw string, err error) {
	t.Helper()
	text, err := json.Marshal(r)
	must(t, err)
	cmd := exec.Command(program("bookend-epilog"), "--child", "tail")
	cmd.Stdin, cmd.Env, cmd.Dir = bytes.NewReader(text), []string{}, "/"
	out, err := cmd.Output()
	if err == nil {
		must(t, json.Unmarshal(out, &reply))
	} else if ended := new(exec.ExitError); errors.As(err, &ended) {
		t.Logf("%s", ended.Stderr)
	}
	return reply, string(out), err
}

// request asks for all of these files.
func request(paths ...string) operation.TailRequest {
	r := operation.TailRequest{UID: user, GID: user, User: "nobody", Back: true, Within: time.Minute}
	for _, path := range paths {
		r.Targets = append(r.Targets, joblog.Target{Path: path})
	}
	return r
}

// The child says what it understood of the files that are the user's, one reason for each of the others, and hands on
// nothing else of what they hold.
func TestTailChild(t *testing.T) {
	const words = "password: swordfish\n"
	for name, tt := range outputs {
		if tt.writer {
			continue
		}
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "enforce")
			path := n.home()
			n.put("secret", ranOut, 0o600)
			output := n.give(n.put("output", words+ranOut+words, 0o600), user)
			tt.harm(n, path)
			reply, raw, err := tail(t, request(path, output, n.in("./output")+"/../output"))
			size := int64(len(words + ranOut + words))
			want := []operation.Searched{{Refused: tt.reason}, {Size: size, Read: size}}
			if err != nil || len(reply.Files) != 3 || !slices.Equal(reply.Files[:2], want) || len(reply.Messages) != 1 {
				t.Fatalf("%v: %s", err, raw)
			}
			m := reply.Messages[0]
			if oom.Valid(m) != nil || m.Framework != oom.PyTorch || m.Asked.Bytes != 2<<30 || m.Idle.Bytes != 512<<20 ||
				len(m.Others) != 1 || m.Count != 1 || m.File != 1 {
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
		return n.give(n.put(filepath.Join(filepath.Dir(first), name), text, 0o600), user)
	}
	a, b, near := put("a", ranOut+far), put("b", far+ranOut+far), put("near", far+ranOut)
	deep := put("deep", ranOut+strings.Repeat(far, 8)) // more than a fourth of what is searched in all
	over, late := request(a), request(a)
	over.Back, late.Within = false, 0
	for name, tt := range map[string]struct {
		request operation.TailRequest
		files   []int // of the messages
	}{
		"a large one":   {request(deep, put("c", far), put("d", far), put("e", far)), []int{0}},
		"far in both":   {request(a, b), []int{0, 1}},
		"near in one":   {request(a, near, b), []int{1}},
		"the job ended": {over, nil},
		"no time":       {late, nil},
	} {
		reply, raw, err := tail(t, tt.request)
		var files []int
		for _, m := range reply.Messages {
			files = append(files, m.File)
		}
		if err != nil || !slices.Equal(files, tt.files) {
			t.Errorf("%s: %v: %s", name, err, raw)
		}
	}
}

// Nobody is read for as root, or as somebody of root's group.
func TestTailChildRefusesRoot(t *testing.T) {
	n := newNode(t, "enforce")
	out := n.put("out", ranOut, 0o644)
	for _, r := range []operation.TailRequest{{UID: 0, GID: user}, {UID: user, GID: 0}, {UID: 1<<32 - 1, GID: user}} {
		r.Targets = request(out).Targets
		if _, raw, err := tail(t, r); err == nil || raw != "" {
			t.Errorf("%+v: %s", r, raw)
		}
	}
}

// Output that may not be read is not read, and the diagnosis says so.
func TestMessagesNotLookedFor(t *testing.T) {
	for extra, nodes := range map[string]string{"read: false, ": nodeName, "": "a1," + nodeName} {
		n := newNode(t, "enforce")
		n.configure(func(c *conf) { c.extra = "job_log: {" + extra + "show: all}\n" })
		j := newJob().With("SLURM_JOB_STDOUT", n.home(), "SLURM_NODELIST", nodes)
		n.put(j["SLURM_JOB_STDOUT"], ranOut, 0o644)
		n.clean(prolog, j)
		n.clean(epilog, j)
		e := n.endOf(100)
		said := e.Diagnosis != nil && strings.HasPrefix(e.Diagnosis.Cause(diagnosis.Pool).Evidence,
			"its output was not read (")
		if len(e.Messages) != 0 || !said {
			t.Errorf("%s%s: %+v, %+v", extra, nodes, e.Messages, e.Diagnosis)
		}
	}
}
