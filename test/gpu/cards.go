package main

import (
	"fmt"
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
		panic(errNoGPU)
	}
	var err error
	for _, name := range []string{"nvidia-smi", "/usr/bin/nvidia-smi", "/usr/local/nvidia/bin/nvidia-smi"} {
		if l.smi, err = exec.LookPath(name); err == nil {
			break
		}
	}
	if err != nil {
		panic(fmt.Errorf("the lane checks Bookend against nvidia-smi: %w", err))
	}
	l.smiSays("-L")
	l.cards = must(cardsIn(driverProc))
	for _, c := range l.cards {
		if !strings.HasPrefix(c.uuid, "GPU-") || strings.Contains(c.uuid, "?") || c.bus == "" {
			panic(fmt.Errorf("%s does not tell GPU %d's UUID and bus: %+v", driverProc, c.minor, c))
		}
	}
}

// used is how many bytes of a card are in use, asked of somebody else than Bookend.
func (l *lane) used(index int) uint64 {
	if w := l.site.World(l.node); w != nil {
		return must(w.Used(index))
	}
	out := l.smiSays("-i", l.cards[index].uuid, "--query-gpu=memory.used", plainCSV)
	return must(strconv.ParseUint(strings.TrimSpace(out), 10, 64)) * mib
}

const plainCSV = "--format=csv,noheader,nounits"

// smiSays is what nvidia-smi answers.
func (l *lane) smiSays(args ...string) string {
	out, err := exec.Command(l.smi, args...).Output()
	if err != nil {
		panic(fmt.Errorf("nvidia-smi %q: %w", args, err))
	}
	return string(out)
}

// awaitIdle waits until all GPUs are idle.
func (l *lane) awaitIdle() {
	settled(l.idle)
}

// idle wants no GPU to have memory in use: below 32 MiB, from where Bookend reports.
func (l *lane) idle() {
	for i := range l.cards {
		if used := l.used(i); used >= 32*mib {
			panic(fmt.Errorf("GPU %d: %d MiB in use", i, used/mib))
		}
	}
}

// total is the smallest card's memory in MiB.
func (l *lane) total() uint64 {
	if l.fake > 0 {
		return 143771
	}
	var all []uint64
	for word := range strings.FieldsSeq(l.smiSays("--query-gpu=memory.total", plainCSV)) {
		all = append(all, must(strconv.ParseUint(word, 10, 64)))
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
	out := r.smiSays("-i", uuid, "--query-compute-apps=pid,used_memory", plainCSV)
	for _, m := range regexp.MustCompile(`(?m)^(\d+), (\d+)\s*$`).FindAllStringSubmatch(out, -1) {
		found[int(number(m[1]))] = number(m[2]) * mib
	}
	return found
}
