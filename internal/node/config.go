package node

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"bookend/internal/child"
	"bookend/internal/config"
	"bookend/internal/safefile"
)

// ConfigFile returns the path of the configuration file. In task hooks the variable is the user's.
func ConfigFile(env child.Env) string {
	return cmp.Or(env.Getenv("BOOKEND_CONFIG"), config.DefaultFile)
}

// ReadConfig reads the configuration for this process, and returns its path. If it cannot be read or trusted, cfg is
// the default; if it has problems, cfg is what config.Parse keeps of a bad file. Neither ever drains.
func ReadConfig(env child.Env) (cfg config.Config, path string, problems []config.Problem, err error) {
	path = ConfigFile(env)
	// Threat: a configuration names programs that root runs.
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
