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

// Facts are what can be told of a person, each by the pattern by which a line is found to say it.
type Facts struct {
	Person
	signs map[string]string
}

// The words after which a number is a job's or a process's: in a sentence, or as a field of a document.
const (
	ofJobs      = `\b(?:job|jobs|show|JobId|job_id)"?[ =:]+"?(?:[\d_+]+,? (?:and )?)*`
	ofProcesses = `(?i)\b(?:process|pid|processes)"?[ =:]+(?:\d+,? (?:and )?)*`
)

// Know collects what the records tell of each person. A process of root's or a service's is in nobody's facts.
func Know(people []Person, runs []record.Run) (all []Facts) {
	for _, p := range people {
		f := Facts{p, map[string]string{
			`(?:^|[^/\w])` + regexp.QuoteMeta(p.Name) + `\b`: "the account",
			fmt.Sprintf(`\b[uU][iI][dD]"?[ =:]*%d\b`, p.UID): "the uid",
			regexp.QuoteMeta(p.Home):                         "the home",
		}}
		for _, r := range runs {
			f.learn(r)
		}
		all = append(all, f)
	}
	return all
}

func (f Facts) learn(r record.Run) {
	if r.Job.UID == f.UID {
		f.signs[fmt.Sprint(ofJobs, r.Job.ID, `\b`)] = fmt.Sprint("job ", r.Job.ID)
	}
	for _, p := range processes(r) {
		if p.UID != f.UID || p.Gone {
			continue
		}
		f.signs[fmt.Sprint(ofProcesses, p.PID, `\b`)] = fmt.Sprint("process ", p.PID)
		if p.Name != "" {
			f.signs[`[("]`+regexp.QuoteMeta(p.Name)+`[)"]`] = "process name " + p.Name
		}
		if p.Exe != "" {
			f.signs[regexp.QuoteMeta(p.Exe)] = "program " + p.Exe
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
			for pattern, what := range other.signs {
				_, both := own.signs[pattern] // the reader's as well: it tells nothing
				if other.Name != reader && !both && regexp.MustCompile(pattern).MatchString(line) {
					leaks = append(leaks, fmt.Sprintf("%s reads %s of %s: %s", reader, what, other.Name,
						strings.TrimSpace(line)))
				}
			}
		}
	}
	return leaks
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
