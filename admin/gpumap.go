package main

import (
	"fmt"
	"maps"
	"slices"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/stage"
)

// orderLines say for "bookend config check" what of nvidia.gpu_order and nvidia.gpu_map has no effect, or leaves GPUs out.
func orderLines(env stage.Env, cfg config.Config, node string) (lines []string) {
	own := cfg.NVIDIA
	switch own.GPUOrder {
	case config.OrderPCI, config.OrderMinor:
		return []string{fmt.Sprintf("nvidia.gpu_order: %s has no effect: it means auto", own.GPUOrder)}
	case config.OrderMap:
	default:
		return nil
	}
	taken := map[gpu.BusID]int{}
	for _, i := range slices.Sorted(maps.Keys(own.GPUMap)) {
		bus, err := gpu.ParseBusID(own.GPUMap[i])
		if err != nil {
			continue
		}
		if first, ok := taken[bus]; ok {
			lines = append(lines, fmt.Sprintf("nvidia.gpu_map.%d: is the same GPU as index %d", i, first))
			continue
		}
		taken[bus] = i
	}
	node = nodeOf(env, cfg.Paths, node)
	if line := unmapped(own.GPUMap, stage.GPUCount(env, cfg, node), node); line != "" {
		lines = append(lines, line)
	}
	return lines
}

// unmapped names the first of Slurm's numbers, from 0 to count-1, that a map lacks.
func unmapped(of map[int]string, count int, node string) string {
	missing, first := count, 0
	for i := range of {
		if i < count {
			missing--
		}
	}
	if missing <= 0 {
		return ""
	}
	for of[first] != "" {
		first++
	}
	return fmt.Sprintf("nvidia.gpu_map: has %d of the %d GPU numbers of node %s in slurm.conf; number %d is missing: a job with such a GPU is not judged (%s), unless Slurm names it by UUID",
		count-missing, count, node, first, code.Ambiguous)
}
