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

// meanings are the words that give sizes their meaning, and parts of names: alloc_size, requestedSpace.
var meanings = map[string]meaning{
	"allocate": asked, "allocating": asked, "allocation": asked, "alloc": asked, "malloc": asked, "requested": asked,
	"request":    asked,
	"requesting": asked, "asked": asked, "required": asked, "requires": asked, "needed": asked, "need": asked,
	"needs": asked, "tried": asked, "trying": asked, "wanted": asked, "extend": asked,
	"mmap": asked, "create": asked, "reallocate": asked, "realloc": asked, "calloc": asked, "vector": asked,
	"reserve": asked, "size": asked,
	"free": free, "available": free, "have": free, "remaining": free, "left": free,
	"total": total, "capacity": total,
	"allocated": allocated, "used": inUse, "usage": inUse, "limit": limit, "capped": limit,
	"max": nothing, "maximum": nothing, "rounded": nothing, "freed": nothing, "released": nothing, "cached": nothing,
	"reserved": nothing, "line": nothing, "error": nothing, "code": nothing, "batch": nothing,
	"of": filler, "was": filler, "is": filler, "for": filler, "memory": filler, "mem": filler, "bytes": filler,
	"buffer": filler,
	"async":  filler, "managed": filler, "failed": filler, "to": filler, "only": filler, "set": filler,
	"block": filler, "space": filler,
	"so": filler, "far": filler, "about": filler, "device": filler, "gpu": filler, "cuda": filler, "rocm": filler,
}

// sizeOf are the words before "size" that make it another thing's.
var sizeOf = map[string]bool{
	"batch": true, "block": true, "grid": true, "world": true, "vocab": true, "hidden": true, "page": true,
	"window": true, "step": true,
	"max": true, "maximum": true, "pool": true, "heap": true, "stack": true, "chunk": true, "work": true,
	"local": true, "global": true, "array": true, "matrix": true,
	"image": true, "model": true, "file": true, "dataset": true, "checkpoint": true, "sample": true, "tile": true,
	"kernel": true, "type": true, "cluster": true,
}

// wide is how far a size with its unit may stand from the word that gives it its meaning.
const wide = 48 // bytes

// figure is a size in a text, and what it is of.
type figure struct {
	of   meaning
	size gpu.Figure
}

// sizes reads the sizes of a text from left to right: the word before a size tells what it is of, or the one after
// it. A number without a unit counts only right after its word.
type sizes struct {
	text, lower string
	of          meaning
	from        int  // the end of the word that gave the meaning
	close       bool // nothing but fillers came since
	previous    string
	found       []figure
}

// sizesIn reads a text.
func sizesIn(text string) []figure {
	lower := strings.ToLower(text)
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

// word reads the name at i by its parts, and says where to go on.
func (s *sizes) word(i int) int {
	end := i
	for end < len(s.lower) && (isAlnum(s.lower[end]) || s.lower[end] == '_') {
		end++
	}
	if strings.HasPrefix(s.lower[i:], "available failed, ") { // Paddle's comparison: asked <= available
		end += len(" failed")
		s.of, s.from, s.close = asked, end, true
		return end
	}
	known := false // a part that is not only asked for
	for begin := i; begin < end; {
		part := begin + 1
		for part < end && !isDigit(s.lower[part]) && s.lower[part] != '_' &&
			(!isUpper(s.text[part]) || isUpper(s.text[part-1])) {
			part++
		}
		if word := strings.TrimPrefix(s.lower[begin:part], "_"); len(word) > 1 {
			known = s.part(word, end, known) || known
		}
		begin = part
	}
	return end
}

// part takes a part of a name that ends at end. What was already known of the name to be no request stays:
// max_alloc_size.
func (s *sizes) part(word string, end int, known bool) bool {
	m, found := meanings[word]
	if strings.HasSuffix(word, "alloc") { // every library's
		m, found = asked, true
	}
	if word == "size" && sizeOf[s.previous] { // of something else than memory
		m = nothing
	}
	if word == "bytes" && !s.close && !known && strings.HasPrefix(strings.TrimLeft(s.lower[end:], " "), "=") {
		m = asked
	}
	s.previous = word
	switch {
	case !found:
		s.close = false
	case m == filler, m == asked && known:
		s.close = s.close || word == "bytes" && s.of == asked
	default:
		s.of, s.from, s.close = m, end, true
		return m != asked
	}
	return false
}

func isUpper(c byte) bool { return c >= 'A' && c <= 'Z' }

// number reads the number at i, and says where to go on.
func (s *sizes) number(i int) int {
	n, length, unit := product(s.text[i:])
	next := i + length
	rest := s.lower[next:]
	if !unit {
		if scale := unitBefore(s.lower[:i]); scale > 1 && n.Bytes < maxAsked/scale {
			n.Bytes, unit = n.Bytes*scale, true
		}
	}
	of := nothing
	switch {
	case isProduct(s.lower[:i], rest):
	case unit:
		if of = afterwards(rest); of == nothing && i-s.from <= wide {
			of = s.of
		}
	case s.close && (plainNumber(s.text[i:next], rest) || s.previous == "size" &&
		strings.HasPrefix(s.lower[i:next], "0x")), s.isArgument(i, length, rest):
		of = s.of
	}
	if of != nothing && length > 0 {
		s.found, s.close = append(s.found, figure{of, n}), false
	}
	next = max(next, i+1)
	for next < len(s.lower) && (isAlnum(s.lower[next]) || s.lower[next] == '+') { // 0x7f, 8th, 1e+10
		next++
	}
	return next
}

// isArgument: one of a call that allocates: "cudaMalloc(&p, 4000000000)". Shorter numbers are a source's lines.
func (s *sizes) isArgument(i, length int, rest string) bool {
	ends := rest != "" && strings.IndexByte("),", rest[0]) >= 0 && length > 6 && s.lower[i:i+2] != "0x"
	if strings.HasSuffix(s.lower[:i], "calloc(") { // how many, and then of which size
		return false
	}
	return ends && (s.lower[s.from:i] == "(" || strings.HasSuffix(strings.TrimRight(s.lower[:i], " "), ","))
}

// unitBefore is the unit in "size (MB): 421", 0 where there is none.
func unitBefore(before string) uint64 {
	end := len(before)
	for end > 0 && strings.IndexByte(" :=", before[end-1]) >= 0 {
		end--
	}
	if before = before[max(0, end-maxUnit):end]; !strings.HasSuffix(before, ")") && !strings.HasSuffix(before, "]") {
		return 0
	}
	return uint64(units[before[strings.LastIndexAny(before, "([")+1:len(before)-1]])
}

// product is sized for "1000 x 8 bytes" too. The unit comes last; without one the first number stands for itself.
func product(text string) (gpu.Figure, int, bool) {
	first, begin, unit := sized(text)
	n, length := first, begin
	for range maxFactors {
		if unit || length == 0 {
			break
		}
		rest := strings.TrimLeft(text[length:], " *x")
		if marks := strings.TrimSuffix(text[length:], rest); !strings.Contains(marks, "*") &&
			!strings.Contains(marks, " x ") {
			break
		}
		factor, digits, isLast := sized(rest)
		if digits == 0 || factor.Bytes == 0 || n.Bytes > maxAsked/factor.Bytes {
			break
		}
		n.Bytes, length, unit = n.Bytes*factor.Bytes, len(text)-len(rest)+digits, isLast
	}
	if !unit {
		return first, begin, false
	}
	return n, length, true
}

// maxFactors bounds what a product has besides its first factor.
const maxFactors = 4

// isProduct: a factor of a size, "1000 x 8 bytes", or of a call's argument.
func isProduct(before, rest string) bool {
	return strings.HasPrefix(rest, " x ") || strings.HasPrefix(strings.TrimLeft(rest, " "), "*") ||
		strings.HasSuffix(before, " x ") || strings.HasSuffix(strings.TrimRight(before, " "), "*")
}

// plainNumber: bytes without their unit, and not the number of a thing or of many.
func plainNumber(digits, rest string) bool {
	word, _, _ := strings.Cut(strings.TrimPrefix(rest, " "), " ")
	word = strings.TrimRight(word, ".,:;")
	if strings.HasPrefix(rest, ", ") && len(rest) > 2 && isDigit(rest[2]) { // calloc(1000, 8)
		return false
	}
	many := len(word) > 2 && word[len(word)-1] == 's' && isAll(word, isAlnum)
	return !many && !strings.HasPrefix(digits, "0x") && len(digits) >= 4 && !strings.Contains(digits, ".") &&
		(rest == "" || !isAlnum(rest[0]) && rest[0] != '.' && (rest[0] != ':' || len(digits) > 6))
}

// afterwards is the meaning of a size by the words after it.
func afterwards(rest string) meaning {
	if !strings.HasPrefix(rest, " ") {
		return nothing
	}
	for _, w := range []struct {
		words string
		of    meaning
	}{
		{" free", free}, {" available", free}, {" total", total}, {" requested", asked},
		{" already allocated", allocated},
		{" in use", inUse}, {" used", inUse}, {" is free", free}, {" left", free}, {" remaining", free},
		{" needed", asked}, {" required", asked}, {") could not be", asked}, {" could not be", asked},
		{" kv cache is needed", asked}, {" bytes requested", asked},
	} {
		if after, ok := strings.CutPrefix(rest, w.words); ok && !strings.HasPrefix(strings.TrimLeft(after, " "), ":") {
			return w.of
		}
	}
	return nothing
}

// take fills in what is not known yet.
func (m *Message) take(found []figure, only ...meaning) {
	fields := [filler]*gpu.Figure{asked: &m.Asked, free: &m.Free, total: &m.Total, allocated: &m.Allocated,
		limit: &m.Limit}
	for _, f := range found {
		if field := fields[f.of]; field != nil && !field.Known() && (len(only) == 0 || f.of == only[0]) {
			*field = f.size
		}
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
