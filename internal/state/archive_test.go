package state

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/ledger"
	"bookend/internal/safefile"
	"bookend/internal/slurm"
	"bookend/test/must"
)

var now = time.Unix(1_900_000_000, 0)

func limits(recent, findings int) Limits {
	return Limits{Recent: recent, Findings: findings, Age: 1 << 62, Bytes: 1 << 40}
}

func archive(t *testing.T, run, varDir string, keep Limits) {
	t.Helper()
	must.Do(t, Archive(run, varDir, node, now, keep))
}

// lived is a job that began and ended; with a card, it left something there.
func lived(t *testing.T, s *Store, j slurm.Job, n int, card bool) {
	t.Helper()
	must.Do(t, errors.Join(s.PutReport(j, Report{}), s.MakeDrop(j)))
	begin(t, s, j, n)
	r, _, err := s.Find(j)
	must.Do(t, err)
	end := at(n + 1)
	if card {
		end.Findings = []finding.Finding{{Code: code.Orphan, GPU: "GPU-1"}}
	}
	must.Do(t, s.Close(r, *end))
}

func ids(runs []ledger.Run) (list []slurm.JobID) {
	for _, r := range runs {
		list = append(list, r.Job.ID)
	}
	return list
}

func inMemory(t *testing.T, s *Store) []slurm.JobID {
	t.Helper()
	runs, damage := s.Runs()
	if len(damage) > 0 {
		t.Fatal(damage)
	}
	return slices.Sorted(slices.Values(ids(runs)))
}

func onDisk(t *testing.T, varDir string) []slurm.JobID {
	t.Helper()
	runs, damage := History(varDir, node)
	if len(damage) > 0 {
		t.Fatal(damage)
	}
	return ids(runs)
}

func TestArchive(t *testing.T) {
	run, varDir := folder(t), filepath.Join(folder(t), "lib")
	s := open(t, run)
	lived(t, s, job(1), 10, true)        // a finding, too old to stay
	lived(t, s, job(2), 20, true)        // a finding
	lived(t, s, bothNames(3), 30, false) // clean and old
	begin(t, s, job(4), 35)              // still open
	lived(t, s, job(5), 40, false)       // recent
	archive(t, run, varDir, limits(1, 1))
	must.Be(t, "in memory", inMemory(t, s), []slurm.JobID{2, 4, 5})
	must.Be(t, "on disk", onDisk(t, varDir), []slurm.JobID{5, 3, 2, 1})
	for _, path := range []string{"state/n1/3", "report/n1_3", "report/n1_" + string(sluidA), "drop/n1_3",
		"drop/n1_" + string(sluidA)} {
		if _, err := os.Lstat(filepath.Join(run, path)); !os.IsNotExist(err) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(run, "report/n1_5")); err != nil {
		t.Error(err)
	}
	before := tree(t, run)
	archive(t, run, varDir, limits(1, 1))
	if after := tree(t, run); !slices.Equal(before, after) {
		t.Errorf("archiving again changed %v to %v", before, after)
	}
	if r, _, err := s.Find(job(5)); err != nil || !r.Archived {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestArchiveAgainAfterASecondEpilog(t *testing.T) {
	run, varDir := folder(t), folder(t)
	s := open(t, run)
	lived(t, s, job(1), 10, false)
	archive(t, run, varDir, limits(9, 9))
	r, which, err := s.Find(job(1))
	if which != ledger.ClosedRun || err != nil {
		t.Fatal(which, err)
	}
	must.Do(t, s.Close(r, *at(20)))
	archive(t, run, varDir, limits(0, 0))
	runs, damage := History(varDir, node)
	if len(runs) != 1 || len(damage) != 0 || len(runs[0].Ends) != 2 {
		t.Errorf("%+v, %v", runs, damage)
	}
	if got := inMemory(t, s); len(got) != 0 {
		t.Errorf("in memory: %v", got)
	}
}

func TestArchiveOfARequeuedJob(t *testing.T) {
	run, varDir := folder(t), folder(t)
	s := open(t, run)
	lived(t, s, bothNames(1), 10, false)
	begin(t, s, job(1), 20) // its epilog never comes
	second := job(1)
	second.SLUID = sluidB
	begin(t, s, second, 30)
	must.Do(t, errors.Join(s.PutReport(second, Report{}), s.MakeDrop(second)))
	archive(t, run, varDir, limits(0, 0))
	runs, _ := s.Runs()
	if len(runs) != 1 || runs[0].Job.SLUID != sluidB {
		t.Errorf("in memory: %+v", runs)
	}
	must.Be(t, "on disk", onDisk(t, varDir), []slurm.JobID{1, 1})
	for path, want := range map[string]bool{
		"report/n1_1": true, "report/n1_" + string(sluidB): true, "report/n1_" + string(sluidA): false,
		"drop/n1_1": true, "drop/n1_" + string(sluidB): true, "drop/n1_" + string(sluidA): false,
	} {
		if _, err := os.Lstat(filepath.Join(run, path)); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestArchiveForgets(t *testing.T) {
	run, varDir := folder(t), folder(t)
	s := open(t, run)
	history := historyFolder(varDir, node)
	for id := range slurm.JobID(5) {
		lived(t, s, job(id+1), int(id)*10, false)
	}
	archive(t, run, varDir, limits(0, 0))
	var size int64
	files := must.Have(os.ReadDir(history))(t) // by name
	for i, f := range files {
		info := must.Have(f.Info())(t)
		size = info.Size()
		stamp := now.Add(time.Duration(i-4) * time.Hour) // job 1: four hours old … job 5: now
		must.Do(t, os.Chtimes(filepath.Join(history, f.Name()), stamp, stamp))
	}
	temp := filepath.Join(history, safefile.TempPrefix+"x")
	must.Do(t, os.WriteFile(temp, nil, 0o600))
	must.Do(t, Archive(run, varDir, node, now.Add(time.Hour), Limits{Age: 4 * time.Hour, Bytes: 1 << 40}))
	must.Be(t, "by age", onDisk(t, varDir), []slurm.JobID{5, 4, 3, 2})
	must.Do(t, Archive(run, varDir, node, now.Add(2*time.Hour), Limits{Age: 5 * time.Hour, Bytes: 2*size + size/2}))
	must.Be(t, "by size", onDisk(t, varDir), []slurm.JobID{5, 4})
	if _, err := os.Stat(temp); !os.IsNotExist(err) {
		t.Errorf("a killed writer's file: %v", err)
	}
}

// A hook that is at work on a job's records is no trouble of whoever archives: they are left for the next time.
func TestArchiveLeavesALockedRecord(t *testing.T) {
	run, varDir := folder(t), folder(t)
	s := open(t, run)
	lived(t, s, job(1), 10, false)
	lived(t, s, job(2), 11, false)
	release := must.Have(safefile.Lock(filepath.Join(s.dir, lockOf(1)), 0, true))(t)
	archive(t, run, varDir, limits(0, 0))
	must.Be(t, "in memory", inMemory(t, s), []slurm.JobID{1})
	if runs, damage := History(varDir, node); len(runs) != 2 || len(damage) > 0 {
		t.Errorf("in the history: %v, %v", runs, damage)
	}
	release()
	archive(t, run, varDir, limits(0, 0))
	if got := inMemory(t, s); len(got) != 0 {
		t.Errorf("in memory: %v", got)
	}
}

// What is none of the node's, or cannot be used, is told, and stays.
func TestHistoryReportsDamage(t *testing.T) {
	run, varDir := folder(t), folder(t)
	if runs, damage := History(varDir, node); len(runs)+len(damage) != 0 {
		t.Errorf("no history: %v, %v", runs, damage)
	}
	lived(t, open(t, run), job(1), 10, false)
	archive(t, run, varDir, limits(0, 0))
	must.Do(t, os.WriteFile(filepath.Join(historyFolder(varDir, node), "2-t5.json"), []byte("{"), 0o600))
	for range 2 { // it only reads: nothing is set aside
		if runs, damage := History(varDir, node); len(runs) != 1 || len(damage) != 1 {
			t.Errorf("%d runs, %v", len(runs), damage)
		}
	}
	if _, damage := History(varDir, "../n1"); len(damage) != 1 {
		t.Error("a node that is no name was read")
	}
}

// An epilog that comes between reading and writing must not be lost.
func TestArchiveLeavesAChangedRecord(t *testing.T) {
	run, varDir := folder(t), folder(t)
	s := open(t, run)
	lived(t, s, job(1), 10, false)
	history := historyFolder(varDir, node)
	must.Do(t, os.MkdirAll(history, 0o700))
	seen, _, _ := s.Find(job(1))
	must.Do(t, s.Close(seen, *at(20)))
	for _, stays := range []bool{true, false} {
		must.Do(t, s.retire(history, seen, stays))
		if r, _, err := s.Find(job(1)); err != nil || len(r.Ends) != 2 || r.Archived {
			t.Errorf("stays %v: %+v, %v", stays, r, err)
		}
	}
}
