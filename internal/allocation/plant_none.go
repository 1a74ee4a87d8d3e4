//go:build !plant

package allocation

// plant does nothing in programs that are installed.
func plant(area) {}
