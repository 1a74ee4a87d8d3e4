package slurmconf

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxGPUs is more than any node has: 16 GPUs of 7 instances.
const maxGPUs = 256

// record marks a line of `slurmd -G` that describes GPUs; a prefix with or without the time precedes it.
const record = "Gres Name=gpu "

// refused are messages of slurmd after which its list does not count. A device file that slurmd lists without counting
// it makes its own numbers and slurmctld's differ from there on. Without the library that it was built with, or its
// driver, it lists the order of gres.conf, but the running daemon may have detected another. A slurmd that was built
// without the library ("when Slurm was configured") counts as the daemon does, which is the same program.
var refused = []struct {
	why   string
	words []string
}{
	{"slurmd does not count a device that it lists", []string{
		"is not a valid character or block device", "duplicate device file name", "can't stat gres.conf file",
	}},
	{"slurmd could not detect the GPUs", []string{
		"but that lib wasn't found", "Failed to initialize NVML", "System GPU detection failed",
		"Failed to get device count", "Failed to get minor number", "autodetected GPUs are being ignored",
	}},
}

// ParseListed reads what `slurmd -G` prints, whose order is that of SLURM_JOB_GPUS. The number after Index= is
// something else, and shards and MPS have lines of their own. Anything that could shift a position is an error.
func ParseListed(text string) ([]GPU, error) {
	var all []GPU
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		for _, r := range refused {
			if slices.ContainsFunc(r.words, func(words string) bool { return strings.Contains(line, words) }) {
				return nil, fmt.Errorf("%s: %.200q", r.why, line)
			}
		}
		_, fields, found := strings.Cut(line, record)
		if !found {
			continue
		}
		gpus, err := parseRecord(" " + fields)
		if err != nil {
			return nil, fmt.Errorf("parse %.200q: %w", line, err)
		}
		if all = append(all, gpus...); len(all) > maxGPUs {
			return nil, fmt.Errorf("more than %d GPUs", maxGPUs)
		}
	}
	return all, nil
}

// parseRecord gives each device file of a record to one of its GPUs, or all of them to the one there is.
func parseRecord(fields string) ([]GPU, error) {
	count, list := recordField(fields, " Count="), recordField(fields, " File=")
	n, err := strconv.ParseUint(count, 10, 8)
	switch {
	case err != nil:
		return nil, errors.New("count is not a number of GPUs")
	case list == "":
		return nil, errors.New("no device file")
	}
	files := DeviceFiles(list)
	switch {
	case n == 1 && len(files) > 0:
		return []GPU{files}, nil
	case int(n) != len(files):
		return nil, fmt.Errorf("%d device files for %d GPUs", len(files), n)
	}
	all := make([]GPU, n)
	for i, f := range files {
		all[i] = GPU{f}
	}
	return all, nil
}

func recordField(fields, name string) string {
	_, rest, _ := strings.Cut(fields, name)
	value, _, _ := strings.Cut(rest, " ")
	return value
}
