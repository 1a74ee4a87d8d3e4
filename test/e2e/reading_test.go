package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bookend/internal/slurmcmd"
	"bookend/test/cluster"
	"bookend/test/site"
)

// What Slurm makes of a slurm.conf that is written oddly is what Bookend reads in it.
func TestSlurmReadsTheSame(t *testing.T) {
	t.Parallel()
	on := cluster.TempDir(t)
	dir := filepath.Join(on, "odd")
	for name, text := range map[string]string{
		"odd.conf": `killwait = 7 # whatever the case, blanks around the sign
PrologEpilogTimeout=300
PrologEpilogTimeout=61
PrologFlags=X11
PrologFlags=Alloc
TaskProlog=/first
TaskProlog=/last
MinJobAge=\
	333
SrunProlog="/a b"
SrunEpilog=/x\#y
RebootProgram=/a\z
ResumeProgram=/a\\w
SuspendProgram="/b \#c\\d" # e
SchedulerParameters=defer,bf_interval=31
BatchStartTimeout=12
INCLUDE	` + filepath.Join(dir, "a.conf") + "\n",
		// 22.05 looks for a relative name beside a.conf, 24.11 beside slurm.conf
		"a.conf":     "WaitTime=31\nInclude " + filepath.Join(dir, "sub/b.conf") + "\n",
		"sub/b.conf": "InactiveLimit=321\r\n",
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text),
			0o644)); err != nil {
			t.Fatal(err)
		}
	}
	// Below the site's folder, which a Slurm with a root folder of its own sees too.
	s := given(t, site.Options{Dir: on, Conf: []string{"Include " + filepath.Join(dir, "odd.conf")}, NoTask: true})
	conf, err := slurmcmd.Read(s.on.ConfFile())
	if err != nil || conf.Doubt() != "" {
		t.Fatal(err, conf.Doubt())
	}
	slurm := s.slurmConfig()
	for _, key := range []string{"KillWait", "PrologEpilogTimeout", "PrologFlags", "TaskProlog", "MinJobAge",
		"SrunProlog", "SrunEpilog", "RebootProgram", "ResumeProgram", "SuspendProgram",
		"SchedulerParameters", "BatchStartTimeout", "WaitTime", "InactiveLimit"} {
		read, _ := conf.Get(key)
		have := strings.TrimSuffix(strings.TrimSuffix(slurm[key], " sec"), " min")
		if have != read.Text || have == "" {
			t.Errorf("%s: Slurm has %q, Bookend reads %q in %s", key, have, read.Text, read.Line.Where())
		}
	}
}
