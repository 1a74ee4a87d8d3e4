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
	Need  uint32 // the bits without which something does not work; lacking them is Short, or Wrong if that is empty
	Short Level
	// Rather are bits beyond Mode that do little harm: a warning. All others are wrong.
	Rather uint32
	// Above is how bad a folder above is that is root's, but open to a group; empty: Wrong.
	Above Level
	By    By
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
	Made      By = "hooks"   // by the first hook that needs it. May be no link, and files have one name
)

// Reasons that are said twice.
const (
	defaults  = "the shipped defaults are in force"
	unlooked  = "no GPU is looked at, unless the loader finds it elsewhere"
	untested  = "no GPU is tested, unless the loader finds it elsewhere"
	unwritten = "no metrics are written, and each hook finds BKD-ST-WRITE"
	unseen    = "no job's start or end is looked at; a Prolog= or Epilog= that names it drains the node"
	reasons   = "no drain gets its reason, and no node is resumed (BKD-REASON)"
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
	{Name: "config", Kind: Folder, Mode: 0o755, Need: 0o111, Short: Warning, By: Installed, Absent: Warning,
		Without: defaults, at: []string{"ETC"}},
	{Name: "config", Kind: Regular, Mode: 0o644, Need: 0o444, Short: Warning, Rather: 0o111, By: Installed,
		Absent: Warning, Without: defaults, at: []string{"CONFIG"}},
	{Name: "snippets", Kind: Folder, Mode: 0o755, Need: 0o111, By: Installed,
		at: []string{"SNIPPETS", "SNIPPETS/hooks", "SNIPPETS/prolog.d", "SNIPPETS/epilog.d"}},
	{Name: "snippets", Kind: Regular, Mode: 0o644, Need: 0o444, Rather: 0o111, By: Installed,
		at: []string{"SNIPPETS/*.conf"}},
	{Name: "snippets", Kind: Regular, Mode: 0o755, By: Installed,
		at: []string{"SNIPPETS/hooks/*", "SNIPPETS/prolog.d/*", "SNIPPETS/epilog.d/*"}},
	{Name: "libraries", Kind: Regular, Mode: 0o755, Need: 0o400, By: Foreign, Absent: Warning, Without: unlooked,
		key: "nvidia.nvml_library", at: []string{"NVML"}},
	{Name: "libraries", Kind: Regular, Mode: 0o755, Need: 0o400, By: Foreign, Absent: Warning, Without: untested,
		key: "nvidia.cuda_library", at: []string{"CUDA"}},
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
	{Name: "log", Kind: Folder, Mode: 0o755, Need: 0o700, Rather: 0o2000, Above: Warning, By: Made, key: "paths.log",
		at: []string{"LOG"}},
	{Name: "log", Kind: Regular, Mode: 0o640, Rather: 0o004, Above: Warning, By: Made,
		at: []string{"LOG/bookend.log", "LOG/bookend.log.1"}},
	{Name: "metrics", Kind: Folder, Mode: 0o755, Need: 0o555, Short: Warning, Rather: 0o2000, By: Foreign,
		Absent: Wrong, Without: unwritten, key: "metrics.textfile", at: []string{"COLLECTOR"}},
	{Name: "metrics", Kind: Regular, Mode: 0o644, Need: 0o444, Short: Warning, By: Made, key: "metrics.textfile",
		at: []string{"TEXTFILE"}},
}

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
		all[i].Shown = cmp.Or(strings.Join(r.Paths(shipped), ", "), "the folder of metrics.textfile")
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
	c, textfile := s.Config, s.Config.Metrics.Textfile
	collector := filepath.Dir(textfile)
	used := func(is bool, path string) []string {
		if !is {
			return nil
		}
		return []string{path}
	}
	switch name {
	case "PROGRAMS":
		return s.Programs
	case "NVML":
		return firstOf(used(c.NVIDIA.NVMLLibrary != "", c.NVIDIA.NVMLLibrary), s.NVML)
	case "CUDA":
		return firstOf(used(c.NVIDIA.CUDALibrary != "", c.NVIDIA.CUDALibrary), s.CUDA)
	case "SCONTROL":
		return used(c.Drain.ReasonBy != config.ReasonByNone, c.Slurm.Scontrol)
	case "LOG":
		return used(c.Log.File, c.Paths.Log)
	case "TEXTFILE":
		return used(textfile != "", textfile)
	case "COLLECTOR": // the hooks make that of paths.var, and no other
		return used(textfile != "" && collector != filepath.Clean(c.Paths.Var), collector)
	}
	return []string{map[string]string{
		"BACKEND": c.Backend, "SELF": s.Self, "CONFIG": s.ConfigPath, "ETC": filepath.Dir(s.ConfigPath),
		"SNIPPETS": filepath.Join(s.Root, snippetFolder), "RUN": c.Paths.Run, "VAR": c.Paths.Var,
	}[name]}
}

// firstOf is the first list that has anything in it.
func firstOf(a, b []string) []string {
	if len(a) > 0 {
		return a
	}
	return b
}

// ruleChecks are the checks of the table: its rules by name, each with why owner and mode matter.
func ruleChecks() (all []Check) {
	for _, c := range [][2]string{
		{"programs", "root starts it; a Prolog or Epilog that cannot be started drains the node"},
		{"config", "it names programs that root runs; one that a user could have written is not read (BKD-CONFIG)"},
		{"snippets", "slurm.conf includes them: they name what slurmd runs as root, and every command of Slurm " +
			"reads them"},
		{"libraries", "root loads it, and runs its code"},
		{"records", "verdicts rest on them, they name users' jobs, and who can open a lock can hold up every hook"},
		{"log", "it names users and their jobs; nothing is logged where a user could write (BKD-LOG)"},
		{"metrics", "alerts rest on it; nothing is written where a user could write (BKD-ST-WRITE)"},
	} {
		rules := slices.DeleteFunc(Rules(), func(r Rule) bool { return r.Name != c[0] })
		all = append(all, Check{
			Name: c[0], why: c[1],
			path: func(s Site) string {
				for _, r := range rules {
					if paths := r.Paths(s); len(paths) > 0 {
						return paths[0]
					}
				}
				return rules[0].Shown
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
