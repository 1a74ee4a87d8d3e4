package joblog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"bookend/internal/slurm"
)

var replaced = regexp.MustCompile(`(?s)%([0-9]*)(.?)`)

// A pattern becomes what a plain replacement gives, or nothing: one absolute path without a NUL.
func FuzzExpand(f *testing.F) {
	for _, seed := range []string{"/o/%j", "%5J%%", `\`, "%", "slurm-%A_%a.out", "/%N%u%t", "/%%j", "/%99999999999999999999j", "/%010a", "%é", "/\\%j", "1", "/%x", "/%5n", "/a\x00"} {
		f.Add(seed, "/work", "alice", uint32(128), uint32(5), uint32(7))
	}
	f.Add("%j", "../work", "a/../b", uint32(0), uint32(0), uint32(0))
	f.Fuzz(func(t *testing.T, pattern, dir, user string, id, master, task uint32) {
		facts := Facts{
			Job:   slurm.Job{ID: slurm.JobID(id), User: user, Node: "n1", WorkDir: dir},
			Array: slurm.ArrayTask{Master: slurm.JobID(master), Task: task}, Told: task%2 == 0, Name: "a name", Host: "n1",
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
		if want := plainly(t, pattern, facts); got != want {
			t.Errorf("Expand(%q) = %q, want %q", pattern, got, want)
		}
	})
}

// plainly expands a pattern of which everything is known.
func plainly(t *testing.T, pattern string, facts Facts) string {
	t.Helper()
	path := strings.ReplaceAll(pattern, `\`, "")
	if path == pattern {
		path = replaced.ReplaceAllStringFunc(pattern, func(s string) string {
			parts := replaced.FindStringSubmatch(s)
			width := 0
			if digits := strings.TrimLeft(parts[1], "0"); digits != "" {
				width = 10
				if len(digits) == 1 {
					width = int(digits[0] - '0')
				}
			}
			number := func(n uint32) string { return strings.Repeat("0", max(0, width-len(fmt.Sprint(n)))) + fmt.Sprint(n) }
			switch parts[2] {
			case "j", "J":
				return number(uint32(facts.Job.ID))
			case "A":
				if facts.Array.Master == 0 {
					return number(uint32(facts.Job.ID))
				}
				return number(uint32(facts.Array.Master))
			case "a":
				return number(facts.Array.Task)
			case "N":
				return facts.Job.Node
			case "u":
				return facts.Job.User
			case "%":
				return "%"
			case "n", "t":
				return number(0)
			case "x":
				return facts.Name
			case "s":
				return "batch"
			}
			if strings.ContainsAny(s, "0123456789abrS") || len(parts[2]) == 0 {
				t.Fatalf("Expand(%q) knows %q", pattern, s)
			}
			return s // a letter of no version
		})
	}
	if !filepath.IsAbs(pattern) {
		path = facts.Job.WorkDir + "/" + path
	}
	return path
}

// A record is of its form, to the last byte, and is read as it was written.
func FuzzParseDrop(f *testing.F) {
	for _, seed := range []string{
		`{"bookend":1,"target":{"path":"/a","dev":1,"ino":2},"array":{"master":5,"task":3},"het_id":9,"address_space":4294967296}`,
		`{"bookend":1}`, `{"bookend":1,"steps":[]}`, `{"bookend":1}{}`, `{"bookend":1,"target":{"path":"a"}}`, `{"bookend":1,"more":1}`, `{"bookend":1,"address_space":0}`,
		`{"bookend":1,"name":"train","steps":[{"path":"/o.0"},{"path":"/o.1","dev":1,"ino":3}],"more":2,"elsewhere":true}`, `{"bookend":1,"steps":[{"path":"o"}]}`,
		`{"bookend":1,"array":{"task":3}}`, `{"bookend":1,"target":{"path":"/\u0000"}}`, `{"bookend":1,"target":{"path":"/<>&"}} `, `null`, `[]`,
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
		if len(b) > MaxDrop || d.Target != (Target{}) && d.Target.check() != nil || d.AddressSpace > Unlimited || len(d.Steps) > MaxSteps || d.Array.Master == 0 && d.Array.Task != 0 {
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

// Every way in which an append or a look can fail has a reason to count it by, and nothing else has.
func FuzzReason(f *testing.F) {
	f.Add("missing")
	f.Add("because")
	f.Add("")
	f.Fuzz(func(t *testing.T, why string) {
		if IsReason(why) != (Reason(&Refused{Why: why}) == why && reasons[why]) || IsReason("") {
			t.Errorf("%q: %v", why, IsReason(why))
		}
		if got := Reason(fmt.Errorf("x: %w", errors.New(why))); !IsReason(got) {
			t.Errorf("an error without a reason counts as %q", got)
		}
	})
}

var reasons = map[string]bool{
	"missing": true, "not-regular": true, "not-owner": true, "links": true, "changed": true, "readonly": true, "full": true, "permission": true, "error": true,
}

// What a child answers about a file is a target, or is refused when the user's folder gives it back.
func FuzzTarget(f *testing.F) {
	f.Add([]byte(`{"path":"/home/a/out","dev":1,"ino":2}`))
	f.Add([]byte(`{"path":"out"}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var target Target
		if json.Unmarshal(b, &target) != nil {
			return
		}
		err := target.check()
		if sound := strings.HasPrefix(target.Path, "/") && len(target.Path) <= maxPath && !strings.Contains(target.Path, "\x00"); (err == nil) != sound {
			t.Errorf("%+v: %v", target, err)
		}
		if err == nil {
			return
		}
		var refused *Refused
		if err := Append(target, 1, nil); !errors.As(err, &refused) || !IsReason(refused.Why) {
			t.Errorf("%+v is appended to: %v", target, err)
		}
		if file, err := Open(target, 1); err == nil || file != nil {
			t.Errorf("%+v is opened: %v", target, err)
		}
	})
}
