package operation

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"bookend/internal/child"
	"bookend/internal/config"
	"bookend/internal/inventory"
	"bookend/internal/slurmcmd"
	"bookend/internal/slurmconf"
)

// NumberingRequest asks what Slurm's GPU numbers depend on. Slurm's files may be on a file system that does not answer.
type NumberingRequest struct {
	Proc      string        `json:"proc"`
	Sys       string        `json:"sys"`
	Hook      int           `json:"hook"` // PID
	Node      string        `json:"node"`
	GresConf  string        `json:"gres_conf"`  // configured; empty: where slurmd looks
	SlurmConf string        `json:"slurm_conf"` // as slurmd told the hook
	Slurmd    string        `json:"slurmd"`     // configured; empty: the running one's
	Scontrol  string        `json:"scontrol"`
	Kept      slurmconf.Key `json:"kept,omitzero"` // of the answer on record
}

// NumberingReply says what the numbers depend on, and what the files say of the GPUs.
type NumberingReply struct {
	Key     slurmconf.Key  `json:"key"`
	Own     bool           `json:"own,omitempty"`   // slurmd's own copies (configless)
	Count   int            `json:"count,omitempty"` // of the node's GPUs in slurm.conf
	Unsure  string         `json:"unsure,omitempty"`
	Counted slurmconf.List `json:"counted,omitzero"` // what the files say without slurmd
	Unknown string         `json:"unknown,omitempty"`
	Entries []string       `json:"entries,omitempty"` // of slurm.conf's directory
}

// Numbering reads Slurm's own files.
var Numbering = Operation[NumberingRequest, NumberingReply]{"numbering", readNumbering}

func readNumbering(r NumberingRequest) (reply NumberingReply, err error) {
	reply.Key = slurmconf.Key{
		Boot: inventory.ReadEpoch(r.Proc, r.Sys).Boot, Node: r.Node, Daemon: slurmcmd.Running(r.Proc, r.Hook),
	}
	kept := r.Kept
	if r.GresConf == "" && r.SlurmConf == "" { // a health check: it is told neither
		r.SlurmConf = kept.Conf
	}
	at, conf, gres, unread := readConf(slurmconf.Find(r.GresConf, r.SlurmConf))
	switch {
	case reply.Key.Daemon.PID != 0:
	case child.Alive(r.Proc, kept.Daemon.PID, kept.Daemon.Ticks):
		reply.Key.Daemon = kept.Daemon
	case at.Slurm != "":
		reply.Key.Daemon = r.byFile(conf)
	}
	// slurmd's own program: the running one's, else the one that was installed with scontrol.
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

// byFile is the slurmd that slurm.conf's SlurmdPidFile names: hooks inside a job, or of a timer, are none of its
// descendants.
func (r NumberingRequest) byFile(conf slurmconf.Conf) slurmconf.Daemon {
	path, _ := conf.Get("SlurmdPidFile")
	host, _ := os.Hostname()
	host, _, _ = strings.Cut(host, ".")
	name := strings.NewReplacer("%n", r.Node, "%h", host).Replace(cmp.Or(path.Text, config.SlurmdPIDFile))
	return slurmcmd.ByFile(r.Proc, name)
}

// judge says what the configuration that is there says of the GPUs, and which files that are.
func (r *NumberingReply) judge(at slurmconf.Files, conf, gres slurmconf.Conf, err error) error {
	missing := errors.Is(err, fs.ErrNotExist)
	switch {
	case at.Slurm == "":
		return errors.New("no slurm.conf was found (slurm.gres_conf)")
	case err != nil && !missing:
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
	r.Count, _ = slurmconf.Count(own.Gres)
	if r.Unsure = own.Unsure; r.Unsure == "" && !own.Found {
		r.Unsure = "slurm.conf does not name this node"
	}
	if r.Counted = slurmconf.Counted(&conf, &gres, r.Key.Node); missing {
		r.Counted = slurmconf.Counted(&conf, nil, r.Key.Node)
	}
	if real, err := filepath.EvalSymlinks(filepath.Dir(at.Slurm)); err == nil {
		r.Own = filepath.Base(real) == "conf-cache" // where it has its configuration from slurmctld
	}
	return nil
}

// SharingRequest asks what Slurm's files say of a node's GPUs: they may lie on a file system that does not answer.
type SharingRequest struct {
	GresConf  string `json:"gres_conf"`  // configured; empty: where slurmd looks
	SlurmConf string `json:"slurm_conf"` // as slurmd told the hook
	Node      string `json:"node"`
}

// SharingOf answers from Slurm's files whether GPUs are given out in shards or by MPS.
var SharingOf = Operation[SharingRequest, slurmconf.Answer]{"sharing", readSharing}

func readSharing(r SharingRequest) (slurmconf.Answer, error) {
	at, slurm, gres, err := readConf(slurmconf.Find(r.GresConf, r.SlurmConf))
	switch {
	case at.Slurm == "":
		return unknown("no slurm.conf was found (slurm.gres_conf, slurm.shards)"), nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return unknown(err.Error()), nil
	}
	return slurmconf.SharedGPUs(&slurm, &gres, r.Node), nil
}

func unknown(why string) slurmconf.Answer {
	return slurmconf.Answer{Shared: slurmconf.Unknown, Why: why}
}

// readConf reads the configuration that is there; at is empty where none is. An error of fs.ErrNotExist says that there
// is no gres.conf, which may be.
func readConf(places []slurmconf.Files) (at slurmconf.Files, slurm, gres slurmconf.Conf, err error) {
	for _, at = range places {
		if slurm, err = slurmcmd.Read(at.Slurm); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			gres, err = slurmcmd.Read(at.Gres)
		}
		return at, slurm, gres, err
	}
	return slurmconf.Files{}, slurm, gres, nil
}

// NodeSharing answers for a node, from the configuration or else from Slurm's files. A child's failure is an unknown
// answer.
func NodeSharing(c config.Slurm, slurmConf, node string, timeout time.Duration) slurmconf.Answer {
	switch c.Shards {
	case config.ShardsYes:
		return slurmconf.Answer{Shared: slurmconf.Yes, Why: "GPUs are given out in shards here (slurm.shards)"}
	case config.ShardsNo:
		return slurmconf.Answer{Shared: slurmconf.No}
	}
	answer, err := SharingOf.Ask(SharingRequest{GresConf: c.GresConf, SlurmConf: slurmConf, Node: node}, timeout)
	if err != nil {
		return unknown(err.Error())
	}
	return answer
}

// SharingTime is for two small files; a disk that takes longer counts as one that does not answer.
const SharingTime = time.Second
