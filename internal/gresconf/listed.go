package gresconf

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"bookend/internal/slurmconf"
)

// GPU is one GPU as Slurm counts it: its device files, of which a part of a GPU (MIG) has several.
type GPU []string

// maxGPUs is more than any node has: 16 GPUs of 7 instances.
const maxGPUs = 256

// record marks a line of `slurmd -G` that describes a resource; a prefix with or without the time precedes it.
const record = "Gres Name="

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
		"but that lib wasn't found", "Failed to initialize NVML", "System GPU detection failed", "Failed to get device count",
		"Failed to get minor number", "autodetected GPUs are being ignored",
	}},
}

func refuse(line string) error {
	for _, r := range refused {
		if slices.ContainsFunc(r.words, func(words string) bool { return strings.Contains(line, words) }) {
			return fmt.Errorf("%s: %.200q", r.why, line)
		}
	}
	return nil
}

// ParseListed reads what `slurmd -G` prints, whose order is that of SLURM_JOB_GPUS. The number after Index= is something
// else, and shards and MPS have lines of their own. Anything that could shift a position is an error.
func ParseListed(text string) ([]GPU, error) {
	var all []GPU
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if err := refuse(line); err != nil {
			return nil, err
		}
		_, fields, found := strings.Cut(line, record)
		if !found {
			continue
		}
		gpus, err := listed(fields)
		if err != nil {
			return nil, fmt.Errorf("parse %.200q: %w", line, err)
		}
		if all = append(all, gpus...); len(all) > maxGPUs {
			return nil, fmt.Errorf("more than %d GPUs", maxGPUs)
		}
	}
	return all, nil
}

// listed reads one record; nothing for a resource other than GPUs.
func listed(fields string) ([]GPU, error) {
	name, rest, _ := strings.Cut(fields, " ")
	rest = " " + rest
	if name != "gpu" {
		return nil, nil
	}
	_, count, found := strings.Cut(rest, " Count=")
	if !found {
		return nil, errors.New("no count")
	}
	count, _, _ = strings.Cut(count, " ")
	n, err := strconv.ParseUint(count, 10, 8)
	if err != nil {
		return nil, errors.New("count is not a number of GPUs")
	}
	_, list, found := strings.Cut(rest, " File=")
	if !found {
		return nil, errors.New("no device file")
	}
	list, _, _ = strings.Cut(list, " ")
	return gpusOf(DeviceFiles(list), int(n))
}

// gpusOf gives each file to one of n GPUs, or all of them to the one there is.
func gpusOf(files []string, n int) ([]GPU, error) {
	if n == 1 && len(files) > 0 {
		return []GPU{files}, nil
	}
	if n != len(files) {
		return nil, fmt.Errorf("%d device files for %d GPUs", len(files), n)
	}
	all := make([]GPU, n)
	for i, f := range files {
		all[i] = GPU{f}
	}
	return all, nil
}

// Count counts the GPUs of a node's Gres in slurm.conf, such as "gpu:h100:4(S:0-1),gpu:2,shard:8". kinds is how many
// elements name GPUs; typed whether one of them names a type.
func Count(list string) (n, kinds int, typed bool) {
	for _, e := range elements(list) {
		e, _, _ = strings.Cut(strings.TrimSpace(e), "(")
		parts := strings.Split(e, ":")
		if !strings.EqualFold(parts[0], "gpu") {
			continue
		}
		kinds++
		count, err := strconv.Atoi(parts[len(parts)-1])
		if err != nil || len(parts) == 1 {
			count = 1
		}
		typed = typed || len(parts) > 2 || len(parts) == 2 && err != nil
		n += count
	}
	return n, kinds, typed
}

// elements parts a list at commas outside brackets.
func elements(list string) []string {
	depth := 0
	return strings.FieldsFunc(list, func(c rune) bool {
		switch c {
		case '(':
			depth++
		case ')':
			depth--
		}
		return c == ',' && depth == 0
	})
}

// DeviceFiles writes out "/dev/nvidia[0-3,5],/dev/nvidia8". What it does not understand it leaves as it is.
func DeviceFiles(list string) (all []string) {
	for _, element := range slurmconf.Elements(list) {
		all = append(all, writtenOut(element)...)
	}
	return all
}

const maxMinor = 255

func writtenOut(element string) (all []string) {
	before, rest, ok := strings.Cut(element, "[")
	ranges, after, closed := strings.Cut(rest, "]")
	if !ok || !closed {
		return []string{element}
	}
	for part := range strings.SplitSeq(ranges, ",") {
		low, high, is := strings.Cut(part, "-")
		if !is {
			high = low
		}
		from, err1 := strconv.ParseUint(low, 10, 16)
		to, err2 := strconv.ParseUint(high, 10, 16)
		if err1 != nil || err2 != nil || from > to || to > maxMinor {
			return []string{element}
		}
		for n := from; n <= to; n++ {
			all = append(all, fmt.Sprintf("%s%0*d%s", before, len(low), n, after))
		}
	}
	return all
}
