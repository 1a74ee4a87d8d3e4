package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bookend/test/must"
	"bookend/test/site"
)

// What a user may do to a hook that writes in his name. In the scripts {out} is the job's output file, {drop}
// the folder through which its task hooks talk to the epilog, {secret} root's file and {theirs} a file of
// another user's that anybody may write.
func TestHostileUser(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Mode: "enforce"})
	for _, attack := range attacks {
		s.tell(attack.name, func(s *story) { s.withstands(attack) })
	}
}

type attack struct {
	name   string
	script string
	fate   string // of the end report, in Bookend's log; appended: it is the end of the output all the same
}

// keepsOthersOut makes the user's own TaskEpilog fail to put its record in place of the forged one.
const keepsOthersOut = "\nsetsid flock {drop} sleep 600 >/dev/null 2>&1 &\nwhile flock -n {drop} true; do :; done"

var attacks = []attack{
	{"output replaced by a link to root's file", "rm {out}; ln -s {secret} {out}", "not-regular"},
	{"output replaced by a terminal", "rm {out}; ln -s /dev/tty0 {out}", "not-regular"},
	{"output removed", "rm {out}", "missing"},
	{"output closed to its owner", "chmod 000 {out}", "permission"},
	{"record is noise", "head -c 4000 /dev/urandom >{drop}" + keepsOthersOut, "appended"},
	{"record cannot be removed", "rm -f {drop}; mv {drop} {drop}2; ln {drop} second; true", "appended"},
	{"record names root's file", claims("{secret}"), "permission"},
	{"record names another user's file", claims("{theirs}"), "not-owner"},
	{"record changes all the time", "setsid sh -c '" + neverRests + "' >/dev/null 2>&1 &", ""},
}

// neverRests goes on beside the epilog, until the record is gone.
const neverRests = "while [ -f {drop} ]; do head -c 5000 /dev/urandom >{drop}; echo {} >{drop}; done"

func claims(path string) string {
	return `echo '{"bookend":1,"target":{"path":"` + path + `"}}' >{drop}` + keepsOthersOut
}

// withstands runs a job that attacks, and checks that the hooks did their work and nothing
// of anybody else's was touched.
func (s *story) withstands(a attack) {
	secret, theirs := s.valuables()
	out := filepath.Join(s.home(s.user), "out-$SLURM_JOB_ID.txt")
	script := strings.NewReplacer("{out}", out, "{drop}", "$drop", "{secret}", secret, "{theirs}",
		theirs).Replace(a.script)
	job := s.runs(s.user, "umask 022\n"+s.findsDrop()+script+"\necho done", oneGPU,
		"--output="+strings.Replace(out, "$SLURM_JOB_ID", "%j", 1))

	s.jobIs(job, "COMPLETED")
	s.nodeIsUp("n1")
	s.hooksRan("n1", "prolog 0", "epilog 0")
	s.logSays("n1", job, "bookend-epilog", "msg=clean", "job_log="+a.fate)
	s.showSays("n1", job, "start:", "clean", "end:", "clean")
	if a.fate == "appended" && !strings.HasSuffix(s.outputOf(job), leftClean+"\n") {
		s.t.Errorf("the user reads\n%s", s.outputOf(job))
	}
	for _, file := range []string{secret, theirs} {
		if text, err := os.ReadFile(file); err != nil || string(text) != "valuable\n" {
			s.t.Errorf("%s: %q, %v", file, text, err)
		}
	}
	s.dropIsGone()
}

// findsDrop is the beginning of a script that knows its record: the one named after the run, where the task
// hooks know the job by that (its cgroup, since 26.05), else the one named after the job.
func (s *story) findsDrop() string {
	drops := filepath.Join(s.on.Run(), "drop", "$(id -u)", "jobs", "${SLURMD_NODENAME}_")
	return "drop=" + drops + "$SLURM_JOB_ID\n" +
		"run=$(grep -o -m1 -E '/s[0-9A-Z]{13}/' /proc/self/cgroup | tr -d /)\n[ ! \"$run\" ] || drop=" + drops +
		"$run\n" +
		"export drop\n"
}

// valuables are a file of root's, and one of another user's that all may write to.
func (s *story) valuables() (secret, theirs string) {
	secret, theirs = filepath.Join(s.on.Dir, "secret"), filepath.Join(s.home(s.stranger), "theirs")
	must.Do(s.t, os.WriteFile(secret, []byte("valuable\n"), 0o600))
	must.Do(s.t, os.WriteFile(theirs, []byte("valuable\n"), 0o666))
	must.Do(s.t, errors.Join(os.Chmod(theirs, 0o666), os.Chown(theirs, int(s.people()[1].UID), -1)))
	return secret, theirs
}

// dropIsGone checks that what a user piled up in memory went with the job.
func (s *story) dropIsGone() {
	left, err := filepath.Glob(filepath.Join(s.on.Run(), "drop", "*", "jobs", "*"))
	if err != nil || len(left) > 0 {
		s.t.Errorf("left in memory: %q, %v", left, err)
	}
}
