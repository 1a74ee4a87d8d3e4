package main

import (
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// findCards finds nvidia-smi and the GPUs. The driver shows a card's UUID only once somebody has used the card.
func (l *lane) findCards() {
	cards := must(cardsIn(driverProc))
	if len(cards) == 0 {
		panic(broken{errNoGPU})
	}
	var err error
	for _, name := range []string{"nvidia-smi", "/usr/bin/nvidia-smi", "/usr/local/nvidia/bin/nvidia-smi"} {
		if l.smi, err = exec.LookPath(name); err == nil {
			break
		}
	}
	if err != nil {
		panic(brokenf("the lane checks Bookend against nvidia-smi: %w", err))
	}
	if out, err := exec.Command(l.smi, "-L").CombinedOutput(); err != nil {
		panic(brokenf("nvidia-smi -L: %w: %s", err, out))
	}
	l.cards = must(cardsIn(driverProc))
	for _, c := range l.cards {
		if !strings.HasPrefix(c.uuid, "GPU-") || strings.Contains(c.uuid, "?") || c.bus == "" {
			panic(brokenf("%s does not tell GPU %d's UUID and bus: %+v", driverProc, c.minor, c))
		}
	}
}

// used is how many bytes of a card are in use, asked of somebody else than Bookend.
func (l *lane) used(index int) uint64 {
	if w := l.site.World(l.node); w != nil {
		return must(w.Used(index))
	}
	out := must(exec.Command(l.smi, "-i", l.cards[index].uuid, "--query-gpu=memory.used",
		"--format=csv,noheader,nounits").Output())
	return must(strconv.ParseUint(strings.TrimSpace(string(out)), 10, 64)) * mib
}

// awaitIdle waits until all GPUs are idle.
func (l *lane) awaitIdle() {
	settled(l.idle)
}

// idle wants no GPU to have memory in use: below 32 MiB, from where Bookend reports.
func (l *lane) idle() {
	for i := range l.cards {
		if used := l.used(i); used >= 32*mib {
			panic(brokenf("GPU %d: %d MiB in use", i, used/mib))
		}
	}
}

// total is the smallest card's memory in MiB.
func (l *lane) total() uint64 {
	const unknown = 16 << 10
	if l.fake > 0 {
		return 143771
	}
	out, err := exec.Command(l.smi, "--query-gpu=memory.total", "--format=csv,noheader,nounits").Output()
	if err != nil {
		return unknown
	}
	var all []uint64
	for _, word := range strings.Fields(string(out)) {
		all = append(all, number(word))
	}
	if len(all) == 0 || slices.Min(all) == 0 {
		return unknown
	}
	return slices.Min(all)
}

// listed is what others than Bookend say of the processes on a card: PID and bytes.
func (r *run) listed(uuid string) map[int]uint64 {
	found := map[int]uint64{}
	if w := r.site.World(r.node); w != nil {
		for _, h := range must(w.Holdings()) {
			if h.Context > 0 && w.UUID(h.Card) == uuid {
				found[h.PID] += h.Context + h.Memory + h.Mapped
			}
		}
		return found
	}
	out, err := exec.Command(r.smi, "-i", uuid, "--query-compute-apps=pid,used_memory",
		"--format=csv,noheader,nounits").Output()
	if err != nil {
		panic(brokenf("ask nvidia-smi: %w", err))
	}
	for _, m := range regexp.MustCompile(`(?m)^(\d+), (\d+)\s*$`).FindAllStringSubmatch(string(out), -1) {
		found[int(number(m[1]))] = number(m[2]) * mib
	}
	return found
}
