package state

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/test/faultinject"
	"bookend/test/must"
)

// reading is an open for reading of a file below an open directory, as safefile does it.
func reading(errno unix.Errno) faultinject.Filter {
	flags := uint32(unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NOCTTY | unix.O_NONBLOCK)
	when := append(faultinject.Below(0), faultinject.Arg{Index: 2, Is: flags})
	return faultinject.Filter{Number: unix.SYS_OPENAT, Errno: errno, When: when}
}

func listing(errno unix.Errno) faultinject.Filter {
	when := []faultinject.Arg{{Index: 2, Is: unix.O_DIRECTORY | unix.O_CLOEXEC}}
	return faultinject.Filter{Number: unix.SYS_OPENAT, Errno: errno, When: when}
}

// removing is the removal of a file, or of a directory.
func removing(errno unix.Errno, dir bool) faultinject.Filter {
	flags := uint32(0)
	if dir {
		flags = unix.AT_REMOVEDIR
	}
	return faultinject.Filter{Number: unix.SYS_UNLINKAT, Errno: errno, When: []faultinject.Arg{{Index: 2, Is: flags}}}
}

func refused(t *testing.T, c faultinject.Filter, f func() error) (err error) {
	t.Helper()
	must.Do(t, faultinject.Refuse([]faultinject.Filter{c}, func() { err = f() }))
	return err
}

// Of more records than a hook can read in its time it reads those written last, and Archive the oldest: so it gets
// through them all.
func TestManyRecords(t *testing.T) {
	s, varDir := fresh(t), newDir(t)
	set(t, &maxRuns, 20)
	last := slurm.JobID(maxRuns + 4)
	for id := slurm.JobID(1); id <= last; id++ {
		must.Do(t, s.Close(record.Run{Job: job(id), Key: "w1"}, *at(int(id))))
		must.Do(t, os.Chtimes(filepath.Join(s.dir, dirName(id)), time.Time{}, time.Unix(int64(id), 0)))
	}
	runs, damage := s.Runs()
	must.Not(t, len(runs) != maxRuns || runs[0].Job.ID != last || len(damage) != 1 || !damage[0].Unread,
		"%d runs, %.300v", len(runs), damage)
	keeping(t, 1, 0, 1<<30, 1<<40)
	for range 2 {
		_ = Archive(s.Users.Run, varDir, node, now)
	}
	runs, damage = s.Runs()
	must.Be(t, "in the history", sizes(History(varDir, node)), [2]int{int(last), 0})
	must.Not(t, len(runs) > 2 || len(damage) != 0, "%d in memory, %v", len(runs), damage)
}

// Whatever keeps Archive from its work is told, and no record is gone that the history has not.
func TestArchiveHindered(t *testing.T) {
	for name, c := range map[string]faultinject.Filter{
		"a record that stays": removing(unix.EIO, false), "a directory that stays": removing(unix.EBUSY, true),
		"a record that is not read": reading(unix.EIO), "a directory that is not read": listing(unix.EIO),
		"a disk that does not write": {Number: unix.SYS_FSYNC, Errno: unix.EIO},
	} {
		s, varDir := fresh(t), newDir(t)
		lived(t, s, job(1), 10, false)
		keeping(t, 0, 0, 1<<30, 1<<40)
		err := refused(t, c, func() error { return Archive(s.Users.Run, varDir, node, now) })
		must.Not(t, !strings.Contains(fmt.Sprint(err), c.Errno.Error()), "%s: got %v, want %v", name, err, c.Errno)
		runs, _ := s.Runs()
		kept, _ := History(varDir, node)
		must.Not(t, len(kept)+len(runs) == 0, "%s: the run is nowhere any more", name)
	}
}

// An end does not lose a damaged record of its run: that is set aside.
func TestCloseDamaged(t *testing.T) {
	s := fresh(t)
	j := job(1)
	j.Start = now
	begin(t, s, j, 10)
	damageFile(t, s, 1, fmt.Sprintf("t%d", now.Unix()), []byte("{"))
	must.Do(t, s.Close(record.Run{Job: j}, *at(11)))
	aside, err := os.ReadDir(filepath.Join(s.dir, damagedName))
	must.Not(t, err != nil || len(aside) != 1, "set aside: %v, %v", aside, err)
	r, err := s.Find(j)
	must.Not(t, err != nil || !r.Closed() || r.Start != nil, "%+v, %v", r, err)
}
