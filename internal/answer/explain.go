package answer

import (
	"strings"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/health"
	"bookend/internal/slurm"
)

// Explain is what "bookend explain" says.
type Explain struct {
	Head
	Asked  string        `json:"asked"`
	Codes  []Explanation `json:"codes"`        // findings that it names
	Exits  []ExitMeaning `json:"exit_codes"`   // where it was a number
	Xid    *XidMeaning   `json:"xid"`          // where it was an error number of the driver's
	Reason *DrainReason  `json:"drain_reason"` // where it was one
}

// Explanation explains one finding.
type Explanation struct {
	Code     code.Code     `json:"code"`
	Title    string        `json:"title"`
	Severity code.Severity `json:"severity"` // note, warning, serious
	Scope    code.Scope    `json:"about"`    // GPU, elsewhere, driver, own
	Whose    code.Whose    `json:"whose"`    // who has to act: job, node, site, self, none
	Meaning  string        `json:"meaning"`
	Remedy   string        `json:"remedy"`
	Shipped  Actions       `json:"policy_shipped"`
	// by this node's configuration, in partitions without a policy of their own
	Here     Actions `json:"policy_here"`
	Drain    string  `json:"drain"` // when it can drain, in words
	CanDrain bool    `json:"can_drain"`
	Exit     *int    `json:"exit_code"` // of a hook that drains for it; null: it never does
}

// Actions are what policy does with a finding, by phase.
type Actions struct {
	Prolog config.Action `json:"prolog"`
	Epilog config.Action `json:"epilog"`
	Check  config.Action `json:"health_check"` // never drain: Slurm only logs its exit code
}

// ExitMeaning is what an exit code means.
type ExitMeaning struct {
	Exit    int         `json:"exit_code"`
	Of      string      `json:"of"` // hooks, bookend
	Meaning string      `json:"meaning"`
	Codes   []code.Code `json:"codes"`
}

// XidMeaning is what an error number of the driver's means.
type XidMeaning struct {
	Number  int       `json:"number"`
	Meaning string    `json:"meaning"`
	Asks    string    `json:"asks"` // what NVIDIA calls for
	Code    code.Code `json:"code"` // of the finding
}

// DrainReason is a node's drain reason, read.
type DrainReason struct {
	Text  string `json:"text"`
	Whose string `json:"whose"` // bookend, slurm, other
	Means string `json:"means"`
	// Of one that Bookend wrote and no one changed:
	Index *uint32 `json:"gpu_index"` // Slurm's number of the GPU; null for none
	Bytes uint64  `json:"bytes"`     // of memory; 0 for none
	PID   uint32  `json:"pid"`       // who holds it; 0 for none
	Job   uint32  `json:"job_id"`    // whose hook drained the node; 0 for none
}

// NewExplain is the document of something that was asked for, without an answer yet.
func NewExplain(asked string) Explain {
	return Explain{Head: head(KindExplain), Asked: text(asked), Codes: []Explanation{}, Exits: []ExitMeaning{}}
}

// WithXid adds what an error number of the driver's means, if it is a known one.
func (e Explain) WithXid(number int, here config.Config) Explain {
	if row, ok := health.Xid(number); ok {
		e.Xid = &XidMeaning{Number: number, Meaning: row.Meaning, Asks: row.Asks, Code: row.Code}
		e.Codes = append(e.Codes, NewExplanation(row.Code, here))
	}
	return e
}

// NewExplanation explains a code of the catalogue under a configuration.
func NewExplanation(c code.Code, here config.Config) Explanation {
	entry, _ := code.Lookup(c)
	e := Explanation{
		Code: c, Title: entry.Title, Severity: entry.Severity, Scope: entry.Scope, Whose: entry.Whose,
		Meaning: entry.Meaning, Remedy: entry.Remedy,
		Shipped: actions(c, config.Default()), Here: actions(c, here),
	}
	e.CanDrain, e.Drain = drains(entry, here)
	if e.CanDrain {
		exit := code.Exit(c)
		e.Exit = &exit
	}
	return e
}

func actions(of code.Code, c config.Config) Actions {
	return Actions{
		Prolog: c.Action(slurm.Prolog, "", of), Epilog: c.Action(slurm.Epilog, "", of),
		Check: c.Action(slurm.HealthCheck, "", of),
	}
}

// drains says whether a finding can ever drain, and under which conditions it does here.
func drains(e code.Entry, here config.Config) (can bool, when string) {
	var phases []string
	set := actions(e.Code, here)
	for _, p := range []struct {
		name   string
		action config.Action
	}{{"prolog", set.Prolog}, {"epilog", set.Epilog}} {
		if p.action == config.Drain || e.Scope == code.Own && p.action == config.Warn &&
			here.OnUnknown == config.Drain {
			phases = append(phases, p.name)
		}
	}
	switch {
	case e.Scope != code.Own && e.NeverDrains() != "":
		return false, "never: " + e.NeverDrains()
	case e.Code == code.Output:
		return false, "never: it is about a file in its user's hands"
	case len(phases) == 0 && e.Scope == code.Own:
		return true, "not as configured: only where the policy, or on_unknown, says drain"
	case len(phases) == 0:
		return true, "not as configured: only where the policy says drain"
	case here.Mode != config.Enforce:
		return true, "not in mode observe; in mode enforce in the " + strings.Join(phases, " and the ") +
			", where nothing speaks against it"
	}
	return true, "in the " + strings.Join(phases, " and the ") + ", where nothing speaks against it"
}

const scriptsExit0 = "The scripts in /etc/bookend/slurm/hooks exit 0 instead; " +
	"a node drains only if slurm.conf names the program itself. "

// HookExit is what an exit code of a hook's means; false for one that no hook ends with.
func HookExit(n int) (ExitMeaning, bool) {
	m := ExitMeaning{Exit: n, Of: "hooks", Codes: []code.Code{}}
	switch {
	case n == 0:
		m.Meaning = "nothing to drain for"
	case n == 2:
		m.Meaning = "a crash of Go's runtime, which Bookend did not catch: no process or thread was available, " +
			"for example. " +
			scriptsExit0 + "Raise the limit (pids cgroup, kernel.threads-max) or see syslog"
	case n == code.ExitOther:
		m.Meaning = "a finding without a number of its own that the policy drains for"
	case n >= 126 && n <= 255:
		m.Meaning = "not a verdict: the hook could not be started, or a signal ended it (128 and its number). " +
			scriptsExit0 + "See syslog and bookend doctor"
	default:
		c, known := code.OfExit(n)
		if known {
			entry, _ := code.Lookup(c)
			m.Meaning, m.Codes = "the node was drained: "+entry.Title, []code.Code{c}
		}
		return m, known
	}
	return m, true
}

// CodeOf is the code that somebody means: with or without "BKD-", in any case; false where there is none of that name.
func CodeOf(written string) (code.Code, bool) {
	name := strings.ToUpper(strings.TrimSpace(written))
	for _, n := range []string{name, "BKD-" + name} {
		if _, ok := code.Lookup(code.Code(n)); ok {
			return code.Code(n), true
		}
	}
	return "", false
}

// CodesIn are the codes that stand in a text, in their order.
func CodesIn(words string) []code.Code {
	var found []code.Code
	for _, word := range strings.FieldsFunc(words,
		func(r rune) bool { return r != '-' && (r < 'A' || r > 'Z') && (r < '0' || r > '9') }) {
		if _, ok := code.Lookup(code.Code(word)); ok {
			found = append(found, code.Code(word))
		}
	}
	return found
}

// NewExit is what an exit code means that stands for no finding.
func NewExit(n int, of, meaning string) ExitMeaning {
	return ExitMeaning{Exit: n, Of: of, Meaning: meaning, Codes: []code.Code{}}
}

// WithReason adds whose a drain reason is and what it means.
func (e Explain) WithReason(whose, means string) Explain {
	e.Reason = &DrainReason{Text: e.Asked, Whose: whose, Means: means}
	return e
}
