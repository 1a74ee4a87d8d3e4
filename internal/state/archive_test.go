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

	"bookend/internal/catalog"
	"bookend/internal/record"
	"bookend/internal/safefile"
	"bookend/internal/slurm"
	"bookend/test/must"
)

var now = time.Unix(1_900_000_000, 0)

// set changes a limit until the test's end.
func set[T any](t *testing.T, limit *T, value T) {
	t.Helper()
	before := *limit
	t.Cleanup(func() { *limit = before })
	*limit = value
}

// keeping sets what Archive keeps.
func keeping(t *testing.T, recent, findings, days int, bytes int64) {
	t.Helper()
	set(t, &keepRecent, recent)
	set(t, &keepFindings, findings)
	set(t, &keepDays, days)
	set(t, &keepBytes, bytes)
}

func archive(t *testing.T, s *Store, varDir string, recent, findings int) {
	t.Helper()
	keeping(t, recent, findings, 1<<30, 1<<40)
	must.Do(t, Archive(s.Users.Run, varDir, node, now))
}

// lived is a job that began and ended; a leak is something left on a GPU.
func lived(t *testing.T, s *Store, j slurm.Job, n int, leak bool) {
	t.Helper()
	must.Do(t, errors.Join(s.Users.PutReport(j, Report{}), s.Users.MakeDrop(j)))
	begin(t, s, j, n)
	r, err := s.Find(j)
	must.Do(t, err)
	end := at(n + 1)
	if leak {
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

// usersFiles reports whether each file of a job's user is there, by job id and SLUID.
func usersFiles(s *Store, names map[string]bool) (wrong []string) {
	for name, want := range names {
		for _, tree := range []string{reports, drops} {
			if path := filepath.Join(s.Users.dir(tree, someUser), "n1_"+name); there(path) != want {
				wrong = append(wrong, path)
			}
		}
	}
	return wrong
}

func TestArchive(t *testing.T) {
	s, varDir := fresh(t), filepath.Join(newDir(t), "lib")
	lived(t, s, job(1), 10, true)        // a finding, too old to stay
	lived(t, s, job(2), 20, true)        // a finding
	lived(t, s, bothNames(3), 30, false) // clean and old
	begin(t, s, job(4), 35)              // still open
	lived(t, s, job(5), 40, false)       // recent
	archive(t, s, varDir, 1, 1)
	must.Be(t, "in memory", inMemory(t, s), []slurm.JobID{2, 4, 5})
	must.Be(t, "on disk", onDisk(t, varDir), []slurm.JobID{5, 3, 2, 1})
	must.Be(t, "directory of an archived job", there(filepath.Join(s.dir, "3")), false)
	must.Be(t, "users' files", usersFiles(s, map[string]bool{"3": false, string(sluidA): false, "5": true}), nil)
	before := tree(t, s.Users.Run)
	archive(t, s, varDir, 1, 1)
	must.Be(t, "archived again", tree(t, s.Users.Run), before)
	closed := must.Have(finds(s, job(5), "closed"))(t)
	must.Be(t, "archived", closed.Archived, true)
	must.Do(t, s.Close(closed, *at(50))) // a second epilog
	archive(t, s, varDir, 0, 0)
	runs, damage := History(varDir, node)
	must.Not(t, len(damage) != 0 || len(runs[0].Ends) != 2, "%+v, %v", runs, damage)
	must.Be(t, "in memory", inMemory(t, s), []slurm.JobID{4})
}

func TestArchiveOfARequeuedJob(t *testing.T) {
	s, varDir := fresh(t), newDir(t)
	lived(t, s, bothNames(1), 10, false)
	begin(t, s, job(1), 20) // its epilog never comes
	second := job(1)
	second.SLUID = sluidB
	begin(t, s, second, 30)
	must.Do(t, errors.Join(s.Users.PutReport(second, Report{}), s.Users.MakeDrop(second)))
	archive(t, s, varDir, 0, 0)
	runs, _ := s.Runs()
	must.Not(t, len(runs) != 1 || runs[0].Job.SLUID != sluidB, "in memory: %+v", runs)
	must.Be(t, "on disk", onDisk(t, varDir), []slurm.JobID{1, 1})
	wrong := usersFiles(s, map[string]bool{"1": true, string(sluidA): false, string(sluidB): true})
	must.Be(t, "users' files", wrong, nil)
}

// The oldest records go if they are too old or too many. A clock that is months ahead ages no record, nor does one that
// was behind when a record was written: there must be records of as many later days too.
func TestPrune(t *testing.T) {
	const size = 100
	last := now.AddDate(0, 0, -91) // before a clock that is months ahead
	battery := time.Unix(120, 0)   // by a clock without one
	back := func(from time.Time, hours ...int) (all []time.Time) {
		for _, h := range hours {
			all = append(all, from.Add(-time.Duration(h)*time.Hour))
		}
		return all
	}
	for name, tt := range map[string]struct {
		now     time.Time
		written []time.Time
		days    int
		bytes   int64
		stay    int
	}{
		"by age":                       {now, back(now, 97, 73, 49, 25, 1), 4, 1 << 40, 4},
		"by size":                      {now, back(now, 97, 73, 49, 25, 1), 9, 2*size + size/2, 2},
		"91 days ahead":                {now, append(back(last, 48, 24, 0), now), 90, 1 << 40, 4},
		"one more day than is kept":    {now, append(back(last, 48, 24, 0), now), 3, 1 << 40, 3},
		"by a clock without a battery": {battery, append(back(battery, 0), last, now), 2, 1 << 40, 3},
		"two on each of the days kept": {now, back(now, 73, 72, 25, 24), 2, 1 << 40, 4},
	} {
		keeping(t, 0, 0, tt.days, tt.bytes)
		history := t.TempDir()
		must.Write(t, filepath.Join(history, safefile.TempPrefix+"x"), "")
		for i, at := range tt.written {
			path := filepath.Join(history, fmt.Sprint(i))
			must.Write(t, path, strings.Repeat("x", size))
			must.Do(t, os.Chtimes(path, at, at))
		}
		must.Do(t, prune(history, tt.now))
		files := must.Have(byAge(history))(t)
		oldest := fmt.Sprint(len(tt.written) - tt.stay)
		must.Not(t, len(files) != tt.stay || files[0].Name() != oldest, "%s: %d stay, the oldest %s", name, len(files), files[0].Name())
	}
}

// A record that a hook works on, has changed since it was read, or that is gone, is left for the next time.
func TestArchiveLeavesWhatChanges(t *testing.T) {
	s, varDir := fresh(t), newDir(t)
	lived(t, s, job(1), 10, false)
	lived(t, s, job(2), 11, false)
	release := must.Have(safefile.Lock(filepath.Join(s.dir, lockOf(1)), 0, true))(t)
	archive(t, s, varDir, 0, 0)
	must.Be(t, "in memory", inMemory(t, s), []slurm.JobID{1})
	must.Be(t, "in the history", onDisk(t, varDir), []slurm.JobID{2, 1})
	release()
	seen, _ := s.Find(job(1))
	must.Do(t, s.Close(seen, *at(20)))
	for _, stays := range []bool{true, false} {
		must.Do(t, retire(s, historyDir(varDir, node), seen, stays))
		r, err := s.Find(job(1))
		must.Not(t, err != nil || len(r.Ends) != 2 || r.Archived, "stays %v: %+v, %v", stays, r, err)
	}
	archive(t, s, varDir, 0, 0)
	must.Be(t, "in memory", len(inMemory(t, s)), 0)
	done, err := exchange(s, seen, nil)
	must.Not(t, done || err != nil, "one that is gone: %v, %v", done, err)
}

// What is none of the node's, or cannot be used, is reported, and stays.
func TestHistoryReportsDamage(t *testing.T) {
	s, varDir := fresh(t), newDir(t)
	must.Be(t, "no history", sizes(History(varDir, node)), [2]int{})
	lived(t, s, job(1), 10, false)
	archive(t, s, varDir, 0, 0)
	must.Write(t, filepath.Join(historyDir(varDir, node), "2-t5.json"), "{")
	for range 2 { // it only reads: nothing is set aside
		must.Be(t, "runs and damage", sizes(History(varDir, node)), [2]int{1, 1})
	}
	must.Be(t, "a node that is no name", sizes(History(varDir, "../n1")), [2]int{0, 1})
}

// What hooks that were killed left half written goes after an hour, and so does the directory of a job without a record.
// What is being written stays, and records, and what is no directory of a job's or leads elsewhere.
func TestSweep(t *testing.T) {
	const leftover = safefile.TempPrefix + "0123456789abcdef"
	s, elsewhere, varDir := fresh(t), newDir(t), filepath.Join(newDir(t), "lib")
	begin(t, s, job(42), 1)
	must.Write(t, filepath.Join(elsewhere, leftover), "")
	must.Link(t, filepath.Join(s.dir, "57"), elsewhere)
	var all []string
	for _, dir := range []string{"state/" + node, "state/" + node + "/41", "state/" + node + "/42", "report/7/jobs"} {
		all = append(all, filepath.Join(s.Users.Run, dir, leftover))
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
			must.Be(t, fmt.Sprint(path, " ", tt.age, " old"), there(path), tt.stays)
		}
	}
	must.Be(t, "what a link leads to", there(filepath.Join(elsewhere, leftover)), true)
	must.Do(t, os.Remove(filepath.Join(s.dir, "57")))
	must.Be(t, "records", inMemory(t, s), []slurm.JobID{42})
	must.Do(t, os.Mkdir(filepath.Join(s.dir, "41"), 0o700))
	release := must.Have(safefile.Lock(filepath.Join(s.dir, lockOf(41)), 0, true))(t)
	must.Do(t, sweep(s, now))
	must.Be(t, "the directory of a job that begins", there(filepath.Join(s.dir, "41")), true)
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
		return string(must.Have(encode(r))(t))
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
				must.Write(t, filepath.Join(dir, file), text)
				must.Do(t, os.Chown(filepath.Join(dir, file), someUser, someUser))
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
	_, _, err := Copied(t.TempDir() + "/none")
	must.Fail(t, "a directory that is not there", err, fs.ErrNotExist)
}

// While nothing can be archived the oldest runs leave memory, those without findings on a GPU first; open ones and the
// newest stay. What is archived already is not lost.
func TestShed(t *testing.T) {
	keeping(t, 1, 1, 1<<62, 1<<40)
	s := fresh(t)
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
		set(t, &keepUnarchived, tt.bound)
		must.Be(t, "lost", must.Have(Shed(s.Users.Run, node))(t), tt.lost)
		must.Be(t, "in memory", inMemory(t, s), tt.left)
	}
	must.Be(t, "its report is there", there(filepath.Join(s.Users.dir(reports, someUser), "n1_3")), false)
	must.Fail(t, "no node", must.Err(Shed(s.Users.Run, "..")), ErrName)
}

// The history's file system refuses the first record: the next ones are not tried.
func TestArchiveStopsAtAFullDisk(t *testing.T) {
	s, varDir := fresh(t), newDir(t)
	for id := slurm.JobID(1); id <= 9; id++ {
		lived(t, s, job(id), int(id)*10, false)
	}
	must.Tmpfs(t, varDir, "size=64k,nr_inodes=3,mode=755") // for its directories alone
	err := Archive(s.Users.Run, varDir, node, now)
	must.Not(t, !errors.Is(err, unix.ENOSPC) || strings.Count(err.Error(), "no space") != 1, "%v", err)
}
