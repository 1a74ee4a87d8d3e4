package site

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"bookend/test/cluster"
	"bookend/test/rig"
)

// Own is the path of a script of the site's own, as OWN/NAME in a line of slurm.conf names it.
func (s *Site) Own(name string) string { return s.in("own/" + name) }

// Beside is the path of a script that setup wrote next to slurm.conf.
func (s *Site) Beside(name string) string { return s.in("slurm/etc/bookend/" + name) }

// setUp does what an admin does: setup, then its Include line. The scripts get this site's paths.
func (s *Site) setUp(o Options, conf string) {
	version := rig.Have(cluster.VersionIn(cluster.Root()))
	dir := filepath.Dir(conf)
	plugins := filepath.Join(dir, "plugstack.conf")
	if o.Plugins != "" { // the plugin itself is not there
		rig.Try(os.WriteFile(plugins, []byte(o.Plugins), 0o644))
		defer os.Remove(plugins)
	}
	cmd := exec.Command(s.Program("bookend"), "setup", "--write", "--slurm-conf", conf, "--slurm", version.String())
	cmd.Env = []string{}
	said, err := cmd.CombinedOutput()
	_, rest, _ := strings.Cut(string(said), "\n    Include ")
	include, _, ok := strings.Cut(rest, "\n")
	if err != nil || !ok {
		panic(fmt.Errorf("bookend setup names no Include line: %v: %s", err, said))
	}
	text := rig.Have(os.ReadFile(conf))
	rig.Try(os.WriteFile(conf, append(text, "Include "+include+"\n"...), 0o644))
	for _, pattern := range []string{"bookend-*.sh", "bookend/*", "bookend/*/*"} {
		scripts, _ := filepath.Glob(filepath.Join(dir, pattern))
		for _, script := range scripts {
			if text, err := os.ReadFile(script); err == nil { // else it is a directory
				rig.Try(rig.Write(script, []byte(s.local(text)), 0o755))
			}
		}
	}
}
