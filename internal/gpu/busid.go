package gpu

import (
	"fmt"
	"strconv"
	"strings"
)

// BusID is a PCI address in one normal form, "0000:1b:00.0": four or more hexadecimal digits of domain,
// lower case. NVML writes eight digits, CUDA four, procfs and sysfs lower case.
type BusID string

// ParseBusID brings a PCI address of any of these forms into normal form.
func ParseBusID(s string) (BusID, error) {
	parts := strings.Split(s, ":")
	if len(parts) != 3 {
		return "", fmt.Errorf("parse bus id %q: want domain:bus:device.function", s)
	}
	device, function, ok := strings.Cut(parts[2], ".")
	if !ok {
		return "", fmt.Errorf("parse bus id %q: no function", s)
	}
	var n [4]uint64
	for i, field := range []struct {
		text string
		bits int
	}{{parts[0], 32}, {parts[1], 8}, {device, 5}, {function, 3}} {
		v, err := strconv.ParseUint(field.text, 16, field.bits)
		if err != nil {
			return "", fmt.Errorf("parse bus id %q: %q is not a hexadecimal number of %d bits", s, field.text,
				field.bits)
		}
		n[i] = v
	}
	return BusID(fmt.Sprintf("%04x:%02x:%02x.%x", n[0], n[1], n[2], n[3])), nil
}
