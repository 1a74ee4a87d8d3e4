package doctor

import (
	"path/filepath"
	"slices"

	"bookend/internal/config"
)

// Rule is what must hold for one file or folder, or for all of a pattern: root's, with no more bits than Mode.
type Rule struct {
	Name  string // of its check; a check may have several
	Shown string // where it is as shipped, for the documentation
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

	// key of the configuration says where it is; may be empty.
	key string
	// paths are where it is: patterns of filepath.Match may be among them; none if this site does not use it.
	paths func(Site) []string
	// first: only the first of paths that exists counts.
	first bool
}

// By is who makes a file.
type By string

// Who makes files.
const (
	Installed By = "install" // with Bookend
	Foreign   By = "others"  // by the driver's packages, or Slurm's
	Made      By = "hooks"   // by the first hook that needs it. May be no link, and files have one name
)

// Paths are where it is on a site; patterns of filepath.Match may be among them.
func (r Rule) Paths(s Site) []string { return r.paths(s) }

// Rules is the one table of owners and modes. What packages state, stage and safefile make agrees with it, and so do
// the commands of docs/admin.md and the files in deploy/: all are tested.
func Rules() []Rule { return slices.Concat(programRules(), installedRules(), runRules(), diskRules()) }

// ruleChecks are the checks of the table: its rules by name, each with why owner and mode matter, and with the place
// that is looked at in one go.
func ruleChecks() (all []Check) {
	for _, c := range []struct{ name, why string }{
		{"programs", "root starts it; a Prolog or Epilog that cannot be started drains the node"},
		{"config", "it names programs that root runs; one that a user could have written is not read (BKD-CONFIG)"},
		{"snippets", "slurm.conf includes them: they name what slurmd runs as root, and every command of Slurm " +
			"reads them"},
		{"libraries", "root loads it, and runs its code"},
		{"records", "verdicts rest on them, they name users' jobs, and who can open a lock can hold up every hook"},
		{"history", "the records name users' jobs and processes, and who can open a lock can hold up every hook"},
		{"log", "it names users and their jobs; nothing is logged where a user could write (BKD-LOG)"},
		{"metrics", "alerts rest on it; nothing is written where a user could write (BKD-ST-WRITE)"},
	} {
		all = append(all, checkOf(c.name, c.why))
	}
	return all
}

func checkOf(name, why string) Check {
	rules := slices.DeleteFunc(Rules(), func(r Rule) bool { return r.Name != name })
	return Check{
		Name: name, why: why, place: name,
		path: func(s Site) string {
			for _, r := range rules {
				if paths := r.paths(s); len(paths) > 0 {
					return paths[0]
				}
			}
			return rules[0].Shown
		},
		looks: func(s Site) (looks []Look) {
			for _, r := range rules {
				looks = append(looks, Look{Paths: r.paths(s), First: r.first, Kind: r.Kind})
			}
			return looks
		},
		judge: func(v *view) string { return judgeRules(v, rules) },
	}
}

func one(path func(Site) string) func(Site) []string {
	return func(s Site) []string { return []string{path(s)} }
}

// below makes paths in a folder.
func below(folder func(Site) string, names ...string) func(Site) []string {
	return func(s Site) (paths []string) {
		for _, n := range names {
			paths = append(paths, filepath.Join(folder(s), n))
		}
		return paths
	}
}

func runFolder(s Site) string { return s.Config.Paths.Run }
func varFolder(s Site) string { return s.Config.Paths.Var }

// snippetFolder is where what slurm.conf includes is installed (deploy/slurm).
var snippetFolder = filepath.Join(filepath.Dir(config.DefaultFile), "slurm")

func snippets(s Site) string { return filepath.Join(s.Root, snippetFolder) }

func programRules() (all []Rule) {
	shipped := config.Default()
	libexec := filepath.Dir(shipped.Backend)
	for _, p := range [][2]string{
		{"bookend-prolog", "no job's start is looked at; a Prolog= that names it drains the node"},
		{"bookend-epilog", "no job's end is looked at; an Epilog= that names it drains the node"},
		{"bookend-healthcheck", "between jobs nothing is looked at, and no drain gets its reason"},
	} {
		all = append(all, Rule{
			Name: "programs", Shown: libexec + "/" + p[0], Kind: Regular, Mode: 0o755, Need: 0o555, By: Installed,
			Absent: Wrong, Without: p[1], first: true,
			paths: func(s Site) (paths []string) {
				for _, folder := range s.Programs {
					paths = append(paths, filepath.Join(folder, p[0]))
				}
				return paths
			},
		})
	}
	return append(all,
		Rule{
			Name: "programs", Shown: shipped.Backend, Kind: Regular, Mode: 0o755, Need: 0o500, By: Installed,
			Absent: Wrong, Without: "no GPU is looked at (BKD-BK-MISSING)", key: "backend",
			paths: one(func(s Site) string { return s.Config.Backend }),
		},
		Rule{
			Name: "programs", Shown: "/usr/bin/bookend", Kind: Regular, Mode: 0o755, Need: 0o100, By: Installed,
			Absent: Wrong, Without: "it was removed or replaced " +
				"meanwhile", paths: one(func(s Site) string { return s.Self }),
		},
		Rule{
			Name: "programs", Shown: shipped.Slurm.Scontrol, Kind: Regular, Mode: 0o755, Need: 0o500, By: Foreign,
			Absent: Wrong, Without: "no drain gets its reason, and no node is resumed " +
				"(BKD-REASON)", key: "slurm.scontrol",
			paths: func(s Site) []string {
				if s.Config.Drain.ReasonBy == config.ReasonByNone {
					return nil
				}
				return []string{s.Config.Slurm.Scontrol}
			},
		})
}

func installedRules() []Rule {
	const defaults = "the shipped defaults are in force"
	library := func(soname, without string, configured func(config.NVIDIA) string, found func(Site) []string) Rule {
		return Rule{
			Name: "libraries", Shown: soname, Kind: Regular, Mode: 0o755, Need: 0o400, By: Foreign, Absent: Warning,
			Without: without, first: true,
			paths: func(s Site) []string {
				if path := configured(s.Config.NVIDIA); path != "" {
					return []string{path}
				}
				return found(s)
			},
		}
	}
	nvml := library("libnvidia-ml.so.1", "no GPU is looked at, unless the loader finds it elsewhere",
		func(n config.NVIDIA) string { return n.NVMLLibrary }, func(s Site) []string { return s.NVML })
	cuda := library("libcuda.so.1", "no GPU is tested, unless the loader finds it elsewhere",
		func(n config.NVIDIA) string { return n.CUDALibrary }, func(s Site) []string { return s.CUDA })
	nvml.key, cuda.key = "nvidia.nvml_library", "nvidia.cuda_library"
	return []Rule{
		{Name: "config", Shown: filepath.Dir(config.DefaultFile), Kind: Folder, Mode: 0o755, Need: 0o111,
			Short: Warning,
			By:    Installed, Absent: Warning, Without: defaults,
			paths: one(func(s Site) string { return filepath.Dir(s.ConfigPath) })},
		{Name: "config", Shown: config.DefaultFile, Kind: Regular, Mode: 0o644, Need: 0o444, Short: Warning,
			Rather: 0o111,
			By:     Installed, Absent: Warning, Without: defaults, paths: one(configPath)},
		{Name: "snippets", Shown: snippetFolder + ", its hooks, prolog.d, epilog.d", Kind: Folder, Mode: 0o755,
			Need: 0o111,
			By:   Installed, paths: below(snippets, "", "hooks", "prolog.d", "epilog.d")},
		{Name: "snippets", Shown: snippetFolder + "/*.conf", Kind: Regular, Mode: 0o644, Need: 0o444, Rather: 0o111,
			By: Installed, paths: below(snippets, "*.conf")},
		{Name: "snippets", Shown: snippetFolder + "/hooks/*, prolog.d/*, epilog.d/*", Kind: Regular, Mode: 0o755,
			By: Installed, paths: below(snippets, "hooks/*", "prolog.d/*", "epilog.d/*")},
		nvml, cuda,
	}
}

// runRules are about what the hooks make in memory.
func runRules() []Rule {
	root := config.Default().Paths.Run
	return []Rule{
		{Name: "records", Shown: root, Kind: Folder, Mode: 0o755, Need: 0o711, By: Made, key: "paths.run",
			paths: one(runFolder)},
		{Name: "records", Shown: root + "/state, and what is in it", Kind: Folder, Mode: 0o700, Need: 0o700, By: Made,
			paths: below(runFolder, "state", "state/*", "state/*/*")},
		{Name: "records", Shown: root + "/state: files", Kind: Regular, Mode: 0o600, By: Made,
			paths: below(runFolder, "state/*", "state/*/*", "state/*/*/*")},
		{Name: "records", Shown: root + "/report, " + root + "/drop", Kind: Folder, Mode: 0o711, Need: 0o711,
			Rather: 0o044,
			By:     Made, paths: below(runFolder, "report", "drop")},
	}
}

// diskRules are about what the hooks' children make on disk.
func diskRules() []Rule {
	shipped := config.Default()
	kept, logs := shipped.Paths.Var, shipped.Paths.Log
	logged := func(names ...string) func(Site) []string {
		return func(s Site) []string {
			if !s.Config.Log.File {
				return nil
			}
			return below(func(s Site) string { return s.Config.Paths.Log }, names...)(s)
		}
	}
	return []Rule{
		{Name: "history", Shown: kept, Kind: Folder, Mode: 0o755, Need: 0o700, By: Made, key: "paths.var",
			paths: one(varFolder)},
		{Name: "history", Shown: kept + "/history, history/NODE, metrics", Kind: Folder, Mode: 0o700, Need: 0o700,
			By:    Made,
			paths: below(varFolder, "history", "history/*", "metrics")},
		{Name: "history", Shown: kept + "/history/NODE/*, metrics/*", Kind: Regular, Mode: 0o600, By: Made,
			paths: below(varFolder, "history/*/*", "metrics/*")},
		{Name: "log", Shown: logs, Kind: Folder, Mode: 0o755, Need: 0o700, Rather: 0o2000, Above: Warning, By: Made,
			key: "paths.log", paths: logged("")},
		{Name: "log", Shown: logs + "/bookend.log", Kind: Regular, Mode: 0o640, Rather: 0o004, Above: Warning,
			By:    Made,
			paths: logged("bookend.log", "bookend.log.1")},
		{Name: "metrics", Shown: "of metrics.textfile, outside paths.var", Kind: Folder, Mode: 0o755, Need: 0o555,
			Short: Warning, Rather: 0o2000, By: Foreign, Absent: Wrong,
			Without: "no metrics are written, and each hook finds BKD-ST-WRITE", key: "metrics.textfile",
			paths: func(s Site) []string {
				folder := filepath.Dir(s.Config.Metrics.Textfile)
				if s.Config.Metrics.Textfile == "" || folder == filepath.Clean(s.Config.Paths.Var) {
					return nil
				}
				return []string{folder}
			}},
		{Name: "metrics", Shown: shipped.Metrics.Textfile, Kind: Regular, Mode: 0o644, Need: 0o444, Short: Warning,
			By: Made, key: "metrics.textfile",
			paths: func(s Site) []string {
				if s.Config.Metrics.Textfile == "" {
					return nil
				}
				return []string{s.Config.Metrics.Textfile}
			}},
	}
}
