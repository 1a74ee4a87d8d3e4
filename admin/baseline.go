package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"bookend/internal/answer"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/inventory"
	"bookend/internal/operation"
	"bookend/internal/report"
	"bookend/internal/stage"
)

// nameWidth bounds names from outside in a line.
const nameWidth = 48

func (a *app) baselineCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "baseline", Short: "show, accept or reset the memory that GPUs use without any job",
		Long: `Lists the memory that each GPU uses without any job. Bookend learns what the node's
services use; an admin can accept more. It is valid until the driver is reloaded.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return noCommand("accept GPU, reset UUID, reset all, or nothing")(cmd, args)
		},
		RunE: func(*cobra.Command, []string) error { return a.listBaselines() },
	}
	cmd.AddCommand(a.acceptCommand(), a.resetCommand())
	return a.perNode(a.inJSON(cmd))
}

const cardNames = "GPU is a UUID, a PCI bus id or nvidiaN: bookend snapshot shows them."

func (a *app) resetCommand() *cobra.Command {
	return a.perNode(&cobra.Command{
		Use: "reset UUID|all", Short: "remove the baseline of a GPU, or of all",
		Long: "Removes the baseline of a GPU. What services use is learned again at the next job's start.",
		Args: operands(1, 1, "a UUID, as bookend baseline shows it, or all"), ValidArgs: []string{"all"},
		RunE: func(_ *cobra.Command, args []string) error { return a.resetBaseline(args[0]) },
	})
}

func (a *app) listBaselines() error {
	cfg := a.config()
	all, cards, err := a.baselines(cfg)
	if err != nil {
		return err
	}
	now := inventory.ReadEpoch(cfg.Paths.Proc, cfg.Paths.Sys)
	return a.write(answer.NewBaselines(all.node, cards, now, a.env.Clock.Booted()), false)
}

func (a *app) baselines(cfg config.Config) (all records, cards map[gpu.ID]finding.Baseline, err error) {
	if all, err = read(a.env, cfg.Paths, a.node); err == nil {
		cards, err = all.store.Baselines()
	}
	return all, cards, err
}

func (a *app) resetBaseline(name string) error {
	all, cards, err := a.baselines(a.config())
	if err != nil {
		return err
	}
	ids := slices.Sorted(maps.Keys(cards))
	if name != "all" {
		if ids = []gpu.ID{gpu.ID(name)}; cards[ids[0]].GPU == "" {
			return notFound(fmt.Sprintf("no baseline of %s on node %s: bookend baseline shows which there are",
				plain(ids[0]), all.node))
		}
	}
	if err := all.store.DropBaselines(ids...); err != nil {
		return err
	}
	fmt.Fprintf(a.env.Stdout, "baselines forgotten: %d; what services hold is learned again at the next job's start\n",
		len(ids))
	return nil
}

// quietTime is how long a probe on the card is waited for: one takes up to half a second.
const quietTime = 2 * time.Second

func (a *app) acceptCommand() *cobra.Command {
	return a.perNode(&cobra.Command{
		Use: "accept GPU", Short: "accept the memory in use on a GPU as its baseline, until the driver is reloaded",
		Long: fmt.Sprintf("Accepts up to %d MiB that are in use on a GPU without a job or a listed process as its\n"+
			"baseline, until the driver is reloaded.\n\n%s", finding.MaxBaseline>>20, cardNames),
		Args: operands(1, 1, "accept GPU, reset GPU, reset all, or nothing"),
		RunE: func(_ *cobra.Command, args []string) error { return a.accept(args[0]) },
	})
}

// accept takes what a card carries without a job, and without anybody to name for it, as its own until the driver
// is loaded anew.
func (a *app) accept(name string) error {
	cfg := a.config()
	all, err := read(a.env, cfg.Paths, a.node)
	if err != nil {
		return err
	}
	b, err := accepted(a.env, cfg, all, name)
	if err != nil {
		return err
	}
	if err := all.store.PutBaseline(b); err != nil {
		return err
	}
	fmt.Fprintf(a.env.Stdout, "accepted: %s on %s count as the GPU's own until the driver is reloaded; undo: bookend "+
		"baseline reset %s\n", answer.Figure(gpu.Bytes(b.Bytes)), plain(b.GPU), plain(b.GPU))
	return nil
}

func accepted(env operation.Env, cfg config.Config, all records, name string) (b finding.Baseline, err error) {
	if why := stuck(env, cfg, all); why != "" {
		return b, errors.New(why)
	}
	epoch := inventory.ReadEpoch(cfg.Paths.Proc, cfg.Paths.Sys)
	s, _, err := stage.Snapshot(env, cfg)
	if err != nil {
		return b, err
	}
	first, err := named(s, name)
	if err != nil {
		return b, err
	}
	id := plain(first.Device.ID)
	if job := holding(all, first.Device, epoch); job != "" {
		return b, fmt.Errorf("refusing to accept what is on %s while job %s has that GPU: wait for its end", id, job)
	}
	if b, err = again(env, cfg, all, first); err != nil {
		return b, fmt.Errorf("refusing to accept what is on %s: %w", id, err)
	}
	b.Epoch = epoch
	return b, nil
}

// again looks a second time, while no probe is at work: memory that changes is somebody's, or on its way back.
func again(env operation.Env, cfg config.Config, all records, first gpu.Reading) (finding.Baseline, error) {
	id := first.Device.ID
	busy, release := all.store.Quiet([]gpu.ID{id}, quietTime)
	defer release()
	if why := busy[id]; why != "" {
		return finding.Baseline{}, errors.New(why)
	}
	s, who, err := stage.Snapshot(env, cfg)
	if err != nil {
		return finding.Baseline{}, err
	}
	r, ok := s.Reading(id)
	if !ok || r.Memory.Used != first.Memory.Used {
		return finding.Baseline{}, errors.New("it is still changing")
	}
	b, err := acceptable(r, who, cfg.Thresholds)
	b.At = s.At
	return b, err
}

// acceptable is the baseline of a card that carries no more than a card may, beside services of the node.
func acceptable(r gpu.Reading, who map[int]finding.Process, t config.Thresholds) (finding.Baseline, error) {
	b := finding.Baseline{GPU: r.Device.ID, Accepted: true, Holder: "accepted"}
	if r.ProcessesUnknown != "" {
		return b, fmt.Errorf("its processes are unknown: %s", report.Clean(r.ProcessesUnknown, 200))
	}
	for _, p := range r.Processes {
		facts := who[p.PID]
		if facts.Gone || facts.Why != "" || !facts.OfSystem() || facts.EnvJobID != 0 || !p.Memory.Known() ||
			p.Memory.Bytes > finding.MaxBaseline {
			return b, fmt.Errorf("process %d (%s) is on it, and is no small service of the node: end it first", p.PID,
				report.Clean(facts.Name, nameWidth))
		}
		b.Residents = append(b.Residents, finding.Resident{
			PID: p.PID, Start: facts.Start, Bytes: p.Memory.Bytes, Service: facts.Service,
		})
	}
	limits := finding.LimitsOf(t)
	bytes, unknown := finding.Unexplained(r, limits, finding.Baseline{})
	switch {
	case unknown != "":
		return b, fmt.Errorf("how much that is is unknown: %s", report.Clean(unknown, 200))
	case bytes == 0:
		return b, errors.New("there is nothing: all memory in use is explained")
	case bytes > finding.MaxBaseline:
		return b, fmt.Errorf("%s are more than the %d MiB that a GPU may carry: somebody holds them. Look who has "+
			"the driver open (fuser -v /dev/nvidia*) and end it; if the memory stays, reset the GPU or reboot the "+
			"node", answer.Figure(gpu.Bytes(bytes)), finding.MaxBaseline>>20)
	}
	b.Bytes = bytes
	return b, nil
}

// named finds the card that an admin means: by UUID, by bus id, or as nvidiaN.
func named(s gpu.Snapshot, name string) (gpu.Reading, error) {
	for _, r := range s.Readings {
		if r.Device.Named(name) {
			return r, nil
		}
	}
	return gpu.Reading{}, notFound(fmt.Sprintf("no such GPU: %q; bookend snapshot shows them", name))
}

// holding names a job that has the card now, or may have it; empty for none.
func holding(all records, d gpu.Device, epoch gpu.Epoch) string {
	for _, r := range all.runs {
		if !r.Running(all.runs) || r.Epoch != (gpu.Epoch{}) && !r.Epoch.Same(epoch) {
			continue
		}
		anywhere := len(r.Devices) == 0
		for _, a := range r.Devices {
			related := a.Device.ID == d.Parent && d.Parent != "" || a.Device.Parent == d.ID
			anywhere = anywhere || a.Device.ID == "" || a.Device.ID == d.ID || related
		}
		if anywhere {
			return r.JobName()
		}
	}
	return ""
}

func plain(id gpu.ID) report.Safe { return report.Clean(string(id), nameWidth) }
