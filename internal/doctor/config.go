package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"bookend/internal/config"
	"bookend/internal/node"
	"bookend/internal/nodefiles"
	"bookend/internal/slurmconf"
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

// CheckSyntax writes each mistake in the text of a configuration, then the result, and reports whether it is valid.
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
// whether they use it and can start what it names. slurmConf is where slurm.conf is, if that is set.
func CheckConfig(say Say, cfg config.Config, path, slurmConf string, problems []config.Problem, err error) bool {
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
	found, err := opSlurm.Ask(request{Site: Site{Config: cfg, SlurmConf: slurmConf}}, Patience)
	if err == nil && found.Conf != nil && found.Conf.Doubt() == "" {
		say.mistakes(path, unknownPartitions(cfg, *found.Conf))
		say("checked: %s: the partitions that the configuration names", found.Conf.Path)
	}
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

// unknownPartitions returns partitions that slurm.conf lacks. slurmctld may have them from elsewhere: no mistakes.
func unknownPartitions(cfg config.Config, conf slurmconf.Conf) (all []config.Problem) {
	keys, known := map[string]string{}, conf.Partitions()
	for name := range cfg.Policy.Partitions {
		keys["policy.partitions."+name] = name
	}
	for i, name := range cfg.Slurm.SharedPartitions {
		keys[fmt.Sprintf("slurm.shared_partitions.%d", i)] = name
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if slices.Contains(known, keys[key]) {
			continue
		}
		text := fmt.Sprintf("slurm.conf has no partition %q, so this applies to no job", keys[key])
		if like := config.Closest(keys[key], known); like != "" {
			text += "; did you mean " + like + "?"
		}
		all = append(all, config.Problem{Key: key, Text: text})
	}
	return all
}

func judgePartitions(v *view) string {
	for _, p := range unknownPartitions(v.Config, v.conf()) {
		v.warn(p.String(), "correct it in "+v.path+"; slurm.conf has "+strings.Join(v.conf().Partitions(), ", "))
	}
	return "slurm.conf has all partitions that it names"
}
