package slurmconf

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"strings"

	"bookend/internal/slurm"
)

// Script is a file next to slurm.conf: a shipped script, one that only runs the site's own, or bookend.conf.
type Script struct {
	Name    string // path below the directory of slurm.conf
	Shipped string // the name of the shipped script; empty: it only runs Own
	Own     string // the site's own script, run as well
	Text    string // of a file that is no script
}

func (s Script) Render(shipped func(name string) (string, error)) (string, error) {
	// Threat: root runs this script; a quote or a line feed would let the shell run what follows in the path.
	if strings.ContainsAny(s.Own, "'\n") {
		return "", fmt.Errorf("path %q of the site's own script has a quote or a line feed", s.Own)
	}
	if s.Text != "" {
		return s.Text, nil
	}
	if s.Shipped == "" {
		return fmt.Sprintf("#!/bin/sh\nexec '%s' \"$@\"\n", s.Own), nil
	}
	text, err := shipped(s.Shipped)
	if err != nil || s.Own == "" {
		return text, err
	}
	own := regexp.MustCompile("(?m)^own=.*$")
	if !own.MatchString(text) {
		return "", fmt.Errorf("script %q names no script of the site's own", s.Shipped)
	}
	return own.ReplaceAllLiteralString(text, "own='"+s.Own+"'"), nil
}

// Earlier returns the site's own scripts that the scripts of an earlier setup run, by key: the site may have removed
// its own lines, as setup asks. A file that bookend.conf does not name was left behind and no longer runs. read
// returns a file below the directory of slurm.conf, nothing if there is none.
func Earlier(read func(name string) []byte) map[string]string {
	own, line := map[string]string{}, regexp.MustCompile(`(?m)^(?:own=|exec )'([^'\n]+)'`) // as Render writes it
	for key, names := range map[string][]string{
		"Prolog": {"bookend/prolog.d/50-site.sh"}, "TaskProlog": {"bookend-task-prolog.sh", "bookend/task-prolog"},
		"Epilog": {"bookend/epilog.d/50-site.sh"}, "TaskEpilog": {"bookend-task-epilog.sh", "bookend/task-epilog"},
	} {
		for _, name := range names {
			if found := line.FindSubmatch(read(name)); found != nil && bytes.Contains(read(Written), found[1]) {
				own[key] = string(found[1])
			}
		}
	}
	return own
}

// WithSetting returns the text of a new script with the configuration that an admin has set in the old one.
func WithSetting(text string, old []byte) string {
	set := regexp.MustCompile(`(?m)^export BOOKEND_CONFIG="?[\w./$-]+"?$`).FindAll(old, -1)
	if len(set) == 0 {
		return text
	}
	return regexp.MustCompile(`(?m)^#export BOOKEND_CONFIG=.*$`).ReplaceAllLiteralString(text, string(set[len(set)-1]))
}

// Incomplete returns why not all of slurm.conf is known: what an unread part sets could override the rest. An included
// bookend.conf may be missing, as setup is about to write it.
func (c Conf) Incomplete() error {
	for _, l := range c.Lines {
		if why := l.Unreadable(); why != "" && path.Base(l.Include) != Written {
			return fmt.Errorf("read slurm.conf: %s: what is set there could be overridden", why)
		}
	}
	if _, ok := c.Get("ClusterName"); !ok {
		return fmt.Errorf("read slurm.conf: %q has no ClusterName", c.Path)
	}
	return nil
}

// Instructions returns what an admin reads of a plan. done says what was written, empty if nothing was.
func (p Plan) Instructions(s Site, done []string) string {
	dir := path.Dir(s.Conf.Path)
	text := fmt.Sprintf("Slurm %s, %s\n\n", s.Version.Series(), s.Conf.Path)
	if len(done) > 0 {
		text += strings.Join(done, "\n") + "\n\nNext:\n"
	} else {
		text += fmt.Sprintf("%s\nNothing was written. Next: the same with --write, which writes these lines to %s/%s, "+
			"and %d scripts;\n--diff shows what that changes.\n", p.Text, dir, Written, len(p.Scripts)-1)
	}
	spread, restart := "distribute all of it to every host, as you distribute slurm.conf", ""
	if p.Sent {
		spread = "keep all of it next to slurmctld's slurm.conf, which sends it to the nodes; copy it to\n" +
			"  hosts that have a slurm.conf of their own"
	}
	if !s.Version.Has(slurm.ConfiglessHooks) {
		restart = ", and restart slurmd on the nodes with GPUs"
	}
	text += fmt.Sprintf("  %s\n  have this as the last line of slurm.conf, or paste the lines:\n\n    Include %s\n\n"+
		"  scontrol reconfigure%s\n  bookend doctor, on a node with GPUs\n", spread, p.Include, restart)
	for _, step := range p.Steps {
		text += "Note: " + step + "\n"
	}
	return text
}
