package doctor

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"

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
	Absent  Level
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

// Reasons that are said twice.
const (
	defaults = "the shipped defaults are in force"
	unlooked = "no GPU is looked at, unless the loader finds it elsewhere"
	untested = "no GPU is tested, unless the loader finds it elsewhere"
	unseen   = "no job's start or end is looked at; a Prolog= or Epilog= that names it drains the node"
	reasons  = "no drain gets its reason, and no node is resumed (BKD-REASON)"
)

// ruleTable is the one table of owners and modes. What packages state, stage and safefile make agrees with it, and so
// do the commands of docs/admin.md and the files in deploy/: all are tested.
var ruleTable = []Rule{
	{Name: "programs", Kind: Regular, Mode: 0o755, Need: 0o555, By: Installed, Absent: Wrong, Without: unseen,
		at: []string{"PROGRAMS/bookend-prolog", "PROGRAMS/bookend-epilog", "PROGRAMS/bookend-healthcheck"}},
	{Name: "programs", Kind: Regular, Mode: 0o755, Need: 0o500, By: Installed, Absent: Wrong,
		Without: "no GPU is looked at (BKD-BK-MISSING)", key: "backend", at: []string{"BACKEND"}},
	{Name: "programs", Kind: Regular, Mode: 0o755, Need: 0o100, By: Installed, Absent: Wrong,
		Without: "it was removed or replaced meanwhile", at: []string{"SELF"}},
	{Name: "programs", Kind: Regular, Mode: 0o755, Need: 0o500, By: Foreign, Absent: Wrong,
		Without: reasons, key: "slurm.scontrol", at: []string{"SCONTROL"}},
	{Name: "programs", Kind: Regular, Mode: 0o755, Need: 0o400, By: Foreign, Absent: Warning, Without: unlooked,
		key: "nvidia.nvml_library", at: []string{"NVML"}},
	{Name: "programs", Kind: Regular, Mode: 0o755, Need: 0o400, By: Foreign, Absent: Warning, Without: untested,
		key: "nvidia.cuda_library", at: []string{"CUDA"}},
	{Name: "config", Kind: Folder, Mode: 0o755, Need: 0o111, By: Installed, Absent: Warning, Without: defaults,
		at: []string{"ETC"}},
	{Name: "config", Kind: Regular, Mode: 0o644, Need: 0o444, Rather: 0o111, By: Installed, Absent: Warning,
		Without: defaults, at: []string{"CONFIG"}},
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
	for _, l := range r.looks(s) {
		paths = append(paths, l.Paths...)
	}
	return paths
}

// looks is one for each pattern that this site uses. Of a place that may be in several folders the first file counts.
func (r Rule) looks(s Site) (looks []Look) {
	for _, pattern := range r.at {
		place, below, _ := strings.Cut(pattern, "/")
		l := Look{Kind: r.Kind}
		for _, folder := range s.place(place) {
			l.Paths = append(l.Paths, filepath.Join(folder, below))
		}
		if l.First = len(l.Paths) > 1; len(l.Paths) > 0 {
			looks = append(looks, l)
		}
	}
	return looks
}

// snippetFolder is where what slurm.conf includes is installed (deploy/slurm).
var snippetFolder = filepath.Join(filepath.Dir(config.DefaultFile), "slurm")

// place is where something is on a site, or may be, the likeliest first; none if the site does not use it.
func (s Site) place(name string) []string {
	c := s.Config
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
	several := map[string][]string{"PROGRAMS": s.Programs, "NVML": s.NVML, "CUDA": s.CUDA}
	if one[name] != "" {
		return []string{one[name]}
	}
	return several[name]
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
			Name: c[0], why: c[1],
			path: func(s Site) string {
				if c[0] == "config" {
					return s.ConfigPath
				}
				return cmp.Or(strings.Join(rules[0].Paths(s)[:1], ""), rules[0].Shown)
			},
			looks: func(s Site) (looks []Look) {
				for _, r := range rules {
					looks = append(looks, r.looks(s)...)
				}
				return looks
			},
			judge: func(v *view) string { return judgeRules(v, rules) },
		})
	}
	return all
}
