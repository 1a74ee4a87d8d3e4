package oom

import (
	"strconv"
	"strings"

	"bookend/internal/gpu"
)

// units are what sizes are counted in. Frameworks that write GB or G mean powers of two as well (TensorFlow's
// "17.79G (19104890880 bytes)").
var units = map[string]float64{
	"": 1, "B": 1, "byte": 1, "bytes": 1,
	"K": 1 << 10, "KB": 1 << 10, "KiB": 1 << 10, "M": 1 << 20, "MB": 1 << 20, "MiB": 1 << 20,
	"G": 1 << 30, "GB": 1 << 30, "GiB": 1 << 30, "T": 1 << 40, "TB": 1 << 40, "TiB": 1 << 40,
}

// amount reads a size at the beginning of a text: "9.61 GiB", "2.00GiB", "1,024 bytes", "4096". One that cannot be is
// unknown; false when there is none.
func amount(text string) (gpu.Figure, bool) {
	end := 0
	for end < len(text) && strings.IndexByte("0123456789.,", text[end]) >= 0 {
		end++
	}
	digits := strings.TrimRight(text[:end], ".,")
	rest := strings.TrimPrefix(text[len(digits):], " ")
	value, err := strconv.ParseFloat(strings.ReplaceAll(digits, ",", ""), 64)
	if err != nil {
		return gpu.Figure{}, false
	}
	letters := 0
	for letters < len(rest) && (rest[letters] >= 'A' && rest[letters] <= 'Z' || rest[letters] >= 'a' && rest[letters] <= 'z') {
		letters++
	}
	unit, ok := units[rest[:letters]]
	if !ok {
		unit = 1
	}
	if value *= unit; value >= maxFigure { // in containers PyTorch says 17179869184.00 GiB where the driver says nothing
		return gpu.Unknown("not a possible size"), true
	}
	return gpu.Bytes(uint64(value)), true
}

// after is the size that follows one of the phrases, unknown where there is none.
func after(text string, phrases ...string) gpu.Figure {
	for _, p := range phrases {
		if _, rest, found := strings.Cut(text, p); found {
			if n, ok := amount(rest); ok {
				return n
			}
		}
	}
	return gpu.Unknown("not said")
}

// before is the size that stands in front of a phrase, unknown where there is none.
func before(text, phrase string) gpu.Figure {
	head, _, found := strings.Cut(text, phrase)
	words := strings.Fields(head)
	if found && len(words) > 0 {
		for _, size := range []string{strings.Join(words[max(0, len(words)-2):], " "), words[len(words)-1]} {
			if n, ok := amount(strings.TrimLeft(size, "(")); ok {
				return n
			}
		}
	}
	return gpu.Unknown("not said")
}
