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
	s := open(t, folder(t))
	for range 2 { // a requeued job finds its earlier files
		must.Do(t, s.PutReport(bothNames(7), Report{Clean: true, Text: "text"}))
	}
	for _, owner := range []slurm.Owner{{ID: 7}, {SLUID: sluidA}, {ID: 7, SLUID: sluidA}} {
		must.Be(t, fmt.Sprint(owner), must.Have(GetReport(s.run, node, owner))(t), Report{Clean: true, Text: "text"})
	}
	must.Fail(t, "another job", must.Err(GetReport(s.run, node, slurm.Owner{ID: 8})), fs.ErrNotExist)
	must.Fail(t, "a long one", s.PutReport(job(8), Report{Text: strings.Repeat("x", maxReport)}), safefile.ErrTooLarge)
}

func dropped(t *testing.T, s *Store) (names []string) {
	t.Helper()
	for _, f := range byAge(dropFolder(s.run)) {
		names = append(names, f.Name())
	}
	return slices.Sorted(slices.Values(names))
}

// The file is a new one for each run, the user's and nobody else's: who held an earlier one writes elsewhere. A job's
// files go under whichever name, and no other's.
func TestDrop(t *testing.T) {
	s := open(t, folder(t))
	path := filepath.Join(dropFolder(s.run), "n1_7")
	for uid := uint32(nobody - 1); uid <= nobody; uid++ {
		j := bothNames(7)
		j.UID = uid
		must.Do(t, s.MakeDrop(j))
		var st unix.Stat_t
		must.Do(t, unix.Lstat(path, &st))
		must.Not(t, st.Uid != uid || st.Mode != unix.S_IFREG|0o600 || st.Size != 0, "user %d finds %+v", uid, st)
		must.Be(t, "before anything is said", must.Err(s.ReadDrop(j)) != nil, true)
		must.Do(t, os.WriteFile(path, []byte("claim"), 0o600))
		must.Be(t, "the drop", string(must.Have(s.ReadDrop(j))(t)), "claim")
	}
	strangers := slurm.Job{ID: 7, Node: node, UID: nobody - 1}
	must.Fail(t, "another user's", must.Err(s.ReadDrop(strangers)), safefile.ErrNotOurs)
	must.Do(t, os.Truncate(path, maxDrop+1))
	must.Fail(t, "one that is too large", must.Err(s.ReadDrop(bothNames(7))), safefile.ErrTooLarge)
	must.Do(t, errors.Join(s.MakeDrop(job(8)), RemoveDrop(s.run, node, slurm.Owner{ID: 7, SLUID: sluidA})))
	must.Be(t, "left", dropped(t, s), []string{"n1_8"})
	must.Do(t, RemoveDrop(filepath.Join(s.run, "none"), node, slurm.Owner{ID: 7}))
}

// A mount point stays, and so does what an earlier release made: nothing is opened in it, and no job gets it.
func TestDropInUse(t *testing.T) {
	s := open(t, folder(t))
	path := filepath.Join(dropFolder(s.run), "n1_7")
	must.Do(t, s.MakeDrop(job(7)))
	must.Do(t, unix.Mount(path, path, "", unix.MS_BIND, ""))
	defer unix.Unmount(path, unix.MNT_DETACH)
	must.Do(t, os.MkdirAll(filepath.Join(dropFolder(s.run), "n1_8", "x"), 0o700))
	for id, want := range map[slurm.JobID]error{7: unix.EBUSY, 8: unix.EISDIR} {
		must.Fail(t, fmt.Sprint("job ", id), s.MakeDrop(job(id)), want)
		_, err := s.ReadDrop(job(id))
		must.Not(t, err == nil, "job %d: it was read", id)
		begin(t, s, job(id), 1)
		must.Do(t, RemoveDrop(s.run, node, slurm.Owner{ID: id}))
	}
	begin(t, s, job(7), 99)
	archive(t, s.run, filepath.Join(folder(t), "lib"), 0, 0)
}
