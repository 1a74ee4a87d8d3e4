package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"bookend/test/site"
)

// node is the one node of the demonstration.
const node = "n1"

type options struct {
	Programs    string
	GPUs        string // auto, fake or real
	Observe     []string
	ObserveOnly bool
	Pause       bool
	Colour      bool
	Out         io.Writer
	In          io.Reader
	Between     func(d *demo, next int) // called before each job in observe mode; for tests
}

// kind is a job that can be asked for.
type kind struct {
	stranger bool // another user's
	script   string
	title    string
	finds    string // what it is good for, for -help
	why      *cause // it runs out of memory, for this reason
}

// The jobs. What they find on the card and what follows from it is nobody's to say beforehand.
var kinds = map[string]kind{
	"clean": {script: "train alloc --mib 8192 --sleep 0.5", title: "a job that ends with all its processes",
		finds: "on a clean card its log says clean, twice"},
	"oom": {script: "train alloc --mib 163840 --chunks 80 --torch", title: "a job that needs more memory than its GPU has",
		finds: "PyTorch ends it, and its log says why", why: &cause{"your job itself used up the GPU", "your own use", "whole"}},
	"pool": {script: "train alloc --mib 135168 --chunks 66 --idle 67584 --ask 16384 --torch",
		title: "a job that frees half of its memory and then finds no room for one large block",
		finds: "what it freed is in pieces, and its log says so",
		why:   &cause{"your framework's pool was in pieces", "framework's pool", "pieces"}},
	"orphan": {script: "train alloc --mib 20000 --orphan", title: "a job that leaves a process behind",
		finds: "20000 MiB stay on the card, and its log says so"},
	"heir": {script: "train alloc --mib 8192 --sleep 0.5", title: "the next job of the same user",
		finds: "on a card that is not clean its log says whose that is: the same user may know"},
	"stranger": {script: "train alloc --mib 8192 --sleep 0.5", title: "a job of another user",
		finds: "its log says only that it is not his: other users' jobs and processes are not named", stranger: true},
}

// explained lists the jobs for -help.
func explained() string {
	var b strings.Builder
	for _, name := range strings.Split(kindNames(), ", ") {
		fmt.Fprintf(&b, "\n  %-9s %s: %s", name, kinds[name].title, kinds[name].finds)
	}
	return b.String() + "\n"
}

func kindNames() string {
	var names []string
	for name := range kinds {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

func (o options) check() error {
	for _, name := range o.Observe {
		if _, known := kinds[name]; !known {
			return fmt.Errorf("no job %q: want some of %s", name, kindNames())
		}
	}
	if !slices.Contains([]string{"auto", "fake", "real"}, o.GPUs) {
		return fmt.Errorf("-gpus %q: want auto, fake or real", o.GPUs)
	}
	if os.Geteuid() != 0 {
		return errors.New("not root: slurmd starts jobs as their users (make demo asks sudo)")
	}
	return nil
}

// demo is a demonstration under way.
type demo struct {
	*teller
	options
	site *site.Site
	card card
	path string // PATH of the jobs
}

// begin brings everything up.
func begin(o options) (*demo, error) {
	d := &demo{options: o, teller: &teller{out: o.Out, in: bufio.NewReader(o.In), colour: o.Colour}}
	onReal, why := useReal(o.GPUs)
	if o.GPUs == "real" && !onReal {
		return nil, errors.New(why)
	}
	d.say("Bookend takes stock of a job's GPU when the job gets it and when the job has ended. Here it runs on a "+
		"private Slurm, with %s.", why)
	site, err := site.Up(siteOptions(o, onReal))
	if err != nil {
		return nil, err
	}
	d.site = site
	if err := d.installProgram(onReal); err != nil {
		return nil, errors.Join(err, d.end())
	}
	d.leaveOut()
	return d, nil
}

func siteOptions(o options, onReal bool) site.Options {
	s := site.Options{Programs: o.Programs, Nodes: []string{node}, GPUs: 1,
		Conf: []string{"GresTypes=gpu"}} // no shards: a card that may be shared is never tested
	if onReal {
		s.Devices, s.Config = []string{realNode}, realConfig
	}
	return s
}

// installProgram puts the jobs' CUDA program where they find it.
func (d *demo) installProgram(onReal bool) error {
	bin := filepath.Join(d.site.Dir, "users-bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	d.path = bin + ":/usr/bin:/bin"
	train := filepath.Join(bin, "train")
	if onReal {
		d.card = card{node: realNode, real: true}
		return errors.Join(buildReal(train), d.installTorch(bin))
	}
	world := d.site.World(node)
	d.card = card{node: world.Node(0)}
	return os.Symlink(world.FakeCUDA(), train)
}

// tell tells the story, to its end or to the first expectation that is not met.
func (d *demo) tell() error {
	if err := d.opening(); err != nil {
		return err
	}
	for i, name := range d.Observe {
		if d.Between != nil {
			d.Between(d, i)
		}
		if err := d.observe(kinds[name]); err != nil {
			return err
		}
	}
	if err := d.observed(); err != nil {
		return err
	}
	if !d.ObserveOnly {
		if err := d.enforce(); err != nil {
			return err
		}
	}
	return d.private()
}

func (d *demo) opening() error {
	d.step("An installation in observe mode: it reports and never drains")
	conf, err := os.ReadFile(d.site.ConfFile())
	if err != nil {
		return err
	}
	d.typed("root", "grep -E 'Prolog|Epilog' /etc/slurm/slurm.conf", d.short(grep(string(conf), "Prolog", "Epilog")))
	d.say("(Paths are shown as they are on a real node. Here all lies in %s, and a line of shell before each hook names "+
		"this demonstration's own configuration.)", d.site.Dir)
	on, err := d.card.holders()
	if err != nil {
		return err
	}
	if err := d.config("observe"); err != nil {
		return err
	}
	return d.expect(equal("nobody is on the card", "nobody", list(on)))
}

// observed ends the part in observe mode: whatever happened, no node was drained.
func (d *demo) observed() error {
	if len(d.Observe) == 0 {
		return nil
	}
	d.step("What the admin sees of all this")
	out, err := d.slurm("sinfo", "-R", "--noheader")
	if err != nil {
		return err
	}
	status, err := d.bookend("status")
	if err != nil {
		return err
	}
	if err := d.expect(
		equal("no node is drained in observe mode", "", out),
		says(logText(status), "mode observe", "the status has the mode"),
		says(logText(status), fmt.Sprintf("ended jobs on record: %d", len(d.Observe)), "and every job"),
	); err != nil {
		return err
	}
	return d.sweep("What is still on the card is ended by hand.")
}

// config shows that the configuration is valid and in this mode.
func (d *demo) config(mode string) error {
	out, err := d.bookend("config", "check")
	if err != nil {
		return err
	}
	return d.expect(
		says(logText(out), "GPUs in shards: no,", "no GPU is given out in parts: what is on it can be judged, and a clean one tested"),
		says(logText(out), "configuration is valid: mode "+mode+",", "the configuration is valid, its mode "+mode))
}

// bookend runs the command line and shows it.
func (d *demo) bookend(args ...string) (string, error) {
	out, err := d.site.Bookend(node, args...)
	d.typed("root", "bookend "+strings.Join(args, " "), d.short(out))
	if err != nil {
		return out, fmt.Errorf("bookend %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return out, nil
}

// slurm runs one of Slurm's commands as root and shows it.
func (d *demo) slurm(name string, args ...string) (string, error) {
	cmd, err := d.site.Command("", name, args...)
	if err != nil {
		return "", err
	}
	out, err := cmd.CombinedOutput()
	d.typed("root", strings.Join(append([]string{name}, args...), " "), string(out))
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", name, err, out)
	}
	return string(out), nil
}

// sweep ends every process on the card, as an admin would.
func (d *demo) sweep(why string) error {
	on, err := d.card.holders()
	if err != nil || len(on) == 0 {
		return err
	}
	d.say("%s", why)
	for _, h := range on {
		if err := h.stop(); err != nil {
			return err
		}
		d.typed("root", fmt.Sprintf("kill %d", h.PID), "")
	}
	if on, err = d.card.holders(); err != nil {
		return err
	}
	return d.expect(equal("nobody is on the card", "nobody", list(on)))
}

// short writes the installation's places as they are on a real node.
func (d *demo) short(text string) string {
	return strings.NewReplacer(
		filepath.Join(d.site.ConfFile(), "../../hooks")+"/", "/etc/bookend/slurm/hooks/",
		filepath.Dir(d.site.Program("x"))+"/", "/usr/libexec/bookend/", d.site.ConfigFile(node), "/etc/bookend/bookend.yaml", d.site.Dir, "",
	).Replace(text)
}

func grep(text string, any ...string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if slices.ContainsFunc(any, func(s string) bool { return strings.Contains(line, s) }) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// end takes everything down and checks that nothing is left of it.
func (d *demo) end() error {
	dir := d.site.Dir
	if err := d.site.Down(); err != nil {
		return err
	}
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%q is left (%v)", dir, err)
	}
	if left := processesNaming(dir); len(left) > 0 {
		return fmt.Errorf("processes %v are left running", left)
	}
	return nil
}
