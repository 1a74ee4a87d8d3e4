package slurmcmd

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"bookend/internal/child"
	"bookend/internal/slurm"
	"bookend/internal/slurmconf"
)

// NumberingRequest asks what Slurm's GPU numbers depend on. Slurm's files may be on a file system that does not answer.
type NumberingRequest struct {
	Proc      string        `json:"proc"`
	Boot      string        `json:"boot"`
	Hook      int           `json:"hook"` // PID
	Node      string        `json:"node"`
	GresConf  string        `json:"gres_conf"`  // configured; empty: where slurmd looks
	SlurmConf string        `json:"slurm_conf"` // SLURM_CONF of the hook
	Slurmd    string        `json:"slurmd"`     // configured; empty: the running one
	PIDFile   string        `json:"pid_file"`   // of slurmd, if slurm.conf names none
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

// Numbering reads what Slurm's GPU numbers depend on.
var Numbering = child.NewOperation("numbering", readNumbering)

func readNumbering(r NumberingRequest) (reply NumberingReply, err error) {
	reply.Key = slurmconf.Key{Boot: r.Boot, Node: r.Node, Daemon: Running(r.Proc, r.Hook)}
	kept := r.Kept
	if r.GresConf == "" && r.SlurmConf == "" { // a health check has neither
		r.SlurmConf = kept.Conf
	}
	at, conf, gres, unread := ReadFirst(slurmconf.Find(r.GresConf, r.SlurmConf))
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
	reply.Key.Slurmd, err = Identify(program)
	if err != nil {
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
	name := strings.NewReplacer("%n", r.Node, "%h", host).Replace(cmp.Or(path.Text, r.PIDFile))
	return ByFile(r.Proc, name)
}

// judge adds what the configuration says about the GPUs, and the files that it is in.
func (r *NumberingReply) judge(at slurmconf.Files, conf, gres slurmconf.Conf, err error) error {
	switch {
	case at.Slurm == "":
		return errors.New("no slurm.conf was found (slurm.gres_conf)")
	case err != nil:
		return err
	}
	names := slices.Concat([]string{at.Slurm, at.Gres}, conf.Files, gres.Files)
	slices.Sort(names)
	r.Key.Conf = at.Slurm
	for _, name := range slices.Compact(names) {
		id, err := Identify(name)
		if err != nil {
			return err
		}
		r.Key.Files = append(r.Key.Files, id)
	}
	// Threat: none, only names are read; a user who can change them can change what slurmd runs as root.
	entries, err := os.ReadDir(filepath.Dir(at.Slurm))
	if err != nil {
		return err
	}
	for _, e := range entries {
		r.Entries = append(r.Entries, e.Name())
	}
	own := conf.Node(r.Key.Node)
	r.Count = slurmconf.Count(own.Gres)
	r.Unsure = own.Unsure
	if r.Unsure == "" && !own.Found {
		r.Unsure = "slurm.conf does not name this node"
	}
	if real, err := filepath.EvalSymlinks(filepath.Dir(at.Slurm)); err == nil {
		r.Own = filepath.Base(real) == "conf-cache" // where slurmd keeps a configuration from slurmctld
	}
	return nil
}

// SharingOf returns from Slurm's files, whose file system may hang, whether a node's GPUs are given out in parts.
var SharingOf = child.NewOperation("sharing", func(r NumberingRequest) (slurm.Sharing, error) {
	at, conf, _, err := ReadFirst(slurmconf.Find(r.GresConf, r.SlurmConf))
	switch {
	case at.Slurm == "":
		return unknown("no slurm.conf was found (slurm.gres_conf, slurm.shards)"), nil
	case err != nil:
		return unknown(err.Error()), nil
	}
	return slurmconf.SharedGPUs(conf, r.Node), nil
})

// expedites returns from slurm.conf, whose file system may hang, whether expedited requeue is enabled.
var expedites = child.NewOperation("expedited", func(r NumberingRequest) (slurm.Answer, error) {
	at, conf, _, err := ReadFirst(slurmconf.Find(r.GresConf, r.SlurmConf))
	if at.Slurm == "" || err != nil {
		return slurm.Unknown, nil
	}
	return conf.Expedites(), nil
})

// Expedites reports whether an epilog's exit status may start a failed job again at once.
func Expedites(gresConf, slurmConf string) slurm.Answer {
	answer, err := expedites.Ask(NumberingRequest{GresConf: gresConf, SlurmConf: slurmConf}, SharingTime)
	if err != nil {
		return slurm.Unknown
	}
	return answer
}

func unknown(why string) slurm.Sharing {
	return slurm.Sharing{Shared: slurm.Unknown, Why: why}
}

// NodeSharing is what the configuration says, or else Slurm's files. If the child fails, the answer is unknown.
func NodeSharing(configured *slurm.Sharing, gresConf, slurmConf, node string, timeout time.Duration) slurm.Sharing {
	if configured != nil {
		return *configured
	}
	answer, err := SharingOf.Ask(NumberingRequest{GresConf: gresConf, SlurmConf: slurmConf, Node: node}, timeout)
	if err != nil {
		return unknown(err.Error())
	}
	return answer
}

// SharingTime is the limit for reading two small files; a slower disk counts as one that does not answer.
const SharingTime = time.Second

// SlurmdOp is the name of slurmd -G in the records of stuck children.
const SlurmdOp = "slurmd -G"

// Question is what it takes to find out what Slurm's GPU numbers mean.
type Question struct {
	Request NumberingRequest // without Kept
	Kept    *slurmconf.Kept  // the stored answer, nil without one
	Check   bool             // a health check asks
	InJob   bool             // so that slurmd may not be found
	Clock   child.Clock
	Scan    func() time.Duration   // the time for reading Slurm's files
	Slurmd  func() (Slurmd, error) // how to run slurmd, or why it must not be run
}

// Ask begins to find the answer. collect waits for it, and returns Kept itself if that still holds. failure is a panic
// of our own, or a slurmd that could not be killed.
func (q Question) Ask() (collect func() (now *slurmconf.Kept, failure error)) {
	due, limit := false, q.Scan()
	if q.Kept != nil {
		q.Request.Kept, due = q.Kept.Key, q.Kept.Due(q.Clock.Boot(), q.Check)
	}
	wait := child.Async(func() (NumberingReply, error) { return Numbering.Ask(q.Request, limit) })
	return func() (*slurmconf.Kept, error) {
		reply, err := wait()
		switch {
		case err != nil:
			return unclear(err)
		case q.Kept != nil && !due && q.Kept.Holds(reply.Key):
			return q.Kept, nil
		case reply.Unknown != "":
			return unclear(errors.New(reply.Unknown))
		}
		return q.askSlurmd(reply)
	}
}

func unclear(err error) (*slurmconf.Kept, error) {
	var failure error
	if defect := new(child.Panic); errors.As(err, &defect) {
		failure = defect
	}
	return &slurmconf.Kept{List: slurmconf.Unclear("%v", err)}, failure
}

// askSlurmd asks slurmd, and returns its answer if the files that it read did not change meanwhile.
func (q Question) askSlurmd(reply NumberingReply) (*slurmconf.Kept, error) {
	asked := slurmconf.Asked{Key: reply.Key, Own: reply.Own, At: q.Clock.Boot()}
	if daemon := reply.Key.Daemon; daemon.PID != 0 {
		asked.Began = q.Clock.Wall().Add(daemon.Began() - asked.At)
	}
	var stuck error
	asked.List, asked.Failed, stuck = q.listed(reply)
	now := asked.Settle(q.Kept) // the answer in force
	if stuck != nil {           // to be put on record at once, so that no other hook starts another
		return &now, stuck
	}
	if q.InJob && q.Kept == nil && now.Key.Daemon.PID == 0 { // and it may not have read these files
		return unclear(errors.New("which slurmd is running is not known"))
	}
	switch after, err := Numbering.Ask(q.Request, q.Scan()); {
	case err != nil:
		return unclear(err)
	case !reply.Key.Equal(after.Key):
		return unclear(errors.New("slurm.conf, gres.conf or slurmd changed while slurmd -G read them"))
	}
	return &now, nil
}

func (q Question) listed(reply NumberingReply) (list slurmconf.List, failed bool, stuck error) {
	command, err := q.Slurmd()
	if err != nil {
		return slurmconf.Unclear("%v", err), true, nil
	}
	command.Path, command.Conf, command.Node = reply.Key.Slurmd.Path, reply.Key.Conf, reply.Key.Node
	command.Entries = reply.Entries
	list, res, err := command.List()
	if res.Outcome == child.Abandoned {
		stuck = &child.Error{Op: SlurmdOp, Result: res}
	}
	switch {
	case err != nil:
		return slurmconf.Unclear("%v", err), true, stuck
	case reply.Unsure != "":
		return slurmconf.Unclear("%s", reply.Unsure), false, stuck
	case len(list.GPUs) == 0 || len(list.GPUs) != reply.Count: // the driver may not have been loaded yet
		const words = "slurmd -G lists %d GPUs, slurm.conf gives out %d"
		return slurmconf.Unclear(words, len(list.GPUs), reply.Count), true, stuck
	}
	return list, false, stuck
}
