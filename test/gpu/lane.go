package main

import (
	"context"
	"embed"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"bookend/test/cluster"
	"bookend/test/gpu/runrecord"
	"bookend/test/site"
)

// firstNode is the cluster's only node, or a rehearsal's first. The name is the lane's own, so that no other
// cluster's cgroups are waited for.
const firstNode = "lane"

const mib = 1 << 20

// torchPatience bounds PyTorch's first import, from a cold disk.
const torchPatience = 2 * time.Minute

// noMulticast keeps every program off NVLink multicast, which can put the cards of a shared host out of service.
var noMulticast = []string{"NCCL_NVLS_ENABLE=0", "TORCH_SYMM_MEM_DISABLE_MULTICAST=1", "NVSHMEM_DISABLE_NVLS=1"}

// The programs that are no binaries: Python's, MPS's script, and the source of one of CUDA's runtime.
//
//go:embed scenarios/*.py scenarios/*.sh scenarios/*.cu
var scripts embed.FS

// lane is everything that runs on one node. A rehearsal has several nodes, each with fake cards of its own, at work
// side by side; they share the site, the clock and the book.
type lane struct {
	options
	node  string
	say   io.Writer
	tale  io.Writer // where a story is written; nil without one
	began time.Time

	site    *site.Site
	cards   []card   // by Slurm's index
	head    []string // lines that each job begins with
	oneGPU  string   // how a job asks for one GPU
	track   cluster.Track
	machine runrecord.Machine
	smi     string   // nvidia-smi, empty in a rehearsal
	python  string   // one with PyTorch, empty without
	env     []string // of jobs and of what the daemon starts, beside Slurm's
	daemon  *daemon
	book    *book
	perf    *runrecord.Timings
	came    []string // the timings that came about
	needs   uint64   // KiB of address space that importing PyTorch takes; 0: unknown
	beside  []*lane  // the other nodes' lanes
}

type book struct {
	mu      sync.Mutex
	done    []runrecord.Run
	down    sync.Once
	ownJobs atomic.Int64 // ids of jobs that were given to hooks without Slurm
}

// nodes are the names of the cluster's nodes. Real cards are all on one.
func (l *lane) nodes() []string {
	names := []string{firstNode}
	for i := 1; i < l.fakeNodes && l.fake > 0; i++ {
		names = append(names, fmt.Sprintf("%s%d", firstNode, i))
	}
	return names
}

// up brings the cluster up with Bookend on it and finds what jobs need.
func (l *lane) up() {
	if os.Geteuid() != 0 {
		panic(fmt.Errorf("needs root: slurmd starts jobs as their users"))
	}
	if err := cluster.SweepDead(); err != nil { // another one is used
		l.complain("gpu-lane: what an earlier cluster left cannot be removed: %v", err)
	}
	if l.fake == 0 {
		l.findCards()
	}
	o := site.Options{Programs: l.programs, Nodes: l.nodes(), GPUs: l.fake, Devices: l.devices(), Config: l.sections(nil)}
	tracks := cluster.Tracks()
	l.track = tracks[len(tracks)-1]
	if o.Track, o.Constrain = l.track, l.track != cluster.LinuxProc; !o.Constrain && (l.fake == 0 || !l.story) {
		panic(fmt.Errorf("no writable cgroup hierarchy: jobs could not be fenced"))
	}
	l.site = must(site.Up(o))
	l.equip()
}

// A rehearsal is about the lane and the judgement, not about how long PyTorch's workers take, so its times are short.
const rehearsalSettle = "{prolog: {stable: 200ms, max: 1s}, epilog: {stable: 500ms, max: 3s}}"

// rehearsalDeadlines leave a busy machine the time that may be configured: a rehearsal is not about how fast hooks are.
const rehearsalDeadlines = "{prolog: {total: 4m, driver: 60s, processes: 60s, probe: 30s, records: 60s}, " +
	"epilog: {total: 5m, driver: 60s, processes: 60s, probe: 60s, job_log: 30s, records: 60s}, " +
	"health_check: {total: 55s, driver: 20s, processes: 10s, slurm: 5s, records: 10s}}"

// sections are what the lane configures beside the shipped defaults, with further or other sections by name.
func (l *lane) sections(other map[string]string) string {
	all := map[string]string{"log": "{format: json, syslog: false}"}
	if !l.story { // a story shows what sites see; else Slurm's own words are the judge
		all["drain"] = "{reason_by: healthcheck}"
	}
	if l.fake > 0 {
		all["settle"], all["deadlines"] = rehearsalSettle, rehearsalDeadlines
		all["record"] = "{every: 100ms}" // what is played is over in a second
	}
	maps.Copy(all, other)
	return render(all)
}

func render(sections map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(sections)) {
		fmt.Fprintf(&b, "%s: %s\n", name, sections[name])
	}
	return b.String()
}

// equip installs what jobs run, looks at the machine and starts each node's daemon.
func (l *lane) equip() {
	l.install()
	l.env = slices.Clone(noMulticast)
	if v := os.Getenv("LD_LIBRARY_PATH"); v != "" {
		l.env = append(l.env, "LD_LIBRARY_PATH="+v)
	}
	if l.fake == 0 {
		l.findTorch()
	}
	l.settleIn()
	l.describe()
	of := ""
	if l.fake > 0 {
		of = "fake GPUs, made to look like those of "
	}
	fmt.Fprintf(l.say, "gpu-lane: %s%+v\n", of, l.machine)
	l.prologue()
	for _, name := range l.nodes()[1:] {
		other := *l
		other.node = name
		l.beside = append(l.beside, &other)
		other.settleIn()
	}
}

// settleIn finds a node's cards, starts its daemon and makes sure that nobody else uses the cards.
func (l *lane) settleIn() {
	path := "PATH=/usr/bin:/bin"
	if w := l.site.World(l.node); w != nil {
		l.cards = must(cardsIn(w.DriverProc()))
		path += ":" + w.Dir() // where the fake vendor's programs are
	}
	l.daemon = &daemon{programs: l.holderPrograms(), env: append(slices.Clone(l.env), "HOME=/nonexistent", path),
		fake: l.fake > 0, mark: "BOOKEND_LANE_DAEMON=" + l.site.Dir + "/" + l.node}
	if err := attempt(l.awaitIdle); err != nil {
		panic(fmt.Errorf("the lane needs the GPUs for itself: %w", err))
	}
}

// install puts the jobs' programs where every user can run them.
func (l *lane) install() {
	put := func(name string, data []byte) { try(os.WriteFile(l.site.Program(name), data, 0o755)) }
	for _, name := range []string{"cudajob", "bare", "idle", planter, slowCUDA} {
		put(name, must(os.ReadFile(filepath.Join(l.programs, name))))
	}
	for _, e := range must(scripts.ReadDir("scenarios")) {
		put(e.Name(), must(scripts.ReadFile("scenarios/"+e.Name())))
	}
}

// cudaJob is the user's CUDA program; a rehearsal's stays in its world, beside its libraries.
func (l *lane) cudaJob() string {
	if w := l.site.World(l.node); w != nil {
		return w.FakeCUDA()
	}
	return l.site.Program("cudajob")
}

func (l *lane) holderPrograms() map[string][]string {
	all := map[string][]string{"cudajob": {l.cudaJob()}, contained: {l.cudaJob()}, "mps": {l.site.Program("mps.sh")},
		"passers": {"/bin/sh", "-c", passers}}
	if l.python != "" {
		all["forkhold"] = []string{l.python, l.site.Program("forkhold.py")}
		all["workers"] = []string{l.python, l.site.Program("workers.py")}
	}
	return all
}

// findTorch asks python3 for PyTorch, as the user whose jobs will.
func (l *lane) findTorch() {
	python, err := exec.LookPath("python3")
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), torchPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-c",
		"import torch; print(torch.__version__); print(open('/proc/self/status').read())")
	uid, gid := ids(l.site.Users[0])
	cmd.Dir, cmd.Env = "/", append(slices.Clone(l.env), "PATH=/usr/bin:/bin", "HOME=/nonexistent") // as bare as a job's
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		fmt.Fprintf(l.say, "gpu-lane: no PyTorch for user %s: %s: %v: %s\n", l.site.Users[0], python, err,
			complaint.String())
		return
	}
	version, status, _ := strings.Cut(string(out), "\n")
	l.python, l.machine.Torch = python, strings.TrimSpace(version)
	l.needs = number(strings.TrimSuffix(field([]byte(status), "VmPeak"), " kB"))
}

func ids(name string) (uid, gid uint32) {
	u := must(user.Lookup(name))
	return uint32(number(u.Uid)), uint32(number(u.Gid))
}

// reset ends what a chain of runs left and waits until the next can begin on idle cards.
func (l *lane) reset() {
	l.daemon.killAll()
	for _, name := range l.site.Users {
		try(must(l.site.Command("", "scancel", "--user="+name, "--nodelist="+l.node)).Run())
	}
	must(l.site.WaitNode(l.node, jobPatience, func(n cluster.NodeState) bool {
		return !n.Has("ALLOCATED") && !n.Has("MIXED") && !n.Has("COMPLETING")
	}))
	l.configure("observe", nil)
	l.resume()
	l.awaitIdle()
	time.Sleep(deadListed) // or the next scenario begins on a card with somebody on it
}

func (l *lane) resume() {
	if must(l.site.Node(l.node)).Has("DRAIN") {
		try(l.site.Resume(l.node))
	}
}

func (l *lane) configure(mode string, other map[string]string) {
	try(l.site.WriteConfig(l.node, mode, l.sections(other)))
}

func (l *lane) close() (err error) {
	l.book.down.Do(func() {
		for _, each := range append([]*lane{l}, l.beside...) {
			if each.daemon != nil {
				each.daemon.killAll()
			}
		}
		if l.site != nil {
			err = l.site.Down()
		}
	})
	return err
}
