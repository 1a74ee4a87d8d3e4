package oom

import (
	"strings"

	"bookend/internal/gpu"
)

// meaning is what a size is of, by the words before or after it.
type meaning byte

const (
	nothing meaning = iota
	asked
	free
	total
	allocated
	inUse
	limit
	filler // of no meaning itself, between a word and its size
)

// meanings are the words that give sizes their meaning.
var meanings = map[string]meaning{
	"allocate": asked, "allocating": asked, "allocation": asked, "requested": asked, "request": asked, "requestedspace": asked,
	"requesting": asked, "asked": asked,
	"required": asked, "extend": asked, "mmap": asked, "needed": asked, "reallocate": asked, "vector": asked, "reserve": asked,
	"free": free, "available": free, "totalfreespace": free,
	"total": total, "capacity": total,
	"allocated": allocated, "used": inUse, "usage": inUse, "limit": limit, "capped": limit,
	"rounded": nothing, "cached": nothing, "reserved": nothing, "line": nothing, "error": nothing, "code": nothing, "batch": nothing,
	"size": asked,
	"of":   filler, "was": filler, "is": filler, "for": filler, "memory": filler, "bytes": filler, "buffer": filler, "async": filler,
	"to": filler, "only": filler, "set": filler, "a": filler, "block": filler, "so": filler, "far": filler, "about": filler,
}

// sizeOf are the words before "size" that make it another thing's.
var sizeOf = map[string]bool{
	"batch": true, "block": true, "grid": true, "world": true, "vocab": true, "hidden": true, "page": true, "window": true, "step": true,
	"image": true, "sample": true, "tile": true, "kernel": true, "type": true, "cluster": true,
}

// wide is how far a size with its unit may stand from the word that gives it its meaning.
const wide = 48 // bytes

// figure is a size in a text, and what it is of.
type figure struct {
	of   meaning
	size gpu.Figure
}

// sizes reads the sizes of a text from left to right: the word before a size tells what it is of, or the one after it. A
// number without a unit counts only right after its word.
type sizes struct {
	text, lower string
	of          meaning
	from        int  // the end of the word that gave the meaning
	close       bool // nothing but fillers came since
	previous    string
	found       []figure
}

// sizesIn reads a text, of which lower is the lower case.
func sizesIn(text, lower string) []figure {
	s := sizes{text: text, lower: lower}
	for i := 0; i < len(lower); {
		switch c := lower[i]; {
		case c >= 'a' && c <= 'z' || c == '_':
			i = s.word(i)
		case isDigit(c):
			i = s.number(i)
		default:
			i++
		}
	}
	return s.found
}

// word reads the word at i, and says where to go on.
func (s *sizes) word(i int) int {
	end := i
	for end < len(s.lower) && (isAlnum(s.lower[end]) || s.lower[end] == '_') {
		end++
	}
	word := strings.TrimRight(s.lower[i:end], "0123456789")
	m, known := meanings[word]
	switch {
	case !known && strings.HasSuffix(word, "alloc"): // every library's
		s.of, s.from, s.close = asked, end, true
	case !known:
		s.close = s.close && things[word]
	case m == filler:
	case word == "size" && sizeOf[s.previous]: // of something else than memory
		s.of = nothing
	case word == "available" && strings.HasPrefix(s.lower[end:], " failed, "): // Paddle's comparison: asked <= available
		end += len(" failed")
		s.of, s.from, s.close = asked, end, true
	default:
		s.of, s.from, s.close = m, end, true
	}
	s.previous = word
	return end
}

// things are what may be named between the word and its number.
var things = map[string]bool{"device": true, "gpu": true, "cuda": true, "rocm": true}

// number reads the number at i, and says where to go on.
func (s *sizes) number(i int) int {
	n, length, unit := sized(s.text[i:])
	next := i + length
	of := s.of
	if after := afterwards(s.lower[next:]); after != nothing && unit {
		of = after
	} else if unit && i-s.from > wide || !unit && !(s.close && plainNumber(s.text[i:next], s.lower[next:])) {
		of = nothing
	}
	if of != nothing && length > 0 {
		s.found, s.close = append(s.found, figure{of, n}), false
	}
	next = max(next, i+1)
	for next < len(s.lower) && isAlnum(s.lower[next]) { // 0x7f, 8th
		next++
	}
	return next
}

// plainNumber: bytes without their unit, and not the number of a thing.
func plainNumber(digits, rest string) bool {
	return len(digits) >= 4 && !strings.Contains(digits, ".") && (rest == "" || !isAlnum(rest[0]) && rest[0] != '.' && rest[0] != ':')
}

// afterwards is the meaning of a size by the words after it.
func afterwards(rest string) meaning {
	for _, w := range []struct {
		words string
		of    meaning
	}{
		{" free", free}, {" available", free}, {" total", total}, {" requested", asked}, {" already allocated", allocated},
		{" in use", inUse}, {" used", inUse}, {" is free", free}, {" kv cache is needed", asked}, {" bytes requested", asked},
	} {
		if after, ok := strings.CutPrefix(rest, w.words); ok && !strings.HasPrefix(strings.TrimLeft(after, " "), ":") {
			return w.of
		}
	}
	return nothing
}

// take fills in what is not known yet.
func (m *Message) take(found []figure, only ...meaning) {
	fields := map[meaning]*gpu.Figure{asked: &m.Asked, free: &m.Free, total: &m.Total, allocated: &m.Allocated, limit: &m.Limit}
	for _, f := range found {
		field := fields[f.of]
		if field == nil || field.Known() || len(only) > 0 && f.of != only[0] {
			continue
		}
		*field = f.size
	}
}

// onGPU reads the number of the GPU: "GPU 0", "device:GPU:1", "GPU_0_bfc", "cuda:2", "on device 3", "device ordinal 0".
func (m *Message) onGPU(lower string) {
	for _, name := range []string{"gpu", "cuda", "rocm", "device ordinal", "device", "dev"} {
		for rest := lower; m.GPU == nil; {
			at := strings.Index(rest, name)
			if at < 0 {
				break
			}
			begins := at == 0 || !isAlnum(rest[at-1])
			rest = rest[at+len(name):]
			text := rest
			if text != "" && strings.IndexByte(" :=_#", text[0]) >= 0 {
				text = text[1:]
			}
			if n := number("="+text, "="); begins && n >= 0 && n <= maxGPU && numbersOnly(text) {
				m.GPU = &n
			}
		}
	}
}

// numbersOnly: the number is no size, share, address or version.
func numbersOnly(text string) bool {
	rest := strings.TrimLeft(text, "0123456789")
	switch {
	case rest == "":
		return true
	case isAlnum(rest[0]), rest[0] == '%', len(rest) > 1 && strings.IndexByte(".:", rest[0]) >= 0 && isDigit(rest[1]):
		return false
	}
	word, _, _ := strings.Cut(strings.TrimLeft(rest, " "), " ")
	word = strings.TrimRight(word, ",.;)")
	return word == "" || units[word] == 0
}
