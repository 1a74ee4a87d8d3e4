package slurmconf

import (
	"fmt"
	"path"

	"bookend/internal/slurm"
)

var taskKeys = [][2]string{{"TaskProlog", "task-prolog"}, {"TaskEpilog", "task-epilog"}}

func (p *planner) taskHooks() {
	switch {
	case p.Pyxis:
		p.step("No task hooks with pyxis: they would run inside the container. The start report then comes with " +
			"the end report.")
		p.ownTaskHooks("it is looked for inside the container")
		return
	case p.Sent && !p.Version.Has(slurm.ConfiglessTaskHooks):
		p.step("No task hooks: slurmctld sends them from Slurm %s on. The start report then comes with the end "+
			"report. If the nodes with GPUs have slurm.conf themselves: --configless no",
			slurm.ConfiglessTaskHooks.Series())
		p.ownTaskHooks("the nodes do not have it")
		return
	case !p.Sure:
		p.step("No pyxis was found in plugstack.conf on this host. If any node has it, run bookend setup --pyxis yes " +
			"--write: else its container jobs fail.")
	}
	for _, h := range taskKeys {
		p.taskHook(h[0], h[1])
	}
}

func (p *planner) taskHook(key, name string) {
	shipped, why := name, ""
	own, has := p.theirs(key, replaces)
	if has && p.Sent && !path.IsAbs(own.Text) {
		p.again(key, own)
		p.step("%s=%s stays as it is: slurmctld sends only the script that slurm.conf names. Call "+
			"/usr/libexec/bookend/bookend-%s in it, or do without Bookend's.", key, own.Text, name[len("task-"):])
		return
	}
	if has {
		shipped, why = name+"-beside-own", "runs Bookend's, then your "+own.Text+", whose exit status counts"
		p.remove(key, own, "the new line's script runs it after Bookend's")
		own.Text = p.beside(own.Text)
	}
	p.line(why, "%s=%s", key, p.script(name, shipped, own.Text))
}

// ownTaskHooks says what becomes of task hooks that slurm.conf has, if Bookend adds none.
func (p *planner) ownTaskHooks(why string) {
	for _, h := range taskKeys {
		own, has := p.theirs(h[0], why)
		if has {
			p.again(h[0], own)
		}
		if has && p.Pyxis {
			p.step("%s", PyxisFix(h[0], own, p.Version))
		}
	}
}

// PyxisFix says what to do about a task hook of the site's own: slurmd looks for it inside the container of a job.
func PyxisFix(key string, own Value, of slurm.Version) string {
	line := fmt.Sprintf("Remove %s=%s", key, own.Text)
	if own.Line.Number > 0 {
		line += " (" + own.Line.Where() + ")"
	}
	if of.Has(slurm.TaskHookFails) {
		return line + ": tasks in a container fail with it, as they find neither the script nor Slurm's libraries."
	}
	return line + ", or mount the script into all containers with a file in /etc/enroot/mounts.d: if tasks in a " +
		"container do not find it, that is an error in the job's log."
}
