package gpu

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// ReturnCode explains one return code of a vendor's library to the admin who has to act on it.
type ReturnCode struct {
	Library string // "CUDA"
	Code    int
	Call    string // the only call with this meaning; empty for any call
	Name    string
	Also    string // its other name and its message, separated by "; "
	Meaning string
	Remedy  string
}

// Load is the call that loads a library. Lacks is the code for a function that the library does not have.
const (
	Load  = "dlopen"
	Lacks = -1
)

//go:embed codes.txt
var codesFile string

// atWork marks the section of what codes mean to a program.
const atWork = " *"

// StartCodes returns the codes of a library that were seen or documented for its start and for allocations.
func StartCodes(library string) (codes []ReturnCode) {
	_, section, _ := strings.Cut(codesFile, "\n== "+library+"\n")
	section, _, _ = strings.Cut(section, "\n== ")
	const fields = 6
	for line := range strings.SplitSeq(section, "\n") {
		if f := strings.Split(line, " | "); len(f) == fields {
			code, _ := strconv.Atoi(f[0])
			codes = append(codes, ReturnCode{strings.TrimSuffix(library, atWork), code, f[1], f[2], f[3], f[4], f[5]})
		}
	}
	return codes
}

// library is a library with the words that name it in a plain text.
type library struct {
	name  string
	words []string
}

// libraries are in the order in which a number is looked up.
var libraries = []library{
	{"NVML", []string{"nvml", "nvidia smi", "device handle"}},
	{"CUDA", []string{"cuda"}},
	{"HIP", []string{"hiperror", " hip "}},
}

func (l library) in(text string) bool {
	return slices.ContainsFunc(l.words, func(word string) bool { return strings.Contains(text, word) })
}

// codes returns the codes of a library with what they mean to a program.
func (l library) codes() []ReturnCode {
	work := StartCodes(l.name + atWork)
	return append(work, slices.DeleteFunc(StartCodes(l.name), func(c ReturnCode) bool {
		return slices.ContainsFunc(work, func(w ReturnCode) bool { return w.Code == c.Code })
	})...)
}

func ReturnNames() (names []string) {
	for _, l := range libraries {
		for _, c := range l.codes() {
			names = append(names, c.Name)
		}
	}
	return names
}

// Title returns a code as programs write it: "NVML_ERROR_GPU_IS_LOST (15)".
func (c ReturnCode) Title() string { return fmt.Sprintf("%s (%d)", c.Name, c.Code) }

// FindReturned returns the return codes that a text names: by number, by name, or by the library's message. Of several
// messages of a library the longest counts: "not found" ends others.
func FindReturned(text string) (found []ReturnCode) {
	words, longest := plain(text), 4
	among := slices.DeleteFunc(slices.Clone(libraries), func(l library) bool { return !l.in(words) })
	named := len(among) > 0
	if !named {
		among, longest, words = libraries, 1, alone().ReplaceAllString(words, " ")
	}
	number := lastNumber(text, longest)
	for _, l := range among {
		var best []ReturnCode
		most := 1
		for _, c := range l.codes() {
			length := c.matches(words, named)
			if c.Code == number && number > 0 {
				length = len(words)
			}
			if length > most {
				most, best = length, nil
			}
			if length == most && c.Code > 0 {
				best = append(best, c)
			}
		}
		if best == nil && named && number > 0 {
			const unknown = "Bookend does not know it. It does not show that the GPU or its driver is in order."
			best = []ReturnCode{{Library: l.name, Code: number, Name: "unknown code", Meaning: unknown,
				Remedy: "Look it up in " + l.name + "'s headers."}}
		}
		found = append(found, best...)
	}
	return found
}

// alone matches what stands before a message: "Error 802: system not yet initialized".
var alone = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^ error \d+ `) })

// beforeCode matches the word before a code. Other words are before a version, or the number of a GPU or a rank.
var beforeCode = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i:err|code|status|fail|result|return)|` +
		`^(?:(?i:cuda|nvml|hip|nvidia-smi)|(?:cuda|cu|nvml|hip)[A-Z]\w*)\W*$`)
})

// lastNumber returns the code that a short text ends with, 0 for none: "CUDA driver error: 802".
func lastNumber(text string, longest int) int {
	fields := strings.Fields(text)
	if len(fields) == 0 || len(fields) > longest ||
		len(fields) > 1 && !beforeCode().MatchString(fields[len(fields)-2]) {
		return 0
	}
	n, _ := Decimal(strings.Trim(fields[len(fields)-1], "()."), 1<<20)
	return n
}

// matches returns how much of a plain text is a code's name or message, 0 for none. A message alone must be all of the
// text unless the text names the library.
func (c ReturnCode) matches(text string, named bool) (length int) {
	for _, also := range append(strings.Split(c.Also, "; "), c.Name) {
		words := plain(also)
		isName := strings.Count(words, " ") == 2 && strings.Contains(words, "error")
		if also != "" && len(words) > length && strings.Contains(text, words) && (isName || named || text == words) {
			length = len(words)
		}
	}
	return length
}

// plain returns the words of a text in lower case, each between spaces. Underscores do not count.
func plain(text string) string {
	between := func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }
	words := strings.FieldsFunc(strings.ReplaceAll(strings.ToLower(text), "_", ""), between)
	return " " + strings.Join(words, " ") + " "
}
