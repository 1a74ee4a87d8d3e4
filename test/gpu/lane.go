package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"bookend/test/cluster"
	"bookend/test/gpu/record"
	"bookend/test/site"
)

// node is the cluster's only one. Its name is the lane's own, so that no other cluster's cgroups are waited for.
const node = "lane"

const mib = 1 << 20

// torchPatience bounds PyTorch's first import, from a cold disk.
const torchPatience = 2 * time.Minute

// noMulticast keeps every program off NVLink multicast, which can put the cards of a shared host out of service.
var noMulticast = []string{"NCCL_NVLS_ENABLE=0", "TORCH_SYMM_MEM_DISABLE_MULTICAST=1", "NVSHMEM_DISABLE_NVLS=1"}

//go:embed py/clean.py
var cleanPy string

//go:embed py/loader.py
var loaderPy string

// lane is one run of everything.
type lane struct {
	options
	say   io.Writer
	began time.Time

	site    *site.Site
	once    sync.Once // of down
	cards   []card    // by Slurm's index
	track   cluster.Track
	machine record.Machine
	smi     string   // nvidia-smi, empty in a rehearsal
	python  string   // one with PyTorch, empty without
	env     []string // of jobs and of what the daemon starts, beside Slurm's
	daemon  *daemon
	done    []record.Run
	perf    *record.Timings
}

// up brings the cluster up with Bookend on it and finds what jobs need.
func (l *lane) up() error {
	if os.Geteuid() != 0 {
		return errors.New("needs root: slurmd starts jobs as their users")
	}
	if err := cluster.SweepDead(); err != nil {
		return err
	}
	o := site.Options{Programs: l.programs, Nodes: []string{node}, GPUs: l.fake, Constrain: true, Config: l.sections()}
	if l.fake == 0 {
		if err := l.findCards(); err != nil {
			return err
		}
		o.Devices, o.Config = devicesOf(l.cards), l.sections()
	}
	tracks, err := cluster.Tracks()
	if err != nil {
		return err
	}
	if l.track = tracks[len(tracks)-1]; l.track == cluster.LinuxProc {
		return errors.New("no writable cgroup hierarchy: jobs could not be fenced")
	}
	o.Track = l.track
	if l.site, err = site.Up(o); err != nil {
		return err
	}
	return l.equip()
}

// sections are what the lane configures beside the shipped defaults.
func (l *lane) sections() string {
	text := "log:\n  format: json\n  syslog: false\n"
	if l.fake == 0 && !ordersAgree(l.cards) {
		text += "nvidia:\n  gpu_order: minor\n" // what gres.conf says here, and an admin would configure
	}
	return text
}

// equip installs what jobs run, starts the daemon and looks at the machine.
func (l *lane) equip() error {
	program := filepath.Join(l.programs, "cudajob")
	if w := l.site.World(node); w != nil {
		program = w.FakeCUDA()
		cards, err := cardsIn(w.DriverProc())
		if err != nil {
			return err
		}
		l.cards = cards
	}
	for name, source := range map[string]string{"cudajob": program, "gpu-lane": "/proc/self/exe"} {
		data, err := os.ReadFile(source)
		if err != nil {
			return err
		}
		if err := os.WriteFile(l.site.Program(name), data, 0o755); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{"clean.py": cleanPy, "loader.py": loaderPy} {
		if err := os.WriteFile(l.site.Program(name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	l.env = slices.Clone(noMulticast)
	if v := os.Getenv("LD_LIBRARY_PATH"); v != "" {
		l.env = append(l.env, "LD_LIBRARY_PATH="+v)
	}
	var err error
	if l.daemon, err = startDaemon(l.socket(), l.holderProgram(), l.env); err != nil {
		return err
	}
	l.describe()
	if l.fake == 0 {
		l.findTorch()
	}
	if err := l.awaitIdle(5 * time.Second); err != nil {
		return fmt.Errorf("the lane needs the GPUs for itself: %w", err)
	}
	fmt.Fprintf(l.say, "gpu-lane: %+v\n", l.machine)
	return nil
}

func (l *lane) socket() string { return filepath.Join(l.site.Dir, "daemon.sock") }

// holderProgram is cudajob; a rehearsal's stays in its world, beside its libraries.
func (l *lane) holderProgram() string {
	if w := l.site.World(node); w != nil {
		return w.FakeCUDA()
	}
	return l.site.Program("cudajob")
}

// findCards finds nvidia-smi and the GPUs. The driver shows a card's UUID only once somebody has used the card.
func (l *lane) findCards() error {
	cards, err := cardsIn(driverProc)
	if err != nil {
		return err
	}
	if len(cards) == 0 {
		return errNoGPU
	}
	for _, name := range []string{"nvidia-smi", "/usr/bin/nvidia-smi", "/usr/local/nvidia/bin/nvidia-smi"} {
		if l.smi, err = exec.LookPath(name); err == nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("the lane checks Bookend against nvidia-smi: %w", err)
	}
	if out, err := exec.Command(l.smi, "-L").CombinedOutput(); err != nil {
		return fmt.Errorf("nvidia-smi -L: %w: %s", err, out)
	}
	if l.cards, err = cardsIn(driverProc); err != nil {
		return err
	}
	for _, c := range l.cards {
		if !strings.HasPrefix(c.uuid, "GPU-") || strings.Contains(c.uuid, "?") || c.bus == "" {
			return fmt.Errorf("%s does not tell card %d's UUID and bus: %+v", driverProc, c.minor, c)
		}
	}
	return nil
}

// findTorch asks python3 for PyTorch, as the user whose jobs will.
func (l *lane) findTorch() {
	python, err := exec.LookPath("python3")
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), torchPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-c", "import torch; print(torch.__version__)")
	uid, gid := ids(l.site.Users[0])
	cmd.Dir, cmd.Env = "/", append(slices.Clone(l.env), "PATH=/usr/bin:/bin", "HOME=/nonexistent") // as bare as a job's
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		fmt.Fprintf(l.say, "gpu-lane: no PyTorch for user %s: %s: %v: %s\n", l.site.Users[0], python, err, complaint.String())
		return
	}
	l.python, l.machine.Torch = python, strings.TrimSpace(string(out))
}

func ids(name string) (uid, gid uint32) {
	u, err := user.Lookup(name)
	if err != nil {
		return 65534, 65534
	}
	return uint32(number(u.Uid)), uint32(number(u.Gid))
}

// used is how many bytes of a card are in use, asked of somebody else than Bookend.
func (l *lane) used(index int) (uint64, error) {
	if w := l.site.World(node); w != nil {
		return w.Used(index)
	}
	out, err := exec.Command(l.smi, "-i", l.cards[index].uuid, "--query-gpu=memory.used", "--format=csv,noheader,nounits").Output()
	if err != nil {
		return 0, fmt.Errorf("ask nvidia-smi: %w", err)
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(out)), 10, 64)
	return n * mib, err
}

// awaitIdle waits until nobody holds memory on any card: below 32 MiB, from where Bookend reports.
func (l *lane) awaitIdle(patience time.Duration) error {
	var last error
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		last = nil
		for i := range l.cards {
			used, err := l.used(i)
			if err == nil && used >= 32*mib {
				err = fmt.Errorf("GPU %d: %d MiB in use", i, used/mib)
			}
			last = errors.Join(last, err)
		}
		if last == nil || time.Now().After(deadline) {
			return last
		}
	}
}

// total is the smallest card's memory in MiB.
func (l *lane) total() uint64 {
	const unknown = 16 << 10
	if l.fake > 0 {
		return 143771
	}
	out, err := exec.Command(l.smi, "--query-gpu=memory.total", "--format=csv,noheader,nounits").Output()
	if err != nil {
		return unknown
	}
	var all []uint64
	for _, word := range strings.Fields(string(out)) {
		all = append(all, number(word))
	}
	if len(all) == 0 || slices.Min(all) == 0 {
		return unknown
	}
	return slices.Min(all)
}

// reset ends what a chain of runs left and waits until the next can begin on idle cards.
func (l *lane) reset() error {
	l.daemon.killAll()
	var errs []error
	for _, name := range l.site.Users {
		cmd, err := l.site.Command("", "scancel", "--user="+name)
		if err != nil {
			return err
		}
		errs = append(errs, cmd.Run())
	}
	_, err := l.site.WaitNode(node, jobPatience, func(n cluster.NodeState) bool {
		return !n.Has("ALLOCATED") && !n.Has("MIXED") && !n.Has("COMPLETING")
	})
	_, endErr := l.site.EndLeftovers()
	errs = append(errs, err, endErr, l.configure("observe"))
	n, err := l.site.Node(node)
	if errs = append(errs, err); n.Has("DRAIN") {
		errs = append(errs, l.site.Resume(node))
	}
	return errors.Join(append(errs, l.awaitIdle(15*time.Second))...)
}

func (l *lane) configure(mode string) error { return l.site.WriteConfig(node, mode, l.sections()) }

func (l *lane) down() (err error) {
	l.once.Do(func() {
		if l.daemon != nil {
			l.daemon.close()
		}
		if l.site != nil {
			err = l.site.Down()
		}
	})
	return err
}
