package main

import (
	"fmt"
	"strings"

	"bookend/internal/code"
	"bookend/test/cluster"
)

// enforce lets Bookend drain: a leak, a drained node, a job that waits for it, and the admin's way out.
func (d *demo) enforce() error {
	d.step("Enforce mode: what would spoil the next job's memory drains the node")
	if err := d.site.WriteConfig(node, "enforce", d.sections()); err != nil {
		return err
	}
	d.typed("root", "sed -i 's/^mode: observe/mode: enforce/' /etc/bookend/bookend.yaml", "")
	if err := d.config("enforce"); err != nil {
		return err
	}
	leak, err := d.submit(kinds["orphan"])
	if err != nil {
		return err
	}
	if err := d.follow(leak); err != nil {
		return err
	}
	if err := d.showLog(leak); err != nil {
		return err
	}
	if mine, sure := leak.facts.left(); !sure || len(mine) == 0 {
		return d.ended(leak)
	}
	if err := d.drained(leak); err != nil {
		return err
	}
	waiting, err := d.waiting()
	if err != nil {
		return err
	}
	return d.wayOut(leak, waiting)
}

// drained checks that the leak took the node out of service, and that everybody can see why.
func (d *demo) drained(leak *run) error {
	n, err := d.site.Node(node)
	if err != nil {
		return err
	}
	if _, err := d.slurm("sinfo", "-R"); err != nil {
		return err
	}
	if err := d.expect(
		check{what: "the node is drained", met: n.Has("DRAIN"), want: "DRAIN", seen: strings.Join(n.Flags, "+")},
		equal("its reason is Slurm's own for a failed epilog", "Epilog error", n.Reason),
	); err != nil {
		return err
	}
	runs, err := d.site.HookRuns(node)
	if err != nil {
		return err
	}
	var failed []string
	for _, r := range runs {
		if r.Failed() {
			failed = append(failed, fmt.Sprintf("%s of job %s: exit code %d", r.Hook, r.Job, r.Exit))
		}
	}
	want := fmt.Sprintf("epilog of job %s: exit code %d", leak.facts.Job, code.Exit(code.Orphan))
	if err := d.expect(equal("slurmd's log has the cause: "+want, want, strings.Join(failed, ", "))); err != nil {
		return err
	}
	out, err := d.bookend("status")
	if err != nil {
		return err
	}
	return d.expect(
		says(logText(out), "mode enforce", "the status has the mode"),
		says(logText(squeeze(out)), fmt.Sprintf("job %s GPU 0", leak.facts.Job), "and the job"),
		says(logText(out), fmt.Sprintf("DRAIN for %s (exit %d)", code.Orphan, code.Exit(code.Orphan)), "with what it drained for"))
}

// waiting submits the next job and waits until Slurm has tried to start it.
func (d *demo) waiting() (*run, error) {
	r, err := d.submit(kinds["clean"])
	if err != nil {
		return nil, err
	}
	_, err = d.site.WaitFor(r.facts.Job, patience, func(j cluster.Job) (bool, error) {
		return j.State != "PENDING" || j.Reason != "None", nil
	})
	if err != nil {
		return nil, err
	}
	if _, err := d.slurm("squeue"); err != nil {
		return nil, err
	}
	j, err := d.site.Job(r.facts.Job)
	if err != nil {
		return nil, err
	}
	return r, d.expect(equal("the next job waits", "PENDING", j.State))
}

// wayOut is the admin's: see who it is, end it, resume the node. The job that waited gets a clean card.
func (d *demo) wayOut(leak, waiting *run) error {
	d.step("The admin looks who it is, ends it and resumes the node")
	if err := d.showRecord(leak); err != nil {
		return err
	}
	if err := d.sweep("The process belongs to a job that has ended."); err != nil {
		return err
	}
	d.typed("root", "scontrol update nodename="+node+" state=resume", "")
	if err := d.site.Scontrol("update", "nodename="+node, "state=resume"); err != nil {
		return err
	}
	waiting.facts.Before = nil // it starts only now, and the card was just seen empty
	if err := d.follow(waiting); err != nil {
		return err
	}
	if err := d.showLog(waiting); err != nil {
		return err
	}
	return d.inService()
}

// ended is the story where somebody ended the leak while it was judged: nothing is left to drain for.
func (d *demo) ended(leak *run) error {
	d.say("Nothing is left of job %s on the card: there is nothing to drain the node for.", leak.facts.Job)
	next, err := d.submit(kinds["clean"])
	if err != nil {
		return err
	}
	if err := d.follow(next); err != nil {
		return err
	}
	if err := d.showLog(next); err != nil {
		return err
	}
	return d.inService()
}

func (d *demo) inService() error {
	if _, err := d.slurm("sinfo"); err != nil {
		return err
	}
	n, err := d.site.Node(node)
	if err != nil {
		return err
	}
	return d.expect(check{what: "the node is in service", met: !n.Has("DRAIN"), want: "no drain", seen: strings.Join(n.Flags, "+")})
}

func squeeze(text string) string { return strings.Join(strings.Fields(text), " ") }
