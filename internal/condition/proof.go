package condition

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"bookend/internal/gpu"
	"bookend/internal/record"
)

// Proof is one comparison of a GPU before and after its reset. Holds is whether it is as it has to be.
type Proof struct {
	What   string        `json:"what"`
	Before string        `json:"before"` // empty if it was not known
	After  string        `json:"after"`
	Holds  record.Answer `json:"holds"`
}

// provenFact is a fact that a reset must leave as holds wants it; before is empty if it was not known. A fact that
// compares says nothing without that.
type provenFact struct {
	fact     gpu.FactCode
	what     string
	compares bool
	holds    func(before, after string) bool
}

var (
	same = func(before, after string) bool { return before == after }
	isNo = func(_, after string) bool { return after == "no" }
	// notMore is about counters that no reset sets back.
	notMore = func(before, after string) bool {
		x, errX := strconv.ParseUint(before, 10, 64)
		y, errY := strconv.ParseUint(after, 10, 64)
		return errX == nil && errY == nil && y <= x
	}
)

const settingMode = " mode" // ends the names of what an admin sets

var provenFacts = []provenFact{
	{gpu.Serial, "serial number", true, same},
	{gpu.RecoveryAction, "recovery action", false, func(_, after string) bool { return after == "none" }},
	{gpu.ECCUncorrected, "memory errors since load", false, func(_, after string) bool { return after == "0" }},
	{gpu.ECCEver, "memory errors ever", true, notMore},
	{gpu.RemapRows, "remapped rows", true, notMore},
	{gpu.RemapPending, "remapping pending", false, isNo},
	{gpu.RemapFailed, "remapping failed", false, isNo},
	{gpu.RetiredPending, "pages pending", false, isNo},
	{gpu.FabricState, "NVLink fabric", false, func(before, after string) bool {
		return after == "completed" || after == "not_supported" && (before == "" || before == after)
	}},
	{gpu.PersistenceMode, "persistence" + settingMode, true, same},
	{gpu.ComputeMode, "compute" + settingMode, true, same},
}

// Proofs compares the GPU with what it was before. test is the result of a test of its memory, and passed its answer.
func (r Reset) Proofs(now ResetState, limits record.Limits, test string, passed record.Answer) []Proof {
	if now.Reading == nil {
		return []Proof{{"the driver reads it", "", cmp.Or(now.Fault.Detail, "no GPU at "+string(r.Card.Device.BusID)),
			record.No}}
	}
	id, was := now.Reading.Device.ID, r.Card.Device.ID
	all := []Proof{{"UUID", string(was), string(id), answerOf(id == was)}, r.memory(*now.Reading, limits)}
	for _, p := range provenFacts {
		if row, applies := p.prove(r.Before.Health, now.Health); applies {
			all = append(all, row)
		}
	}
	links := Proof{"active NVLinks", r.Before.Links, now.Links, record.CannotTell}
	before, errBefore := strconv.Atoi(links.Before)
	after, errAfter := strconv.Atoi(links.After)
	if errBefore == nil && errAfter == nil {
		links.Holds = answerOf(after >= before)
	}
	if links.Holds == record.Yes && r.Switches && !now.Linked { // they may have failed before the reset
		links.Holds = record.CannotTell
	}
	return append(all, links, now.logged(r.Card.Device.BusID), Proof{"memory test", "", test, passed})
}

func answerOf(is bool) record.Answer {
	if is {
		return record.Yes
	}
	return record.No
}

func (p provenFact) prove(was, now gpu.Health) (row Proof, applies bool) {
	before := known(was, p.fact)
	after, reported := now.Fact(p.fact)
	row = Proof{p.what, before, after.Value, answerOf(p.holds(before, after.Value))}
	if !reported || after.Unknown != "" {
		row.After, row.Holds = cmp.Or(after.Unknown, "the driver does not report it"), record.CannotTell
	} else if p.fact == gpu.RemapRows && row.Holds == record.No && known(was, gpu.RemapPending) == "yes" {
		row.Holds = record.CannotTell // those that waited for the reset may count only now
	}
	// Drivers before 570 never say whether a GPU needs recovery: that is no proof.
	applies = reported || before != "" || p.fact == gpu.RecoveryAction
	return row, applies && (before != "" || !p.compares)
}

func (r Reset) memory(now gpu.Reading, limits record.Limits) Proof {
	row := Proof{What: "memory in use", After: gpu.Size(now.Memory.Used.Bytes), Holds: record.Yes}
	if was := r.Before.Reading; was != nil && was.Memory.Used.Known() {
		row.Before = gpu.Size(was.Memory.Used.Bytes)
	}
	rest := record.Unexplained(now, limits, record.Baseline{})
	switch unknown := cmp.Or(rest.Unknown, now.ProcessesUnknown); {
	case unknown != "":
		row.After, row.Holds = unknown, record.CannotTell
	case rest.Bytes >= limits.Report || len(now.Processes) > 0:
		row.After, row.Holds = fmt.Sprintf("%s, processes: %d", row.After, len(now.Processes)), record.No
	}
	return row
}

func (s ResetState) logged(bus gpu.BusID) Proof {
	row := Proof{What: "new errors in the log", After: cmp.Or(s.Log, "none"), Holds: record.Yes}
	lines := only(s.Xids, func(x gpu.Xid) bool {
		return x.BusID == bus && (x.Code != recoveryChanged || x.Recovery != gpu.RecoveryActions[0])
	})
	switch {
	case s.Log != "":
		row.Holds = record.CannotTell
	case len(lines) > 0:
		row.After, row.Holds = gpu.Error(lines[0].Code)+", "+meaning(lines[0]), record.No
	}
	return row
}

// Proven is the answer of all proofs together: what does not hold outweighs what cannot be told.
func Proven(all []Proof) record.Answer {
	for _, answer := range []record.Answer{record.No, record.CannotTell} {
		if slices.ContainsFunc(all, func(p Proof) bool { return p.Holds == answer }) {
			return answer
		}
	}
	return answerOf(len(all) > 0)
}

// Unwell reports whether something else than a setting does not hold.
func Unwell(all []Proof) bool {
	return slices.ContainsFunc(all, func(p Proof) bool {
		return p.Holds == record.No && !strings.HasSuffix(p.What, settingMode)
	})
}

// ResetReport is printed by "bookend reset".
type ResetReport struct {
	Version int           `json:"version"`
	Kind    string        `json:"kind"`
	Node    string        `json:"node"`
	Index   int           `json:"index"` // Slurm's number; -1 if it is not certain
	GPU     gpu.ID        `json:"gpu"`
	BusID   gpu.BusID     `json:"bus_id"`
	Refused []string      `json:"refused"` // why it may not be reset; empty if it may
	Steps   []ResetStep   `json:"steps"`   // the plan
	Done    bool          `json:"done"`    // nvidia-smi says that the GPU was reset
	Failed  string        `json:"failed"`  // what kept the plan from its end
	Proofs  []Proof       `json:"proofs"`
	Proven  record.Answer `json:"proven"` // of all proofs together, empty without any
	Next    []string      `json:"next"`   // what is left to do, in order; commands as they are
}

// Succeeded is No if the GPU was not reset, though it was to be, else what is proven; empty for a plan alone.
func (r ResetReport) Succeeded() record.Answer {
	if len(r.Refused) > 0 || r.Failed != "" {
		return record.No
	}
	return r.Proven
}

// Unproven says why the GPU is not known to be well, and the node is to stay drained; empty if it is.
func (r ResetReport) Unproven() string {
	if r.Succeeded() == record.Yes && len(r.Next) == 0 {
		return ""
	}
	text := r.outcome()
	for _, p := range r.Proofs {
		if p.Holds != record.Yes {
			text += fmt.Sprintf("; %s: %s", p.What, p.After)
		}
	}
	return strings.Join(append([]string{text}, r.Next...), "; ")
}

// Text writes the report.
func (r ResetReport) Text(w io.Writer) {
	fmt.Fprintf(w, "GPU %d of %s (%s, %s): %s\n", r.Index, r.Node, r.GPU, r.BusID, r.outcome())
	for _, why := range r.Refused {
		fmt.Fprintln(w, "  "+why)
	}
	if len(r.Refused) == 0 && !r.Done && r.Failed == "" {
		for _, s := range r.Steps {
			fmt.Fprintln(w, "  "+strings.Join(s.Do, " "))
		}
		for _, s := range slices.Backward(r.Steps) {
			if len(s.Undo) > 0 {
				fmt.Fprintln(w, "  in any case: "+strings.Join(s.Undo, " "))
			}
		}
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i, p := range r.Proofs {
		if i == 0 {
			fmt.Fprintln(table, "  PROOF\tHOLDS\tBEFORE\tAFTER")
		}
		fmt.Fprintf(table, "  %s\t%s\t%s\t%s\n", p.What, p.Holds, cmp.Or(p.Before, "-"), p.After)
	}
	_ = table.Flush()
	for _, next := range r.Next {
		fmt.Fprintln(w, "next: "+next)
	}
}

func (r ResetReport) outcome() string {
	switch {
	case len(r.Refused) > 0:
		return "not reset"
	case r.Failed != "" && r.Done:
		return "reset, but " + r.Failed
	case r.Failed != "":
		return "not reset: " + r.Failed
	case !r.Done:
		return "it can be reset; the plan:"
	case r.Proven == record.Yes:
		return "reset, and everything is as it has to be"
	case r.Proven == record.No && !Unwell(r.Proofs):
		return "reset, and well but for a setting: see below"
	case r.Proven == record.No:
		return "reset, and not well"
	}
	return "reset; whether all is well cannot be told"
}
