package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"bookend/deploy"
	"bookend/internal/slurm"
	"bookend/test/gpu/runrecord"
	"bookend/test/rig"
)

// process is a program that the lane itself starts, other than those of the daemon.
type process struct {
	cmd       *exec.Cmd
	out, errs bytes.Buffer
	began     time.Time
}

// start starts a program with this environment and no more. The pipe of a request stays open until the program has
// ended, as a hook's does.
func start(argv, env []string, request []byte) *process {
	p := &process{cmd: exec.Command(argv[0], argv[1:]...)}
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = append([]string{}, env...), &p.out, &p.errs
	var pipe io.WriteCloser
	if request != nil {
		pipe = must(p.cmd.StdinPipe())
	}
	p.began = time.Now()
	try(p.cmd.Start())
	if pipe != nil {
		must(pipe.Write(request))
	}
	return p
}

// end waits for a program's good end. It returns what it wrote, and its time from before its start to after its end.
func (p *process) end() (out []byte, took time.Duration) {
	late := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	err := p.cmd.Wait()
	if took = time.Since(p.began); err != nil {
		panic(fmt.Errorf("%s: %w: %s", p.cmd, err, tail(p.out.String()+p.errs.String())))
	}
	return p.out.Bytes(), took
}

// cores is GOMAXPROCS as the scripts in slurm.conf give it to a hook.
var cores = sync.OnceValue(func() string {
	script := must(deploy.Hooks.ReadFile("slurm/hooks/prolog"))
	return regexp.MustCompile(`(?m)^export GOMAXPROCS=(\d+)$`).FindStringSubmatch(string(script))[1]
})

// startHook starts a hook of a job on some GPUs as slurmd does (22.05): its environment is built from scratch.
func (l *lane) startHook(context slurm.Context, job int, on []int, config string) *process {
	uid, gid := ids(l.site.Users[0])
	gpus := strings.Trim(strings.ReplaceAll(fmt.Sprint(on), " ", ","), "[]")
	env := rig.NewJob(l.node, job, int(uid), 0).On(gpus).With("SLURM_JOB_GID", fmt.Sprint(gid),
		"SLURM_JOB_USER", l.site.Users[0], "SLURM_CONF", l.site.ConfFile(), "GOMAXPROCS", cores()).Environ(config, context)
	return start([]string{l.site.Program("bookend-" + strings.TrimSuffix(string(context), "_slurmd"))}, env, nil)
}

// hook runs a hook on every GPU and returns what Bookend's log says of it; meanwhile is done beside it.
func (r *run) hook(context slurm.Context, job int, meanwhile func()) runrecord.Hook {
	before := r.hooks(job)
	p := r.startHook(context, job, r.every(), r.site.ConfigFile(r.node))
	meanwhile()
	p.end()
	all := r.hooks(job)
	if len(all) != len(before)+1 {
		panic(fmt.Errorf("%s wrote %d lines to the log, want one: %s", p.cmd, len(all)-len(before), tail(p.errs.String())))
	}
	return all[len(all)-1]
}

func (l *lane) every() (all []int) {
	for i := range l.cards {
		all = append(all, i)
	}
	return all
}

// ownJobs are ids for so many jobs that no one but the lane's own hooks knows, above all of Slurm's here.
func (l *lane) ownJobs(n int) (first int) {
	const above = 100000
	return above + int(l.book.ownJobs.Add(int64(n))) - n
}

// with makes a configuration of that name with one more section.
func (l *lane) with(name, section string) string {
	text := must(os.ReadFile(l.site.ConfigFile(l.node)))
	path := l.site.ConfigFile(l.node + "-" + name)
	try(os.WriteFile(path, append(text, section+"\n"...), 0o644))
	return path
}

// bare is what a program needs that is measured beside hooks: nvidia-smi's directory, and what they have.
func (l *lane) bare() []string {
	path := "PATH=" + os.Getenv("PATH")
	if l.smi != "" {
		path += ":" + filepath.Dir(l.smi)
	}
	return append([]string{path, "GOMAXPROCS=" + cores()}, l.env...)
}
