package state

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/test/must"
)

// A record is whole, of this node, job and run, and says the same when written anew; a part of one is none.
func FuzzRecord(f *testing.F) {
	decode := func(data []byte, node string, id slurm.JobID, key string) (record.Run, error) {
		return decode(data, func(r record.Run) string { return wrongRun(r, node, id, key) })
	}
	r := full(7)
	r.Key = string(sluidA)
	data, err := encode(r)
	must.Do(f, err)
	f.Add(data)
	f.Add(data[:len(data)/2])
	f.Add([]byte(`{"version":1,"key":"t5","job":{"id":7,"node":"n1"},"ends":[{}],"start":null}`))
	f.Add([]byte(`{"version":1,"key":"` + string(sluidA) + `","job":{"id":7,"node":"` + node + `"},` +
		`"ends":[{"snapshot":{"readings":[{"processes":[{"pid":1}]}]}}]}`))
	f.Add([]byte(`{"version":1,"key":"` + string(sluidA) + `","job":{"id":7,"node":"` + node + `","sluid":"../x"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decode(data, node, 7, string(sluidA))
		if err != nil {
			must.Fail(t, "an error", err, errRecord)
			return
		}
		if r.Job.ID != 7 || r.Job.Node != node || r.Key != string(sluidA) || r.Job.SLUID != "" &&
			!slurm.ValidSLUID(string(r.Job.SLUID)) {
			t.Errorf("job %d of %q, run %q, SLUID %q", r.Job.ID, r.Job.Node, r.Key, r.Job.SLUID)
		}
		for _, other := range []struct {
			node, key string
			id        slurm.JobID
		}{{"n2", string(sluidA), 7}, {node, string(sluidA), 8}, {node, "t5", 7}} {
			if r, err := decode(data, other.node, other.id, other.key); err == nil {
				t.Errorf("the record of %v is taken for that of another: %+v", other, r.Job)
			}
		}
		if whole := bytes.TrimSpace(data); len(whole) > 0 {
			if r, err := decode(whole[:len(whole)-1], node, 7, string(sluidA)); err == nil {
				t.Errorf("a record that was cut is taken for one: %+v", r.Job)
			}
		}
		once, err := encode(r)
		if err != nil {
			return // a time that JSON cannot write
		}
		again, err := decode(once, node, 7, string(sluidA))
		must.Not(t, err != nil, "what was written cannot be read: %v\n%s", err, once)
		twice, err := encode(again)
		must.Not(t, err != nil || !bytes.Equal(once, twice), "%v\n%s\n%s", err, once, twice)
	})
}

// Names of files stay in their directory, and no two jobs of a node have one in common.
func FuzzNames(f *testing.F) {
	f.Add("n1", uint32(7), string(sluidA), "GPU-11111111-2222-3333-4444-555555555555")
	f.Add("../x", uint32(0), "../../etc", "../GPU-1")
	f.Add("n1_7", uint32(8), "", "MIG-GPU-1/2/3")
	f.Add("a/b", uint32(1), "s\x00", "")
	f.Fuzz(func(t *testing.T, node string, id uint32, sluid, device string) {
		owner := slurm.Owner{ID: slurm.JobID(id), SLUID: slurm.SLUID(sluid)}
		for _, name := range (Users{Node: node}).names(owner) {
			i := strings.LastIndexByte(name, '_')
			said := name[i+1:]
			if name != filepath.Base(name) || name == ".." || name == "." || name[:i] != node || said != sluid &&
				said != fmt.Sprint(id) || said == "0" {
				t.Errorf("node %q, job %d, SLUID %q: %q", node, id, sluid, name)
			}
		}
		u := Users{"/run/bookend", node}
		name, err := u.name(owner)
		must.Not(t, err == nil && name != filepath.Base(name), "drop %q", name)
		must.Be(t, "its directory", u.dir(drops, id), fmt.Sprintf("/run/bookend/drop/%d/jobs", id))
		name = strings.TrimSuffix(strings.TrimPrefix(Turns{"/run"}.ProbeLock(gpu.ID(device)), "/run/probe-"), ".lock")
		must.Not(t, strings.Trim(name, "0123456789abcdef") != "" || len(name) != 32, "lock of %q: %q", device, name)
		key := sluid
		must.Not(t, record.ValidKey(key) && (strings.ContainsAny(key, "/.\x00") || len(key) > 20), "key %q", key)
	})
}
