package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/attrib"
	"bookend/internal/ledger"
	"bookend/internal/safefile"
	"bookend/internal/slurm"
	"bookend/test/refuse"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// reading is an open for reading of a file below an open folder, as safefile does it.
func reading(errno unix.Errno) refuse.Call {
	flags := uint32(unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NOCTTY | unix.O_NONBLOCK)
	when := append(refuse.Below(0), refuse.Arg{Index: 2, Is: flags})
	return refuse.Call{Number: unix.SYS_OPENAT, Errno: errno, When: when}
}

// listing is an open of a folder by package os.
func listing(errno unix.Errno) refuse.Call {
	when := []refuse.Arg{{Index: 2, Is: unix.O_DIRECTORY | unix.O_CLOEXEC}}
	return refuse.Call{Number: unix.SYS_OPENAT, Errno: errno, When: when}
}

// removing is the removal of a file, or of a folder.
func removing(errno unix.Errno, folder bool) refuse.Call {
	flags := uint32(0)
	if folder {
		flags = unix.AT_REMOVEDIR
	}
	return refuse.Call{Number: unix.SYS_UNLINKAT, Errno: errno, When: []refuse.Arg{{Index: 2, Is: flags}}}
}

// refused runs f while a call is refused.
func refused(t *testing.T, c refuse.Call, f func() error) (err error) {
	t.Helper()
	calls := []refuse.Call{c}
	if c.Errno == 0 {
		calls = nil
	}
	must(t, refuse.Run(calls, func() { err = f() }))
	return err
}

// blocked puts a folder with something in it where a file is expected: nothing replaces or removes that.
func blocked(t *testing.T, path string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Join(path, "x"), 0o700))
}

// A run that another one has superseded is over, whatever it left; one that was never seen is of no time.
func TestEndedRuns(t *testing.T) {
	if !onCard(ledger.Run{}) || !wall(ledger.Run{}).IsZero() {
		t.Error("a run without an end is taken for one with")
	}
	if begun := at(1); !wall(ledger.Run{Start: begun}).Equal(begun.Wall) {
		t.Error("an open run was last seen when it began")
	}
}

// A history that cannot be read says so; a file that goes meanwhile, or is being written, is no damage.
func TestHistoryHindered(t *testing.T) {
	run, varDir := folder(t), folder(t)
	s := open(t, run)
	lived(t, s, job(1), 10, false)
	archive(t, run, varDir, limits(0, 0))
	must(t, os.WriteFile(filepath.Join(historyFolder(varDir, node), safefile.TempPrefix+"1"), nil, 0o600))
	for _, tt := range []struct {
		call    refuse.Call
		damages int
	}{{reading(unix.ENOENT), 0}, {reading(unix.EIO), 1}, {listing(unix.EIO), 1}} {
		err := refused(t, tt.call, func() error {
			if runs, damage := History(varDir, node); len(runs) != 0 || len(damage) != tt.damages {
				return fmt.Errorf("%v: %d runs, %v", tt.call.Errno, len(runs), damage)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	if runs, damage := History(varDir, node); len(runs) != 1 || len(damage) != 0 {
		t.Errorf("%d runs, %v", len(runs), damage)
	}
}

// A record that cannot be read is not written over: it may be whole, and its start is there when it can be read again.
func TestUnreadIsKept(t *testing.T) {
	s := open(t, folder(t))
	j := job(1)
	j.Start = now // a key that is known without the record
	begin(t, s, j, 10)
	for name, write := range map[string]func() error{
		"begin": func() error { return s.Begin(ledger.Run{Job: j, Start: at(20)}) },
		"close": func() error { return s.Close(ledger.Run{Job: j}, *at(11)) },
	} {
		if err := refused(t, reading(unix.EIO), write); !errors.Is(err, unix.EIO) {
			t.Errorf("%s: got %v, want %v", name, err, unix.EIO)
		}
		if r, _, err := s.Find(j); err != nil || r.Start == nil || r.Start.At != 10*time.Second || r.Closed() {
			t.Errorf("%s: got %+v, %v", name, r, err)
		}
	}
}

// A run that finds no room for its folder is told, and begins when there is some.
func TestBeginWithoutRoom(t *testing.T) {
	s := open(t, folder(t))
	full := refuse.Call{Number: unix.SYS_MKDIRAT, Errno: unix.ENOSPC, When: refuse.Below(0)}
	err := refused(t, full, func() error { return s.Begin(ledger.Run{Job: job(1), Start: at(10)}) })
	if !errors.Is(err, unix.ENOSPC) {
		t.Errorf("%v, want %v", err, unix.ENOSPC)
	}
	if runs, damage := s.Runs(); len(runs) != 0 || len(damage) != 0 {
		t.Errorf("%v, %v", runs, damage)
	}
	begin(t, s, job(1), 10)
}

// Folders and files that are not what they should be are told by whoever needs them.
func TestSpoiledFolders(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil string // a path below RUN that becomes a file
		do    func(*Store) error
	}{
		"empty folder":      {"state/n1/" + noMPS, func(s *Store) error { _, err := s.NoMPS(); return err }},
		"folder of a job":   {"state/n1/1", func(s *Store) error { return s.Begin(ledger.Run{Job: job(1), Start: at(1)}) }},
		"end of such a job": {"state/n1/1", func(s *Store) error { return s.Close(ledger.Run{Job: job(1)}, *at(1)) }},
		"look at such one":  {"state/n1/1", func(s *Store) error { _, _, err := s.Find(job(1)); return err }},
		"drops":             {"drop", func(s *Store) error { return RemoveDrops(s.run, node, always) }},
		"all of the node":   {"state/n1", func(s *Store) error { _, damage := s.Runs(); return first(damage) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, folder(t))
			path := filepath.Join(s.run, tt.spoil)
			must(t, errors.Join(os.RemoveAll(path), os.WriteFile(path, nil, 0o600)))
			if err := tt.do(s); err == nil || errors.Is(err, fs.ErrNotExist) {
				t.Errorf("no word of it: %v", err)
			}
		})
	}
}

func first(damage []Damage) error {
	if len(damage) == 0 {
		return nil
	}
	return damage[0]
}

// A damaged file that cannot be set aside stays where it is and is told each time.
func TestDamagedStays(t *testing.T) {
	s := open(t, folder(t))
	must(t, os.WriteFile(filepath.Join(s.dir, damagedName), nil, 0o600))
	begin(t, s, job(1), 10)
	must(t, damaged(s, 1))
	for range 2 {
		if _, _, err := s.Find(job(1)); !errors.As(err, &Damage{}) {
			t.Errorf("%v, want a damage", err)
		}
	}
	if files := byAge(filepath.Join(s.dir, "none")); len(files) != 0 {
		t.Errorf("a folder that is not there holds %v", files)
	}
}

// More records than any node has are not all read, and that is told.
func TestRunsAreBounded(t *testing.T) {
	s := open(t, folder(t))
	begin(t, s, job(1), 10)
	text, err := os.ReadFile(filepath.Join(s.dir, "1", keyOf(ledger.Run{Job: job(1), Start: at(10)})+suffix))
	must(t, err)
	for id := slurm.JobID(2); id <= maxRuns+1; id++ {
		dir := filepath.Join(s.dir, folderName(id))
		name := keyOf(ledger.Run{Job: job(id), Start: at(10)}) + suffix
		other := strings.Replace(string(text), `"id":1,`, fmt.Sprintf(`"id":%d,`, id), 1)
		must(t, errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, name), []byte(other), 0o600)))
	}
	runs, damage := s.Runs()
	if len(runs) != maxRuns || len(damage) != 1 {
		t.Errorf("%d runs, %.300v", len(runs), damage)
	}
}

// A record without a start is shortened like any other.
func TestRecordTooLarge(t *testing.T) {
	end := *at(1)
	for pid := range 20_000 {
		end.Processes = append(end.Processes, attrib.Process{PID: pid + 1, Name: strings.Repeat("n", 40)})
	}
	r := ledger.Run{Job: job(1), Key: "w1", Ends: []ledger.End{end}}
	data, err := encode(r)
	if short := (ledger.Run{}); err != nil || json.Unmarshal(data, &short) != nil ||
		len(short.Ends[0].Processes) == 0 || short.Ends[0].Rest["processes"] == 0 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}

func TestValidKey(t *testing.T) {
	for key, want := range map[string]bool{"t15": true, "w0": true, "t": false, "x1": false, "t1a": false,
		"t-1": false, "t" + strings.Repeat("1", 20): false} {
		if validKey(key) != want {
			t.Errorf("%q: %v", key, !want)
		}
	}
}

// What a user finds in place of his report is refused, and a report that cannot be removed is told.
func TestReportHindered(t *testing.T) {
	s := open(t, folder(t))
	must(t, s.PutReport(job(1), StartReport{}))
	must(t, s.RemoveReport(job(1)))
	must(t, os.WriteFile(filepath.Join(s.run, "report", node+"_1"), []byte("{"), 0o400))
	if _, err := GetReport(s.run, node, slurm.Owner{ID: 1}); err == nil {
		t.Error("half a report was read")
	}
	if _, err := GetReport(s.run, "../"+node, slurm.Owner{ID: 1}); !errors.Is(err, ErrName) {
		t.Error(err)
	}
	blocked(t, filepath.Join(s.run, "report", node+"_2"))
	if err := s.RemoveReport(job(2)); !errors.Is(err, unix.ENOTEMPTY) {
		t.Error(err)
	}
}

// Of more bytes of records than a hook can read in its time it reads those written last, and Archive the oldest: so it
// gets through them all.
func TestFatRecords(t *testing.T) {
	run, varDir := folder(t), folder(t)
	s := open(t, run)
	const each = maxRecord - 4<<10
	last := slurm.JobID(maxRead/each + 4)
	for id := slurm.JobID(1); id <= last; id++ {
		must(t, s.Close(ledger.Run{Job: job(id), Key: "w1"}, *at(int(id))))
		dir := filepath.Join(s.dir, folderName(id))
		text, err := os.ReadFile(filepath.Join(dir, "w1.json"))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, "w1.json"), append(bytes.Repeat([]byte(" "), each), text...), 0o600))
		must(t, os.Chtimes(dir, time.Time{}, time.Unix(int64(id), 0)))
	}
	runs, damage := s.Runs()
	if len(runs) == 0 || runs[0].Job.ID != last || len(runs)*each > maxRead+each || len(damage) != 1 || !damage[0].Unread {
		t.Fatalf("%d runs, %.300v", len(runs), damage)
	}
	for range 2 {
		_ = Archive(run, varDir, node, time.Unix(1_900_000_000, 0), Limits{Recent: 1, Age: 1 << 60, Bytes: 1 << 40})
	}
	runs, damage = s.Runs()
	if kept, _ := History(varDir, node); len(kept) != int(last) || len(runs) > 2 || len(damage) != 0 {
		t.Errorf("%d of %d runs in the history, %d in memory, %v", len(kept), last, len(runs), damage)
	}
}
