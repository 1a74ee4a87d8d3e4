package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/attribution"
	"bookend/internal/catalog"
	"bookend/internal/record"
	"bookend/internal/safefile"
	"bookend/internal/slurm"
	"bookend/test/must"
)

var now = time.Unix(1_900_000_000, 0)

// keeping sets what Archive keeps, until the test's end.
func keeping(t *testing.T, recent, findings, days int, bytes int64) {
	t.Helper()
	r, f, d, b := keepRecent, keepFindings, keepDays, keepBytes
	t.Cleanup(func() { keepRecent, keepFindings, keepDays, keepBytes = r, f, d, b })
	keepRecent, keepFindings, keepDays, keepBytes = recent, findings, days, bytes
}

func archive(t *testing.T, run, varDir string, recent, findings int) {
	t.Helper()
	keeping(t, recent, findings, 1<<30, 1<<40)
	must.Do(t, Archive(run, varDir, node, now))
}

// lived is a job that began and ended; with a card, it left something there.
func lived(t *testing.T, s *Store, j slurm.Job, n int, card bool) {
	t.Helper()
	must.Do(t, errors.Join(s.Users.PutReport(j, Report{}), s.Users.MakeDrop(j)))
	begin(t, s, j, n)
	r, _, err := s.Find(j)
	must.Do(t, err)
	end := at(n + 1)
	if card {
		end.Findings = []record.Finding{{Code: catalog.Orphan, GPU: "GPU-1"}}
	}
	must.Do(t, s.Close(r, *end))
}

func ids(runs []record.Run) (list []slurm.JobID) {
	for _, r := range runs {
		list = append(list, r.Job.ID)
	}
	return list
}

func inMemory(t *testing.T, s *Store) []slurm.JobID {
	t.Helper()
	runs, damage := s.Runs()
	must.Be(t, "damage", len(damage), 0)
	return slices.Sorted(slices.Values(ids(runs)))
}

func onDisk(t *testing.T, varDir string) []slurm.JobID {
	t.Helper()
	runs, damage := History(varDir, node)
	must.Be(t, "damage", len(damage), 0)
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
	archive(t, run, varDir, 1, 1)
	must.Be(t, "in memory", inMemory(t, s), []slurm.JobID{2, 4, 5})
	must.Be(t, "on disk", onDisk(t, varDir), []slurm.JobID{5, 3, 2, 1})
	for _, path := range []string{"state/n1/3", "report/65534/jobs/n1_3", "report/65534/jobs/n1_" + string(sluidA), "drop/65534/jobs/n1_3",
		"drop/65534/jobs/n1_" + string(sluidA)} {
		must.Be(t, path, there(filepath.Join(run, path)), false)
	}
	must.Be(t, "it is there: "+filepath.Join(run, "report/65534/jobs/n1_5"), there(filepath.Join(run, "report/65534/jobs/n1_5")), true)
	before := tree(t, run)
	archive(t, run, varDir, 1, 1)
	must.Be(t, "archived again", tree(t, run), before)
	must.Be(t, "archived", must.Have(finds(s, job(5), attribution.ClosedRun))(t).Archived, true)
}

func TestArchiveAgainAfterASecondEpilog(t *testing.T) {
	run, varDir := folder(t), folder(t)
	s := open(t, run)
	lived(t, s, job(1), 10, false)
	archive(t, run, varDir, 9, 9)
	must.Do(t, s.Close(must.Have(finds(s, job(1), attribution.ClosedRun))(t), *at(20)))
	archive(t, run, varDir, 0, 0)
	runs, damage := History(varDir, node)
	must.Not(t, len(runs) != 1 || len(damage) != 0 || len(runs[0].Ends) != 2, "%+v, %v", runs, damage)
	got := inMemory(t, s)
	must.Not(t, len(got) != 0, "in memory: %v", got)
}

func TestArchiveOfARequeuedJob(t *testing.T) {
	run, varDir := folder(t), folder(t)
	s := open(t, run)
	lived(t, s, bothNames(1), 10, false)
	begin(t, s, job(1), 20) // its epilog never comes
	second := job(1)
	second.SLUID = sluidB
	begin(t, s, second, 30)
	must.Do(t, errors.Join(s.Users.PutReport(second, Report{}), s.Users.MakeDrop(second)))
	archive(t, run, varDir, 0, 0)
	runs, _ := s.Runs()
	must.Not(t, len(runs) != 1 || runs[0].Job.SLUID != sluidB, "in memory: %+v", runs)
	must.Be(t, "on disk", onDisk(t, varDir), []slurm.JobID{1, 1})
	for path, want := range map[string]bool{
		"report/65534/jobs/n1_1": true, "report/65534/jobs/n1_" + string(sluidB): true, "report/65534/jobs/n1_" + string(sluidA): false,
		"drop/65534/jobs/n1_1": true, "drop/65534/jobs/n1_" + string(sluidB): true, "drop/65534/jobs/n1_" + string(sluidA): false,
	} {
		_, err := os.Lstat(filepath.Join(run, path))
		must.Not(t, (err == nil) != want, "%s: %v", path, err)
	}
}

func TestArchiveForgets(t *testing.T) {
	run, varDir := folder(t), folder(t)
	s := open(t, run)
	history := historyDir(varDir, node)
	for id := range slurm.JobID(5) {
		lived(t, s, job(id+1), int(id)*10, false)
	}
	archive(t, run, varDir, 0, 0)
	var size int64
	files := must.Have(os.ReadDir(history))(t) // by name
	for i, f := range files {
		info := must.Have(f.Info())(t)
		size = info.Size()
		stamp := now.AddDate(0, 0, i-4) // job 1: four days old … job 5: now
		must.Do(t, os.Chtimes(filepath.Join(history, f.Name()), stamp, stamp))
	}
	temp := filepath.Join(history, safefile.TempPrefix+"x")
	must.Do(t, os.WriteFile(temp, nil, 0o600))
	keeping(t, 0, 0, 4, 1<<40)
	must.Do(t, Archive(run, varDir, node, now.Add(time.Hour)))
	must.Be(t, "by age", onDisk(t, varDir), []slurm.JobID{5, 4, 3, 2})
	keeping(t, 0, 0, 5, 2*size+size/2)
	must.Do(t, Archive(run, varDir, node, now.Add(2*time.Hour)))
	must.Be(t, "by size", onDisk(t, varDir), []slurm.JobID{5, 4})
	_, err := os.Stat(temp)
	must.Not(t, !os.IsNotExist(err), "a killed writer's file: %v", err)
}

// A clock that is months ahead ages no record, nor one that was behind when a record was written: there must be records of
// as many later days too.
func TestHistoryOutlivesAWrongClock(t *testing.T) {
	run, varDir := folder(t), folder(t)
	s := open(t, run)
	history := historyDir(varDir, node)
	for id := range slurm.JobID(4) {
		lived(t, s, job(id+1), int(id)*10, false)
	}
	archive(t, run, varDir, 0, 0)
	wrote := func(id int, at time.Time) {
		files := must.Have(filepath.Glob(filepath.Join(history, fmt.Sprint(id, "-*"))))(t)
		must.Do(t, os.Chtimes(files[0], at, at))
	}
	ahead := now.AddDate(0, 0, 91)
	for id, at := range []time.Time{now.AddDate(0, 0, -2), now.AddDate(0, 0, -1), now, ahead} {
		wrote(id+1, at)
	}
	keeping(t, 0, 0, 90, 1<<40)
	must.Do(t, Archive(run, varDir, node, ahead))
	must.Be(t, "91 days ahead", len(onDisk(t, varDir)), 4)
	keeping(t, 0, 0, 3, 1<<40)
	must.Do(t, Archive(run, varDir, node, ahead))
	must.Be(t, "one day more on record than is kept", len(onDisk(t, varDir)), 3)
	wrote(2, time.Unix(60, 0))
	keeping(t, 0, 0, 2, 1<<40)
	must.Do(t, Archive(run, varDir, node, time.Unix(120, 0)))
	must.Be(t, "written and read by a clock without a battery", len(onDisk(t, varDir)), 3)
}

// A hook that is at work on a job's records is no trouble of whoever archives: they are left for the next time.
func TestArchiveLeavesALockedRecord(t *testing.T) {
	run, varDir := folder(t), folder(t)
	s := open(t, run)
	lived(t, s, job(1), 10, false)
	lived(t, s, job(2), 11, false)
	release := must.Have(safefile.Lock(filepath.Join(s.dir, lockOf(1)), 0, true))(t)
	archive(t, run, varDir, 0, 0)
	must.Be(t, "in memory", inMemory(t, s), []slurm.JobID{1})
	runs, damage := History(varDir, node)
	must.Not(t, len(runs) != 2 || len(damage) > 0, "in the history: %v, %v", runs, damage)
	release()
	archive(t, run, varDir, 0, 0)
	got := inMemory(t, s)
	must.Not(t, len(got) != 0, "in memory: %v", got)
}

// What is none of the node's, or cannot be used, is told, and stays.
func TestHistoryReportsDamage(t *testing.T) {
	run, varDir := folder(t), folder(t)
	must.Be(t, "no history", sizes(History(varDir, node)), [2]int{})
	lived(t, open(t, run), job(1), 10, false)
	archive(t, run, varDir, 0, 0)
	must.Do(t, os.WriteFile(filepath.Join(historyDir(varDir, node), "2-t5.json"), []byte("{"), 0o600))
	for range 2 { // it only reads: nothing is set aside
		must.Be(t, "runs and damage", sizes(History(varDir, node)), [2]int{1, 1})
	}
	must.Be(t, "a node that is no name", sizes(History(varDir, "../n1")), [2]int{0, 1})
}

// An epilog that comes between reading and writing must not be lost.
func TestArchiveLeavesAChangedRecord(t *testing.T) {
	run, varDir := folder(t), folder(t)
	s := open(t, run)
	lived(t, s, job(1), 10, false)
	history := historyDir(varDir, node)
	must.Do(t, os.MkdirAll(history, 0o700))
	seen, _, _ := s.Find(job(1))
	must.Do(t, s.Close(seen, *at(20)))
	for _, stays := range []bool{true, false} {
		must.Do(t, retire(s, history, seen, stays))
		r, _, err := s.Find(job(1))
		must.Not(t, err != nil || len(r.Ends) != 2 || r.Archived, "stays %v: %+v, %v", stays, r, err)
	}
}

// What hooks that were killed left half written goes after an hour, and so does the folder of a job that came to no
// record. What is being written stays, and records, and what is no folder of a job's or leads elsewhere.
func TestSweep(t *testing.T) {
	const leftover = safefile.TempPrefix + "0123456789abcdef"
	s, elsewhere, varDir := open(t, folder(t)), folder(t), filepath.Join(folder(t), "lib")
	begin(t, s, job(42), 1)
	must.Do(t, os.WriteFile(filepath.Join(elsewhere, leftover), nil, 0o600))
	must.Do(t, os.Symlink(elsewhere, filepath.Join(s.dir, "57")))
	var all []string
	for _, folder := range []string{"state/" + node, "state/" + node + "/41", "state/" + node + "/42", "report/7/jobs"} {
		all = append(all, filepath.Join(s.Users.Run, folder, leftover))
	}
	for _, tt := range []struct {
		age   time.Duration
		stays bool
	}{{time.Second, true}, {2 * time.Hour, false}} {
		for _, path := range all {
			must.Do(t, os.MkdirAll(filepath.Dir(path), 0o700))
			must.Do(t, os.WriteFile(path, []byte("{"), 0o600))
			must.Do(t, os.Chtimes(path, now.Add(-tt.age), now.Add(-tt.age)))
		}
		_ = Archive(s.Users.Run, varDir, node, now) // which complains of the link
		for _, path := range append(all, filepath.Join(s.dir, "41")) {
			_, err := os.Lstat(path)
			must.Not(t, (err == nil) != tt.stays, "%s, %v old: %v", path, tt.age, err)
		}
	}
	files := must.Have(byAge(elsewhere))(t)
	must.Not(t, len(files) != 1, "elsewhere there is %v", files)
	must.Do(t, os.Remove(filepath.Join(s.dir, "57")))
	runs, damage := s.Runs()
	must.Not(t, len(runs) != 1 || len(damage) > 0, "%d records, %v", len(runs), damage)
	must.Do(t, os.Mkdir(filepath.Join(s.dir, "41"), 0o700))
	release := must.Have(safefile.Lock(filepath.Join(s.dir, lockOf(41)), 0, true))(t)
	must.Do(t, sweep(s, now))
	must.Be(t, "the directory of a job that begins", unix.Access(filepath.Join(s.dir, "41"), unix.F_OK), nil)
	release()
}

// A copy is read whatever of it was copied, whoever owns it, and each run once.
func TestCopied(t *testing.T) {
	wall := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	run := func(node string, id slurm.JobID, ends int) string {
		r := record.Run{Job: slurm.Job{ID: id, Node: node}, Key: "w5",
			Start: &record.End{Wall: wall.Add(time.Duration(id) * time.Hour)}}
		for range ends {
			r.Ends = append(r.Ends, record.End{Wall: wall.Add(time.Duration(id+1) * time.Hour)})
		}
		data := must.Have(encode(r))(t)
		return string(data)
	}
	for name, tt := range map[string]struct {
		files   map[string]string
		want    string
		damaged int
	}{
		"of /var/lib/bookend": {map[string]string{"history/n1/7-w5.json": run("n1", 7, 1),
			"history/n1/8-w5.json": run("n1", 8, 1), "metrics/book.json": "{}"}, "map[n1:[8 7]]", 0},
		"of its history": {map[string]string{"n1/7-w5.json": run("n1", 7, 1),
			"n2/9-w5.json": run("n2", 9, 1)}, "map[n1:[7] n2:[9]]", 0},
		"of one node's": {map[string]string{"7-w5.json": run("n1", 7, 1)}, "map[n1:[7]]", 0},
		"of /run/bookend": {map[string]string{"state/n1/7/w5.json": run("n1", 7, 0),
			"state/n1/check.json": "{}", "state/n1/damaged/7-w5.json.damaged-0": "x"}, "map[n1:[7]]", 0},
		"of both": {map[string]string{"run/state/n1/7/w5.json": run("n1", 7, 0),
			"var/history/n1/7-w5.json": run("n1", 7, 1)}, "map[n1:[7]]", 0},
		"with damage": {map[string]string{"7-w5.json": run("n1", 7, 1)[:40], "8-w5.json": run("n1", 8, 1),
			"9-w5.json": ""}, "map[n1:[8]]", 2},
		"with one of any size": {map[string]string{"7-w5.json": run("n1", 7, 1) + strings.Repeat(" ", maxRecord),
			"8-w5.json": run("n1", 8, 1)}, "map[n1:[8]]", 1},
		"of a node with no name": {map[string]string{"7-w5.json": run("../n1", 7, 1)}, "map[]", 1},
		"a directory so named":   {map[string]string{"7-w5.json/8-w5.json": run("n1", 8, 1)}, "map[n1:[8]]", 0},
		"of something else":      {map[string]string{"a.json": "{}", "7/8.json": "{}", "README": "x"}, "map[]", 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range tt.files {
				must.Do(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o777))
				must.Do(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o666))
				must.Do(t, os.Chown(filepath.Join(dir, file), 65534, 65534))
			}
			runs, damage, err := Copied(dir)
			must.Do(t, err)
			got := map[string][]slurm.JobID{}
			for node, list := range runs {
				for _, r := range list {
					got[node] = append(got[node], r.Job.ID)
					must.Not(t, name == "of both" && len(r.Ends) != 1, "the older one was taken: %+v", r)
				}
			}
			must.Not(t, fmt.Sprint(got) != tt.want || len(damage) != tt.damaged,
				"%v, damage %v; want %s, %d", got, damage, tt.want, tt.damaged)
		})
	}
	_, _, err := Copied(filepath.Join(t.TempDir(), "none"))
	must.Fail(t, "a directory that is not there", err, fs.ErrNotExist)
}

// While nothing can be archived the oldest runs leave memory, those without findings on a GPU first; open ones and the
// newest stay. What is archived already is not lost.
func TestShed(t *testing.T) {
	keeping(t, 1, 1, 1<<62, 1<<40)
	bound := keepUnarchived
	t.Cleanup(func() { keepUnarchived = bound })
	run := folder(t)
	s := open(t, run)
	begin(t, s, job(1), 5) // open
	lived(t, s, job(2), 10, true)
	for id := slurm.JobID(3); id <= 6; id++ {
		lived(t, s, job(id), int(id)*10, false)
	}
	for _, tt := range []struct {
		bound, lost int
		left        []slurm.JobID
	}{{6, 0, []slurm.JobID{1, 2, 3, 4, 5, 6}}, {5, 1, []slurm.JobID{1, 2, 4, 5, 6}}, {2, 3, []slurm.JobID{1, 6}},
		{0, 0, []slurm.JobID{1, 6}}} {
		keepUnarchived = tt.bound
		must.Be(t, "lost", must.Have(Shed(run, node))(t), tt.lost)
		must.Be(t, "in memory", inMemory(t, s), tt.left)
	}
	must.Be(t, "its report is there", there(filepath.Join(run, "report/65534/jobs/n1_3")), false)
	must.Fail(t, "no node", must.Err(Shed(run, "..")), ErrName)
}

// A record that is gone meanwhile was another's to move.
func TestArchiveLeavesAGoneRecord(t *testing.T) {
	s := open(t, folder(t))
	done, err := exchange(s, record.Run{Job: slurm.Job{ID: 7, Node: "n1"}, Key: "w1", Ends: []record.End{{}}}, nil)
	must.Not(t, done || err != nil, "%v, %v", done, err)
}

// The history's file system refuses the first record: the next ones are not tried.
func TestArchiveStopsAtAFullDisk(t *testing.T) {
	run, varDir := folder(t), folder(t)
	s := open(t, run)
	for id := slurm.JobID(1); id <= 9; id++ {
		lived(t, s, job(id), int(id)*10, false)
	}
	must.Tmpfs(t, varDir, "size=64k,nr_inodes=3,mode=755") // for its directories alone
	err := Archive(run, varDir, node, now)
	must.Not(t, !errors.Is(err, unix.ENOSPC) || strings.Count(err.Error(), "no space") != 1, "%v", err)
}

func TestDiskTroubles(t *testing.T) {
	run := folder(t)
	s := open(t, run)
	must.Be(t, "clean", HasDiskTrouble(run, node), false)
	must.Do(t, s.NoteDisk(map[DiskTask]*DiskTrouble{DiskLog: nil, DiskHistory: nil}, now))
	must.Be(t, "clean", HasDiskTrouble(run, node), false)
	full := DiskTrouble{Task: DiskHistory, Code: catalog.StateWrite, Detail: strings.Repeat("x", 2*maxDiskDetail), Dropped: 2}
	for i := range 3 {
		must.Do(t, s.NoteDisk(map[DiskTask]*DiskTrouble{DiskLog: nil, DiskHistory: &full}, now.Add(time.Duration(i))))
	}
	must.Do(t, s.NoteDisk(map[DiskTask]*DiskTrouble{DiskLog: nil}, now)) // a hook that had nothing to archive
	all := must.Have(DiskTroubles.Load(s))(t)
	must.Not(t, len(all) != 1 || all[0].Count != 3 || all[0].Dropped != 6 || !all[0].Since.Equal(now) ||
		!all[0].Last.After(now) || len(all[0].Detail) != maxDiskDetail, "%+v", all)
	hangs := DiskTrouble{Task: DiskLog, Code: catalog.LogFailed, Detail: "it hangs"}
	must.Do(t, s.NoteDisk(map[DiskTask]*DiskTrouble{DiskLog: &hangs, DiskHistory: &full}, now))
	all = must.Have(DiskTroubles.Load(s))(t)
	must.Not(t, len(all) != 2 || all[0].Task != DiskHistory || all[1].Task != DiskLog, "%+v", all)
	since := now.Format(time.DateTime)
	must.Be(t, "words", all[1].Words(), "log: it hangs (1 times since "+since+")")
	must.Not(t, !strings.HasSuffix(all[0].Words(), " (4 times since "+since+"); 8 ended jobs are in no history"),
		"%s", all[0].Words())
	must.Do(t, s.NoteDisk(map[DiskTask]*DiskTrouble{DiskHistory: nil, DiskLog: nil}, now))
	must.Be(t, "over", HasDiskTrouble(run, node), false)
}
