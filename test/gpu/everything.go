package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"bookend/test/gpu/runrecord"
)

// work is one chain to be run, or the part of it that a control needs.
type work struct {
	chain
	number  int
	control *step
}

// plan has one run of each scenario and, the first time, the controls.
func (l *lane) plan(number int) []work {
	var all []work
	var controls []work
	for _, c := range chains() {
		if !l.wanted(c) {
			continue
		}
		all = append(all, work{chain: c, number: number})
		for i, s := range c.steps {
			if number == 1 && !l.story && s.control() != "" && l.named(c, s.name) {
				controls = append(controls, work{chain: c, number: number, control: &c.steps[i]})
			}
		}
	}
	return append(all, controls...)
}

// everything runs each scenario once, then the controls, then what is measured, then each scenario again, so that a
// run cut short has seen all.
func (l *lane) everything() {
	for number := 1; number <= l.runs; number++ {
		l.work(l.plan(number))
		if number == 1 {
			for _, g := range benchmarks {
				l.benchmark(g)
			}
		}
	}
}

// work does a plan, each node taking what comes next.
func (l *lane) work(plan []work) {
	next := make(chan work)
	var done sync.WaitGroup
	for _, each := range append([]*lane{l}, l.beside...) {
		done.Go(func() {
			for w := range next {
				each.chain(w)
			}
		})
	}
	for _, w := range plan {
		next <- w
	}
	close(next)
	done.Wait()
}

// named: whoever asks for nothing in particular gets everything.
func (l *lane) named(c chain, name string) bool {
	return len(l.only) == 0 || slices.Contains(l.only, name) || slices.Contains(l.only, c.group) || c.gpus > 1 &&
		slices.Contains(l.only, several)
}

func (l *lane) inTime() bool { return time.Since(l.began) < l.budget }

func (l *lane) wanted(c chain) bool {
	some := slices.ContainsFunc(c.steps, func(s step) bool { return l.named(c, s.name) })
	return some && len(l.cards) >= c.gpus && (!c.torch || l.python != "" || l.fake > 0) && (c.rehearsable() || l.fake == 0)
}

// chain runs the steps of one chain; what the lane itself could not do breaks the step and those after it. Of a
// control's chain only the step that it is about is judged.
func (l *lane) chain(w work) {
	if !l.inTime() {
		l.tell("%-18s run %d: left out, the time is over\n", w.steps[0].name, w.number)
		return
	}
	scene, off := &scene{control: w.control != nil}, map[string]string(nil)
	if scene.control {
		off = w.control.off
	}
	settings := w.settings(l.fake > 0, off)
	broken := attempt(func() { l.configure(w.mode, settings) })
	for _, s := range w.steps {
		rec := runrecord.Run{Scenario: s.name, Number: w.number, Mode: w.mode, Settings: render(settings)}
		rec.Title, rec.Truth = s.told()
		began, log := time.Now(), l.slurmAt()
		r := &run{lane: l, rec: &rec, scene: scene}
		if broken == nil {
			r.evidence("before the scenario")
			broken = attempt(func() { s.do(r) })
		}
		if broken != nil {
			rec.Problem = broken.Error()
		}
		r.evidence("at the end")
		if l.story {
			screens := r.screens()
			for i, s := range screens {
				screens[i] = typed{renamed(s.who, l.site.Users), s.command, renamed(s.output, l.site.Users)}
			}
			l.tell("%s", retold(rec, screens))
			fmt.Fprint(l.tale, telling(rec, screens, newPaint(l.tale)))
		}
		rec.Outcome, rec.Seconds, rec.Slurm = rec.Judge(), time.Since(began).Seconds(), l.slurmLines(log)
		if !scene.control {
			l.note(rec)
		} else if w.control.name == s.name {
			rec.Control = s.control()
			l.note(rec)
			break
		}
	}
	if err := attempt(l.reset); err != nil {
		l.tell("gpu-lane: tidy up: %v\n", err)
	}
}

// note prints a run and writes all runs so far to disk.
func (l *lane) note(rec runrecord.Run) {
	l.book.mu.Lock()
	defer l.book.mu.Unlock()
	l.book.done = append(l.book.done, rec)
	kind := "run"
	if rec.Control != "" {
		kind = "control of run"
	}
	fmt.Fprintf(l.say, "%-18s %s %d: %s (%.1f s)\n", rec.Scenario, kind, rec.Number, rec.Outcome, rec.Seconds)
	if rec.Problem != "" {
		fmt.Fprintln(l.say, "  "+rec.Problem)
	}
	for _, c := range rec.Checks {
		if !c.Right && rec.Control == "" {
			fmt.Fprintf(l.say, "  %s: want %q, got %q\n", c.What, c.Want, c.Got)
		}
	}
	f := l.file()
	f.Runs = l.book.done
	if err := f.Write(l.path("accuracy")); err != nil {
		fmt.Fprintln(l.say, "gpu-lane: write record:", err)
	}
}

func (l *lane) tell(format string, args ...any) {
	l.book.mu.Lock()
	defer l.book.mu.Unlock()
	fmt.Fprintf(l.say, format, args...)
}

func (l *lane) file() runrecord.File {
	return runrecord.File{
		Version: runrecord.Version, Fake: l.fake > 0, Date: l.began.UTC().Truncate(time.Second),
		Command: commandLine(os.Args), Machine: l.machine,
	}
}

// commandLine is how to do it again; where this machine kept its folders helps nobody.
func commandLine(args []string) string {
	said := make([]string, len(args))
	for i, a := range args {
		said[i] = a
		if filepath.IsAbs(a) {
			said[i] = filepath.Base(a)
		}
	}
	said[0] = filepath.Base(args[0])
	return strings.Join(said, " ")
}

func (l *lane) path(kind string) string {
	model := regexp.MustCompile(`[^A-Za-z0-9]+`).ReplaceAllString(l.machine.GPU, "-")
	if l.fake > 0 {
		kind, model = "rehearsal-"+kind, "fake"
	}
	return filepath.Join(l.out, fmt.Sprintf("%s-%s-%dx-%s"+runrecord.Suffix, kind, l.began.UTC().Format("20060102-1504"),
		len(l.cards), model))
}

// summary counts, and reports whether all was as it should be: a control that the judge found right is not.
func (l *lane) summary() bool {
	count, controls, well := map[runrecord.Outcome]int{}, 0, true
	for _, r := range l.book.done {
		well = well && r.AsItShould()
		if r.Control != "" {
			controls++
			continue
		}
		count[r.Outcome]++
	}
	fmt.Fprintf(l.say, "gpu-lane: %d right, %d wrong, %d broken; %d controls; all as it should be: %v; %.0f s\n",
		count[runrecord.Right], count[runrecord.Wrong], count[runrecord.Broken], controls, well, time.Since(l.began).Seconds())
	if l.fake == 0 && l.python == "" {
		fmt.Fprintln(l.say, "gpu-lane: no PyTorch here: its scenarios were left out")
	}
	return well && l.measured()
}

// keepLogs packs what the daemons, hooks and jobs of a failed run wrote.
func (l *lane) keepLogs() {
	if l.site == nil {
		return
	}
	args := append([]string{"--ignore-failed-read", "-czf", filepath.Join(l.out, "logs.tar.gz"), "-C", l.site.Dir},
		"slurm/log", "slurm/etc", "slurm/home", "etc", "log-bookend", "run")
	if out, err := exec.Command("tar", args...).CombinedOutput(); err != nil {
		fmt.Fprintf(l.say, "gpu-lane: keep logs: %v: %s\n", err, out)
	}
}
