package slurm

import (
	"strconv"
	"strings"
)

const sluidLen = 14 // "s" and 13 characters

// ParseJobID reads a raw job id: decimal, no sign, no leading zero, 1 to 2^32-1.
func ParseJobID(s string) (JobID, bool) {
	n, ok := decimal(s)
	return JobID(n), ok && n != 0
}

// ValidSLUID reports whether s has the form of a SLUID: "s" and 13 of 0-9 and A-Z without I, L, O and U.
func ValidSLUID(s string) bool {
	if len(s) != sluidLen || s[0] != 's' {
		return false
	}
	for _, c := range []byte(s[1:]) {
		if !isDigit(c) && (c < 'A' || c > 'Z' || strings.IndexByte("ILOU", c) >= 0) {
			return false
		}
	}
	return true
}

// ValidNode reports whether s may be used as a node name in a path: letters, digits, ".", "_" and "-", at most
// 255 bytes (a file name), not beginning with "." or "-" and without "..".
func ValidNode(s string) bool {
	if s == "" || len(s) > 255 || s[0] == '.' || s[0] == '-' || strings.Contains(s, "..") {
		return false
	}
	return only(s, "._-")
}

// only reports whether s has nothing but letters, digits and the given signs.
func only(s, signs string) bool {
	for _, c := range []byte(s) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && !isDigit(c) && strings.IndexByte(signs, c) < 0 {
			return false
		}
	}
	return true
}

// decimal reads an unsigned number in its one plain form: digits only, no leading zero, below 2^32.
func decimal(s string) (uint32, bool) {
	if s == "" || !isDigit(s[0]) || s[0] == '0' && len(s) > 1 {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return 0, false // not the highest number, which strconv gives for one too large
	}
	return uint32(n), true
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
