package fakegpu

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// AccountingSwitches lists the calls of nvmlDeviceSetAccountingMode that succeeded in this world, the oldest first, as
// "CARD MODE": the card in PCI order, and 1 for on.
func (w *World) AccountingSwitches() ([]string, error) {
	text, err := os.ReadFile(filepath.Join(w.dir, "accounting/.switches"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n"), err
}
