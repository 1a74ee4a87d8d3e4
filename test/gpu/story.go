package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"bookend/test/gpu/runrecord"
)

// tale is a story of the demonstration: a chain of scenarios, by the first one.
type tale struct{ name, scenario, about string }

var tales = []tale{
	{"clean", "cuda-clean", "a job that ends well"},
	{"oom", "oom-self", "out of memory: the job needs more than the GPU has"},
	{"fragments", "oom-pool", "out of memory: much is free, in pieces that are too small"},
	{"orphan", "orphan-observe", "a process stays on the GPU, the next job meets it, and then it is ended"},
	{"resume", "check-resume", "enforce mode: a node is drained, and is back once it is clean"},
	{"stray", "stray", "another user's process on the GPU of a job"},
	{"drain", "orphan-enforce", "enforce mode: a node is drained"},
}

// usualTales are those of a demonstration that asks for none.
const usualTales = "clean,oom,orphan,resume"

// scenes are what happens in each scenario of the tales, in a title and a sentence.
var scenes = map[string][2]string{
	"cuda-clean":     {"A job that ends well", "alice's program takes 4 GiB of its GPU and ends. Nothing is left."},
	"oom-self":       {"Out of memory: too large", "alice's program takes more and more, until the GPU is full."},
	"oom-pool":       {"Out of memory: fragmented", "Half of what PyTorch reserved is unused, in pieces smaller than the next block."},
	"orphan-observe": {"A process stays behind", "alice's job ends; a process that it started keeps memory. In observe mode the node goes on."},
	"inherited":      {"The next job gets that GPU", "The process is still there when alice's next job begins."},
	"freed":          {"The process is ended", "The job after that finds a clean GPU."},
	"stray":          {"Another user's process", "bob starts a program outside Slurm, on the GPU of alice's job."},
	"orphan-enforce": {"A process stays behind, in enforce mode", "alice's job ends; a process that it started keeps memory."},
	"check-resume":   {"Drained, and back", "A process stays behind in enforce mode; later it ends, and health checks find the GPU clean."},
}

// askedTales returns the scenarios of tales by their names; there are also "usual" and "all".
func askedTales(names string) ([]string, error) {
	var scenarios []string
	if names == "usual" {
		names = usualTales
	}
	for name := range strings.SplitSeq(names, ",") {
		found := false
		for _, t := range tales {
			if name == t.name || name == "all" {
				scenarios, found = append(scenarios, t.scenario), true
			}
		}
		if !found {
			return nil, fmt.Errorf("no such story: %q; these are there:\n%s", name, listedTales())
		}
	}
	return scenarios, nil
}

func listedTales() string {
	text := "  usual      " + usualTales + "\n  all        each of these:\n"
	for _, t := range tales {
		text += fmt.Sprintf("  %-10s %s\n", t.name, t.about)
	}
	return text
}

type typed struct{ who, command, output string }

// screens are what users and admins see after a run: each job's own output, what Bookend has on record of it, and what
// Slurm says of the node.
func (r *run) screens() (all []typed) {
	for _, j := range r.rec.Jobs {
		user, _, _ := strings.Cut(j.User, "(")
		all = append(all, typed{user + "$", fmt.Sprintf("cat slurm-%d.out", j.ID), j.Output})
		// its complaint is worth reading, too
		show, _ := r.site.Bookend(r.node, "show", "--node", r.node, fmt.Sprint(j.ID))
		all = append(all, typed{"root#", fmt.Sprintf("bookend show %d", j.ID), show})
	}
	if cmd, err := r.site.Command("", "sinfo", "-R", "-o", "%E %N"); err == nil {
		out, _ := cmd.CombinedOutput()
		all = append(all, typed{"root#", "sinfo -R -o '%E %N'", string(out)})
	}
	return all
}

// retold is a run in full: what is true, what everybody then sees, and each check of it.
func retold(rec runrecord.Run, screens []typed) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n\n%s (%s mode)\n%s\n%s\n", rec.Title, rec.Mode, strings.Repeat("=", len(rec.Title)),
		rec.Truth)
	for _, s := range screens {
		fmt.Fprintf(&b, "\n  %s %s\n", s.who, s.command)
		for line := range strings.Lines(s.output) {
			b.WriteString(strings.TrimRight("    "+line, " \n") + "\n")
		}
	}
	b.WriteByte('\n')
	for _, c := range rec.Checks {
		if c.Right {
			fmt.Fprintf(&b, "  ok    %s: %s\n", c.What, c.Got)
		} else {
			fmt.Fprintf(&b, "  WRONG %s: want %q, got %q\n", c.What, c.Want, c.Got)
		}
	}
	return b.String()
}

// telling is a run in short: what happens, the lines that its user reads, those that an admin looks at, and what became
// of the node. That all is as it should be is one figure; what is not has a line.
func telling(rec runrecord.Run, screens []typed, p paint) string {
	var b strings.Builder
	scene, right := scenes[rec.Scenario], 0
	for _, c := range rec.Checks {
		if c.Right {
			right++
		}
	}
	fmt.Fprintf(&b, "\n%s  %s\n  %s\n", p.bold(cmp.Or(scene[0], rec.Title)), p.good(fmt.Sprintf("%d checks ok", right)),
		cmp.Or(scene[1], rec.Truth))
	say := func(who string, lines []string) {
		for i, line := range lines {
			label := ""
			if i == 0 {
				label = who
			}
			fmt.Fprintf(&b, "  %s %s\n", p.soft(fmt.Sprintf("%-6s", label)), line)
		}
	}
	for _, s := range screens {
		switch lines := worthTelling(s); {
		case strings.HasPrefix(s.command, "cat"):
			say(strings.TrimSuffix(s.who, "$"), p.all(lines))
		case len(lines) > 0:
			say("admin", append([]string{p.soft("# " + s.command)}, lines...))
		}
	}
	say("node", became(rec.Checks))
	for _, c := range rec.Checks {
		if !c.Right {
			fmt.Fprintf(&b, "  %s\n", p.wrong(fmt.Sprintf("WRONG: %s: want %q, got %q", c.What, c.Want, c.Got)))
		}
	}
	return b.String()
}

// What is worth telling of a screen: of a job's output Bookend's lines; of its record findings, whose they are, and the
// cause that applied; of Slurm's list the reasons that are Bookend's.
var (
	ownLine  = regexp.MustCompile(`^\| bookend: `)
	ofRecord = regexp.MustCompile(`^(start: .*BKD-|end: .*BKD-|  BKD-|    job: |  +YES )`)
	reasons  = regexp.MustCompile(`^BKD-`)
)

func causeRow(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), "YES ") }

func worthTelling(s typed) (lines []string) {
	wanted := reasons
	switch {
	case strings.HasPrefix(s.command, "cat"):
		wanted = ownLine
	case strings.HasPrefix(s.command, "bookend show"):
		wanted = ofRecord
	}
	for line := range strings.Lines(s.output) {
		if line = strings.TrimRight(line, " \n"); wanted.MatchString(line) {
			if causeRow(line) {
				line = "  " + strings.TrimSpace(line)
			}
			lines = append(lines, line)
		}
	}
	if i := slices.IndexFunc(lines, causeRow); i > 0 && wanted == ofRecord { // of a job with a finding
		return lines[:i]
	}
	return lines
}

// became is what the node's state was at each step of a run, as its checks have it.
func became(checks []runrecord.Check) (states []string) {
	for _, c := range checks {
		of := c.What == "the node" || c.What == "the node's drain reason" || c.What == "what it made of the drain"
		state, _, _ := strings.Cut(c.Got, " after BKD-")
		if of && !slices.Contains(states, state) {
			states = append(states, state)
		}
	}
	if slices.Equal(states, []string{"in service"}) {
		return nil
	}
	return states
}

// renamed calls the accounts that run the demonstration's jobs alice and bob: theirs are a system's, such as games.
func renamed(text string, accounts []string) string {
	for i, name := range []string{"alice", "bob"} {
		if i < len(accounts) {
			text = regexp.MustCompile(`\b`+regexp.QuoteMeta(accounts[i])+`\b`).ReplaceAllString(text, name)
		}
	}
	return text
}

// prologue says on what the stories are played.
func (l *lane) prologue() {
	m, kind := l.machine, ""
	if l.fake > 0 {
		kind = "fake "
	}
	fmt.Fprintf(l.tale, "Slurm is %s, with %d %sGPUs (%s). Lines after alice, bob, admin and node are Bookend's own.\n",
		strings.TrimPrefix(m.Slurm, "slurm-wlm "), m.GPUs, kind, m.GPU)
}

// epilogue counts what was checked, and says where to go on.
func (l *lane) epilogue() {
	right, all := 0, 0
	for _, r := range l.book.done {
		for _, c := range r.Checks {
			if all++; c.Right {
				right++
			}
		}
		if r.Problem != "" {
			fmt.Fprintf(l.tale, "\n%s could not be played: %s\n", r.Scenario, r.Problem)
		}
	}
	fmt.Fprintf(l.tale, "\n%d of %d checks ok, in %.0f s. All of it: %s/lane.log\nOther stories: make demo STORY=help. "+
		"Next: Install, in README.md\n", right, all, time.Since(l.began).Seconds(), l.out)
}

// complain writes what went wrong to the log and, in a story, to standard error.
func (l *lane) complain(format string, args ...any) {
	fmt.Fprintf(l.say, format+"\n", args...)
	if l.story {
		fmt.Fprintf(os.Stderr, format+"\n", args...)
	}
}

// paint colours text, if it is set.
type paint bool

func newPaint(w io.Writer) paint {
	file, is := w.(*os.File)
	if !is || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}

func (p paint) in(code, text string) string {
	if !p || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (p paint) bold(text string) string  { return p.in("1", text) }
func (p paint) soft(text string) string  { return p.in("2", text) }
func (p paint) good(text string) string  { return p.in("32", text) }
func (p paint) wrong(text string) string { return p.in("1;31", text) }

// all paints the lines of a job's output: what is wrong is yellow.
func (p paint) all(lines []string) []string {
	for i, line := range lines {
		if strings.Contains(line, "WARNING:") || strings.Contains(line, "OUT OF MEMORY") {
			lines[i] = p.in("33", line)
		}
	}
	return lines
}
