package state

import (
	"bytes"
	"fmt"
	"time"

	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/slurm"
)

// outline is what Archive must know of a run: which one it is, whether it is over, since when, and whether it left something on
// a card. To read a whole record takes several times as long, and at each job's end there are up to 96, of which one or two
// change.
type outline struct {
	Version int    `json:"version"`
	Key     string `json:"key"`
	Job     struct {
		ID    slurm.JobID `json:"id"`
		SLUID slurm.SLUID `json:"sluid"`
		Node  string      `json:"node"`
	} `json:"job"`
	Epoch    gpu.Epoch `json:"epoch"`
	Start    *moment   `json:"start"`
	Ends     []moment  `json:"ends"`
	Archived bool      `json:"archived"`
}

// moment is the same of one of a run's ends.
type moment struct {
	At       time.Duration `json:"at_ns"`
	Wall     time.Time     `json:"wall"`
	Findings []struct {
		GPU gpu.ID `json:"gpu"`
	} `json:"findings"`
}

// outlined reads a record's outline: a run in which nothing else is filled in.
func outlined(data []byte) (ledger.Run, error) {
	var o outline
	if err := unmarshal(data, &o); err != nil {
		return ledger.Run{}, err
	}
	r := ledger.Run{Version: o.Version, Key: o.Key, Epoch: o.Epoch, Archived: o.Archived}
	r.Job.ID, r.Job.SLUID, r.Job.Node = o.Job.ID, o.Job.SLUID, o.Job.Node
	if o.Start != nil {
		start := o.Start.end()
		r.Start = &start
	}
	for _, m := range o.Ends {
		r.Ends = append(r.Ends, m.end())
	}
	return sound(r)
}

func (m moment) end() ledger.End {
	e := ledger.End{At: m.At, Wall: m.Wall}
	for _, f := range m.Findings {
		e.Findings = append(e.Findings, finding.Finding{GPU: f.GPU})
	}
	return e
}

// The end of a record, and that of one that is in the history: "archived" is its last field, and is there only where it is true.
var (
	recordEnd   = []byte("}\n")
	archivedEnd = []byte(",\"archived\":true}\n")
)

// mark makes of a record that is not in the history yet one that is: the same bytes with one field more.
func mark(data []byte) ([]byte, error) {
	body, whole := bytes.CutSuffix(data, recordEnd)
	marked := append(bytes.Clone(body), archivedEnd...)
	r, err := outlined(marked)
	if whole && err == nil && r.Archived && len(marked) < maxRecord {
		return marked, nil
	}
	if r, err = parse(data); err != nil { // of another hand, or too long: written anew
		return nil, fmt.Errorf("mark as archived: %w", err)
	}
	r.Archived = true
	return encode(r)
}
