package slurm

import (
	"fmt"
	"slices"
	"strings"
)

// Bounds on a node's GPU list: 16 cards of 7 instances are 112 devices, and the longest id is an old driver's
// "MIG-GPU-<uuid>/gi/ci".
const (
	maxDevices = 1024
	maxID      = 128
	maxIndex   = 1<<16 - 1
)

// visibleNames are the variables Slurm fills alike for the vendors' runtimes, the first that is set counts;
// gres.conf may leave some out.
var visibleNames = [...]string{"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"}

// HasGPUs reports whether a hook's job has GPUs on this node, from the environment alone and at no cost: most
// jobs have none. A list that cannot be read counts as GPUs, so that it is looked at and reported.
//
// Task hooks have the user's own environment: srun-only jobs have no SLURM_JOB_GPUS there.
func HasGPUs(getenv func(string) string) bool {
	if gpuValue(getenv, "SLURM_JOB_GPUS") != "" {
		return true
	}
	context := Context(getenv("SLURM_SCRIPT_CONTEXT"))
	return (context == TaskProlog || context == TaskEpilog) && gpuValue(getenv, "SLURM_STEP_GPUS") != ""
}

// gpuValue reads the first list that is set; the words Slurm has used for an empty one are none.
func gpuValue(getenv func(string) string, names ...string) string {
	for _, name := range names {
		if value := getenv(name); value != "" && value != "NoDevFiles" && value != "(null)" {
			return value
		}
	}
	return ""
}

// gpusFromEnv reads both lists of a root hook. With a problem neither list is returned: half a list would
// hide a GPU.
func gpusFromEnv(getenv func(string) string) (indexes []int, ids []string, problem string) {
	numbers, err := devices(gpuValue(getenv, "SLURM_JOB_GPUS"), "a device index", func(s string) bool {
		n, ok := decimal(s)
		return ok && n <= maxIndex
	})
	if err != nil {
		return nil, nil, fmt.Sprintf("SLURM_JOB_GPUS cannot be read: %v", err)
	}
	if len(numbers) == 0 {
		return nil, nil, ""
	}
	ids, err = devices(gpuValue(getenv, visibleNames[:]...), "a device", validDeviceID)
	if err != nil {
		return nil, nil, fmt.Sprintf("the list of visible devices cannot be read: %v", err)
	}
	for _, number := range numbers {
		n, _ := decimal(number)
		indexes = append(indexes, int(n))
	}
	return indexes, ids, ""
}

// devices reads a list of indexes or device ids ("GPU-…", "MIG-…", "MIG-GPU-…/1/0"): comma-separated, no ranges.
// It refuses one with too many elements or the same one twice.
func devices(list, form string, valid func(string) bool) ([]string, error) {
	if list == "" {
		return nil, nil
	}
	if n := strings.Count(list, ",") + 1; n > maxDevices {
		return nil, fmt.Errorf("%d devices are more than a node has", n)
	}
	all := strings.Split(list, ",")
	for i, element := range all {
		switch shown := element[:min(len(element), maxID)]; {
		case !valid(element):
			return nil, fmt.Errorf("%+q is not %s", shown, form)
		case slices.Contains(all[:i], element):
			return nil, fmt.Errorf("%+q is listed twice", shown)
		}
	}
	return all, nil
}

func validDeviceID(s string) bool {
	return s != "" && len(s) <= maxID && only(s, "-/_:.")
}
