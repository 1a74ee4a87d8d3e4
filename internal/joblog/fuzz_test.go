package joblog

import (
	"bytes"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"bookend/internal/slurm"
)

// A pattern becomes one absolute path without a NUL, or nothing.
func FuzzExpand(f *testing.F) {
	for _, seed := range []string{"/o/%j", "%5J%%", `\`, "%", "slurm-%A_%a.out", "/%N%u%t", "/%%j",
		"/%99999999999999999999j", "/%010a", "%é", "/\\%j", "1", "/%x", "/%5n", "/a\x00"} {
		f.Add(seed, "/work", "alice", uint32(128), uint32(5), uint32(7))
	}
	f.Add("%j", "../work", "a/../b", uint32(0), uint32(0), uint32(0))
	f.Fuzz(func(t *testing.T, pattern, dir, user string, id, master, task uint32) {
		facts := Facts{
			Job: slurm.Job{ID: slurm.JobID(id), User: user, Node: "n1", WorkDir: dir},
			Array: slurm.ArrayTask{Master: slurm.JobID(master),
				Task: task}, Told: task%2 == 0, Name: "a name",
		}
		got, err := Expand(pattern, facts)
		if err != nil {
			if got != "" {
				t.Errorf("%q with %v", got, err)
			}
			return
		}
		if !filepath.IsAbs(got) || len(got) > maxPath || strings.ContainsRune(got, 0) {
			t.Errorf("Expand(%q) = %q", pattern, got)
		}
		if !strings.ContainsAny(pattern, `%\\`) && got != pattern && got != dir+"/"+pattern {
			t.Errorf("Expand(%q) = %q", pattern, got)
		}
	})
}

// A record is of its form, to the last byte, and is read as it was written.
func FuzzParseDrop(f *testing.F) {
	for _, seed := range []string{
		`{"bookend":1,"target":{"path":"/a","dev":1,"ino":2},"array":{"master":5,"task":3},` +
			`"het_id":9,"address_space":4294967296}`,
		`{"bookend":1}`, `{"bookend":1,"steps":[]}`, `{"bookend":1}{}`, `{"bookend":1,"target":{"path":"a"}}`,
		`{"bookend":1,"more":1}`, `{"bookend":1,"address_space":0}`,
		`{"bookend":1,"name":"train","steps":[{"path":"/o.0"},{"path":"/o.1","dev":1,"ino":3}],` +
			`"more":2,"elsewhere":true}`,
		`{"bookend":1,"steps":[{"path":"o"}]}`,
		`{"bookend":1,"array":{"task":3}}`, `{"bookend":1,"target":{"path":"/\u0000"}}`,
		`{"bookend":1,"target":{"path":"/<>&"}} `, `null`, `[]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := ParseDrop(b)
		if err != nil {
			if !reflect.DeepEqual(d, Drop{}) {
				t.Errorf("%+v and %v", d, err)
			}
			return
		}
		if len(b) > MaxDrop || d.Target != (Target{}) && d.Target.check() != nil || d.AddressSpace > Unlimited ||
			len(d.Steps) > MaxSteps || d.Array.Master == 0 && d.Array.Task != 0 {
			t.Errorf("%s: %+v", b, d)
		}
		if _, err := ParseDrop(append(bytes.Clone(b), "{}"...)); err == nil {
			t.Errorf("%s is a record with another behind it", b)
		}
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
