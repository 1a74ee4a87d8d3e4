package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"bookend/test/gpu/runrecord"
)

var errNoGPU = errors.New("no GPU on this machine: the driver shows none in " + driverProc)

const driverProc = "/proc/driver/nvidia"

// card is one GPU as the driver's own files describe it: a source that Bookend's backend does not use.
type card struct {
	uuid, bus, model string
	minor            int
}

// cardsIn reads the driver's folder, in order of minors: the order in which the lane's gres.conf names
// /dev/nvidiaN, and so of Slurm's indexes.
func cardsIn(folder string) ([]card, error) {
	files, err := filepath.Glob(filepath.Join(folder, "gpus/*/information"))
	if err != nil {
		return nil, err
	}
	var cards []card
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		c := card{uuid: field(text, "GPU UUID"), bus: strings.ToLower(field(text, "Bus Location")),
			model: field(text, "Model")}
		if c.minor, err = strconv.Atoi(field(text, "Device Minor")); err != nil {
			return nil, fmt.Errorf("read %q: minor: %w", file, err)
		}
		cards = append(cards, c)
	}
	slices.SortFunc(cards, func(a, b card) int { return a.minor - b.minor })
	return cards, nil
}

func field(text []byte, name string) string {
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + `:\s*(.*?)\s*$`).FindSubmatch(text)
	if m == nil {
		return ""
	}
	return string(m[1])
}

// devices are the real GPUs' device files; fake ones are made for each site.
func (l *lane) devices() (all []string) {
	for _, c := range l.cards {
		if l.fake == 0 {
			all = append(all, fmt.Sprintf("/dev/nvidia%d", c.minor))
		}
	}
	return all
}

// describe fills in what the records say of the machine.
func (l *lane) describe() {
	folder := driverProc
	if w := l.site.World(l.node); w != nil {
		folder = w.DriverProc()
	}
	m := runrecord.Machine{
		Torch: l.machine.Torch, GPU: l.cards[0].model, GPUs: len(l.cards), Kernel: firstLine("uname", "-r"),
		Driver: found(filepath.Join(folder, "version"), `(\d+\.\d+(?:\.\d+)?)`),
		System: found("/etc/os-release", `(?m)^PRETTY_NAME="(.*)"$`), Slurm: l.slurmVersion(),
		Track:   string(l.track) + " with ConstrainDevices",
		Bookend: strings.TrimPrefix(firstLine(l.site.Program("bookend"), "version"), "bookend "),
		Orders:  "PCI and minor order agree",
	}
	if l.fake == 0 {
		m.Others = driverUsers()
	}
	if !slices.IsSortedFunc(l.cards, func(a, b card) int { return strings.Compare(a.bus, b.bus) }) {
		m.Orders = "PCI and minor order differ"
	}
	l.machine = m
}

// slurmVersion is what the slurmd that runs says of itself.
func (l *lane) slurmVersion() string {
	out, _ := must(l.site.Command("", "slurmd", "-V")).Output()
	return strings.TrimSpace(string(out))
}

// found is what a pattern finds in a file: its group, empty where there is none.
func found(file, pattern string) string {
	text, _ := os.ReadFile(file)
	m := regexp.MustCompile(pattern).FindSubmatch(text)
	if m == nil {
		return ""
	}
	return string(m[1])
}

func firstLine(program string, args ...string) string {
	out, _ := exec.Command(program, args...).Output()
	line, _, _ := strings.Cut(string(out), "\n")
	return line
}

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

func (l *lane) smiSays(args ...string) string {
	out, err := exec.Command(l.smi, args...).Output()
	if err != nil {
		panic(fmt.Errorf("nvidia-smi %q: %w", args, err))
	}
	return string(out)
}

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
