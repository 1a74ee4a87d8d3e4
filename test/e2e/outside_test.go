package e2e

import (
	_ "embed"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"bookend/test/cluster"
	"bookend/test/must"
	"bookend/test/rig"
)

// Where Slurm tracks by cgroups it ends all that a job leaves, before the epilog. What stays on cards of such nodes
// came from outside of the job: a user's own service manager, cron, a container daemon. Here that is a program in the
// place of the user's, which has what it leaves taken out of the job's cgroups; the test process, which is root, does
// so.
//
//go:embed testdata/exit.sh
var exitProgram string

// exit is the folder in which processes ask to be let out of their job, or something in it.
func (s *story) exit(name string) string { return filepath.Join(s.on.Dir, "exit", name) }

// letsOut serves these requests until the story ends.
func (s *story) letsOut() {
	text := strings.NewReplacer("{dir}", s.on.Dir, "{exit}", s.exit("")).Replace(exitProgram)
	must.Do(s.t, os.Mkdir(s.exit(""), 0o755))
	must.Do(s.t, rig.Write(s.exit("cuda"), []byte(text), 0o755))
	must.Do(s.t, os.Chmod(s.exit(""), 0o777|os.ModeSticky))
	var serving sync.WaitGroup
	serving.Go(func() {
		for ; s.t.Context().Err() == nil; time.Sleep(5 * time.Millisecond) {
			s.letOut()
		}
	})
	s.t.Cleanup(serving.Wait)
}

func (s *story) letOut() {
	asking, _ := os.ReadDir(s.exit(""))
	for _, e := range asking {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if err := errors.Join(cluster.Escape(pid), os.Remove(s.exit(e.Name()))); err != nil {
			s.t.Error(err) // this is not the test's own goroutine
		}
	}
}
