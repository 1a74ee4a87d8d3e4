package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/child"
	"bookend/internal/config"
	"bookend/internal/inventory"
	"bookend/internal/operation"
	"bookend/internal/safefile"
	"bookend/internal/slurmconf"
	"bookend/internal/slurmd"
	"bookend/internal/state"
)

// The operations of the children that look.
const (
	opLook    = "doctor-look"
	opDaemons = "doctor-daemons"
	opSlurm   = "doctor-slurm"
	opDriver  = "doctor-driver"
	opVersion = "doctor-version"
)

// Operations are what the children of a program with doctor in it serve.
func Operations() operation.Others {
	return operation.Others{
		opLook: operation.Served(func(looks []Look) (all []Seen, _ error) {
			for _, l := range looks {
				all = append(all, l.inspectAll())
			}
			return all, nil
		}),
		opDaemons: operation.Served(func(r daemonsRequest) ([]Daemon, error) { return findSlurmd(r.Proc) }),
		opSlurm:   operation.Served(readSlurm),
		opDriver:  operation.Served(driverRequest.read),
		opVersion: operation.Served(versionRequest.ask),
	}
}

type daemonsRequest struct {
	Proc string `json:"proc"`
}

// findSlurmd lists the slurmd of a node. Threat: any process may call itself so; it counts only as root's, and a claim
// leads to no more than words and to a file that is read.
func findSlurmd(proc string) (found []Daemon, err error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		folder := filepath.Join(proc, e.Name())
		var st unix.Stat_t
		name, _ := os.ReadFile(filepath.Join(folder, "comm"))
		if strings.TrimSpace(string(name)) != "slurmd" || unix.Stat(folder, &st) != nil || st.Uid != 0 {
			continue
		}
		args := words(filepath.Join(folder, "cmdline"))
		if len(args) > 0 && !strings.HasPrefix(args[0], "slurmstepd") {
			found = append(found, daemonOf(folder, pid, args))
		}
	}
	return found, nil
}

func daemonOf(folder string, pid int, args []string) Daemon {
	d := Daemon{PID: pid, Node: option(args, "-N"), Conf: option(args, "-f")}
	root, err := os.Readlink(filepath.Join(folder, "root"))
	exe, _ := os.Readlink(filepath.Join(folder, "exe"))
	if err == nil && root == "/" && !strings.HasSuffix(exe, " (deleted)") {
		d.Exe = exe // in another root the path means another file
	}
	for _, v := range words(filepath.Join(folder, "environ")) {
		if conf, ok := strings.CutPrefix(v, "SLURM_CONF="); ok {
			d.Conf = cmp.Or(d.Conf, conf)
		}
	}
	return d
}

// option is the value of an option: "-f FILE" or "-fFILE".
func option(args []string, name string) string {
	for i := 1; i < len(args); i++ {
		switch value, ok := strings.CutPrefix(args[i], name); {
		case ok && value != "":
			return value
		case ok && i+1 < len(args):
			return args[i+1]
		}
	}
	return ""
}

// maxOwnWords bounds what a process says of itself: its arguments, its environment.
const maxOwnWords = 128 << 10

// words reads a file of /proc with a zero byte behind each word.
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

func readSlurm(places []slurmconf.Files) (s Slurm, _ error) {
	for _, files := range places {
		s.Tried = append(s.Tried, files.Slurm)
		conf, err := slurmd.Read(files.Slurm)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			s.Unread = err.Error()
			return s, nil
		}
		s.Conf = &conf
		s.Real, _ = filepath.EvalSymlinks(filepath.Dir(files.Slurm))
		s.readBeside(files)
		return s, nil
	}
	return s, nil
}

// readBeside reads the files next to slurm.conf.
func (s *Slurm) readBeside(files slurmconf.Files) {
	folder := filepath.Dir(files.Slurm)
	read := func(name string) *slurmconf.Conf {
		conf, err := slurmd.Read(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			s.Beside = filepath.Base(name) + ": " + err.Error()
			return nil
		case conf.Doubt() != "":
			s.Beside = filepath.Base(name) + ": " + conf.Doubt()
		}
		return &conf
	}
	s.Gres, s.Cgroup = read(files.Gres), read(filepath.Join(folder, "cgroup.conf"))
	plugstack := filepath.Join(folder, "plugstack.conf")
	if v, ok := s.Conf.Get("PlugStackConfig"); ok {
		plugstack = v.Text
	}
	conf, err := slurmd.ReadPlugins(plugstack) // "required|optional PLUGIN [ARGUMENTS]": no pairs
	if err != nil {
		return
	}
	for _, l := range conf.Lines {
		s.Plugins = append(s.Plugins, l.Rest+l.Include)
	}
}

type driverRequest struct {
	Paths      config.Paths `json:"paths"`
	DriverProc string       `json:"driver_proc"`
	Node       string       `json:"node"`
}

func (r driverRequest) read() (d Driver, _ error) {
	stuck := state.PeekStuck(r.Paths.Run, r.Node)
	if stuck != nil && child.Alive(r.Paths.Proc, stuck.PID, stuck.StartTicks) {
		d.Stuck = operation.StuckText(*stuck, stuck.Since.Truncate(time.Second).String()+" after boot")
	}
	d.Version = inventory.ReadEpoch(r.Paths.Proc, r.Paths.Sys).Driver
	if r.DriverProc == "" { // the backend lists the GPUs
		return d, nil
	}
	cards, err := inventory.Read(r.DriverProc)
	switch {
	case errors.Is(err, inventory.ErrNoDriver):
		d.Absent = true
	case err != nil:
		d.Problem = err.Error()
	}
	d.Cards = cards
	return d, nil
}

type versionRequest struct {
	Paths []string `json:"paths"` // the first that exists
	Conf  string   `json:"conf"`  // SLURM_CONF: without it slurmd would ask the network where it is
}

const (
	// versionTime is for a program that only says its version.
	versionTime = 3 * time.Second
	maxVersion  = 4 << 10
)

// ask starts slurmd, of which only its version is wanted. Threat: it runs as root; one that a user could
// have written is not started.
func (r versionRequest) ask() (Answer, error) {
	for _, path := range r.Paths {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			continue
		}
		if err := safefile.Trusted(path); err != nil {
			return Answer{Unknown: "not started: " + err.Error()}, nil
		}
		res := child.Run(child.Spec{
			Path: path, Args: []string{"-V"}, Env: []string{"SLURM_CONF=" + r.Conf}, MaxOutput: maxVersion,
			Timeout: versionTime,
		})
		if res.Outcome != child.Exited || res.ExitCode != 0 {
			said := cmp.Or(strings.TrimSpace(string(res.Stderr)), fmt.Sprint(res.Err))
			return Answer{Unknown: fmt.Sprintf("%s, exit %d: %.200s", res.Outcome, res.ExitCode, said)}, nil
		}
		text, _, _ := strings.Cut(string(res.Stdout), "\n")
		return Answer{Text: strings.TrimSpace(text)}, nil
	}
	return Answer{Missing: true}, nil
}

// trouble says why a program did not tell its version.
func (a Answer) trouble() string {
	switch {
	case a.Missing:
		return "missing"
	case a.Unknown != "":
		return a.Unknown
	}
	return fmt.Sprintf("it says %.60q", a.Text)
}
