package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/internal/safefile"
	"bookend/test/must"
)

// Users can run the task hooks that setup writes, whatever the umask of the admin's shell; and a second run opens what an
// earlier release left closed.
func TestSetupUnderUmask(t *testing.T) {
	for _, umask := range []int{0, 0o027, 0o077, 0o777} {
		t.Run(fmt.Sprintf("%#o", umask), func(t *testing.T) {
			dir, config := home(t)
			conf := filepath.Join(dir, "slurm.conf")
			write(t, conf, "ClusterName=lab\nProlog=/site/prolog\nSlurmctldPort=1\n", 0o644)
			was := unix.Umask(umask)
			defer unix.Umask(was)
			setUp := func() string {
				t.Helper()
				got := bookend(0, config, "setup", "--slurm", "23.11", "--pyxis", "no", "--slurm-conf", conf, "--write")
				if got.exit != 0 {
					t.Fatalf("%+v", got)
				}
				return got.out
			}
			setUp()
			scripts := []string{"task-prolog", "task-epilog", "prolog.d/00-bookend.sh", "prolog.d/50-site.sh"}
			for _, script := range scripts {
				runnable(t, filepath.Join(dir, "bookend", script))
			}
			must.Do(t, os.Chmod(filepath.Join(dir, "bookend"), 0o750))
			if out := setUp(); !strings.Contains(out, "changed: "+dir+"/bookend, its mode was 0750\n") {
				t.Errorf("a closed directory is not mentioned:\n%s", out)
			}
			runnable(t, filepath.Join(dir, "bookend", scripts[0]))
		})
	}
}

// The site's own script, which an earlier setup's runs, is not dropped if that is not root's alone: setup says so.
func TestSetupKeepsOwnScripts(t *testing.T) {
	for name, mode := range map[string]os.FileMode{"bookend.conf": 0o664, "bookend/prolog.d/50-site.sh": 0o775} {
		dir, config := home(t)
		conf := filepath.Join(dir, "slurm.conf")
		setUp := func(text string) typed {
			write(t, conf, "ClusterName=lab\nSlurmctldPort=1\n"+text, 0o644)
			return bookend(0, config, "setup", "--slurm", "23.11", "--pyxis", "no", "--slurm-conf", conf, "--write")
		}
		setUp("Prolog=/site/prolog\n")
		must.Do(t, os.Chmod(filepath.Join(dir, name), mode))
		got := setUp("")
		must.Not(t, got.exit != exitTrouble || !strings.Contains(got.err, "earlier bookend setup"), "%s: %+v", name, got)
		must.Do(t, os.Chmod(filepath.Join(dir, name), mode&^0o022))
		got = setUp("")
		text := must.Read(t, filepath.Join(dir, "bookend.conf"))
		must.Not(t, got.exit != 0 || !strings.Contains(text, "/site/prolog"), "%s: %+v\n%s", name, got, text)
		must.Do(t, os.Rename(filepath.Join(dir, name), filepath.Join(dir, "real")))
		must.Do(t, os.Symlink(filepath.Join(dir, "real"), filepath.Join(dir, name)))
		got = setUp("")
		must.Not(t, got.exit != 0, "%s is a link: %+v", name, got)
		write(t, filepath.Join(dir, "bookend/prolog.d/00-bookend.sh"), "secret", 0o700)
		setUp("")
		kept := must.Have(os.Stat(filepath.Join(dir, "bookend/prolog.d/00-bookend.sh.old")))(t)
		must.Be(t, "mode of a copy, no more open than the original", kept.Mode().Perm(), 0o600)
	}
}

func runnable(t *testing.T, script string) {
	t.Helper()
	info, err := os.Stat(script)
	must.Do(t, err)
	if info.Mode().Perm() != 0o755 {
		t.Errorf("%s has mode %v", script, info.Mode())
	}
	if err := safefile.Passable(script); err != nil {
		t.Errorf("users cannot run it: %v", err)
	}
}
