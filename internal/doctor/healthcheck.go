package doctor

import (
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// healthKey is where slurm.conf names the health check; Slurm takes one.
const healthKey = "HealthCheckProgram"

// What runs the health check where Slurm does not, below the root folder: Node Health Check by the check that Bookend ships
// for it, or systemd's timer, where that is enabled.
const (
	nhcConf   = "etc/nhc/nhc.conf"
	nhcScript = "etc/nhc/scripts/bookend.nhc"
	nhcCheck  = "check_bookend"
	timerLink = "etc/systemd/system/timers.target.wants/bookend-healthcheck.timer"
)

// besides are the files that say so.
func besides(s Site) (paths []string) {
	for _, name := range []string{nhcConf, nhcScript, timerLink} {
		paths = append(paths, filepath.Join(s.Root, name))
	}
	return paths
}

// otherwise is how the health check is run but by slurm.conf.
type otherwise struct {
	nhc   bool // by Node Health Check
	lacks bool // its configuration names the check, but the check is not there
	timer bool
}

func runOtherwise(files []File) (o otherwise) {
	at := func(name string) File {
		i := slices.IndexFunc(files, func(f File) bool { return strings.HasSuffix(f.Path, "/"+name) })
		if i < 0 || files[i].Missing || files[i].Error != "" {
			return File{Missing: true}
		}
		return files[i]
	}
	names := func(f File, name string) bool { return f.Content != nil && slices.Contains(f.Content.Names, name) }
	conf, script := at(nhcConf), at(nhcScript)
	o.lacks = names(conf, nhcCheck) && script.Missing
	o.nhc = names(conf, "bookend-healthcheck") || names(conf, nhcCheck) && names(script, "bookend-healthcheck")
	o.timer = !at(timerLink).Missing
	return o
}

func (o otherwise) runs() bool { return o.nhc || o.timer }

func (o otherwise) String() string {
	switch {
	case o.timer:
		return "; bookend-healthcheck by a timer"
	case o.nhc:
		return "; bookend-healthcheck by " + path.Base(nhcConf)
	}
	return ""
}

// judge judges what is said beside slurm.conf, which runs the check so often itself.
func (o otherwise) judge(h slot, s Site, shown string, ours int) (bad []Result) {
	if o.lacks {
		bad = append(bad, Result{h.check, Wrong, filepath.Join(s.Root, nhcConf), "names " + nhcCheck + ", but there is no /" + nhcScript,
			"a check that Node Health Check does not know fails, and it drains the node for that", "install -D -m 0644 " + s.example("nhc/bookend.nhc") + " /" + nhcScript})
	}
	if o.timer && (ours > 0 || o.nhc) {
		bad = append(bad, Result{h.check, Warning, shown, "runs bookend-healthcheck, and so does a timer", "two at once wait for each other, and do the same twice",
			"systemctl disable --now bookend-healthcheck.timer"})
	}
	return bad
}

// example is a file of deploy/ as the package has it, or the folder in which Bookend was built.
func (s Site) example(name string) string {
	if s.Survey.System.Package != "" {
		return filepath.Join(s.Root, "usr/share/doc/bookend", name)
	}
	return "deploy/" + name
}
