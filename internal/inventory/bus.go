package inventory

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"bookend/internal/gpu"
)

// What the kernel writes of a PCI device: a class that begins with 03 for displays, which GPUs
// without an output are as well ("3D controller").
const (
	displayClass = "0x03"
	maxPCIText   = 64
)

// OnBus reports whether a card is on the PCI bus, whether or not there is a driver for it. It reads what the kernel
// itself knows: no driver is asked, no device wakes up.
func OnBus(sys string) (bool, error) {
	root := filepath.Join(sys, "bus/pci/devices")
	devices, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a machine may have no such bus
		return false, err
	}
	for _, d := range devices {
		vendor, err := readBounded(filepath.Join(root, d.Name(), "vendor"), maxPCIText)
		if err != nil || strings.TrimSpace(vendor) != gpu.NVIDIA.PCI {
			continue
		}
		class, err := readBounded(filepath.Join(root, d.Name(), "class"), maxPCIText)
		if err == nil && strings.HasPrefix(class, displayClass) {
			return true, nil
		}
	}
	return false, nil
}
