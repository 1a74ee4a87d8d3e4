package site

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// snippet is the path of a snippet, or of what lies beside it.
func (s *Site) snippet(name string) string { return s.in("slurm-snippets/" + name) }

// Own is where the snippets look for a script of the site's own: task-prolog and task-epilog, or those of prolog.d and
// epilog.d.
func (s *Site) Own(name string) string {
	if strings.HasPrefix(name, "task-") {
		return s.in("own/" + name)
	}
	return s.snippet(name)
}

// configless is the snippet that lies, with the hooks it names, beside slurm.conf.
const configless = "bookend-configless.conf"

// besideSlurmConf copies what slurmctld is to send to the nodes.
func (s *Site) besideSlurmConf() error {
	etc := s.in("slurm/etc")
	if err := os.MkdirAll(etc, 0o755); err != nil {
		return err
	}
	put := func(name, as string, mode fs.FileMode) error {
		data, err := os.ReadFile(s.snippet(name))
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(etc, as), data, mode)
	}
	for _, hook := range []string{"prolog", "epilog", "task-prolog", "task-epilog"} {
		if err := put("hooks/"+hook, "bookend-"+hook+".sh", 0o755); err != nil {
			return err
		}
	}
	return put(configless, configless, 0o644)
}

// copySnippets installs deploy/slurm as an admin does who keeps it elsewhere: with other paths, and a configuration a
// node.
func (s *Site) copySnippets(from string) error {
	if err := os.MkdirAll(s.in("own"), 0o755); err != nil {
		return err
	}
	// A process that another test forks meanwhile would have a script open for writing, and nobody could run it.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		switch to := s.snippet(name); d.Type() {
		case fs.ModeDir:
			return os.MkdirAll(to, 0o755)
		case fs.ModeSymlink:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(target, to)
		default:
			return s.copySnippet(path, to, strings.HasPrefix(name, "hooks/"))
		}
	})
	if err != nil {
		return err
	}
	return s.besideSlurmConf()
}

func (s *Site) copySnippet(from, to string, hook bool) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	text, mode := string(data), fs.FileMode(0o644)
	change := [][2]string{{"/etc/bookend/slurm", s.snippet("")}}
	if hook {
		mode = 0o755
		change = s.hookPaths()
	}
	for _, c := range change {
		if !strings.Contains(text, c[0]) && !strings.HasSuffix(from, "configless.conf") {
			return fmt.Errorf("%s does not say %q", from, c[0])
		}
	}
	text = replaced(text, change)
	return os.WriteFile(to, []byte(strings.ReplaceAll(text, "/etc/slurm/task-", s.in("own/task-"))), mode)
}
