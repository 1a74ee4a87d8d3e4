package operation

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"bookend/internal/child"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/holders"
	"bookend/internal/inventory"
	"bookend/internal/routine"
	"bookend/internal/slurmcmd"
	"bookend/internal/slurmconf"
	"bookend/internal/state"
)

// MachineRequest asks what the kernel and the driver show about themselves in files.
type MachineRequest struct {
	DriverProc string          `json:"driver_proc,omitempty"`
	Dev        string          `json:"dev,omitempty"`
	Proc       string          `json:"proc,omitempty"`
	Sys        string          `json:"sys"`
	Since      *gpu.KernelMark `json:"since,omitempty"` // start in the kernel's log; nil for its newest entry only
}

// InventoryReply has the GPUs that the driver lists in /proc, or the problem.
type InventoryReply struct {
	Cards    []gpu.Card `json:"cards"`
	Epoch    gpu.Epoch  `json:"epoch"`
	NoDriver bool       `json:"no_driver,omitempty"`
	Problem  string     `json:"problem,omitempty"`
}

var Inventory = New("inventory", func(r MachineRequest) (InventoryReply, error) {
	reply := InventoryReply{Epoch: inventory.ReadEpoch(r.Proc, r.Sys)}
	var err error
	if reply.Cards, err = inventory.Read(r.DriverProc, r.Sys); err != nil {
		reply.NoDriver, reply.Problem = errors.Is(err, inventory.ErrNoDriver), err.Error()
	}
	return reply, nil
})

// Present reports whether a GPU is on the kernel's bus list, or a driver has its directory in /proc; neither is asked.
var Present = New("present", func(r MachineRequest) (bool, error) {
	if _, err := os.Lstat(r.DriverProc); err == nil {
		return true, nil
	}
	return inventory.OnBus(r.Sys)
})

// Kernel reads the kernel's log, a ring buffer of up to many megabytes, record by record, and the epoch.
var Kernel = New("kernel", func(r MachineRequest) (gpu.KernelLog, error) {
	log := inventory.ReadLog(r.Dev, r.Since)
	log.Epoch = inventory.ReadEpoch(r.Proc, r.Sys)
	return log, nil
})

// ReaderRequest asks what /proc shows of processes: of these, or of all that have a GPU open.
type ReaderRequest struct {
	Proc   string             `json:"proc"`
	Dev    string             `json:"dev,omitempty"`
	PIDs   []int              `json:"pids,omitempty"`
	Budget time.Duration      `json:"budget_ns"`
	Skip   []finding.Instance `json:"skip,omitempty"` // at which earlier readers hang
}

// Processes reads other processes' /proc. With a Dev, the PIDs are those that a driver lists.
var Processes = New("processes", func(r ReaderRequest) ([]finding.Process, error) {
	return holders.Processes(r.Proc, r.Dev, r.PIDs, r.Budget, r.Skip...), nil
})

// Hanging returns those of the processes whose /proc did not answer.
func Hanging(all []finding.Process) (at []finding.Instance) {
	for _, p := range all {
		if p.Hangs {
			at = append(at, finding.Instance{PID: p.PID, Start: p.Start})
		}
	}
	return at
}

// Holders searches all of /proc for processes that have a GPU open.
var Holders = New("holders", func(r ReaderRequest) (finding.Scan, error) {
	return holders.Scan(r.Proc, r.Dev, r.Budget, r.Skip...), nil
})

// Hung returns the processes at which stuck readers of /proc hang: a new reader skips them. With too many readers on
// record, the new one skips every process's memory, which is what hangs. blocked means that there must be no new
// reader: an earlier one did not report where it hangs.
func Hung(op string, readers []state.Reader) (at []finding.Instance, blocked bool) {
	for _, r := range readers {
		at, blocked = append(at, r.At...), blocked || len(r.At) == 0 && r.Op == op
	}
	if len(readers) >= state.MaxReaders {
		at = []finding.Instance{{}}
	}
	return at, blocked
}

// Readers are the readers of /proc on this host that got stuck, recorded by any of its nodes. Store is that of the
// caller's own node, if it has one.
type Readers struct {
	Config config.Config
	Clock  routine.Clock
	Store  *state.Store
}

// Alive returns a function that reports, from /proc, whether a stuck child still lives.
func Alive(proc string) func(state.Stuck) bool {
	return func(s state.Stuck) bool { return child.Alive(proc, s.PID, s.StartTicks) }
}

// nodes returns the host's nodes; none if that cannot be read, as without root.
func (r Readers) nodes() []string {
	nodes, _ := state.Nodes(r.Config.Paths.Run, "")
	return nodes
}

// Stuck returns the readers on record. It changes nothing.
func (r Readers) Stuck() (all []state.Reader) {
	for _, node := range r.nodes() {
		all = append(all, state.PeekReaders(r.Config.Paths.Run, node, Alive(r.Config.Paths.Proc))...)
	}
	return all
}

// Keep records a reader that a child's failure left behind, for the host's first node if the caller has none.
func (r Readers) Keep(op string, failure error, at []finding.Instance) (err error) {
	left := stuck(op, failure, r.Clock.Boot())
	if left == nil {
		return nil
	}
	if nodes := r.nodes(); r.Store == nil && len(nodes) > 0 {
		r.Store, err = state.Open(r.Config.Paths.Run, nodes[0])
	}
	if r.Store == nil {
		return errors.Join(errors.New("no record of a stuck reader can be kept"), err)
	}
	return r.Store.AddReader(state.Reader{At: at, Stuck: *left}, Alive(r.Config.Paths.Proc))
}

// Read asks a child that reads other processes' /proc, except those at which earlier ones hang. Its reply is valid even
// if it cannot end: it is then recorded with where it hangs, or unkept says why not. err: there is no reply.
func Read[Rep any](
	r Readers, op Operation[ReaderRequest, Rep], request ReaderRequest, timeout time.Duration,
	at func(Rep) []finding.Instance,
) (reply Rep, unkept, err error) {
	var blocked bool
	if request.Skip, blocked = Hung(op.Name, r.Stuck()); blocked {
		return reply, nil, &Error{Op: op.Name, Err: ErrStuck}
	}
	reply, err = op.Ask(request, timeout)
	unkept = r.Keep(op.Name, err, at(reply))
	var failed *Error
	if errors.As(err, &failed) && failed.Answered {
		err = nil
	}
	return reply, unkept, err
}

// HungAt returns the processes at which a search for holders hangs.
func HungAt(s finding.Scan) []finding.Instance { return s.Hung }

// ScanReserve is the time that a reader of /proc has to send its results, before its child would be killed.
const ScanReserve = 200 * time.Millisecond

// Backend and SlurmdG name the backend and slurmd -G in the records of stuck children.
const (
	Backend = "backend"
	SlurmdG = "slurmd -G"
)

// StuckText describes a child that is stuck in the driver, for hooks and the command line.
func StuckText(s state.Stuck, since string) string {
	return fmt.Sprintf("driver not answering since %s: PID %d (%s) cannot be killed", since, s.PID, s.Op)
}

// NumberingRequest asks what Slurm's GPU numbers depend on. Slurm's files may be on a file system that does not answer.
type NumberingRequest struct {
	Proc      string        `json:"proc"`
	Sys       string        `json:"sys"`
	Hook      int           `json:"hook"` // PID
	Node      string        `json:"node"`
	GresConf  string        `json:"gres_conf"`  // configured; empty: where slurmd looks
	SlurmConf string        `json:"slurm_conf"` // SLURM_CONF of the hook
	Slurmd    string        `json:"slurmd"`     // configured; empty: the running one
	Scontrol  string        `json:"scontrol"`
	Kept      slurmconf.Key `json:"kept,omitzero"` // key of the answer on record
}

// NumberingReply is what Slurm's GPU numbers depend on.
type NumberingReply struct {
	Key     slurmconf.Key `json:"key"`
	Own     bool          `json:"own,omitempty"`   // slurmd's own copies (configless)
	Count   int           `json:"count,omitempty"` // GPUs of the node in slurm.conf
	Unsure  string        `json:"unsure,omitempty"`
	Unknown string        `json:"unknown,omitempty"`
	Entries []string      `json:"entries,omitempty"` // of slurm.conf's directory
}

var Numbering = New("numbering", readNumbering)

func readNumbering(r NumberingRequest) (reply NumberingReply, err error) {
	reply.Key = slurmconf.Key{
		Boot: inventory.ReadEpoch(r.Proc, r.Sys).Boot, Node: r.Node, Daemon: slurmcmd.Running(r.Proc, r.Hook),
	}
	kept := r.Kept
	if r.GresConf == "" && r.SlurmConf == "" { // a health check has neither
		r.SlurmConf = kept.Conf
	}
	at, conf, gres, unread := slurmcmd.ReadFirst(slurmconf.Find(r.GresConf, r.SlurmConf))
	switch {
	case reply.Key.Daemon.PID != 0:
	case child.Alive(r.Proc, kept.Daemon.PID, kept.Daemon.Ticks):
		reply.Key.Daemon = kept.Daemon
	case at.Slurm != "":
		reply.Key.Daemon = r.byFile(conf)
	}
	// slurmd's own program: that of the running one, else the one that was installed with scontrol.
	program := cmp.Or(r.Slurmd, reply.Key.Daemon.Exe, kept.Slurmd.Path,
		filepath.Join(filepath.Dir(filepath.Dir(r.Scontrol)), "sbin/slurmd"))
	if reply.Key.Slurmd, err = slurmcmd.Identify(program); err != nil {
		return reply, err
	}
	if err := reply.judge(at, conf, gres, unread); err != nil {
		reply.Unknown = err.Error()
	}
	return reply, nil
}

// byFile finds slurmd by slurm.conf's SlurmdPidFile: hooks in a job, or from a timer, do not descend from slurmd.
func (r NumberingRequest) byFile(conf slurmconf.Conf) slurmconf.Daemon {
	path, _ := conf.Get("SlurmdPidFile")
	host, _ := os.Hostname()
	host, _, _ = strings.Cut(host, ".")
	name := strings.NewReplacer("%n", r.Node, "%h", host).Replace(cmp.Or(path.Text, config.SlurmdPIDFile))
	return slurmcmd.ByFile(r.Proc, name)
}

// judge adds what the configuration says about the GPUs, and the files that it is in.
func (r *NumberingReply) judge(at slurmconf.Files, conf, gres slurmconf.Conf, err error) error {
	switch {
	case at.Slurm == "":
		return errors.New("no slurm.conf was found (slurm.gres_conf)")
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	names := slices.Concat([]string{at.Slurm, at.Gres}, conf.Files, gres.Files)
	slices.Sort(names)
	r.Key.Conf = at.Slurm
	for _, name := range slices.Compact(names) {
		id, err := slurmcmd.Identify(name)
		if err != nil {
			return err
		}
		r.Key.Files = append(r.Key.Files, id)
	}
	if r.Entries, err = slurmcmd.Entries(at.Slurm); err != nil {
		return err
	}
	own := conf.Node(r.Key.Node)
	r.Count = slurmconf.Count(own.Gres)
	if r.Unsure = own.Unsure; r.Unsure == "" && !own.Found {
		r.Unsure = "slurm.conf does not name this node"
	}
	if real, err := filepath.EvalSymlinks(filepath.Dir(at.Slurm)); err == nil {
		r.Own = filepath.Base(real) == "conf-cache" // where slurmd keeps a configuration from slurmctld
	}
	return nil
}

// SharingOf returns from Slurm's files, whose file system may hang, whether a node's GPUs are given out in parts.
var SharingOf = New("sharing", func(r NumberingRequest) (slurmconf.Answer, error) {
	at, slurm, _, err := slurmcmd.ReadFirst(slurmconf.Find(r.GresConf, r.SlurmConf))
	switch {
	case at.Slurm == "":
		return unknown("no slurm.conf was found (slurm.gres_conf, slurm.shards)"), nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return unknown(err.Error()), nil
	}
	return slurmconf.SharedGPUs(slurm, r.Node), nil
})

func unknown(why string) slurmconf.Answer {
	return slurmconf.Answer{Shared: slurmconf.Unknown, Why: why}
}

// NodeSharing answers from the configuration, or else from Slurm's files. If the child fails, the answer is unknown.
func NodeSharing(c config.Slurm, slurmConf, node string, timeout time.Duration) slurmconf.Answer {
	switch c.Shards {
	case config.ShardsYes:
		return slurmconf.Answer{Shared: slurmconf.Yes, Why: "GPUs are given out in shards here (slurm.shards)"}
	case config.ShardsNo:
		return slurmconf.Answer{Shared: slurmconf.No}
	}
	answer, err := SharingOf.Ask(NumberingRequest{GresConf: c.GresConf, SlurmConf: slurmConf, Node: node}, timeout)
	if err != nil {
		return unknown(err.Error())
	}
	return answer
}

// SharingTime is the limit for reading two small files; a slower disk counts as one that does not answer.
const SharingTime = time.Second
