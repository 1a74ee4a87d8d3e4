package gpu

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ReturnCode explains one return code of a vendor's library to the admin who has to act on it.
type ReturnCode struct {
	Library string // "CUDA"
	Code    int
	Call    string // the only call with this meaning; empty for any call
	Name    string // empty for a code that is not known
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

// atWork marks the section of codes that only a program's work returns.
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

// library is a library as a text may name it.
type library struct {
	name  string
	words []string // in lower case
}

// libraries are in the order in which a number is looked up.
var libraries = []library{
	{"NVML", []string{"nvml", "nvidia-smi", "device handle"}},
	{"CUDA", []string{"cuda"}},
	{"HIP", []string{"hiperror", "hip "}},
}

func (l library) in(text string) bool {
	return slices.ContainsFunc(l.words, func(word string) bool { return strings.Contains(text, word) })
}

func (l library) codes() []ReturnCode {
	return append(StartCodes(l.name), StartCodes(l.name+atWork)...)
}

// ReturnNames returns the names of all codes that are known.
func ReturnNames() (names []string) {
	for _, l := range libraries {
		for _, c := range l.codes() {
			names = append(names, c.Name)
		}
	}
	return names
}

// Title returns a code as programs write it: "NVML_ERROR_GPU_IS_LOST (15)".
func (c ReturnCode) Title() string {
	if c.Name == "" {
		return fmt.Sprintf("%s %d", c.Library, c.Code)
	}
	return fmt.Sprintf("%s (%d)", c.Name, c.Code)
}

// FindReturned returns the return codes that a text names: by number, by name, or by the library's message. A number
// that is not known is returned without a name if the text names a library.
func FindReturned(text string) (found []ReturnCode) {
	text = strings.ToLower(strings.Join(strings.Fields(text), " ")) + " "
	among := slices.DeleteFunc(slices.Clone(libraries), func(l library) bool { return !l.in(text) })
	named := len(among) > 0
	if !named {
		among = libraries
	}
	for _, l := range among {
		found = append(found, l.find(text, named)...)
	}
	return found
}

// find returns the codes that match the most of a text: "not found" is a message, and ends others.
func (l library) find(text string, named bool) (found []ReturnCode) {
	number, numbered := lastNumber(text, named)
	words := strings.FieldsFunc(plain(text), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
	most := 1
	for _, c := range l.codes() {
		length := c.matches(text, words, named)
		if numbered && c.Code == number {
			length = len(text)
		}
		if length > most {
			most, found = length, nil
		}
		if length == most && c.Code > 0 {
			found = append(found, c)
		}
	}
	if named && numbered && len(found) == 0 {
		found = []ReturnCode{{Library: l.name, Code: number, Remedy: "see the library's documentation",
			Meaning: "not known to this release; it does not show that the GPU is in order"}}
	}
	return found
}

// lastNumber returns the number that a text is or, after a library's name, ends with: "CUDA driver error: 802".
func lastNumber(text string, named bool) (int, bool) {
	const most = 4
	fields := strings.Fields(text)
	if len(fields) == 0 || len(fields) > most || !named && len(fields) > 1 {
		return 0, false
	}
	return Decimal(strings.Trim(fields[len(fields)-1], "()."), 1<<20)
}

// matches returns how much of a text is a code's name or message, 0 for none. A message alone must be all of the text
// unless the text names the library.
func (c ReturnCode) matches(text string, words []string, named bool) (length int) {
	for _, also := range append(strings.Split(c.Also, "; "), c.Name) {
		message := strings.ToLower(also)
		if len(also) > length && (slices.Contains(words, plain(also)) && strings.Contains(message, "error") ||
			text == message+" " || named && strings.Contains(text, message)) {
			length = len(also)
		}
	}
	return length
}

func plain(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }
