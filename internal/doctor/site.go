package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"bookend/internal/child"
	"bookend/internal/config"
	"bookend/internal/node"
)

// SiteOf describes this node. Hooks are searched next to the backend, then at the default path.
func SiteOf(env child.Env) Site {
	cfg, path, problems, err := node.ReadConfig(env)
	s := Site{
		Clock:  env.Clock,
		Config: cfg, ConfigPath: path,
		Programs: slices.Compact([]string{filepath.Dir(cfg.Backend), filepath.Dir(config.Default().Backend)}),
		Version:  env.Version, Root: "/", SlurmConf: env.Getenv("SLURM_CONF"),
		NodeName: env.Getenv("SLURMD_NODENAME"), Self: os.Args[0],
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && path == config.DefaultFile: // the defaults apply
	case err != nil:
		s.Mistake = "not used: " + err.Error()
	case len(problems) > 0:
		s.Mistake = fmt.Sprintf("not valid: %s (1 of %d)", problems[0], len(problems))
	}
	if self, err := os.Executable(); err == nil {
		s.Self = self
	}
	return s
}

// ShowConfig writes every key in effect with the text of a file, where that is from, and the line that sets it.
func ShowConfig(say Say, text []byte, file, from string) {
	say("# in effect: %s", from)
	var above []string
	for _, s := range config.Settings(text) {
		names := strings.Split(s.Key, ".")
		last := len(names) - 1
		for i, section := range names[:last] {
			if i >= len(above) || above[i] != section {
				above = append(above[:i:i], section)
				say("%*s%s:", 2*i, "", section)
			}
		}
		above = names[:last]
		set := "default"
		if s.Line > 0 {
			set = fmt.Sprintf("%s:%d", filepath.Base(file), s.Line)
		}
		say("%*s%s: %s  # %s", 2*last, "", names[last], s.Value, set)
	}
}
