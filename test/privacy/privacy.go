// Package privacy tells whether a text that one user can read says anything of another: of others' accounts, jobs,
// processes or paths. What is another's is known from root's own records and from the site, not from the text.
package privacy

import (
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"bookend/internal/record"
	"bookend/test/rig"
)

// Person is an account of the site.
type Person struct {
	Name string
	UID  uint32
	Home string
}

// Facts are what can be told of a person.
type Facts struct {
	Person
	Jobs  []string // ids
	PIDs  []int
	Names []string // of processes
	Exes  []string
}

// Know collects what the records tell of each person. A process of root's or a service's is in nobody's facts.
func Know(people []Person, runs []record.Run) []Facts {
	facts := make([]Facts, len(people))
	for i, p := range people {
		facts[i].Person = p
		for _, r := range runs {
			facts[i].learn(r)
		}
	}
	return facts
}

func (f *Facts) learn(r record.Run) {
	if r.Job.UID == f.UID {
		f.Jobs = with(f.Jobs, fmt.Sprint(r.Job.ID))
	}
	for _, p := range processes(r) {
		if p.UID == f.UID && !p.Gone {
			f.PIDs, f.Names, f.Exes = with(f.PIDs, p.PID), with(f.Names, p.Name), with(f.Exes, p.Exe)
		}
	}
}

func processes(r record.Run) (all []record.Process) {
	ends := slices.Clone(r.Ends)
	if r.Start != nil {
		ends = append(ends, *r.Start)
	}
	for _, e := range ends {
		all = append(all, e.Processes...)
		for _, f := range e.Findings {
			if f.Holder != nil {
				all = append(all, f.Holder.Process)
			}
			for _, c := range f.Candidates {
				all = append(all, c.Process)
			}
		}
	}
	return all
}

func with[T comparable](all []T, one T) []T {
	var none T
	if one == none || slices.Contains(all, one) {
		return all
	}
	return append(all, one)
}

// Leaks are the lines of Bookend's in a text of the reader's that say something of somebody else, each with what it is.
// Lines of others, such as the job's own, are the reader's business.
func Leaks(text string, reader string, everybody []Facts) (leaks []string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimLeft(line, "| "), "bookend") || strings.Contains(line, "| bookend") {
			leaks = append(leaks, Shown(line, reader, everybody)...)
		}
	}
	return leaks
}

// Shown are the leaks of what a command of Bookend's wrote for the reader, every line of it.
func Shown(text, reader string, everybody []Facts) (leaks []string) {
	own := everybody[slices.IndexFunc(everybody, func(f Facts) bool { return f.Name == reader })]
	for line := range strings.Lines(text) {
		for _, other := range everybody {
			if other.Name == reader {
				continue
			}
			for _, what := range other.in(line, own) {
				leaks = append(leaks, fmt.Sprintf("%s reads %s of %s: %s", reader, what, other.Name,
					strings.TrimSpace(line)))
			}
		}
	}
	return leaks
}

// in is what a line says of this person that is not the reader's own as well: in words, or as a field of a document.
func (f Facts) in(line string, own Facts) (said []string) {
	const (
		jobs      = `\b(?:job|jobs|show|JobId|job_id)"?[ =:]+"?(?:[\d_+]+,? (?:and )?)*`
		processes = `(?i)\b(?:process|pid|processes)"?[ =:]+(?:\d+,? (?:and )?)*`
	)
	say := func(what, pattern string) {
		if regexp.MustCompile(pattern).MatchString(line) {
			said = append(said, what)
		}
	}
	say("the account", `(?:^|[^/\w])`+regexp.QuoteMeta(f.Name)+`\b`)
	say("the uid", fmt.Sprintf(`\b[uU][iI][dD]"?[ =:]*%d\b`, f.UID))
	say("the home", regexp.QuoteMeta(f.Home))
	for _, id := range without(f.Jobs, own.Jobs) {
		say("job "+id, jobs+regexp.QuoteMeta(id)+`\b`)
	}
	for _, pid := range without(f.PIDs, own.PIDs) {
		say(fmt.Sprintf("process %d", pid), fmt.Sprintf(`%s%d\b`, processes, pid))
	}
	for _, name := range without(f.Names, own.Names) {
		say("process name "+name, `[("]`+regexp.QuoteMeta(name)+`[)"]`)
	}
	for _, exe := range without(f.Exes, own.Exes) {
		say("program "+exe, regexp.QuoteMeta(exe))
	}
	return said
}

func without[T comparable](all, own []T) []T {
	return slices.DeleteFunc(slices.Clone(all), func(one T) bool { return slices.Contains(own, one) })
}

// Readable are the regular files below a folder that the kernel lets a user read, and what they say.
func Readable(uid uint32, folder string) map[string]string {
	all := map[string]string{}
	_ = filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return nil // what is gone, or not to be looked into, tells nobody anything
		}
		cmd := exec.Command("/usr/bin/head", "-c", "1000000", path)
		cmd.SysProcAttr = rig.As(int(uid))
		if text, err := cmd.Output(); err == nil {
			all[path] = string(text)
		}
		return nil
	})
	return all
}
