package inventory

import (
	"fmt"
	"strconv"
	"strings"

	"bookend/internal/gpu"
)

const (
	uuidLen   = len("GPU-00000000-0000-0000-0000-000000000000")
	minorBits = 20 // of a Linux device number
)

// parseInformation reads a card's information file. A line it does not know or cannot read leaves its field
// unknown; a file of another card makes the whole card unknown.
func parseInformation(text string, bus gpu.BusID) gpu.Card {
	card := gpu.Card{Device: gpu.Device{BusID: bus, Vendor: gpu.NVIDIA.Name}}
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "Model":
			card.Device.Name = value
		case "GPU UUID":
			card.Device.ID = parseUUID(value)
		case "Device Minor":
			card.Device.Minor = parseMinor(value)
		case "GPU Excluded", "Blacklisted": // the second up to driver 450
			card.Excluded = value == "Yes"
		case "Bus Location":
			if said, err := gpu.ParseBusID(value); err != nil || said != bus {
				return gpu.Card{Device: gpu.Device{BusID: bus, Vendor: gpu.NVIDIA.Name},
					Unknown: fmt.Sprintf("its file names bus location %q", value)}
			}
		}
	}
	if card.Excluded {
		card.Device.Minor = nil
	}
	return card
}

// parseUUID refuses anything but a whole UUID: until the driver has cached it, the line is absent or holds
// question marks.
func parseUUID(s string) gpu.ID {
	if len(s) != uuidLen || !strings.HasPrefix(s, "GPU-") {
		return ""
	}
	for _, c := range s[len("GPU-"):] {
		if !strings.ContainsRune("0123456789abcdef-", c) {
			return ""
		}
	}
	return gpu.ID(s)
}

func parseMinor(s string) *int {
	n, err := strconv.ParseUint(s, 10, minorBits)
	if err != nil {
		return nil
	}
	minor := int(n)
	return &minor
}
