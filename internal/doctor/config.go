package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"bookend/internal/config"
	"bookend/internal/node"
	"bookend/internal/nodefiles"
)

// Backend is a program that hooks start for a vendor's GPUs, and what would keep them from that, nil if nothing would.
type Backend struct {
	Program string
	Trouble *node.Trouble
}

// Backends returns the backends for the GPUs that are present, or those for their test allocations.
func Backends(cfg config.Config, tests bool) []Backend {
	var all []Backend
	for _, v := range nodefiles.Present(cfg.Paths.Sys) {
		if tests && !cfg.Tests(v.Name) {
			continue
		}
		program, options := cfg.BackendOf(v.Name, tests)
		all = append(all, Backend{program, node.CheckBackend(program, options)})
	}
	return all
}

// Say writes one line.
type Say func(format string, args ...any)

// mistakes lists the mistakes in a file in the format that editors expect: FILE:LINE: mistake.
func (say Say) mistakes(file string, problems []config.Problem) {
	for _, p := range problems {
		place := file
		if p.Line > 0 {
			place = fmt.Sprintf("%s:%d", file, p.Line)
		}
		p.Line = 0
		say("%s: %s", place, p)
	}
}

// CheckSyntax writes a line for each mistake in the text of a configuration, then the result, and reports whether it is
// valid.
func CheckSyntax(say Say, file string, text []byte) bool {
	cfg, problems := config.Parse(text)
	say.mistakes(file, append(problems, cfg.Unused...))
	if len(problems) > 0 {
		say("configuration is not valid")
		return false
	}
	say("configuration is valid: mode %s", cfg.Mode)
	return true
}

// CheckConfig writes a line for each mistake of a configuration that hooks have read, then the result, and reports
// whether they use it and can start what it names.
func CheckConfig(say Say, cfg config.Config, path string, problems []config.Problem, err error) bool {
	say.mistakes(path, append(problems, cfg.Unused...))
	switch {
	case errors.Is(err, fs.ErrNotExist) && path == config.DefaultFile:
		say("%s: missing: the defaults are in effect", path)
		return false
	case err != nil:
		say("%v", err)
		say("configuration is not used: with it the hooks observe with the defaults")
		return false
	case len(problems) > 0:
		say("configuration is not valid: with it the hooks observe with the default policy")
		return false
	}
	say("checked: %s: every key; only root can write it and the directories above it", path)
	var programs []string
	for _, b := range Backends(cfg, false) {
		if b.Trouble != nil {
			say("%s: %s", b.Trouble.Code, b.Trouble.Detail)
			say("configuration is valid, but the hooks cannot start the backend and would look at no GPU")
			return false
		}
		say("checked: %s: there, executable; only root can write it and the directories above it", b.Program)
		programs = append(programs, b.Program)
	}
	for _, b := range Backends(cfg, true) {
		if b.Trouble != nil {
			say("%s: %s", b.Trouble.Code, b.Trouble.Detail)
			say("configuration is valid, but the hooks would test no GPU")
			return false
		}
	}
	say("not checked: the driver and Slurm; bookend doctor looks at both")
	say("configuration is valid: mode %s, backend %s", cfg.Mode, strings.Join(programs, ", "))
	return true
}
