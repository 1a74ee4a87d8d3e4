package doctor

import (
	"fmt"
	"path/filepath"
	"slices"

	"bookend/internal/config"
)

// Rule is what must hold for one file or folder, or for all of a pattern. Everything is root's.
type Rule struct {
	Name  string
	Shown string // where it is as shipped, for the documentation
	Kind  Kind
	Mode  uint32 // as it is installed or made
	Need  uint32 // the bits without which something does not work, as Short says
	Short string
	// ShortLevel is how bad that is; zero: Wrong.
	ShortLevel Level
	// Rather are bits beyond Mode that do little harm. All others are wrong.
	Rather uint32
	// Above is how bad it is where a folder above is root's, but open to a group; zero: Wrong.
	Above Level
	// NoLink: Bookend opens it without following a link. Single: and refuses it with a second name.
	NoLink, Single bool
	// By says who makes it: "install", "admin" or "hooks".
	By  By
	Why string // why owner and mode matter

	place string
	// text: admins may change what is in it, so it is kept, and read where others could have written it.
	text  bool
	paths func(Site) []string
	first bool
	// key of the configuration that says where it is; empty where none does.
	key string
	// absent says how bad it is that it is not there, and what follows.
	absent func(Site) (Level, string)
	// instead is what to do where it is not root's alone, and belongs to another program; empty: make it so.
	instead string
	// unused says why this site does without it: then nobody looks. Nil: never.
	unused func(Site) string
}

// By is who makes a file.
type By string

// Who makes files.
const (
	Installed By = "install" // with Bookend
	Foreign   By = "others"  // by the driver's packages, or Slurm's
	Made      By = "hooks"   // by the first hook that needs it
)

const laterMade = "not there yet: the first hook that needs it makes it"

func later(Site) (Level, string) { return OK, laterMade }

func needed(what string) func(Site) (Level, string) {
	return func(Site) (Level, string) { return Wrong, what }
}

func one(path func(Site) string) func(Site) []string {
	return func(s Site) []string { return []string{path(s)} }
}

func program(name string) func(Site) []string {
	return func(s Site) (paths []string) {
		for _, folder := range s.Programs {
			paths = append(paths, filepath.Join(folder, name))
		}
		return paths
	}
}

// in makes paths below a folder of the configuration.
func in(root func(config.Paths) string, names ...string) func(Site) []string {
	return func(s Site) (paths []string) {
		for _, n := range names {
			paths = append(paths, filepath.Join(root(s.Config.Paths), n))
		}
		return paths
	}
}

// snippetFolder is where what slurm.conf includes is installed (deploy/slurm).
var snippetFolder = filepath.Join(filepath.Dir(config.DefaultFile), "slurm")

func snippets(names ...string) func(Site) []string {
	return func(s Site) (paths []string) {
		for _, n := range names {
			paths = append(paths, filepath.Join(s.Root, snippetFolder, n))
		}
		return paths
	}
}

func noSnippets(Site) (Level, string) {
	return OK, "not here: slurm.conf does without, or names a copy"
}

func library(configured func(config.NVIDIA) string, found func(Site) []string) func(Site) []string {
	return func(s Site) []string {
		if path := configured(s.Config.NVIDIA); path != "" {
			return []string{path}
		}
		return found(s)
	}
}

func noLibrary(configured func(config.NVIDIA) string, without string) func(Site) (Level, string) {
	return func(s Site) (Level, string) {
		if configured(s.Config.NVIDIA) != "" {
			return Warning, without
		}
		return Warning, without + ", unless the loader finds it elsewhere: then nobody has looked whose it is"
	}
}

func runRoot(p config.Paths) string { return p.Run }
func varRoot(p config.Paths) string { return p.Var }
func logRoot(p config.Paths) string { return p.Log }

func runFolder(s Site) string  { return s.Config.Paths.Run }
func varFolder(s Site) string  { return s.Config.Paths.Var }
func logFolder(s Site) string  { return s.Config.Paths.Log }
func dropFolder(s Site) string { return filepath.Join(s.Config.Paths.Run, "drop") }

func nvml(n config.NVIDIA) string { return n.NVMLLibrary }
func cuda(n config.NVIDIA) string { return n.CUDALibrary }

func noReason(s Site) string {
	if by := s.Config.Drain.ReasonBy; by == config.ReasonByNone {
		return fmt.Sprintf("not run: drain.reason_by is %s", by)
	}
	return ""
}

func noLogFile(s Site) string {
	if !s.Config.Log.File {
		return "not written: log.file is false"
	}
	return ""
}

func noTextfile(s Site) string {
	if s.Config.Metrics.Textfile == "" {
		return "not written: metrics.textfile is empty"
	}
	return ""
}

func noTextfileFolder(s Site) string {
	if filepath.Dir(s.Config.Metrics.Textfile) == filepath.Clean(s.Config.Paths.Var) {
		return "that of paths.var, which the hooks make"
	}
	return noTextfile(s)
}

const (
	hookWhy  = "slurmd starts it as root for each job, and does not look whose it is"
	hookNeed = "slurmd must be able to start it as root, and as the job's user where it is a task hook; a Prolog or Epilog that cannot be started drains the node"
	libWhy   = "root loads it, and runs its code"
)

// Rules is the one table of owners and modes. What package state, stage and safefile make agrees with it, and so do the
// commands of docs/admin.md and the files in deploy/: all are tested.
func Rules() []Rule { return slices.Concat(installed(), remembered(), kept()) }

func installed() []Rule {
	shipped := config.Default()
	libexec := filepath.Dir(shipped.Backend)
	return []Rule{
		{Name: "prolog", Shown: libexec + "/bookend-prolog", Kind: Regular, Mode: 0o755, Need: 0o555, Short: hookNeed, By: Installed,
			Why: hookWhy, place: "programs", paths: program("bookend-prolog"), first: true, absent: needed("no job's start is looked at; a Prolog= that names it drains the node")},
		{Name: "epilog", Shown: libexec + "/bookend-epilog", Kind: Regular, Mode: 0o755, Need: 0o555, Short: hookNeed, By: Installed,
			Why: hookWhy, place: "programs", paths: program("bookend-epilog"), first: true, absent: needed("no job's end is looked at; an Epilog= that names it drains the node")},
		{Name: "healthcheck", Shown: libexec + "/bookend-healthcheck", Kind: Regular, Mode: 0o755, Need: 0o500, Short: "slurmd must be able to start it as root", By: Installed,
			Why: "slurmd starts it as root again and again, and does not look whose it is", place: "programs", paths: program("bookend-healthcheck"), first: true, absent: needed("between jobs nobody looks, and no drain gets its reason by it")},
		{Name: "backend", Shown: libexec + "/bookend-gpu", Kind: Regular, Mode: 0o755, Need: 0o500, Short: "root must be able to start it", By: Installed,
			Why: "the hooks start it as root; one that others could have written is not started (BKD-BK-REFUSED)", key: "backend", place: "backend",
			paths: one(func(s Site) string { return s.Config.Backend }), absent: needed("no GPU is looked at (BKD-BK-MISSING)")},
		{Name: "bookend", Shown: "/usr/bin/bookend", Kind: Regular, Mode: 0o755, Need: 0o100, Short: "root must be able to start it", By: Installed,
			Why: "admins run it as root", place: "bookend", paths: one(func(s Site) string { return s.Self }), absent: needed("it was removed or replaced meanwhile")},
		{Name: "config-folder", Shown: filepath.Dir(config.DefaultFile), Kind: Folder, Mode: 0o755, Need: 0o111, Short: "task hooks run as users: they cannot reach the configuration, and use the shipped defaults",
			ShortLevel: Warning, By: Installed, Why: "who can write here chooses what root runs", place: "config",
			paths: one(func(s Site) string { return filepath.Dir(s.ConfigPath) }), absent: func(Site) (Level, string) { return Warning, "the shipped defaults are in force" }},
		{Name: "config", Shown: config.DefaultFile, Kind: Regular, Mode: 0o644, Need: 0o444, Short: "task hooks run as users: they cannot read it, and use the shipped defaults", ShortLevel: Warning,
			Rather: 0o111, By: Installed, text: true, Why: "it names programs that root runs; one that others could have written is not read (BKD-CONFIG): the hooks observe with the shipped defaults", place: "config",
			paths: one(func(s Site) string { return s.ConfigPath }), absent: func(Site) (Level, string) { return Warning, "the shipped defaults are in force" }},
		{Name: "snippet-folders", Shown: snippetFolder + ", its hooks, prolog.d, epilog.d", Kind: Folder, Mode: 0o755, Need: 0o111, Short: "Slurm's commands, run by users, cannot read what slurm.conf includes: none of them works", By: Installed,
			Why: "who can write here chooses what slurmd runs as root", place: "snippets", paths: snippets("", "hooks", "prolog.d", "epilog.d"), absent: noSnippets},
		{Name: "snippets", Shown: snippetFolder + "/*.conf", Kind: Regular, Mode: 0o644, Need: 0o444, Short: "Slurm's commands, run by users, cannot read what slurm.conf includes: none of them works", Rather: 0o111, By: Installed, text: true,
			Why: "slurm.conf includes them: they name what slurmd runs as root", place: "snippets", paths: snippets("*.conf"), absent: noSnippets},
		{Name: "snippet-hooks", Shown: snippetFolder + "/hooks/*, prolog.d/*, epilog.d/*", Kind: Regular, Mode: 0o755, By: Installed, text: true,
			Why: "slurmd runs those that slurm.conf names as root, and does not look whose they are", place: "snippets", paths: snippets("hooks/*", "prolog.d/*", "epilog.d/*"), absent: noSnippets},
		{Name: "nvml", Shown: "libnvidia-ml.so.1", Kind: Regular, Mode: 0o755, Need: 0o400, Short: "root must be able to read it", By: Foreign, Why: libWhy, key: "nvidia.nvml_library",
			place: "libraries", paths: library(nvml, func(s Site) []string { return s.NVML }), first: true, absent: noLibrary(nvml, "no GPU is looked at")},
		{Name: "cuda", Shown: "libcuda.so.1", Kind: Regular, Mode: 0o755, Need: 0o400, Short: "root must be able to read it", By: Foreign, Why: libWhy, key: "nvidia.cuda_library",
			place: "libraries", paths: library(cuda, func(s Site) []string { return s.CUDA }), first: true, absent: noLibrary(cuda, "no card is tested")},
		{Name: "scontrol", Shown: shipped.Slurm.Scontrol, Kind: Regular, Mode: 0o755, Need: 0o500, Short: "root must be able to start it", By: Foreign, key: "slurm.scontrol",
			Why: "the health check, and with drain.reason_by: hook the hooks, start it as root; one that others could have written is not started", place: "scontrol", unused: noReason,
			paths: one(func(s Site) string { return s.Config.Slurm.Scontrol }), absent: needed("no drain reason is written, and nothing resumed (BKD-REASON)")},
	}
}

// remembered is what the hooks make in memory.
func remembered() []Rule {
	root := config.Default().Paths.Run
	return []Rule{
		{Name: "run", Shown: root, Kind: Folder, Mode: 0o755, Need: 0o711, Short: "task hooks run as users: they find neither report nor drop folder", By: Made, NoLink: true, key: "paths.run",
			Why: "all that the hooks know of running jobs is below", place: "run", paths: one(runFolder), absent: later},
		{Name: "state", Shown: root + "/state", Kind: Folder, Mode: 0o700, Need: 0o700, Short: "no record can be kept", By: Made, NoLink: true,
			Why: "the records name users' jobs and processes, and who reaches the locks can hold up every hook", place: "run", paths: in(runRoot, "state"), absent: later},
		{Name: "state-node", Shown: root + "/state/NODE", Kind: Folder, Mode: 0o700, Need: 0o700, Short: "no record can be kept", By: Made, NoLink: true,
			Why: "the records name users' jobs and processes, and who reaches the locks can hold up every hook", place: "run", paths: in(runRoot, "state/*"), absent: later},
		{Name: "state-folders", Shown: root + "/state/NODE/JOBID, damaged, no-mps", Kind: Folder, Mode: 0o700, Need: 0o700, Short: "no record can be kept", By: Made, NoLink: true,
			Why: "the records name users' jobs and processes", place: "run", paths: in(runRoot, "state/*/*"), absent: later},
		{Name: "records", Shown: root + "/state/NODE/*.json, JOBID/*.json", Kind: Regular, Mode: 0o600, By: Made, NoLink: true, Single: true,
			Why: "a verdict rests on them, and which drain is Bookend's own to resume (drain.json); one that others could have written is set aside (BKD-ST-DAMAGED)", place: "run", paths: in(runRoot, "state/*/*.json", "state/*/*/*"), absent: later},
		{Name: "locks", Shown: root + "/state/disk.lock, NODE/lock-*, NODE/probe-*.lock", Kind: Regular, Mode: 0o600, By: Made, NoLink: true, Single: true,
			Why: "who can open a lock, be it to read, can hold it for ever", place: "run", paths: in(runRoot, "state/*.lock", "state/*/lock-*", "state/*/probe-*.lock"), absent: later},
		{Name: "report", Shown: root + "/report", Kind: Folder, Mode: 0o711, Need: 0o711, Rather: 0o044, Short: "task hooks run as users: they cannot read their job's start report", By: Made, NoLink: true,
			Why: "users reach their own report by its name; which jobs ran is nobody's business", place: "run", paths: in(runRoot, "report"), absent: later},
		{Name: "drop", Shown: root + "/drop", Kind: Folder, Mode: 0o711, Need: 0o711, Rather: 0o044, Short: "task hooks run as users: they cannot reach their job's folder", By: Made, NoLink: true,
			Why: "the folders of jobs in it are their users'; a folder that others can write to could be swapped under root's hands", place: "run", paths: one(dropFolder), absent: later},
	}
}

// kept is what the hooks' children make on disk.
func kept() []Rule {
	shipped := config.Default()
	kept, logs := shipped.Paths.Var, shipped.Paths.Log
	return []Rule{
		{Name: "var", Shown: kept, Kind: Folder, Mode: 0o755, Need: 0o700, Short: "no ended job can be kept", By: Made, NoLink: true, key: "paths.var",
			Why: "the history of jobs is below", place: "var", paths: in(varRoot, ""), absent: later},
		{Name: "history", Shown: kept + "/history", Kind: Folder, Mode: 0o700, Need: 0o700, Short: "no ended job can be kept", By: Made, NoLink: true,
			Why: "the records name users' jobs and processes", place: "var", paths: in(varRoot, "history"), absent: later},
		{Name: "history-node", Shown: kept + "/history/NODE", Kind: Folder, Mode: 0o700, Need: 0o700, Short: "no ended job can be kept", By: Made, NoLink: true,
			Why: "the records name users' jobs and processes", place: "var", paths: in(varRoot, "history/*"), absent: later},
		{Name: "history-records", Shown: kept + "/history/NODE/*.json", Kind: Regular, Mode: 0o600, By: Made, NoLink: true, Single: true,
			Why: "they name users' jobs and processes; one that others could have written is not read", place: "var", paths: in(varRoot, "history/*/*"), absent: later},
		{Name: "counters-folder", Shown: kept + "/metrics", Kind: Folder, Mode: 0o700, Need: 0o700, Short: "no metrics are written", By: Made, NoLink: true,
			Why: "the metrics are counted in it, under a lock that only root may hold", place: "var", paths: in(varRoot, "metrics"), absent: later},
		{Name: "counters", Shown: kept + "/metrics/*", Kind: Regular, Mode: 0o600, By: Made, NoLink: true, Single: true,
			Why: "who can open the lock, be it to read, can hold it for ever", place: "var", paths: in(varRoot, "metrics/*"), absent: later},
		{Name: "log", Shown: logs, Kind: Folder, Mode: 0o755, Need: 0o700, Rather: 0o2000, Above: Warning, Short: "no log can be written", By: Made, NoLink: true, key: "paths.log",
			Why: "into a folder that others can write to nothing is logged: they could put anything in the log's place", place: "log", unused: noLogFile, paths: in(logRoot, ""), absent: later},
		{Name: "log-file", Shown: logs + "/bookend.log", Kind: Regular, Mode: 0o640, Rather: 0o004, Above: Warning, By: Made, NoLink: true, Single: true,
			Why: "it names users and their jobs; admins may give it to a group that may read logs", place: "log", unused: noLogFile, paths: in(logRoot, "bookend.log", "bookend.log.1"), absent: later},
		{Name: "metrics-folder", Shown: "of metrics.textfile, outside paths.var", Kind: Folder, Mode: 0o755, Need: 0o555, Rather: 0o2000, Short: "node_exporter runs as a user of its own, and cannot read it", ShortLevel: Warning,
			By: Foreign, key: "metrics.textfile", Why: "into a folder that others can write to no metrics are written (BKD-ST-WRITE)", place: "metrics", unused: noTextfileFolder,
			instead: "let metrics.textfile be " + shipped.Metrics.Textfile + ", and a link in node_exporter's folder lead there",
			paths:   one(func(s Site) string { return filepath.Dir(s.Config.Metrics.Textfile) }), absent: needed("no metrics are written, and each hook finds BKD-ST-WRITE")},
		{Name: "metrics", Shown: shipped.Metrics.Textfile, Kind: Regular, Mode: 0o644, Need: 0o444, Short: "node_exporter runs as a user of its own, and cannot read it", ShortLevel: Warning,
			By: Made, NoLink: true, Single: true, key: "metrics.textfile", Why: "alarms rest on it", place: "metrics", unused: noTextfile,
			paths: one(func(s Site) string { return s.Config.Metrics.Textfile }), absent: func(Site) (Level, string) {
				return OK, "not there yet: the first hook writes it, if its folder is there"
			}},
	}
}
