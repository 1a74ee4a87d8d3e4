package doctor

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/child"
	"bookend/internal/gresconf"
	"bookend/internal/inventory"
	"bookend/internal/safefile"
	"bookend/internal/slurmconf"
	"bookend/internal/slurmfiles"
	"bookend/internal/stage"
	"bookend/internal/state"
)

// The operations of children that look at the node as a whole.
const (
	opDaemons = "doctor-daemons"
	opSlurm   = "doctor-slurm"
	opDriver  = "doctor-driver"
	opSystem  = "doctor-system"
	opVersion = "doctor-version"
)

// surveys are what the children of a survey serve.
func surveys() stage.Operations {
	return stage.Operations{
		opDaemons: stage.Served(func(r daemonsRequest) (Daemons, error) { return findDaemons(r.Proc) }),
		opSlurm:   stage.Served(func(r slurmRequest) (Slurm, error) { return readSlurm(r.Places), nil }),
		opDriver:  stage.Served(func(r driverRequest) (Driver, error) { return readDriver(r), nil }),
		opSystem:  stage.Served(func(r systemRequest) (System, error) { return readSystem(r), nil }),
		opVersion: stage.Served(func(r versionRequest) (Said, error) { return r.ask(), nil }),
	}
}

type daemonsRequest struct {
	Proc string `json:"proc"`
}

// maxOwnWords bounds what a process says of itself: its arguments, its environment.
const maxOwnWords = 128 << 10

// findDaemons lists the daemons that matter. Threat: any process may call itself as it likes; a slurmd counts only as
// root's, and a claim leads to no more than words and to a file that is read.
func findDaemons(proc string) (found Daemons, err error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return found, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		folder := filepath.Join(proc, e.Name())
		name, _ := os.ReadFile(filepath.Join(folder, "comm"))
		switch strings.TrimSpace(string(name)) {
		case "slurmd":
			if d := daemon(folder, pid); d.UID == 0 && !strings.HasPrefix(d.Args[0], "slurmstepd") {
				found.Slurmd = append(found.Slurmd, d)
			}
		case "node_exporter", "prometheus-node", "prometheus-node-exporter": // the kernel keeps 15 bytes
			found.Exporter = append(found.Exporter, daemon(folder, pid))
		}
	}
	return found, nil
}

func daemon(folder string, pid int) Daemon {
	d := Daemon{PID: pid, Args: append(words(filepath.Join(folder, "cmdline")), "")}
	d.Args = d.Args[:max(1, len(d.Args)-1)]
	var st unix.Stat_t
	if d.UID = ^uint32(0); unix.Stat(folder, &st) == nil {
		d.UID = st.Uid
	}
	if exe, err := os.Readlink(filepath.Join(folder, "exe")); err == nil && !strings.HasSuffix(exe, " (deleted)") {
		d.Exe = exe
	}
	if root, err := os.Readlink(filepath.Join(folder, "root")); err == nil && root != "/" {
		d.Exe = "" // in a root folder of its own the path means another file
	}
	for _, v := range words(filepath.Join(folder, "environ")) {
		if conf, ok := strings.CutPrefix(v, "SLURM_CONF="); ok {
			d.Conf = conf
		}
	}
	return d
}

// words reads what stands in a file of /proc with a zero byte behind each.
func words(path string) []string {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	text := make([]byte, maxOwnWords)
	n, _ := file.Read(text)
	if n <= 0 {
		return nil
	}
	return strings.Split(strings.TrimRight(string(text[:n]), "\x00"), "\x00")
}

type slurmRequest struct {
	Places []gresconf.Files `json:"places"`
}

func readSlurm(places []gresconf.Files) (s Slurm) {
	for _, files := range places {
		s.Tried = append(s.Tried, files.Slurm)
		conf, err := slurmfiles.Read(files.Slurm)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			s.Unread = err.Error()
			return s
		}
		s.Conf = &conf
		s.Real, _ = filepath.EvalSymlinks(filepath.Dir(files.Slurm))
		s.beside(files)
		return s
	}
	return s
}

// beside reads the files that lie beside slurm.conf.
func (s *Slurm) beside(files gresconf.Files) {
	folder := filepath.Dir(files.Slurm)
	s.Beside = map[string]string{}
	read := func(name string) *slurmconf.Conf {
		conf, err := slurmfiles.Read(name)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				s.Beside[filepath.Base(name)] = err.Error()
			}
			return nil
		}
		if why := conf.Doubt(); why != "" {
			s.Beside[filepath.Base(name)] = why
		}
		return &conf
	}
	s.Gres, s.Cgroup, s.Container = read(files.Gres), read(filepath.Join(folder, "cgroup.conf")), read(filepath.Join(folder, "job_container.conf"))
	plugstack := filepath.Join(folder, "plugstack.conf")
	if v, ok := s.Conf.Get("PlugStackConfig"); ok {
		plugstack = v.Text
	}
	conf, err := slurmfiles.ReadPlugins(plugstack) // "required|optional PLUGIN [ARGUMENTS]": no pairs
	if err != nil {
		return
	}
	for _, l := range conf.Lines {
		s.Plugins = append(s.Plugins, l.Rest+l.Include)
	}
}

type driverRequest struct {
	Proc       string `json:"proc"`
	Sys        string `json:"sys"`
	DriverProc string `json:"driver_proc"`
	NVML       string `json:"nvml"`
	CUDA       string `json:"cuda"`
	Run        string `json:"run"`
	Node       string `json:"node"`
}

func driverRequestOf(s Site) driverRequest {
	p, n := s.Config.Paths, s.Config.NVIDIA
	return driverRequest{p.Proc, p.Sys, n.DriverProc, firstOf(n.NVMLLibrary, s.NVML), firstOf(n.CUDALibrary, s.CUDA), p.Run, s.NodeName}
}

// firstOf is the configured path, or where there is none the likely ones, one a line.
func firstOf(configured string, likely []string) string {
	if configured != "" {
		return configured
	}
	return strings.Join(likely, "\n")
}

func readDriver(r driverRequest) (d Driver) {
	if stuck := state.PeekStuck(r.Run, r.Node); stuck != nil && child.Alive(r.Proc, stuck.PID, stuck.StartTicks) {
		d.Stuck = stage.StuckText(*stuck, (stuck.Since/time.Second*time.Second).String()+" after boot")
	}
	d.Version = inventory.ReadEpoch(r.Proc, r.Sys).Driver
	d.NVML, d.CUDA = libraryVersion(r.NVML), libraryVersion(r.CUDA)
	d.Strangers = strangers(r.Sys)
	cards, err := inventory.Read(r.DriverProc)
	switch {
	case errors.Is(err, inventory.ErrNoDriver):
		d.Absent = true
	case err != nil:
		d.Problem = err.Error()
	}
	d.Cards = cards
	return d
}

func libraryVersion(paths string) string {
	for path := range strings.SplitSeq(paths, "\n") {
		if _, err := os.Lstat(path); err == nil {
			return inventory.LibraryVersion(path)
		}
	}
	return ""
}

// strangers lists NVIDIA's display and 3D controllers on the PCI bus that another driver has, or none.
func strangers(sys string) (found []string) {
	devices, _ := filepath.Glob(filepath.Join(sys, "bus/pci/devices/*"))
	for _, d := range devices {
		vendor, _ := os.ReadFile(filepath.Join(d, "vendor"))
		class, _ := os.ReadFile(filepath.Join(d, "class"))
		if strings.TrimSpace(string(vendor)) != "0x10de" || !strings.HasPrefix(string(class), "0x03") {
			continue
		}
		driver, err := os.Readlink(filepath.Join(d, "driver"))
		switch name := filepath.Base(driver); {
		case err != nil:
			found = append(found, filepath.Base(d)+" has no driver")
		case name != "nvidia":
			found = append(found, filepath.Base(d)+" belongs to "+name)
		}
	}
	return found
}

type systemRequest struct {
	Root string `json:"root"`
	Sys  string `json:"sys"`
	Self string `json:"self"`
}

func readSystem(r systemRequest) (s System) {
	s.Cgroup = cgroupMode(filepath.Join(r.Sys, "fs/cgroup"))
	pam := filepath.Join(r.Root, "etc/pam.d")
	if s.SSH = modules(pam, "sshd", 0); s.SSH == nil {
		s.NoSSH = true
	}
	users, _ := os.ReadDir(filepath.Join(r.Root, "var/lib/systemd/linger"))
	for _, u := range users {
		s.Lingerers = append(s.Lingerers, u.Name())
	}
	var clock unix.Timex
	state, err := unix.Adjtimex(&clock) // asks, as Modes is 0
	if err != nil {
		s.ClockWhy = err.Error()
	}
	s.Unsynced = err == nil && state == timeError
	s.Package = packageOf(r.Root, r.Self)
	return s
}

// packageOf says by which kind of package a program was installed: dpkg lists its files, and what only the .rpm has is there.
func packageOf(root, program string) Package {
	// Threat: none: who can write dpkg's lists installs what he likes.
	list, err := slurmfiles.Text(filepath.Join(root, "var/lib/dpkg/info/bookend.list"))
	if err == nil && slices.Contains(strings.Split(string(list), "\n"), program) {
		return Deb
	}
	if _, err := os.Stat(filepath.Join(root, "usr/share/licenses/bookend/LICENSE")); err == nil {
		return RPM
	}
	return ""
}

// timeError is what adjtimex says of a clock that nobody keeps (TIME_ERROR).
const timeError = 5

func cgroupMode(root string) string {
	var st unix.Statfs_t
	if unix.Statfs(root, &st) != nil {
		return ""
	}
	if st.Type == unix.CGROUP2_SUPER_MAGIC {
		return "v2"
	}
	if unix.Statfs(filepath.Join(root, "unified"), &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
		return "hybrid"
	}
	if entries, err := os.ReadDir(root); err != nil || len(entries) == 0 {
		return ""
	}
	return "v1"
}

// modules are the modules of a PAM configuration, those that it includes in place; nil where there is none.
func modules(folder, name string, depth int) []string {
	text, err := slurmfiles.Text(filepath.Join(folder, name))
	if err != nil || depth > 4 {
		return nil
	}
	all := []string{}
	for line := range bytes.Lines(text) {
		f := strings.Fields(string(line))
		switch {
		case len(f) == 2 && f[0] == "@include":
			all = append(all, modules(folder, filepath.Base(f[1]), depth+1)...)
		case len(f) >= 3 && (f[1] == "include" || f[1] == "substack"):
			all = append(all, modules(folder, filepath.Base(f[2]), depth+1)...)
		case len(f) > 0 && !strings.HasPrefix(f[0], "#"):
			if i := slices.IndexFunc(f, func(w string) bool { return strings.HasSuffix(w, ".so") }); i >= 0 {
				all = append(all, filepath.Base(f[i]))
			}
		}
	}
	return all
}

type versionRequest struct {
	Name  string   `json:"name"`
	Paths []string `json:"paths"` // the first that is there
	Arg   string   `json:"arg"`
	// Conf is SLURM_CONF for Slurm's own: without it they would ask the network where it is.
	Conf string `json:"conf,omitempty"`
}

// versionTime is for a program that only says its version.
const versionTime = 3 * time.Second

// ask starts a program of which only its version is wanted. Threat: it runs as root; one that others could have written
// is not started.
func (r versionRequest) ask() Said {
	for _, path := range r.Paths {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			continue
		}
		if err := safefile.Trusted(path); err != nil {
			return Said{Refused: err.Error()}
		}
		spec := child.Spec{Path: path, Args: []string{r.Arg}, MaxOutput: maxVersion, Timeout: versionTime}
		if r.Conf != "" {
			spec.Env = []string{"SLURM_CONF=" + r.Conf}
		}
		res := child.Run(spec)
		text, _, _ := strings.Cut(string(res.Stdout), "\n")
		if res.Outcome != child.Exited || res.ExitCode != 0 {
			return Said{Failed: fmt.Sprintf("%s, exit %d: %.200s", res.Outcome, res.ExitCode, cmp.Or(strings.TrimSpace(string(res.Stderr)), fmt.Sprint(res.Err)))}
		}
		return Said{Text: strings.TrimSpace(text)}
	}
	return Said{Missing: true}
}

const maxVersion = 4 << 10
