package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"bookend/internal/slurmcmd"
	"bookend/test/cluster"
	"bookend/test/must"
	"bookend/test/site"
)

// What Slurm makes of a slurm.conf that is written oddly is what Bookend reads in it.
func TestSlurmReadsTheSame(t *testing.T) {
	t.Parallel()
	on := cluster.TempDir(t)
	dir := filepath.Join(on, "odd")
	in := strings.NewReplacer("DIR", dir, "CR\n", "\r\n")
	for _, f := range must.Have(txtar.ParseFile("testdata/odd.txtar"))(t).Files {
		path := filepath.Join(dir, f.Name)
		must.Write(t, path, in.Replace(string(f.Data)))
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
		must.Not(t, have != read.Text || have == "",
			"%s: Slurm has %q, Bookend reads %q in %s", key, have, read.Text, read.Line.Where())
	}
}
