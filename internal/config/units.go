package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// String writes the duration as it stands in the file.
func (d Duration) String() string { return time.Duration(d).String() }

// units are largest first, as String picks the first that fits.
var units = []struct {
	suffix string
	bytes  uint64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// String writes the size as it stands in the file, in its largest whole unit.
func (s Size) String() string {
	for _, u := range units {
		if uint64(s)%u.bytes == 0 && s > 0 {
			return strconv.FormatUint(uint64(s)/u.bytes, 10) + u.suffix
		}
	}
	return "0B"
}

// parseSize reads a whole number with a unit. Units are powers of two only: "MB" means two things to people.
func parseSize(text string) (Size, error) {
	for _, u := range units {
		digits, ok := strings.CutSuffix(text, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(digits), 10, 63)
		if err != nil || n > 1<<50/u.bytes {
			break
		}
		return Size(n * u.bytes), nil
	}
	return 0, fmt.Errorf("%q is not a size, such as 512MiB (units: B, KiB, MiB, GiB)", clip(text))
}
