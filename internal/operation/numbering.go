package operation

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"bookend/internal/child"
	"bookend/internal/config"
	"bookend/internal/inventory"
	"bookend/internal/slurmcmd"
	"bookend/internal/slurmconf"
)

// NumberingRequest asks what Slurm's GPU numbers depend on. Slurm's files may be on a file system that does not answer.
type NumberingRequest struct {
	Proc      string         `json:"proc"`
	Sys       string         `json:"sys"`
	Hook      int            `json:"hook"` // PID
	Node      string         `json:"node"`
	GresConf  string         `json:"gres_conf"`  // configured; empty: where slurmd looks
	SlurmConf string         `json:"slurm_conf"` // as slurmd told the hook
	Slurmd    string         `json:"slurmd"`     // configured; empty: the running one's
	Scontrol  string         `json:"scontrol"`
	Kept      *slurmconf.Key `json:"kept,omitempty"`
	Again     bool           `json:"again,omitempty"` // the files are to be read even if Kept still holds
}

// NumberingReply says what the numbers depend on, and unless that is what Kept says, what the files say of the GPUs.
type NumberingReply struct {
	Key     slurmconf.Key  `json:"key"`
	Own     bool           `json:"own,omitempty"`   // slurmd's own copies (configless)
	Count   int            `json:"count,omitempty"` // of the node's GPUs in slurm.conf
	Unsure  string         `json:"unsure,omitempty"`
	Counted slurmconf.List `json:"counted,omitzero"` // what the files say without slurmd
	Unknown string         `json:"unknown,omitempty"`
	Entries []string       `json:"entries,omitempty"` // of slurm.conf's directory
}

// Numbering reads Slurm's own files, if they have changed since its GPU numbers were asked for.
var Numbering = Operation[NumberingRequest, NumberingReply]{"numbering", readNumbering}

func readNumbering(r NumberingRequest) (reply NumberingReply, err error) {
	boot, running := inventory.ReadEpoch(r.Proc, r.Sys).Boot, slurmcmd.Running(r.Proc, r.Hook)
	reply.Key = slurmconf.Key{Boot: boot, Node: r.Node, Daemon: running}
	if k := r.Kept; k != nil && reply.Key.Daemon.PID == 0 && child.Alive(r.Proc, k.Daemon.PID, k.Daemon.Ticks) {
		reply.Key.Daemon = k.Daemon
	}
	if k := r.Kept; k != nil && r.GresConf == "" && r.SlurmConf == "" { // a health check: it is told neither
		r.SlurmConf = k.Conf
	}
	places := slurmconf.Find(r.GresConf, r.SlurmConf)
	if reply.Key.Daemon.PID == 0 {
		reply.Key.Daemon = r.byFile(places)
	}
	if reply.Key.Slurmd, err = slurmcmd.Identify(r.program(reply.Key.Daemon)); err != nil {
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
	return reply, nil
}

// byFile is the slurmd that slurm.conf's SlurmdPidFile names: hooks inside a job, or of a timer, are none of its
// descendants.
func (r NumberingRequest) byFile(places []slurmconf.Files) slurmconf.Daemon {
	for _, at := range places {
		conf, err := slurmcmd.Read(at.Slurm)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		path, _ := conf.Get("SlurmdPidFile")
		host, _ := os.Hostname()
		host, _, _ = strings.Cut(host, ".")
		name := strings.NewReplacer("%n", r.Node, "%h", host).Replace(cmp.Or(path.Text, config.SlurmdPIDFile))
		return slurmcmd.ByFile(r.Proc, name)
	}
	return slurmconf.Daemon{}
}

// program is slurmd's own: the running one's, else the one that was installed with scontrol.
func (r NumberingRequest) program(running slurmconf.Daemon) string {
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

func paths(files []slurmconf.FileID) func(func(string) bool) {
	return func(yield func(string) bool) {
		for _, f := range files {
			if !yield(f.Path) {
				return
			}
		}
	}
}

func (r *NumberingReply) identify(files []string) error {
	r.Key.Files = nil
	for _, name := range files {
		id, err := slurmcmd.Identify(name)
		if err != nil {
			return err
		}
		r.Key.Files = append(r.Key.Files, id)
	}
	return nil
}

// readFiles reads the configuration that is there, and then what it says: a change in between shows in the next key.
func (r *NumberingReply) readFiles(places []slurmconf.Files) {
	for _, at := range places {
		conf, err := slurmcmd.Read(at.Slurm)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var gres slurmconf.Conf
		if err == nil {
			gres, err = slurmcmd.Read(at.Gres)
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
		if r.Entries, err = slurmcmd.Entries(at.Slurm); err != nil {
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
func (r *NumberingReply) count(conf, gres slurmconf.Conf, missing bool) {
	own := conf.Node(r.Key.Node)
	r.Count, _, _ = slurmconf.Count(own.Gres)
	if r.Unsure = own.Unsure; r.Unsure == "" && !own.Found {
		r.Unsure = "slurm.conf does not name this node"
	}
	files := &gres
	if missing {
		files = nil
	}
	r.Counted = slurmconf.Counted(&conf, files, r.Key.Node)
}
