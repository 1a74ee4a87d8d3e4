package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"bookend/test/cluster"
)

// patience is the longest a job may take, its hooks included.
const patience = time.Minute

// run is a job of the story.
type run struct {
	kind
	user  string
	facts facts
	log   string
}

// observe runs one job in observe mode and checks all that anybody is told about it.
func (d *demo) observe(k kind) error {
	r, err := d.submit(k)
	if err != nil {
		return err
	}
	if err := d.follow(r); err != nil {
		return err
	}
	if err := d.showLog(r); err != nil {
		return err
	}
	if err := d.showRecord(r); err != nil {
		return err
	}
	n, err := d.site.Node(node)
	if err != nil {
		return err
	}
	return d.expect(check{what: "the node takes jobs", met: !n.Has("DRAIN"), want: "no drain in observe mode",
		seen: strings.Join(n.Flags, "+") + " " + n.Reason})
}

// submit looks at the card, then hands the job to Slurm.
func (d *demo) submit(k kind) (*run, error) {
	on, err := d.card.holders()
	if err != nil {
		return nil, err
	}
	r := &run{kind: k, user: d.site.Users[0]}
	if k.stranger {
		r.user = d.site.Users[1]
	}
	script := d.script(k)
	d.step("%s", capital(k.title))
	if d.Pause {
		if err := d.pauseFor(r, on); err != nil {
			return nil, err
		}
		if on, err = d.card.holders(); err != nil {
			return nil, err
		}
	}
	d.say("On the card now: %s.", list(on))
	id, err := d.site.Submit(r.user, script, "--gres=gpu:1", "--job-name=job.sh", "--export=CUDA_DEVICE_ORDER=PCI_BUS_ID,PATH="+d.path)
	if err != nil {
		return nil, err
	}
	d.typed(r.user, "tail -n 1 job.sh", script)
	d.typed(r.user, "sbatch --gres=gpu:1 job.sh", "Submitted batch job "+string(id))
	r.facts = facts{Job: id, UID: d.uid(r.user), Node: node, Before: on, Why: k.why, Real: d.card.real}
	return r, nil
}

// pauseFor waits before a job, and says what there is to look at and to do meanwhile.
func (d *demo) pauseFor(r *run, on []holder) error {
	home, err := d.site.Home(r.user)
	if err != nil {
		return err
	}
	d.note("jobs' logs", filepath.Join(home, "slurm-*.out"))
	d.note("bookend's log", d.site.LogFile())
	d.note("status", fmt.Sprintf("BOOKEND_CONFIG=%s %s status", d.site.ConfigFile(node), d.site.Program("bookend")))
	hint := "Nobody is on the card."
	if len(on) > 0 {
		hint = fmt.Sprintf("On the card: %s. End it by hand, if you like: kill %d.", list(on), on[0].PID)
	}
	d.pause(hint)
	return nil
}

// follow waits for the job's end and looks at the card on the way.
func (d *demo) follow(r *run) error {
	f := &r.facts
	for _, stage := range []struct {
		past []string // job states that the stage is not over in
		seen *[]holder
	}{
		{[]string{"PENDING", "CONFIGURING"}, &f.Begun},
		{[]string{"PENDING", "CONFIGURING", "RUNNING"}, &f.Ended},
		{[]string{"PENDING", "CONFIGURING", "RUNNING", "COMPLETING"}, &f.After},
	} {
		_, err := d.site.WaitFor(f.Job, patience, func(j cluster.Job) (bool, error) {
			return !slices.Contains(stage.past, j.State), nil
		})
		if err != nil {
			return err
		}
		if *stage.seen, err = d.card.holders(); err != nil {
			return err
		}
	}
	f.Begun = both(f.Before, f.Begun)
	return nil
}

// showLog shows the job's log as its user reads it, and checks it against the facts.
func (d *demo) showLog(r *run) error {
	j, err := d.site.Job(r.facts.Job)
	if err != nil {
		return err
	}
	if r.log, err = d.site.Output(r.facts.Job); err != nil {
		return err
	}
	d.typed(r.user, "cat "+base(j.StdOut), r.log)
	checks := append(r.facts.checks(r.log), equal("to Slurm the job is "+r.facts.state(), r.facts.state(), j.State))
	return d.expect(checks...)
}

// showRecord shows what the admin reads.
func (d *demo) showRecord(r *run) error {
	out, err := d.bookend("show", string(r.facts.Job))
	if err != nil {
		return err
	}
	return d.expect(r.facts.shown(logText(squeeze(out)))...)
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

func base(path string) string { return path[strings.LastIndex(path, "/")+1:] }
