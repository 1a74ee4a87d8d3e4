package doctor

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"bookend/internal/config"
)

// Rule is what must hold for one or several files or folders: root's, with no more bits than Mode.
type Rule struct {
	Name  string // of its check; a check may have several
	Shown string // where it is as shipped, for the documentation. Rules fills it in
	Kind  Kind
	Mode  uint32 // as it is installed or made
	Need  uint32 // the bits without which something does not work
	// Rather are bits beyond Mode that do little harm: a warning. All others are wrong.
	Rather uint32
	By     By
	// Absent is how bad it is that it does not exist, Without what follows; empty: OK.
	Absent  string
	Without string

	key string   // of the configuration, says where it is; may be empty
	at  []string // patterns of filepath.Match, whose first word is a place of the site
}

// By is who makes a file.
type By string

// Who makes files.
const (
	Installed By = "install" // with Bookend
	Foreign   By = "others"  // by the driver's packages, or Slurm's
	Made      By = "hooks"   // by the first hook that needs it. May be no link
)

// ruleTable is the one table of owners and modes. What packages state, stage and safefile make agrees with it, and so
// do the commands of docs/admin.md and the files in deploy/: all are tested.
var ruleTable = []Rule{
	{Name: "programs", Kind: Regular, Mode: 0o755, Need: 0o555, By: Installed, Absent: Wrong,
		Without: "no job's start or end is looked at; a Prolog= or Epilog= that names it drains the node",
		at:      []string{"PROGRAMS/bookend-prolog", "PROGRAMS/bookend-epilog", "PROGRAMS/bookend-healthcheck"}},
	{Name: "programs", Kind: Regular, Mode: 0o755, Need: 0o500, By: Installed, Absent: Wrong, key: "backend",
		Without: "GPUs are not examined (BKD-BK-MISSING)", at: []string{"BACKEND"}},
	{Name: "programs", Kind: Regular, Mode: 0o755, Need: 0o100, By: Installed, at: []string{"SELF"}},
	{Name: "programs", Kind: Regular, Mode: 0o755, Need: 0o500, By: Foreign, Absent: Wrong, key: "slurm.scontrol",
		Without: "no drain gets its reason, and no node is resumed (BKD-REASON)", at: []string{"SCONTROL"}},
	{Name: "programs", Kind: Regular, Mode: 0o755, Need: 0o400, By: Foreign, Absent: Warning,
		key: "nvidia.nvml_library or nvidia.cuda_library", at: []string{"NVML", "CUDA"},
		Without: "GPUs are not examined, or tested, unless the loader finds it elsewhere"},
	{Name: "config", Kind: Regular, Mode: 0o644, Need: 0o444, Rather: 0o111, By: Installed, Absent: Warning,
		Without: "the defaults are in force", at: []string{"CONFIG"}},
	{Name: "config", Kind: Folder, Mode: 0o755, Need: 0o111, By: Installed, Absent: Warning,
		Without: "the defaults are in force", at: []string{"ETC"}},
	{Name: "config", Kind: Folder, Mode: 0o755, Need: 0o111, By: Installed,
		at: []string{"SNIPPETS", "SNIPPETS/hooks", "SNIPPETS/prolog.d", "SNIPPETS/epilog.d"}},
	{Name: "config", Kind: Regular, Mode: 0o644, Need: 0o444, Rather: 0o111, By: Installed,
		at: []string{"SNIPPETS/*.conf"}},
	{Name: "config", Kind: Regular, Mode: 0o755, By: Installed,
		at: []string{"SNIPPETS/hooks/*", "SNIPPETS/prolog.d/*", "SNIPPETS/epilog.d/*"}},
	{Name: "records", Kind: Folder, Mode: 0o755, Need: 0o711, By: Made, key: "paths.run", at: []string{"RUN"}},
	{Name: "records", Kind: Folder, Mode: 0o700, Need: 0o700, By: Made,
		at: []string{"RUN/state", "RUN/state/*", "RUN/state/*/*"}},
	{Name: "records", Kind: Regular, Mode: 0o600, By: Made,
		at: []string{"RUN/state/*", "RUN/state/*/*", "RUN/state/*/*/*"}},
	{Name: "records", Kind: Folder, Mode: 0o711, Need: 0o711, Rather: 0o044, By: Made,
		at: []string{"RUN/report", "RUN/drop"}},
	{Name: "records", Kind: Folder, Mode: 0o755, Need: 0o700, By: Made, key: "paths.var", at: []string{"VAR"}},
	{Name: "records", Kind: Folder, Mode: 0o700, Need: 0o700, By: Made,
		at: []string{"VAR/history", "VAR/history/*", "VAR/metrics"}},
	{Name: "records", Kind: Regular, Mode: 0o600, By: Made, at: []string{"VAR/history/*/*", "VAR/metrics/*"}},
	{Name: "records", Kind: Folder, Mode: 0o755, Need: 0o700, Rather: 0o2000, By: Made, key: logKey,
		at: []string{"LOG"}},
	{Name: "records", Kind: Regular, Mode: 0o640, Rather: 0o004, By: Made, key: logKey,
		at: []string{"LOG/bookend.log", "LOG/bookend.log.1"}},
	{Name: "records", Kind: Regular, Mode: 0o644, Need: 0o444, By: Made, key: "metrics.textfile",
		at: []string{"TEXTFILE"}},
}

// logKey says where the log is. A folder above it that is root's and open to a group, as /var/log on Ubuntu, is a
// warning: nothing wrong can be logged into, but the log can be moved away.
const logKey = "paths.log"

// Rules is the table, with where things are as shipped.
func Rules() []Rule {
	c := config.Default()
	shipped := Site{
		Config: c, ConfigPath: config.DefaultFile, Self: "/usr/bin/bookend", Root: "/",
		Programs: []string{filepath.Dir(c.Backend)},
		NVML:     []string{"libnvidia-ml.so.1"}, CUDA: []string{"libcuda.so.1"},
	}
	all := slices.Clone(ruleTable)
	for i, r := range all {
		all[i].Shown = strings.Join(r.Paths(shipped), ", ")
	}
	return all
}

// Paths are where a rule's files are on a site; patterns of filepath.Match may be among them.
func (r Rule) Paths(s Site) (paths []string) {
	for _, pattern := range r.at {
		paths = append(paths, s.paths(pattern)...)
	}
	return paths
}

// find returns the files of a rule at the first of paths that leads to any; of a pattern, those of the rule's kind, or
// what is neither file nor directory.
func (r Rule) find(paths []string) (found []File) {
	for _, path := range paths {
		names := []string{path}
		pattern := strings.ContainsAny(path, "*?[")
		if pattern {
			names, _ = filepath.Glob(path)
		}
		for _, name := range names {
			f, there := inspect(name)
			if there && (!pattern || f.Kind == r.Kind || r.Kind == Regular && f.Kind != Folder) {
				found = append(found, f)
			}
		}
		if len(found) > 0 {
			break
		}
	}
	return found
}

// snippetFolder is where what slurm.conf includes is installed (deploy/slurm).
var snippetFolder = filepath.Join(filepath.Dir(config.DefaultFile), "slurm")

// paths are where a pattern leads on a site, or may, the likeliest first; none if the site does not use it.
func (s Site) paths(pattern string) (paths []string) {
	c := s.Config
	place, below, _ := strings.Cut(pattern, "/")
	one := map[string]string{
		"BACKEND": c.Backend, "SELF": s.Self, "CONFIG": s.ConfigPath, "ETC": filepath.Dir(s.ConfigPath),
		"SNIPPETS": filepath.Join(s.Root, snippetFolder), "RUN": c.Paths.Run, "VAR": c.Paths.Var,
		"TEXTFILE": c.Metrics.Textfile, "NVML": c.NVIDIA.NVMLLibrary, "CUDA": c.NVIDIA.CUDALibrary,
	}
	if c.Drain.ReasonBy != config.ReasonByNone {
		one["SCONTROL"] = c.Slurm.Scontrol
	}
	if c.Log.File {
		one["LOG"] = c.Paths.Log
	}
	folders := map[string][]string{"PROGRAMS": s.Programs, "NVML": s.NVML, "CUDA": s.CUDA}[place]
	if one[place] != "" {
		folders = []string{one[place]}
	}
	for _, folder := range folders {
		paths = append(paths, filepath.Join(folder, below))
	}
	return paths
}

// ruleChecks are the checks of the table: its rules by name, each with why owner and mode matter.
func ruleChecks() (all []Check) {
	for _, c := range [][2]string{
		{"programs", "root starts or loads it; a Prolog or Epilog that cannot be started drains the node"},
		{"config", "it says what root runs: the configuration, and what slurm.conf includes"},
		{"records", "verdicts and alerts rest on them, they name users' jobs, and who can open a lock can hold up " +
			"every hook"},
	} {
		rules := slices.DeleteFunc(Rules(), func(r Rule) bool { return r.Name != c[0] })
		all = append(all, Check{
			Name: c[0], why: c[1], files: true,
			path:  func(s Site) string { return rules[0].Paths(s)[0] },
			judge: func(v *view) string { return judgeRules(v, rules) },
		})
	}
	return append(all, Check{
		Name: "drop-filesystem", path: dropFolder, files: true, judge: judgeDrop,
		why: "users write here: without a small tmpfs of its own, one user can fill it for all hooks",
	})
}

// judgeRules reports what is wrong with each file of a check, and sums up what is well.
func judgeRules(v *view, rules []Rule) string {
	there := 0
	for _, r := range rules {
		for _, pattern := range r.at {
			paths := v.paths(pattern)
			files := r.find(paths)
			for _, f := range files {
				r.judgeFile(v, f)
			}
			if there += len(files); len(files) == 0 && len(paths) > 0 && r.Absent != "" {
				missing := v.say(r.Absent, "missing", r.missing())
				missing.Path, missing.Why = paths[0], r.Without
			}
		}
	}
	if rules[0].Name == "config" {
		v.judgeConfig()
	}
	if there == 0 {
		return "not there yet: the first hook that needs it makes it"
	}
	return fmt.Sprintf("%d files and directories are root's, with the right modes", there)
}

// judgeConfig reports the first mistake of the configuration, and the first key of an earlier version.
func (v *view) judgeConfig() {
	const all = "bookend config check lists all"
	if v.Mistake != "" {
		v.wrong(v.Mistake, "correct it; "+all).Why = "the hooks observe with the default configuration (BKD-CONFIG)"
	}
	if unused := v.Config.Unused; len(unused) > 0 {
		v.warn(fmt.Sprintf("%s (1 of %d)", unused[0], len(unused)), "correct it; "+all)
	}
}

func (r Rule) missing() string {
	if r.By == Foreign {
		return "let " + r.key + " say where it is, or install its package"
	}
	return "install Bookend's package again, or what docs/admin.md installs"
}

// DropOptions are the options with which the drop folder's own file system is mounted, by
// deploy/systemd/run-bookend-drop.mount. A job has up to two folders of one small file in it.
const DropOptions = "size=16M,nr_inodes=8k,mode=0711,nosuid,nodev,noexec"

func dropFolder(s Site) string { return filepath.Join(s.Config.Paths.Run, "drop") }

// judgeDrop warns before the first hook too: it would make a folder of the tmpfs that all hooks share.
func judgeDrop(v *view) string {
	path := dropFolder(v.Site)
	var above, here unix.Stat_t
	var on unix.Statfs_t
	switch {
	case unix.Stat(filepath.Dir(path), &above) == nil && unix.Stat(path, &here) == nil && above.Dev != here.Dev &&
		unix.Statfs(path, &on) == nil && on.Type == unix.TMPFS_MAGIC:
	case path == config.Default().Paths.Run+"/drop":
		v.warn("not a tmpfs of its own", "systemctl enable --now run-bookend-drop.mount   # of deploy/systemd")
	default:
		v.warn("not a tmpfs of its own", fmt.Sprintf(
			"install -d -o root -g root -m 0711 %s && mount -t tmpfs -o %s tmpfs %[1]s", quoted(path), DropOptions))
	}
	return "a tmpfs of its own"
}
