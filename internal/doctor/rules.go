package doctor

import (
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/wire"
)

// rule is what must hold for files or a folder of root's, whose modes are at least those that are needed.
type rule struct {
	check string // its name; a check may have several
	kind  kind
	mode  uint32 // as it is installed
	need  uint32 // the bits without which something does not work
	// absent is how bad it is that it does not exist, without what follows; empty: OK.
	absent, without string

	key string   // of the configuration, says where it is; may be empty
	at  []string // a place of the site, and the file in it
}

// rules are what hooks and slurmd must find as it is. What the hooks make themselves, with the modes of
// docs/doctor.md, they check and put right each time.
var rules = []rule{
	{check: "programs", kind: regular, mode: 0o755, need: 0o555, absent: Wrong,
		without: "no job's start or end is looked at; a Prolog= or Epilog= that names it drains the node",
		at:      []string{"PROGRAMS/bookend-prolog", "PROGRAMS/bookend-epilog", "PROGRAMS/bookend-healthcheck"}},
	{check: "programs", kind: regular, mode: 0o755, need: 0o500, absent: Wrong, key: "backend",
		without: "GPUs are not examined (BKD-BK-MISSING)", at: []string{"BACKEND"}},
	{check: "programs", kind: regular, mode: 0o755, need: 0o500, key: "amd.backend", at: []string{"AMD", "HIP"}},
	{check: "programs", kind: regular, mode: 0o755, need: 0o100, at: []string{"SELF"}},
	{check: "programs", kind: regular, mode: 0o755, need: 0o500, absent: Wrong, key: "slurm.scontrol",
		without: "no drain gets its reason, and no node is resumed (BKD-REASON)", at: []string{"SCONTROL"}},
	{check: "programs", kind: regular, mode: 0o755, need: 0o400, absent: Warning,
		key: "nvidia.nvml_library or nvidia.cuda_library", at: []string{"NVML", "CUDA"},
		without: "GPUs are not examined, or tested, unless the loader finds it elsewhere"},
	{check: "config", kind: regular, mode: 0o644, need: 0o444, absent: Warning,
		without: "the defaults are in force", at: []string{"CONFIG"}},
	{check: "config", kind: folder, mode: 0o755, need: 0o111, absent: Warning,
		without: "the defaults are in force", at: []string{"ETC"}},
}

// paths are where a file is on a site, or may be, the likeliest first; none if the site does not use it.
func (s Site) paths(at string) (paths []string) {
	c := s.Config
	place, below, _ := strings.Cut(at, "/")
	one := map[string]string{
		"BACKEND": c.Backend, "AMD": c.AMD.Backend, "SELF": s.Self, "CONFIG": s.ConfigPath,
		"ETC":  filepath.Dir(s.ConfigPath),
		"NVML": c.NVIDIA.NVMLLibrary, "CUDA": c.NVIDIA.CUDALibrary,
	}
	if c.Drain.ReasonBy != config.ReasonByNone {
		one["SCONTROL"] = c.Slurm.Scontrol
	}
	one["HIP"], _ = c.BackendOf(gpu.AMD.Name, wire.Probe)
	folders := map[string][]string{"PROGRAMS": s.Programs, "NVML": s.NVML, "CUDA": s.CUDA}[place]
	if one[place] != "" {
		folders = []string{one[place]}
	}
	for _, folder := range folders {
		paths = append(paths, filepath.Join(folder, below))
	}
	return paths
}

func judgeRules(v *view) string {
	there := 0
	for _, r := range rules {
		for _, at := range r.at {
			if r.check == v.check.Name && r.judge(v, v.paths(at)) {
				there++
			}
		}
	}
	return fmt.Sprintf("%d files and directories are root's, with the right modes", there)
}

// judge judges what is at the first of paths that leads to anything, and reports whether there is one.
func (r rule) judge(v *view, paths []string) bool {
	for _, path := range paths {
		if f, there := inspect(path); there {
			r.judgeFile(v, f)
			return true
		}
	}
	if len(paths) > 0 && r.absent != "" {
		fix := "install Bookend's package again, or what docs/admin.md installs"
		if r.key != "" {
			fix = "let " + r.key + " say where it is, or install its package again"
		}
		missing := v.say(r.absent, "missing", fix)
		missing.Path, missing.Why = paths[0], r.without
	}
	return false
}

// judgeConfig reports the first mistake of the configuration too.
func judgeConfig(v *view) string {
	seen := judgeRules(v)
	if v.Mistake != "" {
		v.wrong(v.Mistake, "correct it; bookend config check lists all").Why = "the hooks observe with the default configuration (BKD-CONFIG)"
	}
	return seen
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
