package main

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/inventory"
	"bookend/internal/report"
	"bookend/internal/stage"
	"bookend/internal/view"
)

// nameWidth bounds names from outside in a line.
const nameWidth = 48

// baseline shows, accepts and forgets what the node's cards carry without any job.
func baseline(env stage.Env, c call) int {
	verb := append(slices.Clone(c.args), "")[0]
	known := verb == "" || verb == "accept" || verb == "reset"
	if !known || verb != "" && len(c.args) != 2 || c.force && verb != "accept" {
		return c.of.misused(env, "want accept GPU, reset GPU, reset all, or nothing")
	}
	cfg, problem := stage.LoadConfig(env)
	if problem != "" {
		fmt.Fprintf(env.Stderr, "bookend: %s\n", problem)
	}
	all, err := read(env, cfg.Paths, c.node)
	if err == nil {
		switch verb {
		case "accept":
			err = accept(env, cfg, all, c.args[1], c.force)
		case "reset":
			err = reset(env, cfg, all, c.args[1])
		default:
			err = list(env, cfg, all)
		}
	}
	if err != nil {
		return fail(env, err)
	}
	return exitOK
}

// list writes what is on record of each card. A baseline holds for one epoch of the driver.
func list(env stage.Env, cfg config.Config, all records) error {
	cards, err := all.store.Baselines()
	if err != nil {
		return err
	}
	if len(cards) == 0 {
		fmt.Fprintf(env.Stdout, "no card of node %s carries anything without a job, as far as is on record\n", all.node)
	}
	now := inventory.ReadEpoch(cfg.Paths.Proc, cfg.Paths.Sys)
	booted := env.Clock.Wall().Add(-env.Clock.Boot())
	for _, id := range slices.Sorted(maps.Keys(cards)) {
		b := cards[id]
		fmt.Fprintf(env.Stdout, "%s  %s\n", report.Clean(string(id), nameWidth), carried(b, b.Epoch.Same(now), booted))
		for _, r := range b.Residents {
			fmt.Fprintf(env.Stdout, "  PID %d (%s), %s\n", r.PID, report.Clean(r.Service, nameWidth), view.Figure(gpu.Bytes(r.Bytes)))
		}
	}
	return nil
}

// carried words one baseline.
func carried(b finding.Baseline, holds bool, booted time.Time) string {
	text := fmt.Sprintf("%s without a process", view.Figure(gpu.Bytes(b.Bytes)))
	if b.Holder != "" && !b.Accepted {
		text += ", held by " + string(report.Clean(b.Holder, nameWidth))
	}
	how := "learned"
	if b.Accepted {
		how = "accepted"
	}
	if !holds {
		return text + ", " + how + " before the last driver reload or reboot: no longer counts"
	}
	return fmt.Sprintf("%s, %s %s", text, how, booted.Add(b.At).Local().Format("2006-01-02 15:04:05"))
}

// reset forgets the baseline of one card, or of all.
func reset(env stage.Env, cfg config.Config, all records, name string) error {
	cards, err := all.store.Baselines()
	if err != nil {
		return err
	}
	ids := slices.Sorted(maps.Keys(cards))
	if name != "all" {
		id, err := carrying(env, cfg, all, cards, name)
		if err != nil {
			return err
		}
		ids = []gpu.ID{id}
	}
	if err := all.store.DropBaselines(ids...); err != nil {
		return err
	}
	more := "s"
	if len(ids) == 1 {
		more = ""
	}
	fmt.Fprintf(env.Stdout, "forgotten: %d baseline%s; what services hold is learned again at the next job's start\n", len(ids), more)
	return nil
}

// carrying finds the card that an admin means among those with a baseline. One named by its UUID may be gone by now;
// for other names the driver is asked.
func carrying(env stage.Env, cfg config.Config, all records, cards map[gpu.ID]finding.Baseline, name string) (gpu.ID, error) {
	if _, ok := cards[gpu.ID(name)]; ok {
		return gpu.ID(name), nil
	}
	if why := stuck(env, cfg, all); why != "" {
		return "", fmt.Errorf("%s: give the UUID, as bookend baseline shows it", why)
	}
	s, _, err := stage.Snapshot(env, cfg)
	if err != nil {
		return "", fmt.Errorf("%w; give the UUID, as bookend baseline shows it", err)
	}
	r, err := named(s, name)
	if err != nil {
		return "", err
	}
	if _, ok := cards[r.Device.ID]; !ok {
		return "", notFound(fmt.Sprintf("no baseline of %s on node %s: bookend baseline shows which there are", plain(r.Device.ID), all.node))
	}
	return r.Device.ID, nil
}
