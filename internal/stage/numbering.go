package stage

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
	"bookend/internal/gpu"
	"bookend/internal/gresconf"
	"bookend/internal/inventory"
	"bookend/internal/ledger"
	"bookend/internal/numbering"
	"bookend/internal/resolve"
	"bookend/internal/slurm"
	"bookend/internal/slurmconf"
	"bookend/internal/slurmd"
	"bookend/internal/slurmfiles"
	"bookend/internal/state"
)

// numberingRequest crosses the pipe of opNumbering. Slurm's files may be on a file system that does not answer.
type numberingRequest struct {
	Proc      string         `json:"proc"`
	Sys       string         `json:"sys"`
	Hook      int            `json:"hook"` // PID
	Node      string         `json:"node"`
	GresConf  string         `json:"gres_conf"`  // configured; empty: where slurmd looks
	SlurmConf string         `json:"slurm_conf"` // as slurmd told the hook
	Slurmd    string         `json:"slurmd"`     // configured; empty: the running one's
	Scontrol  string         `json:"scontrol"`
	Kept      *numbering.Key `json:"kept,omitempty"`
	Again     bool           `json:"again,omitempty"` // the files are to be read even if Kept still holds
}

// numberingReply says what the numbers depend on, and unless that is what Kept says, what the files say of the GPUs.
type numberingReply struct {
	Key     numbering.Key  `json:"key"`
	Own     bool           `json:"own,omitempty"`   // slurmd's own copies (configless)
	Count   int            `json:"count,omitempty"` // of the node's GPUs in slurm.conf
	Unsure  string         `json:"unsure,omitempty"`
	Counted numbering.List `json:"counted,omitzero"` // what the files say without slurmd
	Unknown string         `json:"unknown,omitempty"`
	Entries []string       `json:"entries,omitempty"` // of slurm.conf's directory
	Library string         `json:"library,omitempty"` // the running slurmd's LD_LIBRARY_PATH
}

var serveNumbering = served(func(r numberingRequest) (reply numberingReply, err error) {
	boot, running := inventory.ReadEpoch(r.Proc, r.Sys).Boot, slurmd.Running(r.Proc, r.Hook)
	reply.Key = numbering.Key{Boot: boot, Node: r.Node, Daemon: running}
	if k := r.Kept; k != nil && reply.Key.Daemon.PID == 0 && child.Alive(r.Proc, k.Daemon.PID, k.Daemon.Ticks) {
		reply.Key.Daemon = k.Daemon
	}
	if k := r.Kept; k != nil && r.GresConf == "" && r.SlurmConf == "" { // a health check: it is told neither
		r.SlurmConf = k.Conf
	}
	places := gresconf.Find(r.GresConf, r.SlurmConf)
	if reply.Key.Daemon.PID == 0 {
		reply.Key.Daemon = r.byFile(places)
	}
	if reply.Key.Slurmd, err = slurmd.Identify(r.program(reply.Key.Daemon)); err != nil {
		return reply, err
	}
	if r.Kept != nil && places[0].Slurm == r.Kept.Conf {
		reply.Key.Conf = r.Kept.Conf
		if err := reply.identify(slices.Collect(paths(r.Kept.Files))); err != nil {
			return reply, err
		}
		if !r.Again && reply.Key.Same(*r.Kept) {
			return reply, nil
		}
	}
	reply.readFiles(places)
	reply.Library = slurmd.Library(r.Proc, reply.Key.Daemon.PID)
	return reply, nil
})

// byFile is the slurmd that slurm.conf's SlurmdPidFile names: hooks inside a job, or of a timer, are none of its
// descendants.
func (r numberingRequest) byFile(places []gresconf.Files) numbering.Daemon {
	for _, at := range places {
		conf, err := slurmfiles.Read(at.Slurm)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		path, _ := conf.Get("SlurmdPidFile")
		host, _ := os.Hostname()
		host, _, _ = strings.Cut(host, ".")
		name := strings.NewReplacer("%n", r.Node, "%h", host).Replace(cmp.Or(path.Text, config.SlurmdPIDFile))
		return slurmd.ByFile(r.Proc, name)
	}
	return numbering.Daemon{}
}

// program is slurmd's own: the running one's, else the one that was installed with scontrol.
func (r numberingRequest) program(running numbering.Daemon) string {
	switch {
	case r.Slurmd != "":
		return r.Slurmd
	case running.Exe != "":
		return running.Exe
	case r.Kept != nil:
		return r.Kept.Slurmd.Path
	}
	return filepath.Join(filepath.Dir(filepath.Dir(r.Scontrol)), "sbin/slurmd")
}

func paths(files []numbering.FileID) func(func(string) bool) {
	return func(yield func(string) bool) {
		for _, f := range files {
			if !yield(f.Path) {
				return
			}
		}
	}
}

func (r *numberingReply) identify(files []string) error {
	r.Key.Files = nil
	for _, name := range files {
		id, err := slurmd.Identify(name)
		if err != nil {
			return err
		}
		r.Key.Files = append(r.Key.Files, id)
	}
	return nil
}

// readFiles reads the configuration that is there, and then what it says: a change in between shows in the next key.
func (r *numberingReply) readFiles(places []gresconf.Files) {
	for _, at := range places {
		conf, err := slurmfiles.Read(at.Slurm)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var gres slurmconf.Conf
		if err == nil {
			gres, err = slurmfiles.Read(at.Gres)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			r.Unknown = err.Error()
			return
		}
		missing := err != nil
		names := slices.Concat([]string{at.Slurm, at.Gres}, conf.Files, gres.Files)
		slices.Sort(names)
		r.Key.Conf = at.Slurm
		if err := r.identify(slices.Compact(names)); err != nil {
			r.Unknown = err.Error()
			return
		}
		if r.Entries, err = slurmd.Entries(at.Slurm); err != nil {
			r.Unknown = err.Error()
			return
		}
		r.count(conf, gres, missing)
		if real, err := filepath.EvalSymlinks(filepath.Dir(at.Slurm)); err == nil {
			r.Own = filepath.Base(real) == confCache
		}
		return
	}
	r.Unknown = "no slurm.conf was found (slurm.gres_conf)"
}

// confCache is the directory of the copies that slurmd makes where it has its configuration from slurmctld.
const confCache = "conf-cache"

// count takes what the files say without slurmd.
func (r *numberingReply) count(conf, gres slurmconf.Conf, missing bool) {
	own := conf.Node(r.Key.Node)
	r.Count, _, _ = gresconf.Count(own.Gres)
	if r.Unsure = own.Unsure; r.Unsure == "" && !own.Found {
		r.Unsure = "slurm.conf does not name this node"
	}
	if missing {
		r.Counted = numbering.Unclear("there is no gres.conf")
		return
	}
	run, err := gresconf.Simple(&conf, &gres, r.Key.Node)
	if err != nil {
		r.Counted = numbering.Unclear("%v", err)
		return
	}
	r.Counted = numbering.List{Source: numbering.ByCount, GPUs: run.GPUs, Detect: run.Detect}
	if run.Detect != "" {
		r.Counted.Count = run.Count
	}
}

// startNumbering begins to find out what Slurm's GPU numbers mean, while the driver is asked for the GPUs. Where no
// number is to be looked up nothing is done.
func (h *hook) startNumbering() (collect func() numbering.List) {
	if !h.needsNumbers() {
		return func() numbering.List { return numbering.List{} }
	}
	var kept *numbering.Kept
	if h.store != nil {
		var err error
		kept, err = h.store.Numbering()
		h.try(err)
	}
	conf, check := h.env.Getenv("SLURM_CONF"), h.phase == slurm.HealthCheck
	if check && conf == "" && h.cfg.Slurm.GresConf == "" && kept == nil {
		return func() numbering.List { return numbering.Unclear("no hook of a job has asked slurmd yet") }
	}
	settled := h.numbers(kept, conf)
	return func() numbering.List {
		now := settled()
		// One that does not know which slurmd runs leaves the answer for one that did.
		known := kept == nil || now.Key.Daemon.PID != 0 || kept.Key.Daemon.PID == 0
		if now != kept && now.Key.Conf != "" && h.store != nil && known {
			if err := h.store.PutNumbering(*now); !errors.Is(err, state.ErrLocked) { // then another hook keeps the same
				h.try(err)
			}
		}
		return now.List
	}
}

// ReadNumbering answers for a node as hooks that begin now do, and keeps nothing. env.PID is slurmd's; 0 where it is
// not known.
func ReadNumbering(env Env, cfg config.Config, node, slurmConf string) numbering.List {
	h := &hook{frame: newFrame(env), phase: slurm.HealthCheck, cfg: cfg, times: cfg.Deadlines.HealthCheck.Hook()}
	h.limit(time.Duration(h.times.Total))
	defer h.watchdog.Stop()
	h.job.Node = node
	return h.numbers(state.PeekNumbering(cfg.Paths.Run, node), slurmConf)().List
}

// numbers begins to find the answer: kept itself where it still holds.
func (h *hook) numbers(kept *numbering.Kept, slurmConf string) (collect func() *numbering.Kept) {
	request := numberingRequest{
		Proc: h.cfg.Paths.Proc, Sys: h.cfg.Paths.Sys, Hook: h.env.PID, Node: h.job.Node, SlurmConf: slurmConf,
		GresConf: h.cfg.Slurm.GresConf, Slurmd: h.cfg.Slurm.Slurmd, Scontrol: h.cfg.Slurm.Scontrol,
	}
	check := h.phase == slurm.HealthCheck
	if kept != nil {
		request.Kept, request.Again = &kept.Key, kept.Due(h.env.Clock.Boot(), check)
	}
	wait := beside[numberingReply](opNumbering, request, h.left(time.Duration(h.times.Scan), h.reserve()))
	return func() *numbering.Kept {
		reply, err := wait()
		switch {
		case err != nil:
			h.defect(err)
			return &numbering.Kept{List: numbering.Unclear("%v", err)}
		case kept != nil && !request.Again && kept.Key.Same(reply.Key):
			return kept
		case reply.Unknown != "":
			return &numbering.Kept{List: numbering.Unclear("%s", reply.Unknown)}
		}
		now := h.renumber(reply, kept)
		if h.inJob && kept == nil && now.Key.Daemon.PID == 0 { // nor is it known whether it has read these files
			return &numbering.Kept{List: numbering.Unclear("which slurmd is running is not known")}
		}
		if why := h.changedMeanwhile(request, reply.Key); why != "" {
			return &numbering.Kept{List: numbering.Unclear("%s", why)}
		}
		return now
	}
}

// changedMeanwhile says why slurmd -G may have read other files than those that its answer is kept for.
func (h *hook) changedMeanwhile(request numberingRequest, key numbering.Key) string {
	request.Kept, request.Again = &key, false
	reply, err := ask[numberingReply](opNumbering, request, h.left(time.Duration(h.times.Scan), h.reserve()))
	switch {
	case err != nil:
		h.defect(err)
		return err.Error()
	case !key.Equal(reply.Key):
		return "slurm.conf, gres.conf or slurmd changed while slurmd -G read them"
	}
	return ""
}

// needsNumbers reports whether this hook looks up a number: not where Slurm or the admin names the devices, nor at the
// end of a run whose start has done so.
func (h *hook) needsNumbers() bool {
	job := h.job
	if h.phase == slurm.HealthCheck {
		job.GPUIndexes = []int{0}
	}
	return resolve.ByList(job, h.cfg.NVIDIA) && !h.remembered()
}

// remembered reports whether the start of this run settled what its numbers mean. They mean the same at its end,
// whatever the configuration says by then.
func (h *hook) remembered() bool {
	r := h.recalled
	if !r.Numbering.Source.Settled() || len(r.Devices) == 0 || r.Closed() && !r.Sure(h.job) {
		return false
	}
	if len(h.job.GPUIndexes) != len(r.Devices) { // a record of another run, or Slurm before 21.08
		return false
	}
	return !slices.ContainsFunc(r.Devices, func(d ledger.Assigned) bool {
		return !slices.Contains(h.job.GPUIndexes, d.Index)
	})
}

// renumber asks slurmd, and settles what is in force.
func (h *hook) renumber(reply numberingReply, kept *numbering.Kept) *numbering.Kept {
	asked := numbering.Asked{Key: reply.Key, Own: reply.Own, At: h.env.Clock.Boot()}
	if d := reply.Key.Daemon; d.PID != 0 {
		const perTick = time.Second / 100 // USER_HZ
		asked.Began = h.env.Clock.Wall().Add(time.Duration(d.Ticks)*perTick - asked.At)
	}
	asked.List, asked.Failed = h.askSlurmd(reply)
	now := asked.Settle(kept)
	return &now
}

// opSlurmd stands for slurmd -G among the operations of children.
const opSlurmd = "slurmd -G"

// stuckSlurmd says that an earlier slurmd -G cannot be killed: another would get stuck as well.
func (h *hook) stuckSlurmd() string {
	if h.store == nil {
		return ""
	}
	for _, r := range h.store.Readers(h.alive) {
		if r.Op == opSlurmd {
			return fmt.Sprintf("slurmd -G started at %s cannot be killed: PID %d", h.at(r.Since), r.PID)
		}
	}
	return ""
}

// askSlurmd runs slurmd -G. Where that fails the configuration may still leave no doubt.
func (h *hook) askSlurmd(reply numberingReply) (list numbering.List, failed bool) {
	if why := h.stuckSlurmd(); why != "" {
		reply.Counted.Why = cmp.Or(why, reply.Counted.Why)
		return reply.Counted, true
	}
	limit := time.Duration(h.times.Driver) / 2 // it takes 0.1 s, and longer where AutoDetect has to wake the GPUs
	command := slurmd.Command{
		Path: reply.Key.Slurmd.Path, Conf: reply.Key.Conf, Node: reply.Key.Node, Root: h.env.EUID == 0,
		Entries: reply.Entries, Library: reply.Library,
		Timeout: h.left(limit, h.reserve()+limit),
	}
	if h.store != nil {
		command.Private = h.store.Dir()
	}
	gpus, res, err := command.List()
	if res.Outcome == child.Abandoned {
		h.abandonedReader(opSlurmd, &childError{op: opSlurmd, Result: res}, nil)
	}
	switch {
	case err != nil && reply.Counted.Known():
		reply.Counted.Why = err.Error()
		return reply.Counted, true
	case err != nil:
		return numbering.Unclear("%v; %s", err, reply.Counted.Why), true
	case reply.Unsure != "":
		return numbering.Unclear("%s", reply.Unsure), false
	case len(gpus) == 0 && reply.Counted.Known():
		reply.Counted.Why = "slurmd -G lists no GPUs"
		return reply.Counted, true
	case len(gpus) == 0 || len(gpus) != reply.Count: // the driver may not have been there yet
		return numbering.Unclear("slurmd -G lists %d GPUs, slurm.conf gives out %d", len(gpus), reply.Count), true
	}
	return numbering.List{Source: numbering.BySlurmd, GPUs: gpus}, false
}

// recallDevices resolves a job's GPUs to those that its start was given.
func (h *hook) recallDevices(cards []gpu.Card) resolve.Result {
	return resolve.Again(h.recalled.Devices, h.recalled.Numbering.Source, cards)
}
