package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/safefile"
	"bookend/internal/slurm"
	"bookend/test/must"
)

func bothNames(id slurm.JobID) slurm.Job {
	j := job(id)
	j.SLUID = sluidA
	return j
}

// A job's report is found by whatever of the job is known, and by no other's.
func TestReport(t *testing.T) {
	s := fresh(t)
	for range 2 { // a requeued job finds its earlier files
		must.Do(t, s.Users.PutReport(bothNames(7), Report{Clean: true, Text: "text"}))
	}
	for _, owner := range []slurm.Owner{{ID: 7}, {SLUID: sluidA}, {ID: 7, SLUID: sluidA}} {
		must.Be(t, fmt.Sprint(owner), must.Have(s.Users.Report(someUser, owner))(t), Report{Clean: true, Text: "text"})
	}
	must.Fail(t, "another job", must.Err(s.Users.Report(someUser, slurm.Owner{ID: 8})), fs.ErrNotExist)
	must.Fail(t, "a long one", s.Users.PutReport(job(8), Report{Text: strings.Repeat("x", maxReport)}), safefile.ErrTooLarge)
}

func dropped(t *testing.T, s *Store, uid uint32) (names []string) {
	t.Helper()
	for _, f := range must.Have(byAge(s.Users.dir(drops, uid)))(t) {
		names = append(names, f.Name())
	}
	return slices.Sorted(slices.Values(names))
}

// The file is a new one for each run, for its user alone: a process that holds an earlier one writes elsewhere. A job's
// files go under whichever name, and no other's.
func TestDrop(t *testing.T) {
	s := fresh(t)
	for uid := uint32(someUser - 1); uid <= someUser; uid++ {
		j := bothNames(7)
		j.UID = uid
		path := filepath.Join(s.Users.dir(drops, uid), "n1_7")
		for range 2 {
			must.Do(t, s.Users.MakeDrop(j))
			var st unix.Stat_t
			must.Do(t, unix.Lstat(path, &st))
			must.Not(t, st.Uid != 0 || st.Mode != unix.S_IFREG|0o660 || st.Size != 0, "user %d finds %+v", uid, st)
			must.Be(t, "before anything is said", must.Err(s.Users.ReadDrop(j)) != nil, true)
			must.Do(t, os.WriteFile(path, []byte("claim"), 0o600))
			must.Be(t, "the drop", string(must.Have(s.Users.ReadDrop(j))(t)), "claim")
		}
	}
	strangers := slurm.Job{ID: 7, Node: node, UID: someUser - 2}
	must.Fail(t, "another user's", must.Err(s.Users.ReadDrop(strangers)), fs.ErrNotExist)
	must.Do(t, os.Truncate(filepath.Join(s.Users.dir(drops, someUser), "n1_7"), maxDrop+1))
	must.Fail(t, "one that is too large", must.Err(s.Users.ReadDrop(bothNames(7))), safefile.ErrTooLarge)
	must.Do(t, errors.Join(s.Users.MakeDrop(job(8)), s.Users.RemoveDrop(someUser, slurm.Owner{ID: 7, SLUID: sluidA})))
	must.Be(t, "left", dropped(t, s, someUser), []string{"n1_8"})
	must.Do(t, Users{filepath.Join(s.Users.Run, "none"), node}.RemoveDrop(someUser, slurm.Owner{ID: 7}))
}

// A mount point stays: nothing is opened in it, and no job gets it.
func TestDropInUse(t *testing.T) {
	s := fresh(t)
	must.Do(t, errors.Join(s.Users.MakeDrop(job(7)), s.Users.MakeDrop(job(8))))
	path, other := filepath.Join(s.Users.dir(drops, someUser), "n1_7"), filepath.Join(s.Users.dir(drops, someUser), "n1_8")
	must.Do(t, unix.Mount(path, path, "", unix.MS_BIND, ""))
	defer unix.Unmount(path, unix.MNT_DETACH)
	must.Do(t, errors.Join(os.Remove(other), os.MkdirAll(filepath.Join(other, "x"), 0o700)))
	for id, want := range map[slurm.JobID]error{7: unix.EBUSY, 8: unix.EISDIR} {
		must.Fail(t, fmt.Sprint("job ", id), s.Users.MakeDrop(job(id)), want)
		_, err := s.Users.ReadDrop(job(id))
		must.Not(t, err == nil, "job %d: it was read", id)
		begin(t, s, job(id), 1)
		must.Do(t, s.Users.RemoveDrop(someUser, slurm.Owner{ID: id}))
	}
	begin(t, s, job(7), 99)
	archive(t, s, filepath.Join(newDir(t), "lib"), 0, 0)
}

// A user who fills the file system of the drops keeps no other's job from getting one, and none from its content.
func TestDropsOfAFullFileSystem(t *testing.T) {
	s := fresh(t)
	must.Tmpfs(t, filepath.Join(s.Users.Run, drops), "size=256k,nr_inodes=100,mode=711")
	foe := job(1)
	foe.UID = someUser - 1
	must.Do(t, errors.Join(s.Users.MakeDrop(foe), s.Users.MakeDrop(job(7))))
	file := must.Have(os.OpenFile(filepath.Join(s.Users.dir(drops, foe.UID), "n1_1"), os.O_RDWR, 0))(t)
	defer file.Close()
	for _, fill := range []func() error{
		func() error { _, err := file.Write(make([]byte, 1<<20)); return err },
		func() error { // blocks that do not count as its size
			for at := int64(0); ; at += 4096 {
				if err := unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_KEEP_SIZE, at, 4096); err != nil {
					return err
				}
			}
		},
	} {
		must.Fail(t, "the file system is full", fill(), unix.ENOSPC)
		must.Do(t, s.Users.EditDrop(someUser, slurm.Owner{ID: 7}, time.Minute, func([]byte) ([]byte, error) {
			return []byte(strings.Repeat("x", maxDrop)), nil
		}))
		must.Be(t, "content", len(must.Have(s.Users.ReadDrop(job(7)))(t)), maxDrop)
		must.Do(t, s.Users.MakeDrop(bothNames(8)))
		must.Be(t, "its content stays", len(must.Have(s.Users.ReadDrop(job(7)))(t)), maxDrop)
	}
}

// What another user can find out by names that can be guessed is that a user has had a job here, since the directory was
// made: no more shows when the next job begins, is written about, or ends.
func TestOthersSeeNoJobs(t *testing.T) {
	s := fresh(t)
	for above := s.Users.Run; above != "/run"; above = filepath.Dir(above) { // as at /run/bookend
		if above == "/" || above == "/tmp" {
			break
		}
		must.Do(t, os.Chmod(above, 0o711))
	}
	shown := func() (text string) {
		for _, name := range []string{"report", "drop", "report/65534", "drop/65534", "report/65534/jobs", "drop/65534/jobs",
			"report/65534/jobs/n1_1", "drop/65534/jobs/n1_1", "report/n1_1", "drop/n1_1"} {
			cmd := exec.Command("stat", "-c", "%n %s %h %a %Y %Z %W", filepath.Join(s.Users.Run, name))
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: someUser - 1, Gid: someUser - 1}}
			out, _ := cmd.Output()
			text += string(out)
		}
		return text
	}
	must.Do(t, errors.Join(s.Users.PutReport(job(1), Report{}), s.Users.MakeDrop(job(1))))
	before := shown()
	must.Be(t, "directories of the user that can be looked at", strings.Count(before, "/65534 "), 2)
	must.Be(t, "all that can be looked at", strings.Count(before, "\n"), 4)
	for range 2 {
		must.Do(t, errors.Join(s.Users.MakeDrop(job(2)), s.Users.PutReport(job(2), Report{Clean: true}), s.Users.PutReport(job(1), Report{End: "x"}),
			s.Users.RemoveDrop(someUser, slurm.Owner{ID: 1})))
		must.Be(t, "afterwards", shown(), before)
	}
}

// Directories without a file for a month are removed, with what a killed writer left; those in use stay.
func TestUsersDirectoriesAreSwept(t *testing.T) {
	s := fresh(t)
	gone := job(1)
	gone.UID = 1000
	must.Do(t, errors.Join(s.Users.PutReport(gone, Report{}), s.Users.RemoveReport(gone), s.Users.PutReport(job(2), Report{})))
	must.Do(t, os.Mkdir(filepath.Join(filepath.Join(s.Users.Run, reports), "n1_7"), 0o700)) // an earlier release's
	temp := filepath.Join(s.Users.dir(reports, someUser), safefile.TempPrefix+"0123456789abcdef")
	must.Do(t, os.WriteFile(temp, nil, 0o600))
	must.Do(t, s.Users.sweep(reports, time.Now().Add(24*time.Hour)))
	must.Be(t, "left half written", there(temp), false)
	must.Be(t, "after a day", there(filepath.Join(filepath.Join(s.Users.Run, reports), "1000")), true)
	must.Do(t, s.Users.sweep(reports, time.Now().Add(31*24*time.Hour)))
	for name, want := range map[string]bool{"1000": false, "65534/jobs/n1_2": true, "n1_7": true} {
		must.Be(t, name, there(filepath.Join(filepath.Join(s.Users.Run, reports), name)), want)
	}
	must.Do(t, s.Users.PutReport(gone, Report{}))
}
