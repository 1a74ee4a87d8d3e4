package state

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"bookend/internal/attrib"
	"bookend/internal/ledger"
	"bookend/internal/safefile"
	"bookend/internal/slurm"
)

// Version is the format of a record. A record of another version is set aside like a damaged one.
const Version = 1

const (
	maxRecord = 1 << 20   // bytes of one record that is read
	fitRecord = 256 << 10 // bytes of one that is written: every hook on a GPU that is not clean reads all of them
	maxEnds   = 4         // a second epilog is rare, a fifth is a mistake
)

// keyOf names a run by what Slurm tells runs of one job id apart with: the SLUID (slurm.TellsRun), the start
// time (slurm.TellsStart), and before that nothing: then by the time it was first seen.
func keyOf(r ledger.Run) string {
	if r.Job.SLUID != "" {
		return string(r.Job.SLUID)
	}
	if !r.Job.Start.IsZero() {
		return "t" + strconv.FormatInt(max(0, r.Job.Start.Unix()), 10)
	}
	if e := r.First(); e != nil {
		return "w" + strconv.FormatInt(max(0, e.Wall.UnixNano()), 10)
	}
	return "w0"
}

func validKey(s string) bool {
	if slurm.ValidSLUID(s) {
		return true
	}
	if len(s) < 2 || len(s) > 20 || s[0] != 't' && s[0] != 'w' {
		return false
	}
	for _, c := range []byte(s[1:]) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// encode writes a record in the one form it has: equal runs give equal bytes. A run too large for a record loses evidence,
// never its verdict.
func encode(r ledger.Run) ([]byte, error) {
	r.Version = Version
	r.Start, r.Ends = ordered(r.Start), slices.Clone(r.Ends)
	for i := range r.Ends {
		r.Ends[i] = *ordered(&r.Ends[i])
	}
	data, err := fitting(func(level int) any { return r.Bounded(level) }, fitRecord)
	if err == nil && len(data) >= maxRecord {
		err = safefile.ErrTooLarge
	}
	if err != nil {
		return nil, fmt.Errorf("encode record of job %d: %w", r.Job.ID, err)
	}
	return append(data, '\n'), nil
}

// fitting encodes what bounded gives at the first level at which it has less than so many bytes, else at the last.
func fitting(bounded func(level int) any, most int64) (data []byte, err error) {
	for level := 0; level <= ledger.Bare; level++ {
		if data, err = json.Marshal(bounded(level)); err != nil || int64(len(data)) < most {
			break
		}
	}
	return data, err
}

func ordered(e *ledger.End) *ledger.End {
	if e == nil {
		return nil
	}
	o := *e
	o.Wall = o.Wall.UTC().Round(0)
	o.Processes = slices.Clone(o.Processes)
	slices.SortFunc(o.Processes, func(a, b attrib.Process) int { return cmp.Compare(a.PID, b.PID) })
	return &o
}

var errRecord = errors.New("not a whole record")

// decode reads a record that must be of this node, job id and key. It returns errRecord for anything else.
func decode(data []byte, node string, id slurm.JobID, key string) (ledger.Run, error) {
	return decodeBy(data, node, id, key, parse)
}

func decodeBy(data []byte, node string, id slurm.JobID, key string, read reader) (ledger.Run, error) {
	r, err := read(data)
	if err == nil && (r.Job.Node != node || r.Job.ID != id || r.Key != key) {
		err = fmt.Errorf("%w: of job %d, run %q on node %q", errRecord, r.Job.ID, r.Key, r.Job.Node)
	}
	if err != nil {
		return ledger.Run{}, err
	}
	return r, nil
}

// parse reads a record, whosever it is.
func parse(data []byte) (ledger.Run, error) {
	var r ledger.Run
	if err := unmarshal(data, &r); err != nil {
		return ledger.Run{}, err
	}
	return sound(r)
}

func unmarshal(data []byte, into any) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return fmt.Errorf("%w: empty", errRecord)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%w: %v", errRecord, err)
	}
	return nil
}

// sound refuses a run that this program cannot have recorded.
func sound(r ledger.Run) (ledger.Run, error) {
	switch {
	case r.Version != Version:
		return ledger.Run{}, fmt.Errorf("%w: version %d, not %d", errRecord, r.Version, Version)
	case r.Job.SLUID != "" && !slurm.ValidSLUID(string(r.Job.SLUID)) || !validKey(r.Key):
		return ledger.Run{}, fmt.Errorf("%w: SLUID %q, key %q", errRecord, r.Job.SLUID, r.Key)
	}
	return r, nil
}
