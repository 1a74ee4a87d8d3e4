package finding

import (
	"strings"
	"testing"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/gpu"
	"bookend/internal/settle"
	"bookend/internal/slurm"
)

// between is a look at a card that nobody has: job 9 of alice had it from 50 to 90 s.
func between(now Side) Scene {
	return Scene{
		Job:    slurm.Job{Context: slurm.HealthCheck, Node: "n1"},
		Cards:  []Card{{Index: 0, Device: gpu.Device{ID: card}}},
		Now:    now,
		Others: []attrib.Record{{Job: 9, UID: alice, GPUs: []gpu.ID{card}, Start: at(50), End: at(90), Alone: true}},
		Limits: Limits{Report: 32 * mib, Drain: 512 * mib, PerClient: 9 * mib},
	}
}

// What lies on a card that nobody has, and who is named for it.
func TestBetweenJobs(t *testing.T) {
	left := attrib.Process{PID: 70, UID: alice, Start: at(60), Name: "train"}
	edited := func(change func(*attrib.Process)) attrib.Process { p := left; change(&p); return p }
	on := func(p attrib.Process) Side {
		return side(at(200), settle.Flat, reading(2*gib+9*mib, listed(70, 2*gib)), p)
	}
	for _, tt := range []struct {
		name  string
		now   Side
		edit  func(*Scene)
		code  code.Code // empty: nothing is said
		owner slurm.JobID
		level attrib.Level
	}{
		{"in the ended job's cgroup", on(edited(func(p *attrib.Process) { p.Cgroup.ID = 9 })), nil, code.Orphan, 9, attrib.ByCgroup},
		{"seen there by a health check", on(left), func(s *Scene) {
			s.Self.Seen = []attrib.Sighting{{PID: 70, Start: at(60), Owner: slurm.Owner{ID: 9}}}
		}, code.Orphan, 9, attrib.BySighting},
		{"started while the job had the GPU alone", on(left), nil, code.Orphan, 9, attrib.ByExclusive},
		{"a login", on(edited(func(p *attrib.Process) { p.Start = at(150) })), nil, code.Stray, 0, ""},
		{"a daemon of MPS that waits", on(edited(func(p *attrib.Process) { p.Start, p.Exe = at(150), "/usr/bin/nvidia-cuda-mps-server" })), nil, "", 0, ""},
		{"under a dead PID, on record", side(at(200), settle.Flat, reading(2*gib+9*mib, listed(70, 2*gib)), attrib.Process{PID: 70, Gone: true}), func(s *Scene) {
			s.Left = []Finding{{Code: code.Phantom, GPU: card, Bytes: gpu.Bytes(2 * gib), Holder: &Holder{Process: attrib.Process{PID: 70}}, Owner: &Owner{Job: 9, Level: attrib.ByExclusive}}}
		}, code.Phantom, 9, attrib.ByExclusive},
		{"under a dead PID", side(at(200), settle.Flat, reading(2*gib+9*mib, listed(70, 2*gib)), attrib.Process{PID: 70, Gone: true}), nil, code.Phantom, 0, ""},
		{"no one's memory, on record", side(at(200), settle.Flat, reading(2*gib)), func(s *Scene) {
			s.Left = []Finding{{Code: code.Residue, GPU: card, Bytes: gpu.Bytes(2 * gib), Owner: &Owner{Job: 9, Level: attrib.ByExclusive}}}
		}, code.Residue, 9, attrib.ByExclusive},
		{"no one's memory", side(at(200), settle.Flat, reading(2*gib)), nil, code.Residue, 0, ""},
		{"little of it", side(at(200), settle.Flat, reading(20*mib)), nil, "", 0, ""},
		{"on its way back", side(at(200), settle.Moving, reading(2*gib)), nil, code.Moving, 0, ""},
		{"clean", side(at(200), settle.Clean, reading(0)), nil, "", 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := between(tt.now)
			if tt.edit != nil {
				tt.edit(&s)
			}
			found := Compare(s)
			if tt.code == "" {
				if len(found) > 0 {
					t.Errorf("found %+v", found)
				}
				return
			}
			if len(found) != 1 || found[0].Code != tt.code {
				t.Fatalf("found %+v", found)
			}
			switch o := found[0].Owner; {
			case o == nil && tt.owner == 0:
			case o == nil || o.Job != tt.owner || o.Level != tt.level:
				t.Errorf("owner %+v", o)
			}
		})
	}
}

// A run that counts as over only because its card was given away proves nothing certain: neither that its process was
// left behind, nor that another's card was that one's alone.
func TestUnseenEndIsDoubted(t *testing.T) {
	unseen := attrib.Record{Job: 9, UID: alice, GPUs: []gpu.ID{card}, Start: at(50), End: at(100), Unseen: true}
	doubted := func(name string, found []Finding, doubt string) {
		t.Helper()
		if len(found) != 1 || !strings.Contains(strings.Join(found[0].Doubts, "; "), doubt) {
			t.Errorf("%s: want a doubt %q: %+v", name, doubt, found)
		}
	}
	held := func(p attrib.Process) Side {
		return side(at(200), settle.Flat, reading(2*gib+9*mib, listed(70, 2*gib)), p)
	}
	s := ending(held(attrib.Process{PID: 70, UID: alice, Start: at(60), Cgroup: slurm.Owner{ID: 9}}))
	s.Others = []attrib.Record{unseen}
	doubted("its process", Compare(s), "no one saw the end of job 9")

	s = ending(held(attrib.Process{PID: 70, UID: alice, Start: at(150), Cgroup: slurm.Owner{ID: 10}}))
	s.Others = []attrib.Record{unseen}
	doubted("its GPU", Compare(s), "job 9 was given the same GPU, and no one saw its end")

	s = searched(side(at(200), settle.Flat, reading(2*gib)), onDriver(attrib.Process{PID: 71, UID: alice, Start: at(60), Cgroup: slurm.Owner{ID: 9}}))
	s.Others = []attrib.Record{{Job: 9, UID: alice, GPUs: []gpu.ID{"GPU-1"}, Start: at(50), End: at(100), Unseen: true}}
	doubted("its process as a candidate", Compare(s), "no one saw the end of its job 9")
}
