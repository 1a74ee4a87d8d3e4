package resolve

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"bookend/internal/config"
	"bookend/internal/gpu"
)

const hint = "set nvidia.gpu_order, or nvidia.gpu_map"

// inOrder lists the usable cards as Slurm counts them. Slurm counts in PCI order (AutoDetect=nvml), by minor
// (AutoDetect=nvidia) or as its configuration was written; where both orders agree they also agree with how a
// configuration is usually written.
//
// It returns nothing under config.OrderMap, which needs no order.
func inOrder(cards []gpu.Card, order config.GPUOrder) ([]gpu.Device, error) {
	if order == config.OrderMap {
		return nil, nil
	}
	if err := countable(cards); err != nil {
		return nil, err
	}
	byPCI := usable(cards)
	slices.SortFunc(byPCI, comparePCI)
	if order == config.OrderPCI {
		return byPCI, nil
	}
	byMinor, err := sortedByMinor(byPCI)
	if err != nil || order == config.OrderMinor {
		return byMinor, err
	}
	if order != config.OrderAuto {
		return nil, fmt.Errorf("%q is not an order of GPUs", order)
	}
	for i := range byPCI {
		if *byPCI[i].Minor != *byMinor[i].Minor {
			return nil, errors.New("PCI order and minor order of this node's cards differ, Slurm's index may follow either: " + hint)
		}
	}
	return byPCI, nil
}

// countable refuses a list of cards whose positions may have moved since Slurm counted them: a card that cannot
// be read may be excluded or not, and the driver numbers cards without gaps, so a minor left free below another
// means that a card has gone since.
func countable(cards []gpu.Card) error {
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

func sortedByMinor(devices []gpu.Device) ([]gpu.Device, error) {
	for _, d := range devices {
		if d.Minor == nil {
			return nil, fmt.Errorf("the minor of card %s is not known: %s", d.BusID, hint)
		}
	}
	sorted := slices.Clone(devices)
	slices.SortFunc(sorted, func(a, b gpu.Device) int { return cmp.Compare(*a.Minor, *b.Minor) })
	for i := 1; i < len(sorted); i++ {
		if *sorted[i].Minor == *sorted[i-1].Minor {
			return nil, fmt.Errorf("cards %s and %s have the same minor", sorted[i-1].BusID, sorted[i].BusID)
		}
	}
	return sorted, nil
}
