package joblog

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/test/must"
)

var testJob = slurm.Job{ID: 128, User: "alice", Node: "n1", WorkDir: "/home/alice/run 1"}

// What a task hook and newer versions tell is filled in; what is not known, or not the same in all versions, is not.
func TestExpand(t *testing.T) {
	plain := Place{Job: testJob}
	task := Place{testJob, Drop{Array: slurm.ArrayTask{Master: 120, Task: 17}, Name: "fine tune"}, true, slurm.OutputFiles{}}
	single, newer := Place{testJob, Drop{Name: "a/b"}, true, slurm.OutputFiles{}}, task
	newer.Job.SLUID = "sCHNM7Y8WBK900"
	of := func(j slurm.Job) Place { return Place{Job: j} }
	for pattern, tt := range map[string]struct {
		place Place
		want  string // empty for an error
	}{
		"/out/plain": {plain, "/out/plain"}, "/out/%j.out": {plain, "/out/128.out"}, "/out/100%%": {plain, "/out/100%"},
		"/home/%u/%u.log": {plain, "/home/alice/alice.log"}, "/out/%%j": {plain, "/out/%j"}, "/out/%%%j": {plain, "/out/%128"},
		"/out/a b": {plain, "/out/a b"}, "slurm-%j.out": {plain, "/home/alice/run 1/slurm-128.out"},
		"../logs/x": {plain, "/home/alice/run 1/../logs/x"},
		"/a/%A_%a":  {task, "/a/120_17"}, "/out/%A_%a_%j": {task, "/out/120_17_128"}, "/o/%x-%j_%a": {task, "/o/fine tune-128_17"},
		"/o/%x": {single, "/o/a/b"}, // a folder, as Slurm makes of it
		"/o/%A": {single, "/o/128"}, "/o/%N": {newer, "/o/n1"},
		"/o/%a": {single, ""}, // 4294967294
		"/o/%b": {task, ""},   // %b up to 24.05, 7 from 24.11
		"/o/%S": {newer, ""}, "/o/%N.%j": {plain, ""},
		"/out/%x": {plain, ""}, "/out/%A_%a": {plain, ""}, "/out/%b": {plain, ""}, "/out/%r": {plain, ""}, "/out/%S": {plain, ""},
		"/out/%": {plain, ""}, "/out/%5": {plain, ""}, "/out/%5j": {plain, ""}, "/out/%J": {plain, ""}, "/out/%t": {plain, ""},
		"/out/%n": {plain, ""}, `/out/\\x`: {plain, ""}, `/out/\%j`: {plain, ""}, "/out/%s": {plain, ""}, "": {plain, ""}, "0": {plain, ""},
		"-1": {plain, ""}, "/out/%u": {of(slurm.Job{Node: "n1"}), ""}, "relative": {of(slurm.Job{}), ""},
		"also": {of(slurm.Job{WorkDir: "relative"}), ""}, "/out/\x00": {plain, ""}, "/" + strings.Repeat("x", maxPath): {plain, ""},
	} {
		got, err := tt.place.expand(pattern)
		must.Not(t, got != tt.want || (err != nil) != (tt.want == "") || strings.Contains(pattern, "%") && err != nil &&
			!errors.Is(err, errPattern), "%.60q: %q, %v; want %q", pattern, got, err, tt.want)
	}
}

// The most recent files are kept, each once; that there were others is, also where they do not fit into a record.
func TestDropNote(t *testing.T) {
	var d Drop
	name := func(n int) Target { return Target{Path: fmt.Sprintf("/out.%02d", n)} }
	for n := range MaxSteps + 2 {
		d.Note([]Target{name(n)})
	}
	d.Note([]Target{name(5), name(5)})
	if len(d.Steps) != MaxSteps || !d.Elsewhere || d.Steps[0] != name(5) || d.Steps[1] != name(9) ||
		d.Steps[MaxSteps-1] != name(2) {
		t.Errorf("%+v", d)
	}
	d.Elsewhere = false
	for i := range d.Steps {
		d.Steps[i].Path = strings.Repeat("/long", 200) + d.Steps[i].Path
	}
	b, err := d.Encode()
	must.Do(t, err)
	got, err := ParseDrop(b)
	must.Not(t, err != nil || len(got.Steps) != 4-1 || !got.Elsewhere || got.Steps[0] != d.Steps[0],
		"%d steps, %v, %v", len(got.Steps), got.Elsewhere, err)
	large := Drop{Target: Target{Path: "/" + strings.Repeat("x", MaxDrop)}}
	must.Not(t, must.Err(large.Encode()) == nil, "a record larger than its limit was encoded")
}

func TestParseDropRefuses(t *testing.T) {
	for _, text := range []string{
		"", "{}", "null", "[]", `"x"`, `{"bookend":2}`, `{"bookend":1}{"bookend":1}`, `{"bookend":1} x`,
		`{"bookend":1,"target":{"path":"relative"}}`, `{"bookend":1,"target":{"ino":3}}`,
		`{"bookend":1,"target":{"path":"/a\u0000b"}}`, `{"bookend":1,"target":{"path":"/a","dev":-1}}`,
		`{"bookend":1,"address_space":4611686018427387905}`,
		`{"bookend":1,"address_space":-1}`,
		`{"bookend":1,"address_space":1.5}`, `{"bookend":1,"address_space":"4"}`,
		`{"bookend":1,"address_space":18446744073709551616}`,
		`{"bookend":1,"array":{"task":3}}`, `{"bookend":1,"het_id":4294967296}`, `{"bookend":1`,
		`{"bookend":1,"steps":[{"path":"o"}]}`, `{"bookend":1,"steps":[{}]}`,
		`{"bookend":1,"steps":[` + strings.Repeat(`{"path":"/a"},`, MaxSteps) + `{"path":"/a"}]}`,
		`{"bookend":1,"name":"` + strings.Repeat("x", MaxName+1) + `"}`, `{"bookend":1,"elsewhere":1}`,
		`{"bookend":1}` + strings.Repeat(" ", MaxDrop),
	} {
		got, err := ParseDrop([]byte(text))
		must.Not(t, err == nil || !reflect.DeepEqual(got, Drop{}), "ParseDrop(%.60q) = %+v, %v", text, got, err)
	}
}

// The files that a process writes to are told from those that it reads, and from what is no file.
func TestWritten(t *testing.T) {
	dir, proc := t.TempDir(), t.TempDir()
	for fd, tt := range []struct{ to, flags string }{
		{"/dev/null", "0100000"}, {dir + "/job.out", "0102001"}, {dir + "/job.out", "0102001"},
		{dir + "/slurm.conf", "0100000"}, {dir + "/step.out", "0100002"}, {"pipe:[7]", "01"}, {"/dev/null", "0100001"},
		{dir + "/gone.out", "0100001"}, {dir + "/odd.out", "what"},
	} {
		must.Link(t, filepath.Join(proc, "7/fd", fmt.Sprint(fd)), tt.to)
		must.Write(t, filepath.Join(proc, "7/fdinfo", fmt.Sprint(fd)), "pos:\t0\nflags:\t"+tt.flags+"\nmnt_id:\t31\n")
	}
	must.Link(t, filepath.Join(proc, "7/fd/9"), dir+"/closed.out") // meanwhile
	must.Write(t, filepath.Join(proc, "9/fd"), "")
	for _, name := range []string{"job.out", "slurm.conf", "step.out", "odd.out", "closed.out"} {
		must.Write(t, filepath.Join(dir, name), "")
	}
	found, err := Written(proc, 7)
	if err != nil || len(found) != 2 {
		t.Fatalf("%+v, %v", found, err)
	}
	for _, f := range found {
		name := filepath.Base(f.Path)
		must.Not(t, name != "job.out" && name != "step.out" || f.Ino == 0, "%+v", f)
	}
	for _, pid := range []int{8, 9} {
		must.Not(t, must.Err(Written(proc, pid)) == nil, "process %d, which cannot be looked into, writes files", pid)
	}
}

// Of a step with one file a task most cannot be told, nor where it goes to srun's own pipe, whatever else srun has open.
func TestApart(t *testing.T) {
	log := filepath.Join(t.TempDir(), "train-7.log")
	must.Write(t, log, "")
	for command, tt := range map[string]struct {
		output, errors string
		want           bool
	}{
		"srun -o out.%2t train":                 {log, log, true},
		"srun -o out.%j train":                  {log, log, false},
		"srun train | tee":                      {"pipe:[7]", log, true},
		"srun train 2>&1 | tee":                 {"pipe:[7]", "pipe:[7]", true},
		"srun train > train-7.log 2> /dev/null": {log, "/dev/null", true},
	} {
		proc := t.TempDir()
		must.Write(t, filepath.Join(proc, "7/cmdline"), strings.ReplaceAll(command, " ", "\x00")+"\x00")
		must.Link(t, filepath.Join(proc, "7/fd/1"), tt.output)
		must.Link(t, filepath.Join(proc, "7/fd/2"), tt.errors)
		must.Be(t, command, Apart(proc, 7), tt.want)
	}
	must.Not(t, Apart(t.TempDir(), 7), "a process that has ended writes its output apart")
}

// A pattern becomes one absolute path without a NUL, or nothing.
func FuzzExpand(f *testing.F) {
	for _, seed := range []string{"/o/%j", "%5J%%", `\`, "%", "slurm-%A_%a.out", "/%N%u%t", "/%%j",
		"/%99999999999999999999j", "/%010a", "%é", "/\\%j", "1", "/%x", "/%5n", "/a\x00"} {
		f.Add(seed, "/work", "alice", uint32(128), uint32(5), uint32(7))
	}
	f.Add("%j", "../work", "a/../b", uint32(0), uint32(0), uint32(0))
	f.Fuzz(func(t *testing.T, pattern, dir, user string, id, master, task uint32) {
		job := slurm.Job{ID: slurm.JobID(id), User: user, Node: "n1", WorkDir: dir}
		p := Place{Job: job}
		if task%2 != 0 {
			p = Place{job, Drop{Array: slurm.ArrayTask{Master: slurm.JobID(master), Task: task}, Name: "a name"}, true, slurm.OutputFiles{}}
		}
		got, err := p.expand(pattern)
		if err != nil {
			must.Not(t, got != "", "%q with %v", got, err)
			return
		}
		must.Not(t, !filepath.IsAbs(got) || len(got) > maxPath || strings.ContainsRune(got, 0),
			"Expand(%q) = %q", pattern, got)
		must.Not(t, !strings.ContainsAny(pattern, `%\\`) && got != pattern && got != dir+"/"+pattern,
			"Expand(%q) = %q", pattern, got)
	})
}

// A record is of its form, to the last byte, and is read as it was written.
func FuzzParseDrop(f *testing.F) {
	for _, seed := range []string{
		`{"bookend":1,"target":{"path":"/a","dev":1,"ino":2},"array":{"master":5,"task":3},` +
			`"het_id":9,"address_space":4294967296}`,
		`{"bookend":1}`, `{"bookend":1,"steps":[]}`, `{"bookend":1}{}`, `{"bookend":1,"target":{"path":"a"}}`,
		`{"bookend":1,"address_space":0}`,
		`{"bookend":1,"name":"train","steps":[{"path":"/o.0"},{"path":"/o.1","dev":1,"ino":3}],` +
			`"elsewhere":true}`,
		`{"bookend":1,"steps":[{"path":"o"}]}`,
		`{"bookend":1,"array":{"task":3}}`, `{"bookend":1,"target":{"path":"/\u0000"}}`,
		`{"bookend":1,"target":{"path":"/<>&"}} `, `{"bookend":1,"target":{"path":"/a \"b\"\n<é>","dev":18446744073709551615,"ino":1}}`,
		`{"bookend":1,"address_space":4611686018427387904}`, `null`, `[]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := ParseDrop(b)
		if err != nil {
			must.Not(t, !reflect.DeepEqual(d, Drop{}), "%+v and %v", d, err)
			return
		}
		if len(b) > MaxDrop || d.Target != (Target{}) && d.Target.check() != nil || d.AddressSpace > record.Unlimited ||
			len(d.Steps) > MaxSteps || d.Array.Master == 0 && d.Array.Task != 0 {
			t.Errorf("%s: %+v", b, d)
		}
		_, double := ParseDrop(append(bytes.Clone(b), "{}"...))
		must.Not(t, double == nil, "%s is a record with another behind it", b)
		written, err := d.Encode()
		if err != nil || len(written)+128 > MaxDrop {
			return // JSON writes some of what it reads in more bytes
		}
		again, err := ParseDrop(written)
		if rewritten, _ := again.Encode(); err != nil || !bytes.Equal(rewritten, written) {
			t.Errorf("%+v is written as %s, and read as %+v, %v", d, written, again, err)
		}
	})
}
