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
var visibleNames = [...]string{"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"}

// HasGPUs reports whether a hook's job has GPUs on this node, from the environment alone and at no cost: most
// jobs have none. A list that cannot be read counts as GPUs, so that it is looked at and reported.
//
// Task hooks have the user's own environment: there only Slurm's names count (srun-only jobs have no
// SLURM_JOB_GPUS), in root hooks also the one name Slurm 20.11 sets.
func HasGPUs(getenv func(string) string) bool {
	if gpuValue(getenv, "SLURM_JOB_GPUS") != "" {
		return true
	}
	switch Context(getenv("SLURM_SCRIPT_CONTEXT")) {
	case TaskProlog, TaskEpilog:
		return gpuValue(getenv, "SLURM_STEP_GPUS") != ""
	}
	return visible(getenv) != ""
}

// gpuValue reads one list; the words Slurm has used for an empty one are none.
func gpuValue(getenv func(string) string, name string) string {
	switch value := getenv(name); value {
	case "NoDevFiles", "(null)":
		return ""
	default:
		return value
	}
}

func visible(getenv func(string) string) string {
	for _, name := range visibleNames {
		if value := gpuValue(getenv, name); value != "" {
			return value
		}
	}
	return ""
}

// gpusFromEnv reads both lists of a root hook. With a problem neither list is returned: half a list would
// hide a GPU.
func gpusFromEnv(getenv func(string) string) (indexes []int, ids []string, problem string) {
	indexes, err := parseIndexes(gpuValue(getenv, "SLURM_JOB_GPUS"))
	if err != nil {
		return nil, nil, fmt.Sprintf("SLURM_JOB_GPUS cannot be read: %v", err)
	}
	ids, err = parseVisible(visible(getenv))
	if err != nil {
		return nil, nil, fmt.Sprintf("the list of visible devices cannot be read: %v", err)
	}
	return indexes, ids, ""
}

// parseIndexes reads Slurm's list of device indexes: decimal, comma-separated, no ranges.
func parseIndexes(list string) ([]int, error) {
	elements, err := elements(list)
	if err != nil || elements == nil {
		return nil, err
	}
	indexes := make([]int, len(elements))
	for i, element := range elements {
		n, ok := decimal(element)
		if !ok || n > maxIndex {
			return nil, fmt.Errorf("%+q is not a device index", element[:min(len(element), maxID)])
		}
		indexes[i] = int(n)
	}
	return indexes, nil
}

// parseVisible reads a list of indexes or device ids ("GPU-…", "MIG-…", "MIG-GPU-…/1/0").
func parseVisible(list string) ([]string, error) {
	ids, err := elements(list)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if !validDeviceID(id) {
			return nil, fmt.Errorf("%+q is not a device", id[:min(len(id), maxID)])
		}
	}
	return ids, nil
}

// elements splits a list and refuses one with too many elements or the same one twice.
func elements(list string) ([]string, error) {
	if list == "" {
		return nil, nil
	}
	if n := strings.Count(list, ",") + 1; n > maxDevices {
		return nil, fmt.Errorf("%d devices are more than a node has", n)
	}
	all := strings.Split(list, ",")
	for i, element := range all {
		if slices.Contains(all[:i], element) {
			return nil, fmt.Errorf("%+q is listed twice", element[:min(len(element), maxID)])
		}
	}
	return all, nil
}

func validDeviceID(s string) bool {
	if s == "" || len(s) > maxID {
		return false
	}
	for _, c := range []byte(s) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && !isDigit(c) && strings.IndexByte("-/_:.", c) < 0 {
			return false
		}
	}
	return true
}
