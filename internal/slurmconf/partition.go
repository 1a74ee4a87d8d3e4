package slurmconf

import "strings"

// Partitions returns the names of the partitions in slurm.conf. "scontrol create" can add others until slurmctld
// restarts.
func (c Conf) Partitions() (names []string) {
	for _, v := range c.All("PartitionName") {
		if v.Text != "" && !strings.EqualFold(v.Text, "DEFAULT") {
			names = append(names, v.Text)
		}
	}
	return names
}

// Closest returns the known name that a misspelt one is most like, or nothing if none is.
func Closest(name string, known []string) (found string) {
	const longest = 64 // bytes: the comparison takes time in proportion to the square of that
	least := min(len(name)/3+1, len(name)-1) + 1
	for _, k := range known {
		if max(len(name), len(k)) > longest {
			continue
		}
		if n := edits(strings.ToLower(name), strings.ToLower(k)); n < least {
			least, found = n, k
		}
	}
	return found
}

// edits returns how many bytes have to be inserted, removed or replaced to make one text of another.
func edits(a, b string) int {
	row := make([]int, len(b)+1) // of the beginning of a so far, for each beginning of b
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		above := row[0]
		row[0] = i + 1
		for j := range len(b) {
			n := above
			if a[i] != b[j] {
				n = 1 + min(above, row[j], row[j+1])
			}
			above, row[j+1] = row[j+1], n
		}
	}
	return row[len(b)]
}
