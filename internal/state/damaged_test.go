package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/test/faultinject"
	"bookend/test/must"
)

// spoiled is a job's record that has been damaged and set aside.
func spoiled(t *testing.T, s *Store, id slurm.JobID) {
	t.Helper()
	damageFile(t, s, id, "w1", []byte("{"))
	_, damage := s.Runs()
	must.Not(t, len(damage) != 1 || damage[0].Unread, "%v", damage)
}

func damagedJobs(t *testing.T, s *Store) (list []slurm.JobID) {
	t.Helper()
	for _, d := range must.Have(s.Damaged())(t) {
		list = append(list, d.Job)
	}
	return list
}

// A damaged record is remembered after it was set aside: on each GPU until a look that came later saw that one clear, or
// until its job's end is on record. What is no record of a job's does not count.
func TestDamageIsRemembered(t *testing.T) {
	s := fresh(t)
	must.Be(t, "none", len(must.Have(s.Damaged())(t)), 0)
	must.Be(t, "no record lost", must.Have(s.LostRecord())(t), false)
	must.Do(t, os.WriteFile(filepath.Join(s.dir, "probes.json"), []byte("{"), 0o600))
	_, _ = Probes.Load(s)
	must.Be(t, "what is no job's", must.Have(s.LostRecord())(t), false)
	spoiled(t, s, 7)
	_, damage := s.Runs()
	must.Be(t, "read again", len(damage), 0)
	before := must.Have(s.Damaged())(t)
	must.Not(t, len(before) != 1 || before[0].Job != 7 || !before[0].MayHold("A"), "%+v", before)

	spoiled(t, s, 8)
	both := []gpu.ID{"A", "B"}
	must.Be(t, "set aside", must.Have(s.LostRecord())(t), true)
	must.Do(t, s.SeenClear(before, nil, both))
	must.Do(t, s.SeenClear(before, []gpu.ID{"A"}, both))
	after := must.Have(s.Damaged())(t)
	must.Not(t, len(after) != 2 || after[0].MayHold("A") || !after[0].MayHold("B"), "%+v", after)
	must.Not(t, !after[1].MayHold("A"), "set aside after the look: %+v", after[1])
	must.Do(t, s.SeenClear(after, []gpu.ID{"B"}, both))
	after = must.Have(s.Damaged())(t)
	must.Not(t, len(after) != 1 || after[0].Job != 8 || after[0].MayHold("B"), "all seen clear, each at some time: %+v", after)

	must.Do(t, s.Settle(9))
	must.Be(t, "another job's end", damagedJobs(t, s), []slurm.JobID{8})
	must.Do(t, s.Settle(8))
	must.Be(t, "its end", len(damagedJobs(t, s)), 0)
	must.Be(t, "settled", must.Have(s.LostRecord())(t), true)
	aside := must.Have(os.ReadDir(filepath.Join(s.dir, damagedName)))(t)
	must.Be(t, "kept for the admin", len(aside), 3)
}

// Of many damaged records the newest keep their content, and all keep their job.
func TestManyDamagedRecords(t *testing.T) {
	s := fresh(t)
	const many = maxDamaged + 3
	set(t, &maxRuns, many+5)
	for id := slurm.JobID(1); id <= many; id++ {
		spoiled(t, s, id)
	}
	must.Be(t, "jobs", len(damagedJobs(t, s)), many)
	must.Be(t, "mode", must.Have(os.Stat(filepath.Join(s.dir, damagedName)))(t).Mode(), fs.ModeDir|0o700)
	whole := func() (n int) {
		for _, f := range must.Have(byAge(filepath.Join(s.dir, damagedName)))(t) {
			if f.Size() > 0 {
				n++
			}
		}
		return n
	}
	must.Be(t, "with content", whole(), maxDamaged)
	other := filepath.Join(s.dir, damagedName, "probes.json"+unsettled) // no job's, and the oldest
	must.Do(t, errors.Join(os.WriteFile(other, []byte("{"), 0o600), os.Chtimes(other, time.Unix(1, 0), time.Unix(1, 0))))
	spoiled(t, s, many)
	must.Be(t, "another old file is there", there(other), false)
	must.Be(t, "with content, one of them in its own place", whole(), maxDamaged-1)
	for id := slurm.JobID(many + 1); int(id) <= maxRuns; id++ {
		name := fmt.Sprintf("%d-w1%s%s", id, suffix, unsettled)
		must.Do(t, os.WriteFile(filepath.Join(s.dir, damagedName, name), nil, 0o600))
	}
	damageFile(t, s, slurm.JobID(maxRuns+1), "w1", []byte("{"))
	for range 2 {
		_, damage := s.Runs()
		must.Not(t, len(damage) != 1 || !damage[0].Unread, "there is no room: %v", damage)
	}
}

// What cannot be read now is said to be unread, and is no damage: it stays. So it is where a damaged record stays.
func TestUnreadRecords(t *testing.T) {
	for name, c := range map[string]faultinject.Filter{"a record": reading(unix.EIO), "a directory": listing(unix.EIO)} {
		s := fresh(t)
		begin(t, s, job(1), 10)
		var runs []record.Run
		var damage []Damage
		_ = refused(t, c, func() error { runs, damage = s.Runs(); return nil })
		must.Not(t, len(runs) != 0 || len(damage) != 1 || !damage[0].Unread, "%s: %+v, %+v", name, runs, damage)
		must.Be(t, name+", later", sizes(s.Runs()), [2]int{1, 0})
	}
	s := fresh(t)
	must.Do(t, os.WriteFile(filepath.Join(s.dir, damagedName), nil, 0o600))
	damageFile(t, s, 1, "w1", []byte("{"))
	for range 2 {
		_, damage := s.Runs()
		must.Not(t, len(damage) != 1 || !damage[0].Unread, "%+v", damage)
	}
	must.Not(t, must.Err(s.Damaged()) == nil, "what is there is no directory")
	must.Not(t, must.Err(s.LostRecord()) == nil, "what is there is no directory")
}
