package health

import (
	"strconv"

	"bookend/internal/gpu"
)

// mappedMuch is from how many bytes of BAR1 in use on it is worth looking at what was in use before.
const mappedMuch = 256 << 20

// Compares reports whether Judge wants Input.Before: only where a counter is not at rest.
func Compares(now []gpu.Health) bool {
	for _, h := range now {
		if f, ok := h.Fact(gpu.ECCUncorrected); ok && f.Unknown == "" && f.Value != "0" {
			return true
		}
		if f, ok := h.Fact(gpu.BAR1Used); ok {
			if n, err := strconv.ParseUint(f.Value, 10, 64); err == nil && n >= mappedMuch {
				return true
			}
		}
	}
	return false
}
