package state

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

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
	if seen := r.First().Wall; !seen.IsZero() {
		return "w" + strconv.FormatInt(max(0, seen.UnixNano()), 10)
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
	return strings.Trim(s[1:], "0123456789") == ""
}

// encode writes a record in the one form it has: equal runs give equal bytes. A run too large for a record loses
// evidence, never its verdict.
func encode(r ledger.Run) ([]byte, error) {
	r.Version = Version
	r.Start, r.Ends = ordered(r.Start), slices.Clone(r.Ends)
	for i := range r.Ends {
		r.Ends[i] = *ordered(&r.Ends[i])
	}
	var data []byte
	var err error
	for level := 0; level <= ledger.Bare && err == nil && (level == 0 || len(data) >= fitRecord); level++ {
		data, err = json.Marshal(r.Bounded(level))
	}
	if err == nil && len(data) >= maxRecord {
		err = safefile.ErrTooLarge
	}
	if err != nil {
		return nil, fmt.Errorf("encode record of job %d: %w", r.Job.ID, err)
	}
	return append(data, '\n'), nil
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
	r, err := parse(data)
	if err == nil && (r.Job.Node != node || r.Job.ID != id || r.Key != key) {
		err = fmt.Errorf("%w: of job %d, run %q on node %q", errRecord, r.Job.ID, r.Key, r.Job.Node)
	}
	if err != nil {
		return ledger.Run{}, err
	}
	return r, nil
}

// parse reads a record, whosever it is. It refuses what this program cannot have recorded.
func parse(data []byte) (r ledger.Run, err error) {
	if err := json.Unmarshal(data, &r); err != nil {
		return ledger.Run{}, fmt.Errorf("%w: %v", errRecord, err)
	}
	switch {
	case r.Version != Version:
		return ledger.Run{}, fmt.Errorf("%w: version %d, not %d", errRecord, r.Version, Version)
	case r.Job.SLUID != "" && !slurm.ValidSLUID(string(r.Job.SLUID)) || !validKey(r.Key):
		return ledger.Run{}, fmt.Errorf("%w: SLUID %q, key %q", errRecord, r.Job.SLUID, r.Key)
	}
	return r, nil
}
