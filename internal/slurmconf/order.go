package slurmconf

import (
	"cmp"
	"fmt"
	"path"
	"slices"

	"bookend/internal/gpu"
)

const hint = "run bookend doctor, or set nvidia.gpu_map"

// listed finds the device of an index in Slurm's own list.
func (n *node) listed(index int) (gpu.Device, error) {
	switch {
	case !n.list.Known():
		return gpu.Device{}, fmt.Errorf("the meaning of Slurm's GPU numbers is not known: %s: %s",
			cmp.Or(n.list.Why, "slurmd was not asked"), hint)
	case n.list.Source == ByCount:
		if err := countable(n.cards, max(n.list.Count, len(n.list.GPUs))); err != nil {
			return gpu.Device{}, err
		}
	}
	if n.list.Detect != "" {
		return n.detected(index)
	}
	if index < 0 || index >= len(n.list.GPUs) {
		return gpu.Device{}, fmt.Errorf("index %d is not one of the %d GPUs that slurmd lists", index, len(n.list.GPUs))
	}
	return n.byFile(n.list.GPUs[index])
}

// detected finds a GPU if the driver's own order counts: by PCI address with AutoDetect=nvml, by minor with nvidia.
func (n *node) detected(index int) (gpu.Device, error) {
	ordered := usable(n.cards)
	slices.SortFunc(ordered, comparePCI)
	if n.list.Detect == "nvidia" {
		var err error
		if ordered, err = byMinor(ordered); err != nil {
			return gpu.Device{}, err
		}
	}
	if index < 0 || index >= len(ordered) {
		return gpu.Device{}, errMissing
	}
	return ordered[index], nil
}

// byFile finds the GPU of a device file. One that is missing is told from one that cannot be read.
func (n *node) byFile(files GPU) (gpu.Device, error) {
	if len(files) != 1 {
		return gpu.Device{}, fmt.Errorf("part of a GPU is given out as %q: "+
			"which part is not known without the UUID that AutoDetect=nvml adds", files)
	}
	name := path.Base(files[0])
	if !gpu.IsCardNode(name) {
		return gpu.Device{}, fmt.Errorf("gres.conf has %.200q, which is not the device file of a whole GPU: %s",
			files[0], hint)
	}
	device, err := n.card(func(d gpu.Device) bool { return d.Minor != nil && name == d.Node() })
	if err == nil {
		return device, nil
	}
	for _, c := range n.cards {
		if !c.Excluded && c.Device.Minor == nil {
			return gpu.Device{}, fmt.Errorf("which GPU %s is not known: the minor of card %s could not be read",
				name, c.Device.BusID)
		}
	}
	return gpu.Device{}, err
}

// countable refuses a list of GPUs that may be others than Slurm counted: another number of them, or one that cannot be
// read. The driver numbers them without gaps, so a minor left free below another means that a GPU has gone since.
func countable(cards []gpu.Card, counted int) error {
	highest, known := -1, 0
	for _, c := range cards {
		if c.Unknown != "" {
			return fmt.Errorf("card %s cannot be read: %s", c.Device.BusID, c.Unknown)
		}
		if c.Device.Minor != nil {
			highest = max(highest, *c.Device.Minor)
			known++
		}
	}
	if gaps := highest + 1 - known; gaps > len(cards)-known {
		return fmt.Errorf("%d of %d cards have gone since the driver was loaded, Slurm's index cannot be counted off: "+
			"set nvidia.gpu_map", gaps-(len(cards)-known), highest+1)
	}
	if here := len(usable(cards)); here != counted {
		return fmt.Errorf("the driver has %d GPUs and Slurm gives out %d: %s", here, counted, hint)
	}
	return nil
}

func usable(cards []gpu.Card) []gpu.Device {
	var devices []gpu.Device
	for _, c := range cards {
		if !c.Excluded {
			devices = append(devices, c.Device)
		}
	}
	return devices
}

// comparePCI sorts bus ids in normal form: a longer one has a domain above ffff.
func comparePCI(a, b gpu.Device) int {
	return cmp.Or(cmp.Compare(len(a.BusID), len(b.BusID)), cmp.Compare(a.BusID, b.BusID))
}

func byMinor(devices []gpu.Device) ([]gpu.Device, error) {
	for _, d := range devices {
		if d.Minor == nil {
			return nil, fmt.Errorf("the minor of card %s is not known: %s", d.BusID, hint)
		}
	}
	slices.SortFunc(devices, func(a, b gpu.Device) int { return cmp.Compare(*a.Minor, *b.Minor) })
	for i := 1; i < len(devices); i++ {
		if *devices[i].Minor == *devices[i-1].Minor {
			return nil, fmt.Errorf("cards %s and %s have the same minor", devices[i-1].BusID, devices[i].BusID)
		}
	}
	return devices, nil
}
