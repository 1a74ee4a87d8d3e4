// Package fleet makes one table of many nodes from what "bookend status --json" prints on each. It reads nothing but
// these documents: no node is asked, and nothing of a user's is read, as that could forge a row.
package fleet

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Version is the version of the documents that are read and written, as of all documents (docs/cli.md).
const Version = 2

// Verdict is the worst of what a node's status says.
type Verdict string

// The verdicts, worst first.
const (
	NoAnswer Verdict = "no answer" // nothing came from the node, or no document
	NoDriver Verdict = "no driver" // the GPUs' driver did not answer
	Drained  Verdict = "drained"   // it accepts no new jobs
	Leftover Verdict = "leftover"  // memory or processes on a GPU that no running job accounts for
	Faulty   Verdict = "faulty"    // a GPU that is a repeat offender
	Trouble  Verdict = "trouble"   // of Bookend, its records or the node's file systems
	OK       Verdict = "ok"
)

var verdicts = []Verdict{NoAnswer, NoDriver, Drained, Leftover, Faulty, Trouble, OK}

// Node is one row. A figure of a node without a verdict to which it belongs is zero.
type Node struct {
	Node     string    `json:"node"`
	Verdict  Verdict   `json:"verdict"`
	Since    time.Time `json:"since,omitzero"` // since when, as far as the node knows
	Leftover uint64    `json:"leftover_bytes"`
	Holder   string    `json:"holder,omitempty"` // first process of the leftover: "9351 train (alice)"
	Job      string    `json:"job,omitempty"`    // that left it, or that had the GPU last
	Reason   string    `json:"reason,omitempty"` // of the drain, else what is wrong
	Strikes  int       `json:"strikes"`          // faults on record that speak against its GPUs
	GPUs     int       `json:"gpus"`
	Running  int       `json:"running"` // jobs with GPUs
	Mode     string    `json:"mode,omitempty"`
	At       time.Time `json:"at,omitzero"`    // of the document
	Week     []Day     `json:"week,omitempty"` // the last seven days, oldest first, if the node printed its history
	Was      Verdict   `json:"was,omitempty"`  // another verdict, in the round before
}

// Day is what a node's jobs with GPUs were on one day, by the clock of this host.
type Day struct {
	Jobs int `json:"jobs"` // that ended
	// Worst is the strongest action that their findings led to: "drain", "repeat" or "warn"; empty for none.
	Worst string `json:"worst,omitempty"`
}

// Fleet is printed by "bookend fleet".
type Fleet struct {
	Version int             `json:"version"`
	Kind    string          `json:"kind"`
	Nodes   []Node          `json:"nodes"` // worst first, then by name
	Counts  map[Verdict]int `json:"counts"`
	At      time.Time       `json:"at,omitzero"` // the end of the round; zero without rounds

	all bool // whether the text lists nodes without problems
}

// Read returns the fleet of the documents in r. A wanted node without one has a row too.
func Read(r io.Reader, wanted []string, now time.Time, all bool) (Fleet, error) {
	answers, _, err := read(bufio.NewReaderSize(r, mostLine), false)
	return newFleet(answers, wanted, now, all), err
}

func newFleet(answers []answer, wanted []string, now time.Time, all bool) Fleet {
	f := Fleet{Version: Version, Kind: "fleet", Nodes: []Node{}, Counts: map[Verdict]int{}, all: all}
	rows, weeks := map[string]Node{}, map[string][]Day{}
	for _, a := range answers {
		if a.reason == "" && a.doc.Kind == "history" {
			weeks[a.doc.Node] = week(a.doc.Runs, now)
			continue
		}
		n := a.row()
		if old, twice := rows[n.Node]; !twice || old.At.Before(n.At) || old.Verdict == NoAnswer {
			rows[n.Node] = n
		}
	}
	for name := range weeks {
		if _, answered := rows[name]; !answered {
			rows[name] = Node{Node: name, Verdict: NoAnswer, Reason: "its history came, not its status"}
		}
	}
	for _, name := range wanted {
		if _, answered := rows[name]; !answered && name != "" {
			rows[name] = Node{Node: name, Verdict: NoAnswer, Reason: "nothing came from it"}
		}
	}
	for _, n := range rows {
		n.Week = weeks[n.Node]
		f.Nodes = append(f.Nodes, n)
		f.Counts[n.Verdict]++
	}
	slices.SortFunc(f.Nodes, func(a, b Node) int {
		return cmp.Or(cmp.Compare(slices.Index(verdicts, a.Verdict), slices.Index(verdicts, b.Verdict)),
			cmp.Compare(b.Leftover, a.Leftover), cmp.Compare(len(a.Node), len(b.Node)), cmp.Compare(a.Node, b.Node))
	})
	return f
}

// Rounds reads documents that nodes send again and again: an empty line ends a round.
type Rounds struct {
	lines  *bufio.Reader
	before map[string]Verdict // of the nodes that are wanted, or have answered: in the round before
	clock  func() time.Time
	all    bool
	shown  bool // a round has been returned
}

// NewRounds returns the rounds in r. A wanted node has a row in each; any other, from its first document on.
func NewRounds(r io.Reader, wanted []string, clock func() time.Time, all bool) *Rounds {
	rounds := Rounds{bufio.NewReaderSize(r, mostLine), map[string]Verdict{}, clock, all, false}
	for _, name := range wanted {
		rounds.before[name] = ""
	}
	return &rounds
}

// Next returns the next round's fleet, once that has ended. At the end of the input more is false.
func (r *Rounds) Next() (f Fleet, more bool, err error) {
	answers, more, err := read(r.lines, true)
	if err != nil || !more && r.shown && len(answers) == 0 {
		return f, false, err
	}
	r.shown = true
	now := r.clock()
	f = newFleet(answers, slices.Collect(maps.Keys(r.before)), now, r.all)
	f.At = now
	for i, n := range f.Nodes {
		was, known := r.before[n.Node]
		if was != n.Verdict {
			f.Nodes[i].Was = was
		}
		if known || n.Verdict != NoAnswer && len(r.before) < mostNodes {
			r.before[n.Node] = n.Verdict
		}
	}
	return f, true, nil
}

func (a answer) row() Node {
	s := a.doc
	if a.reason != "" {
		return Node{Node: cmp.Or(a.node, s.Node, "?"), Verdict: NoAnswer, Reason: a.reason}
	}
	n := Node{Node: s.Node, Verdict: OK, GPUs: len(s.GPUs), Running: len(s.Running), Mode: s.Mode, At: s.At}
	repeats := 0
	for _, g := range s.Struck {
		n.Strikes += len(g.Faults)
		if g.Repeat {
			repeats++
		}
	}
	for _, g := range s.GPUs {
		n.addLeftover(g)
	}
	switch {
	case s.Driver != nil && !s.Driver.Answers:
		n.Verdict, n.Reason = NoDriver, s.Driver.Problem
	case s.Slurm != nil && s.Slurm.Drained:
		n.Verdict, n.Reason, n.Since = Drained, s.Slurm.Reason, s.Slurm.Since
	case n.Leftover > 0 || n.Holder != "":
		n.Verdict = Leftover
	case repeats > 0:
		n.Verdict, n.Reason = Faulty, fmt.Sprintf("repeat offenders: %d; bookend rma", repeats)
	case len(s.Troubles) > 0:
		t := s.Troubles[0]
		n.Verdict, n.Reason = Trouble, strings.TrimSpace(t.Code+" "+cmp.Or(t.Title, strings.Join(t.Seen, "; ")))
		if t.Met != nil {
			n.Since = t.Met.Since
		}
	case len(s.Damaged) > 0:
		n.Verdict, n.Reason = Trouble, fmt.Sprintf("damaged records: %d", len(s.Damaged))
	}
	return n
}

func (n *Node) addLeftover(g gpuStatus) {
	if g.State != strings.ToUpper(g.State) || g.State == "" {
		return // states in capitals need an admin
	}
	bytes := g.Unexplained.Bytes
	for _, p := range g.Processes {
		if left := len(g.Jobs) == 0 || !p.Ended.IsZero(); left {
			bytes += p.Memory.Bytes
			n.addHolder(p)
		}
	}
	if len(g.Jobs) == 0 {
		bytes = max(bytes, g.Memory.Used.Bytes)
	}
	n.Leftover += bytes
	if g.Last != nil {
		n.Job = cmp.Or(n.Job, g.Last.Job)
		n.since(g.Last.At)
	}
}

func (n *Node) addHolder(p process) {
	n.since(p.Ended)
	if n.Holder != "" {
		return
	}
	n.Holder = fmt.Sprintf("%d %s (%s)", p.PID, cmp.Or(p.Name, "?"), cmp.Or(p.User, fmt.Sprintf("uid %d", p.UID)))
	n.Job = p.Job
}

// since keeps the earliest known time.
func (n *Node) since(at time.Time) {
	if !at.IsZero() && (n.Since.IsZero() || at.Before(n.Since)) {
		n.Since = at
	}
}

// actions are what findings lead to, strongest first.
var actions = []string{"drain", "repeat", "warn"}

func week(runs []run, now time.Time) []Day {
	days := make([]Day, 7)
	y, m, d := now.Date()
	tomorrow := time.Date(y, m, d+1, 0, 0, 0, 0, now.Location())
	for _, r := range runs {
		i := 6 - int(tomorrow.Sub(r.EndedAt)/(24*time.Hour))
		if i < 0 || !r.EndedAt.Before(tomorrow) {
			continue
		}
		days[i].Jobs++
		for _, v := range []*verdict{r.Start, r.End} {
			if v == nil || !slices.Contains(actions, v.Action) {
				continue
			}
			if old := slices.Index(actions, days[i].Worst); old < 0 || slices.Index(actions, v.Action) < old {
				days[i].Worst = v.Action
			}
		}
	}
	return days
}

// Sound reports whether every node answers and has no problem. Without any node that is not known.
func (f Fleet) Sound() bool { return len(f.Nodes) > 0 && f.Counts[OK] == len(f.Nodes) }

// Text writes the nodes with problems, or all, and then how many there are of each verdict.
func (f Fleet) Text(w io.Writer) {
	if !f.At.IsZero() {
		fmt.Fprintln(w, f.At.Local().Format(time.DateTime))
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	head := "NODE\tSTATE\tSINCE\tLEFTOVER\tHOLDER\tJOB\tSTRIKES\tREASON\n"
	for _, n := range f.Nodes {
		if n.Verdict == OK && n.Was == "" && !f.all {
			continue
		}
		fmt.Fprint(t, head)
		head = ""
		strikes := "-"
		if n.Strikes > 0 {
			strikes = fmt.Sprint(n.Strikes)
		}
		state := string(n.Verdict)
		if n.Was != "" {
			state += ", was " + string(n.Was)
		}
		cells := []string{n.Node, state, n.sinceText(), n.leftText(), cmp.Or(n.Holder, "-"),
			cmp.Or(n.Job, "-"), strikes, cmp.Or(n.Reason, "-")}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	_ = t.Flush() // errors of w are kept by w
	var counts []string
	for _, v := range verdicts {
		if f.Counts[v] > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", f.Counts[v], v))
		}
	}
	const none = "nothing came from bookend status --json"
	fmt.Fprintf(w, "nodes: %d: %s\n", len(f.Nodes), cmp.Or(strings.Join(counts, ", "), none))
}

func (n Node) sinceText() string {
	if n.Since.IsZero() {
		return "-"
	}
	return n.Since.Local().Format("01-02 15:04")
}

func (n Node) leftText() string {
	if n.Leftover == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f GiB", float64(n.Leftover)/(1<<30))
}
