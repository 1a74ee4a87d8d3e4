package diagnosis

import (
	_ "embed"
	"slices"
	"strings"
	"sync"

	"bookend/internal/record"
)

// OutputFault is an error of a GPU, its driver or a kernel that programs print: a row of faults.txt.
type OutputFault struct {
	Says   []string // texts and names by which it is recognised, in any case
	Claim  string   // what such a message reports
	Means  string
	Try    string   // NODE stands for the job's node
	traits []string // as in faults.txt
}

//go:embed faults.txt
var faultsFile string

// OutputFaults returns the rows of faults.txt.
var OutputFaults = sync.OnceValue(func() (all []OutputFault) {
	repeated := strings.NewReplacer("ELSEWHERE", "resubmit with sbatch --exclude=NODE, and tell your admin",
		"SANITIZER", "run once with CUDA_LAUNCH_BLOCKING=1 or under compute-sanitizer (AMD: AMD_SERIALIZE_KERNEL=3)")
	for _, p := range paragraphs(faultsFile) {
		traits := strings.Split(strings.TrimPrefix(p[0], "== "), ", ")
		all = append(all, OutputFault{p[4:], p[1], p[2], repeated.Replace(p[3]), traits})
	}
	return all
})

// paragraphs returns the rows of an embedded table: the lines between empty ones, without comments and quotes.
func paragraphs(text string) (all [][]string) {
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		var lines []string
		for line := range strings.Lines(paragraph) {
			if line = strings.Trim(line, "\n\""); line != "" && line[0] != '#' {
				lines = append(lines, line)
			}
		}
		if lines != nil {
			all = append(all, lines)
		}
	}
	return all
}

func (f OutputFault) is(trait string) bool { return slices.Contains(f.traits, trait) }
func (f OutputFault) ofProgram() bool      { return f.is("program") }

// outputFault returns the row for a message, nil if it reports no fault. A fault that is in no row is of the last.
func outputFault(m record.Message) *OutputFault {
	line, all := strings.ToLower(m.Line), OutputFaults()
	for i, f := range all {
		inLine := func(text string) bool { return strings.Contains(line, strings.ToLower(text)) }
		fits := m.Kind == record.KindFault && !f.is("device") || m.Kind == record.KindDevice && f.is("device")
		if fits && (slices.ContainsFunc(f.Says, inLine) || i == len(all)-1) {
			return &all[i]
		}
	}
	return nil
}

// faultsIn returns the faults that messages report: certain ones first, a program's own last.
func faultsIn(all []record.Message) (found []*OutputFault) {
	for _, m := range all {
		if f := outputFault(m); f != nil && !slices.Contains(found, f) {
			found = append(found, f)
		}
	}
	weight := func(f *OutputFault) int {
		return rules[int]{{f.is("certain"), 0}, {f.ofProgram(), 2}, {true, 1}}.first()
	}
	slices.SortStableFunc(found, func(a, b *OutputFault) int { return weight(a) - weight(b) })
	return found
}

// afterFault reports whether a message about memory follows a fault, not the program's own, that may have caused it.
func afterFault(e evidence) bool {
	faulty := map[int]bool{}
	for _, m := range e.in.Messages {
		if m.Kind == record.KindDevice && faulty[m.File] {
			return true
		}
		f := outputFault(m)
		faulty[m.File] = faulty[m.File] || f != nil && !f.is("device") && !f.ofProgram()
	}
	return false
}

// withdrawn takes back what the job's output contradicts: a cause that one of its messages speaks for is not ruled out,
// and a request for memory that failed next to a fault does not prove that the job needed too much.
func withdrawn(e evidence, c record.Cause) record.Cause {
	ofJob := []record.CauseName{record.CauseOwn, record.CausePool, record.CauseProcesses}
	for _, f := range e.faults {
		if c.Answer == record.No && f.is(string(c.Name)) {
			c.Answer, c.Evidence = record.CannotTell, "your program's output reports "+f.Claim
		}
	}
	if e.metFault && c.Answer == record.Yes && slices.Contains(ofJob, c.Name) {
		c.Answer, c.Evidence = record.CannotTell, c.Evidence+", but the GPU or its driver had an error"
	}
	return c
}

// mostReported limits how many faults of its output a report explains.
const mostReported = 2

func reported(e evidence) (lines []string) {
	node := e.in.Job.Node
	if e.spread {
		node = "NODE"
	}
	for _, f := range e.faults[:min(len(e.faults), mostReported)] {
		lines = append(lines, f.Means+" Try: "+strings.ReplaceAll(f.Try, "NODE", node))
	}
	return lines
}
