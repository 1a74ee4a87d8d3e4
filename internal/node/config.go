package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"bookend/internal/child"
	"bookend/internal/config"
	"bookend/internal/safefile"
)

// OwnCgroup returns the content of this process's cgroup file.
func OwnCgroup(proc string) (string, error) {
	text, err := os.ReadFile(filepath.Join(proc, "self/cgroup"))
	return string(text), err
}

// ReadConfig reads the configuration for this process, and returns its path. If it cannot be read or trusted, cfg is
// the default; if it has problems, cfg is what config.Parse keeps of a bad file. Neither ever drains.
func ReadConfig(env child.Env) (cfg config.Config, path string, problems []config.Problem, err error) {
	if path = env.Getenv("BOOKEND_CONFIG"); path == "" {
		path = config.DefaultFile
	}
	// Threat: a configuration names programs that root runs. In task hooks the variable is the user's.
	data, err := safefile.ReadTrusted(path, config.MaxBytes)
	if err != nil {
		return config.Default(), path, nil, err
	}
	cfg, problems = config.Parse(data)
	return cfg, path, problems, nil
}

// LoadConfig is ReadConfig with all problems in one line, empty if there are none.
func LoadConfig(env child.Env) (config.Config, string) {
	cfg, path, problems, err := ReadConfig(env)
	var all []string
	for _, p := range problems {
		all = append(all, p.String())
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && env.Getenv("BOOKEND_CONFIG") == "":
		return cfg, fmt.Sprintf("config %q: missing: the defaults are in effect", path)
	case err != nil:
		return cfg, fmt.Sprintf("config %q: %v: the defaults are in effect, observing only", path, err)
	case len(all) > 0:
		const instead = "the default policy is in effect, observing only"
		return cfg, fmt.Sprintf("config %q: %s: %s", path, strings.Join(all, "; "), instead)
	}
	return cfg, ""
}
