package state

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/numbering"
	"bookend/internal/slurm"
	"bookend/internal/slurmconf"
)

func TestOneHealthCheckAtATime(t *testing.T) {
	s := open(t, folder(t))
	release, err := s.BeOnlyCheck()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.BeOnlyCheck(); !errors.Is(err, ErrLocked) {
		t.Errorf("beside another: %v", err)
	}
	release()
	if release, err = s.BeOnlyCheck(); err != nil {
		t.Errorf("after it: %v", err)
	} else {
		release()
	}
}

func TestLastCheck(t *testing.T) {
	s := open(t, folder(t))
	if c, err := s.LastCheck(); c != nil || err != nil {
		t.Errorf("before the first: %+v, %v", c, err)
	}
	seen := full(1)
	want := ledger.Check{
		At: time.Minute, Wall: seen.Start.Wall, Took: time.Second, Epoch: seen.Epoch, Cards: seen.Devices, Snapshot: seen.Start.Snapshot,
		Unexplained: map[gpu.ID]uint64{"GPU-1": 5}, Leaked: map[gpu.ID]uint64{"GPU-1": 5},
		Findings: []finding.Finding{{Code: code.Orphan, GPU: "GPU-1"}}, Kernel: &gpu.KernelMark{Seq: 9}, Boot: "b",
	}
	if err := s.PutLastCheck(want); err != nil {
		t.Fatal(err)
	}
	if got, err := s.LastCheck(); err != nil || !reflect.DeepEqual(*got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
}

// A crowded card keeps a check's record small, and says that there were more.
func TestLastCheckOfACrowd(t *testing.T) {
	s := open(t, folder(t))
	c := ledger.Check{}
	for range 16 {
		r := gpu.Reading{}
		for pid := range 950 {
			r.Processes = append(r.Processes, gpu.Process{PID: pid, Memory: gpu.Bytes(1 << 30)})
		}
		c.Snapshot.Readings = append(c.Snapshot.Readings, r)
	}
	if err := s.PutLastCheck(c); err != nil {
		t.Fatal(err)
	}
	got, err := s.LastCheck()
	if err != nil || len(got.Snapshot.Readings[3].Processes) != 16 || got.Snapshot.Readings[3].ProcessesUnknown == "" {
		t.Errorf("%v: %d processes", err, len(got.Snapshot.Readings[3].Processes))
	}
	if len(c.Snapshot.Readings[0].Processes) != 950 {
		t.Error("the caller's own was cut")
	}
}

func TestSighted(t *testing.T) {
	s := open(t, folder(t))
	if seen, err := s.Sighted(); len(seen.Looks) != 0 || err != nil {
		t.Errorf("before the first: %+v, %v", seen, err)
	}
	want := ledger.Sighted{
		Epoch: gpu.Epoch{Boot: "b", Driver: "580", Module: "m"}, Looks: []ledger.Look{{At: 5, Unread: []gpu.ID{"GPU-1"}}},
		Processes: []ledger.Seen{{GPU: "GPU-0", PID: 7, Start: 3, UID: nobody, Owner: slurm.Owner{ID: 100}, First: 4, Last: 5, Bytes: gpu.Bytes(9), Most: 9, MostAt: 5}},
	}
	if err := s.PutSighted(want); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Sighted(); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// Of looks that could not read any card there is no room for all: the newest stay.
func TestSightedOfManyUnreadCards(t *testing.T) {
	s := open(t, folder(t))
	var unread []gpu.ID
	for i := range maxCards {
		unread = append(unread, gpu.ID(fmt.Sprintf("GPU-00000000-0000-0000-0000-%012d", i)))
	}
	var seen ledger.Sighted
	for i := range 512 {
		seen.Looks = append(seen.Looks, ledger.Look{At: time.Duration(i), Unread: unread})
	}
	if err := s.PutSighted(seen); err != nil {
		t.Fatal(err)
	}
	got, err := s.Sighted()
	if n := len(got.Looks); err != nil || n < 64 || got.Looks[n-1].At != 511 {
		t.Errorf("%d looks, %v", n, err)
	}
}

func TestNumbering(t *testing.T) {
	run := folder(t)
	s := open(t, run)
	if k, err := s.Numbering(); k != nil || err != nil || PeekNumbering(run, node) != nil {
		t.Errorf("before the first: %+v, %v", k, err)
	}
	list := numbering.List{Source: numbering.BySlurmd, GPUs: []slurmconf.GPU{{"/dev/nvidia1"}, {"/dev/nvidia0"}}}
	want := numbering.Kept{
		Key: numbering.Key{Boot: "b", Node: node, Conf: "/etc/slurm/slurm.conf", Daemon: numbering.Daemon{PID: 7, Ticks: 70},
			Slurmd: numbering.FileID{Path: "/usr/sbin/slurmd", Inode: 3}, Files: []numbering.FileID{{Path: "/etc/slurm/gres.conf", Dev: 1, Inode: 2, Size: 3, Written: 4, Changed: 5}}},
		List: list, InForce: &list, For: numbering.Daemon{PID: 7, Ticks: 70}, Tried: 9,
	}
	if err := s.PutNumbering(want); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Numbering(); err != nil || !reflect.DeepEqual(*got, want) || !got.Key.Same(want.Key) {
		t.Errorf("got %+v, %v", got, err)
	}
	if got := PeekNumbering(run, node); got == nil || !reflect.DeepEqual(*got, want) {
		t.Errorf("peeked: %+v", got)
	}
	if PeekNumbering(run, "../x") != nil {
		t.Error("a node that is none has numbers")
	}
}

// What cannot be used is set aside and said; then there is none, and the next check begins anew.
func TestCheckFilesDamaged(t *testing.T) {
	for name, text := range map[string]string{"cut": `{"version":1,"value":{"lo`, "another version": `{"version":2,"value":{}}`, "empty": "", "no object": "7"} {
		t.Run(name, func(t *testing.T) {
			s := open(t, folder(t))
			for file, read := range map[string]func() error{
				checkFile:     func() error { _, err := s.LastCheck(); return err },
				sightedFile:   func() error { _, err := s.Sighted(); return err },
				numberingFile: func() error { _, err := s.Numbering(); return err },
			} {
				if err := os.WriteFile(filepath.Join(s.dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := read(); !errors.As(err, new(Damage)) {
					t.Errorf("%s: %v", file, err)
				}
				if err := read(); err != nil {
					t.Errorf("%s once it is aside: %v", file, err)
				}
			}
			if aside, _ := filepath.Glob(filepath.Join(s.dir, damagedName, "*")); len(aside) != 3 {
				t.Errorf("aside: %q", aside)
			}
		})
	}
}

func TestNodes(t *testing.T) {
	run, kept := folder(t), t.TempDir()
	if nodes, err := Nodes(run, kept); err != nil || len(nodes) != 0 {
		t.Errorf("%q, %v", nodes, err)
	}
	open(t, run)
	for _, dir := range []string{"history/n0", "history/n1", "history/no node"} {
		if err := os.MkdirAll(filepath.Join(kept, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if nodes, err := Nodes(run, kept); err != nil || !slices.Equal(nodes, []string{"n0", "n1"}) {
		t.Errorf("%q, %v", nodes, err)
	}
	if nodes, err := Nodes(run, ""); err != nil || !slices.Equal(nodes, []string{"n1"}) {
		t.Errorf("%q, %v", nodes, err)
	}
}
