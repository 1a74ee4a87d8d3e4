// Package inventory is what the kernel says of the node's cards: it lists them and names the driver's epoch, from /proc
// and /sys, and reads what the kernel's log says of them and of processes that it ended for want of memory. No vendor
// library, no attach. A read of the driver's /proc can still sleep for as long as the driver does, and the log may be
// large, so a hook runs this package in a child.
package inventory

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"

	"bookend/internal/gpu"
)

// ErrNoDriver says that the driver's /proc tree is absent: no module is loaded.
var ErrNoDriver = errors.New("the nvidia driver is not loaded")

const (
	maxCards       = 256     // the driver has 8 bits of card minors
	maxInformation = 4 << 10 // the file has about 400 bytes
)

// Read lists the cards below driverProc (/proc/driver/nvidia), in order of bus id. A card whose file cannot be
// read is in the list with its bus id and the reason: leaving it out would shift the numbers of the others.
// It returns ErrNoDriver when the tree is absent, and nothing where none is named: then the backend has to be asked.
func Read(driverProc string) ([]gpu.Card, error) {
	if driverProc == "" {
		return nil, nil
	}
	root := filepath.Join(driverProc, "gpus")
	folders, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoDriver
	}
	if err != nil {
		return nil, fmt.Errorf("list GPUs: %w", err)
	}
	if len(folders) > maxCards {
		return nil, fmt.Errorf("list GPUs: %d directories in %q, more than %d", len(folders), root, maxCards)
	}
	cards := make([]gpu.Card, 0, len(folders))
	for _, folder := range folders {
		bus, err := gpu.ParseBusID(folder.Name())
		if err != nil {
			return nil, fmt.Errorf("list GPUs: %w", err)
		}
		cards = append(cards, readCard(filepath.Join(root, folder.Name(), "information"), bus))
	}
	sort.Slice(cards, func(i, j int) bool { return cards[i].Device.BusID < cards[j].Device.BusID })
	return cards, nil
}

func readCard(file string, bus gpu.BusID) gpu.Card {
	text, err := readBounded(file, maxInformation)
	if err != nil {
		return gpu.Card{Device: gpu.Device{BusID: bus, Vendor: gpu.NVIDIA.Name}, Unknown: err.Error()}
	}
	return parseInformation(text, bus)
}

// readBounded reads a kernel file. Threat: none by content, it is the kernel's; a driver in trouble may answer
// without end.
func readBounded(file string, max int64) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, max+1))
	if err != nil {
		return "", err
	}
	if int64(len(text)) > max {
		return "", fmt.Errorf("read %q: more than %d bytes", file, max)
	}
	return string(text), nil
}
