package oom

import (
	"strconv"
	"strings"

	"bookend/internal/gpu"
)

// units are what sizes are counted in, in lower case. Frameworks that write GB or G mean powers of two as well
// (TensorFlow's "17.79G (19104890880 bytes)").
var units = map[string]float64{
	"": 1, "b": 1, "byte": 1, "bytes": 1,
	"k": 1 << 10, "kb": 1 << 10, "kib": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "mib": 1 << 20, "mbytes": 1 << 20,
	"g": 1 << 30, "gb": 1 << 30, "gib": 1 << 30, "gbytes": 1 << 30, "kbytes": 1 << 10,
	"kilobytes": 1 << 10, "megabytes": 1 << 20, "gigabytes": 1 << 30, "t": 1 << 40, "tb": 1 << 40, "tib": 1 << 40,
}

var impossible = gpu.Unknown("not a possible size")

// amount reads a size at the beginning of a text: "9.61 GiB", "2.00GiB", "1,024 bytes", "4096". One that cannot be is
// unknown; false when there is none.
func amount(text string) (gpu.Figure, bool) {
	n, length, _ := sized(text)
	return n, length > 0
}

// sized is amount with the length of what it read, and whether there was a unit. Of "17.79G (19104890880 bytes)" it
// takes the exact one.
func sized(text string) (n gpu.Figure, length int, unit bool) {
	digits, exponent := numeral(text), ""
	if strings.HasPrefix(digits, "0x") {
		exponent = "p0" // as Go reads it
	}
	value, err := strconv.ParseFloat(strings.ReplaceAll(digits, ",", "")+exponent, 64)
	if err != nil {
		return gpu.Figure{}, 0, false
	}
	begin := len(digits)
	if strings.HasPrefix(text[begin:], ". ") { // numpy's "348. KiB"
		begin++
	}
	if begin < len(text) && text[begin] == ' ' {
		begin++
	}
	letters := begin
	for letters < len(text) && letters < begin+maxUnit && isAlnum(text[letters]|0x20) && !isDigit(text[letters]) {
		letters++
	}
	length = len(digits)
	if letters > begin {
		if factor, ok := units[strings.ToLower(text[begin:letters])]; ok {
			value, unit, length = value*factor, true, letters
		}
	}
	if exact, rest, ok := exactly(text[length:]); ok && unit {
		return exact, length + rest, true
	}
	// as a float64, 2^64: in containers PyTorch says 17179869184.00 GiB where the driver says nothing
	if value >= maxAsked {
		return impossible, length, unit
	}
	return gpu.Bytes(uint64(value)), length, unit
}

// numeral is the number that a text begins with: "1,024", "0.125E+11", "0x639c00".
func numeral(text string) string {
	if strings.HasPrefix(text, "0x") {
		end := 2
		for end < min(len(text), maxDigits) && strings.IndexByte("0123456789abcdefABCDEF", text[end]) >= 0 {
			end++
		}
		return text[:end]
	}
	end := 0
	for end < len(text) && end < maxDigits && (isDigit(text[end]) || text[end] == '.' || text[end] == ',') {
		end++
	}
	for end > 0 && !isDigit(text[end-1]) {
		end--
	}
	if end > 0 && end+2 < len(text) && text[end]|0x20 == 'e' && (text[end+1] == '+' || isDigit(text[end+1])) {
		for end += 2; end < len(text) && end < maxDigits && isDigit(text[end]); {
			end++
		}
	}
	return text[:end]
}

// What a size may be written with.
const (
	maxDigits = 40
	maxUnit   = 9
	maxExact  = 21 // a uint64 has 20 digits
)

// exactly reads " (19104890880 bytes)" behind a rounded size.
func exactly(text string) (gpu.Figure, int, bool) {
	rest, ok := strings.CutPrefix(text, " (")
	if !ok || rest == "" || !isDigit(rest[0]) {
		return gpu.Figure{}, 0, false
	}
	end := 0
	for end < len(rest) && isDigit(rest[end]) && end < maxExact {
		end++
	}
	if end == 0 || end == maxExact {
		return gpu.Figure{}, 0, false
	}
	word := strings.TrimLeft(rest[end:], " ")
	if !strings.HasPrefix(word, "bytes)") && !strings.HasPrefix(word, "B)") {
		return gpu.Figure{}, 0, false
	}
	value, err := strconv.ParseUint(rest[:end], 10, 64)
	if err != nil || value >= maxAsked {
		return gpu.Figure{}, 0, false
	}
	return gpu.Bytes(value), len(text) - len(rest) + end, true
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
