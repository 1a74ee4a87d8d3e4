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

	"bookend/test/gpu/record"
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
	m := record.Machine{
		Torch: l.machine.Torch, GPU: l.cards[0].model, GPUs: len(l.cards), Kernel: firstLine("uname", "-r"),
		Driver: found(filepath.Join(folder, "version"), `(\d+\.\d+(?:\.\d+)?)`),
		System: found("/etc/os-release", `(?m)^PRETTY_NAME="(.*)"$`), Slurm: firstLine("slurmd", "-V"),
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
