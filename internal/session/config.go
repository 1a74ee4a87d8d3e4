package session

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"bookend/internal/config"
	"bookend/internal/operation"
	"bookend/internal/safefile"
)

// ReadConfig reads the configuration that this process is to use, and says where it lies. With problems, or an
// error when it cannot be read or trusted, the Config is what config.Parse keeps of a bad file: it observes and
// never drains.
func ReadConfig(env operation.Env) (cfg config.Config, path string, problems []config.Problem, err error) {
	if path = env.Getenv("BOOKEND_CONFIG"); path == "" {
		path = config.DefaultFile
	}
	// Threat: whoever can write the configuration chooses programs that root runs. Task hooks check alike:
	// there the variable is the user's.
	data, err := safefile.ReadTrusted(path, config.MaxBytes)
	if err != nil {
		return config.Default(), path, nil, err
	}
	cfg, problems = config.Parse(data)
	return cfg, path, problems, nil
}

// LoadConfig is ReadConfig with everything that is wrong in one line, empty when all is well.
func LoadConfig(env operation.Env) (config.Config, string) {
	cfg, path, problems, err := ReadConfig(env)
	if errors.Is(err, fs.ErrNotExist) && env.Getenv("BOOKEND_CONFIG") == "" {
		return cfg, fmt.Sprintf("config %q: missing: shipped defaults in force", path)
	}
	if err != nil {
		return cfg, fmt.Sprintf("config %q: %v: shipped defaults in force, observing only", path, err)
	}
	if len(problems) == 0 {
		return cfg, ""
	}
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = p.String()
	}
	return cfg, fmt.Sprintf("config %q: %s: shipped policy in force, observing only", path, strings.Join(lines, "; "))
}
