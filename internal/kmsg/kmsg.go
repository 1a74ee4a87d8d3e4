// Package kmsg reads the kernel's log.
package kmsg

import "bookend/internal/gpu"

// Read reads the log below dev since a mark, nil for the newest entry alone.
func Read(dev string, since *gpu.KernelMark) gpu.KernelLog {
	return gpu.KernelLog{Unknown: "not read"}
}
