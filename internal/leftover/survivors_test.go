package leftover

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/test/must"
)

const (
	hex64     = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	inJob     = "0::/system.slice/n1_slurmstepd.scope/job_"
	inManager = "0::/user.slice/user-1000.slice/user@1000.service/"
	inDocker  = "0::/system.slice/docker-" + hex64 + ".scope\n"
)

// ended is a job from the 100th to the 200th second.
var ended = Span{Cluster: "lab", Job: slurm.Owner{ID: 42, Node: "n1"}, From: 100 * time.Second, To: 200 * time.Second}

// outlives is a daemon that the ended job left, as its environment says, after an edit.
func outlives(edit func(*Survivor)) Survivor {
	p := Survivor{PID: 4711, Parent: 1, Start: 150 * time.Second, Name: "tmux: server", Cgroups: "0::/\n",
		Environ: map[string]string{jobVariable: "42", nodeVariable: "n1", ClusterVariable: "lab"}}
	edit(&p)
	return p
}

// A process is this job's, or its user's, only if nothing else explains it.
func TestOrigin(t *testing.T) {
	unclaimed := func(cgroups string) func(*Survivor) {
		return func(p *Survivor) { p.Environ, p.Cgroups = nil, cgroups+"\n" }
	}
	in := func(cgroups string) func(*Survivor) {
		return func(p *Survivor) { p.Cgroups = cgroups + "\n" }
	}
	named := func(name string, then func(*Survivor)) func(*Survivor) {
		return func(p *Survivor) { then(p); p.Name = name }
	}
	for name, tt := range map[string]struct {
		edit func(*Survivor)
		want origin
	}{
		"its environment names the job":           {func(*Survivor) {}, byJob},
		"its shell lives on too":                  {func(p *Survivor) { p.Parent = 4000 }, byJob},
		"a shell of salloc, which names no node":  {func(p *Survivor) { p.Environ[nodeVariable] = "" }, unrelated},
		"began before the job":                    {func(p *Survivor) { p.Start = 99 * time.Second }, unrelated},
		"began in the tick of the job's start":    {func(p *Survivor) { p.Start = 100 * time.Second }, unrelated},
		"began in the tick of its end":            {func(p *Survivor) { p.Start = 200*time.Second - record.Tick/2 }, unrelated},
		"began after the job":                     {func(p *Survivor) { p.Start = 201 * time.Second }, unrelated},
		"of the same job's part on another node":  {func(p *Survivor) { p.Environ[nodeVariable] = "n2" }, unrelated},
		"of another cluster's job of this number": {func(p *Survivor) { p.Environ[ClusterVariable] = "old" }, unrelated},
		"of another job":                          {func(p *Survivor) { p.Environ[jobVariable] = "41" }, unrelated},
		"has a terminal":                          {func(p *Survivor) { p.Terminal = true }, unrelated},
		"of a prolog that became the user":        {func(p *Survivor) { p.Environ[contextVariable] = "prolog_slurmd" }, unrelated},
		"of a task prolog":                        {func(p *Survivor) { p.Environ[contextVariable] = "prolog_task" }, byJob},
		"forged, in another live job":             {in(inJob + "43/step_0/user/task_0"), unrelated},
		"in this job's cgroup, which Slurm ends":  {in(inJob + "42/step_0/user/task_0"), unrelated},
		"slurmstepd":                              {in(inJob + "42/step_0/slurm"), unrelated},
		"in cgroups of two jobs":                  {in("1:cpu:/slurm/uid_1/job_42\n0::/slurm/uid_1/job_43"), unrelated},
		"of a login":                              {in("0::/user.slice/user-1000.slice/session-3.scope"), unrelated},
		"of a login, cgroup v1":                   {in("2:cpu:/user.slice\n1:name=systemd:/user.slice/user-1000.slice/session-3.scope"), unrelated},
		"of a service":                            {in("0::/system.slice/jupyterhub.service"), unrelated},
		"in a container of a daemon":              {in(inDocker[:len(inDocker)-1]), unrelated},
		"in a PID namespace":                      {func(p *Survivor) { p.Apart = true }, unrelated},
		"by systemd-run, which a login may have":  {in(inManager + "app.slice/run-r8a.service"), byUser},
		"of the user's manager":                   {in(inManager + "session.slice/dbus.service"), unrelated},
		"the manager itself":                      {unclaimed(inManager + "init.scope"), unrelated},
		"podman's monitor":                        {named("conmon", unclaimed(inManager+"user.slice/libpod-conmon-"+hex64+".scope")), byUser},
		"an MPS daemon of the user's manager":     {named("nvidia-cuda-mps", unclaimed(inManager+"app.slice/x.service")), byUser},
		"without an environment":                  {unclaimed("0::/"), byUser},
		"without an environment, of slurmd's":     {unclaimed("0::/system.slice/n1_slurmstepd.scope/slurmd"), byUser},
		"without an environment, of ssh or cron":  {unclaimed("0::/system.slice/cron.service"), unrelated},
		"without an environment, with a parent":   {func(p *Survivor) { p.Environ, p.Parent = nil, 4000 }, unrelated},
		"without an environment, at a terminal":   {func(p *Survivor) { p.Environ, p.Terminal = nil, true }, unrelated},
	} {
		must.Be(t, name, ended.origin(outlives(tt.edit), true), tt.want)
	}
	must.Be(t, "no environment, next to another job", ended.origin(outlives(unclaimed("0::/")), false), unrelated)
	must.Be(t, "an environment, next to another job", ended.origin(outlives(func(*Survivor) {}), false), byJob)
}

// Only a job whose processes name it is blamed alone, and another job on the node leaves no room for guesses.
func TestSurvivors(t *testing.T) {
	plainly, unnamed := func(*Survivor) {}, func(int) bool { return false }
	lost := func(p *Survivor) { p.PID, p.Environ = 4712, nil }
	foreign := func(p *Survivor) { p.PID, p.Environ[jobVariable] = 4713, "43" }
	for name, tt := range map[string]struct {
		edits []func(*Survivor)
		want  []string
	}{
		"none":               {nil, nil},
		"one":                {[]func(*Survivor){plainly}, []string{"this job left process 4711 (tmux__server) running; end: kill 4711"}},
		"one of unknown job": {[]func(*Survivor){lost}, []string{"job 42 or something else of its user left process 4712 (tmux__server) running; end: kill 4712"}},
		"both": {[]func(*Survivor){plainly, lost}, []string{"this job left process 4711 (tmux__server) running; end: kill 4711",
			"job 42 or something else of its user left process 4712 (tmux__server) running; end: kill 4712"}},
		"both, and another job's": {[]func(*Survivor){plainly, lost, foreign}, []string{"this job left process 4711 (tmux__server) running; end: kill 4711"}},
	} {
		var all []Survivor
		for _, edit := range tt.edits {
			all = append(all, outlives(edit))
		}
		var got []string
		for _, r := range ended.Reports(all, unnamed) {
			got = append(got, r.Text)
			must.Be(t, name+": certain", r.Doubt == "", strings.HasPrefix(r.Text, "this job"))
		}
		must.Be(t, name, got, tt.want)
	}
	shim, below := outlives(plainly), outlives(plainly)
	shim.Name, shim.Arguments, below.PID, below.Parent = "conmon", "conmon\x00-c\x00"+hex64+"\x00", 4712, 4711
	must.Be(t, "a process below a container's monitor", ended.Reports([]Survivor{shim, below}, unnamed)[0].Text,
		"this job left process 4711 (conmon) running; end: podman stop 0123456789ab")
	shim.Name = "sh"
	must.Be(t, "a process below a shell", ended.Reports([]Survivor{shim, below}, unnamed)[0].Text,
		"this job left 2 processes 4711 (sh), 4712 (tmux__server) running; end: kill 4711 4712")
	named := func(pid int) bool { return pid == 4711 }
	must.Be(t, "named already", len(ended.Reports([]Survivor{shim}, named)), 0)
	on := outlives(foreign)
	on.PID = 4711
	must.Be(t, "another job's process that is named", len(ended.Reports([]Survivor{on, outlives(lost)}, named)), 0)
}

// Each kind has its own command, and no name, argument or directory of a user's puts a word into one.
func TestCommands(t *testing.T) {
	as := func(name, arguments string) Survivor {
		return outlives(func(p *Survivor) { p.Name, p.Arguments = name, strings.ReplaceAll(arguments, "|", "\x00") })
	}
	mps := func(pipe string) Survivor {
		return outlives(func(p *Survivor) { p.Name, p.Environ[pipeVariable] = "nvidia-cuda-mps", pipe })
	}
	for _, tt := range []struct {
		left []Survivor
		want string
	}{
		{[]Survivor{as("sleep", "sleep|9|")}, "kill 4711"},
		{[]Survivor{as("conmon", "conmon|-c|"+hex64+"|-u|x|")}, "podman stop 0123456789ab"},
		{[]Survivor{as("conmon", "conmon|-c|$(reboot)|")}, "kill 4711"},
		{[]Survivor{as("conmon", "conmon|-c")}, "kill 4711"},
		{[]Survivor{as("conmon", "")}, "kill 4711"},
		{[]Survivor{as("starter", "Apptainer instance: ada [db]|")}, "apptainer instance stop db"},
		{[]Survivor{as("starter-suid", "Apptainer instance: ada [x;reboot]|")}, "kill 4711"},
		{[]Survivor{mps(""), mps("")}, "echo quit | nvidia-cuda-mps-control"},
		{[]Survivor{mps("/scratch/ada/mps")}, "echo quit | CUDA_MPS_PIPE_DIRECTORY=/scratch/ada/mps nvidia-cuda-mps-control"},
		{[]Survivor{mps("/x; end: reboot")}, "kill 4711"},
		{[]Survivor{as("conmon", "conmon|-c|"+strings.Repeat("-a", 32)+"|")}, "kill 4711"},
		{[]Survivor{as("starter", "Apptainer instance: ada [-a]|")}, "kill 4711"},
		{[]Survivor{mps("-p")}, "kill 4711"},
		{[]Survivor{as("enroot", ""), mps("/m"), as("x", "")}, "echo quit | CUDA_MPS_PIPE_DIRECTORY=/m nvidia-cuda-mps-control; kill 4711 4711"},
	} {
		got := commands(tt.left)
		must.Be(t, "command", got, tt.want)
		must.Not(t, exec.Command("sh", "-n", "-c", got).Run() != nil, "%q is no command", got)
	}
	forged := as("x\n; end: reboot", "")
	must.Be(t, "a forged name", names([]Survivor{forged, forged, forged, forged}),
		"4 processes 4711 (x___end__reboot), 4711 (x___end__reboot), 4711 (x___end__reboot), ...")
	for _, length := range []int{0, 20, 80, 100, 180, 5000} { // what a line has no room for would be a command cut short
		pipe := mps("/" + strings.Repeat("p", length))
		many := slices.Concat([]Survivor{pipe, as("conmon", "conmon|-c|"+hex64+"|")}, make([]Survivor, 500))
		got := commands(many)
		must.Not(t, len(got) > 200 || !strings.Contains(got, " 0 0"), "%d bytes: %s", len(got), got)
	}
}
