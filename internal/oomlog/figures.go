package oomlog

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"bookend/internal/gpu"
	"bookend/internal/record"
)

// sizeForm matches a size at the beginning of a text: "9.61 GiB", "2.00GiB", "1,024 bytes", "0.125E+11", "0x639c00",
// numpy's "348. KiB", and TensorFlow's "17.79G (19104890880 bytes)", where the exact number counts.
var sizeForm = lazily(`^(0x[0-9a-fA-F]{1,16}|(?:\d{1,3}(?:,\d{3})+|\d{1,30})(?:\.\d{1,20})?(?:[eE]\+?\d{1,3})?)` +
	`(?:(?:\. | )?((?i:kilo|mega|giga|[kmgt]i?)?(?i:bytes?|b)|[kKmMgGtT])\b)?(?: \((\d{1,20}) ?(?:bytes|B)\))?`)

var impossible = gpu.Unknown(gpu.ImpossibleSize)

var notSaid = gpu.Unknown("not said")

// sized parses a size at the beginning of a text. It also returns the parsed length and whether there was a unit. GB
// and G are powers of two, as frameworks use them. An impossible size is unknown.
func sized(text string) (n gpu.Figure, length int, unit bool) {
	words := sizeForm().FindStringSubmatch(text)
	if words == nil {
		return notSaid, 0, false
	}
	digits := strings.ReplaceAll(words[1], ",", "")
	if strings.HasPrefix(digits, "0x") {
		digits += "p0" // the form that Go parses
	}
	value, err := strconv.ParseFloat(digits, 64)
	if words[2] != "" {
		value *= float64(uint64(1) << (10 * (1 + strings.IndexByte("KMGT", words[2][0]&^0x20))))
	}
	if exact, wrong := strconv.ParseUint(words[3], 10, 64); wrong == nil && exact < maxFigure {
		return gpu.Bytes(exact), len(words[0]), true
	}
	// In containers, PyTorch prints 17179869184.00 GiB if the driver reports nothing.
	if err != nil || value >= maxFigure {
		return impossible, len(words[0]), words[2] != ""
	}
	return gpu.Bytes(uint64(value)), len(words[0]), words[2] != ""
}

type meaning byte

const (
	nothing meaning = iota
	asked
	free
	total
	allocated
	filler // has no meaning itself; may stand between a word and its size
)

// meanings maps words, which may be parts of names (alloc_size, requestedSpace), to the meaning they give a size.
var meanings = sync.OnceValue(func() map[string]meaning {
	all := map[string]meaning{}
	for m, words := range map[meaning]string{
		asked: "allocate allocating allocation alloc malloc requested request requesting asked required requires " +
			"needed need needs tried trying wanted extend mmap create reallocate realloc calloc vector reserve size",
		free:  "free available have remaining left",
		total: "total capacity", allocated: "allocated",
		nothing: "sbrk used usage limit capped max maximum rounded freed released cached reserved line error code " +
			"batch vm",
		filler: "of was is for memory mem bytes buffer async managed failed to only set block space so far about " +
			"device gpu cuda rocm",
	} {
		for word := range strings.FieldsSeq(words) {
			all[word] = m
		}
	}
	return all
})

var sizeOf = lazily(`^(?:batch|block|grid|world|vocab|hidden|page|window|step|max|maximum|pool|heap|stack|` +
	`chunk|work|local|global|array|matrix|image|model|file|dataset|checkpoint|sample|tile|kernel|type|cluster)$`)

type figure struct {
	of   meaning
	size gpu.Figure
}

// sizes reads the sizes in a text from left to right. The word before a size gives its meaning. A number without a unit
// counts only right after such a word.
type sizes struct {
	text     string
	of       meaning
	close    bool // only fillers came since
	previous string
	found    []figure
}

var (
	token = lazily(`^(?:[A-Za-z_][A-Za-z0-9_]*|\d[\w.+]*)`)
	part  = lazily(`[A-Z]?[a-z]+|[A-Z]{2,}|\d+`)
)

func sizesIn(text string) []figure {
	s := sizes{text: text}
	for i := 0; i < len(text); {
		length := len(token().FindString(text[i:]))
		switch {
		case length == 0:
			length = 1
		case isDigit(text[i]):
			length = max(length, s.number(i))
		default:
			s.name(text[i : i+length])
		}
		i += length
	}
	return s.found
}

// name reads a name's parts. Once a part shows that the name is no request, later parts do not: max_alloc_size.
func (s *sizes) name(name string) {
	known := false
	for _, word := range part().FindAllString(name, -1) {
		word = strings.ToLower(word)
		m, found := meanings()[word]
		if word == "size" && sizeOf().MatchString(s.previous) { // a size of something other than memory
			m = nothing
		}
		s.previous = word
		switch {
		case len(word) == 1:
		case !found:
			s.close = false
		case m == filler, m == asked && known:
		default:
			s.of, s.close = m, true
			known = known || m != asked
		}
	}
}

func (s *sizes) number(i int) int {
	n, length, unit := sized(s.text[i:])
	rest := strings.ToLower(s.text[i+length:])
	of := nothing
	switch {
	case isFactor(s.text[:i], rest):
	case unit && !s.close && afterwards().MatchString(rest):
		of = meanings()[afterwards().FindStringSubmatch(rest)[1]]
	case unit:
		of = s.of
	case s.close && wholeNumber().MatchString(s.text[i:i+length]) && !notBytes().MatchString(rest):
		of = s.of
	}
	if of != nothing && length > 0 {
		s.found, s.close = append(s.found, figure{of, n}), false
	}
	return length
}

// isFactor reports a number that is a factor in a product: "1000 x 8 bytes", or in a call's argument.
func isFactor(before, rest string) bool {
	return strings.HasPrefix(rest, " x ") || strings.HasPrefix(strings.TrimLeft(rest, " "), "*") ||
		strings.HasSuffix(before, " x ") || strings.HasSuffix(strings.TrimRight(before, " "), "*")
}

var (
	wholeNumber = lazily(`^\d[\d,]{3,}$`)
	// the number goes on, is one of several arguments, or counts something: "4096 tokens"
	notBytes = lazily(`^(?:[a-z0-9.]|, \d| ?[a-z0-9]{2,}s[.,:;]*(?: |$))`)
)

// afterwards matches a meaning that follows its size: "12 GB required, 8 GB available".
var afterwards = lazily(`^ (?:of \w+ )?(?:is |are |was )?(required|needed|requested|available|free)\b`)

func take(m *record.Message, found []figure, only ...meaning) {
	fields := [filler]*gpu.Figure{asked: &m.Asked, free: &m.Free, total: &m.Total, allocated: &m.Allocated}
	for _, f := range found {
		if field := fields[f.of]; field != nil && *field == notSaid && (len(only) == 0 || f.of == only[0]) {
			*field = f.size
		}
	}
}

// fill reads the figures of the statement. It returns false if the statement turns out not to be a message.
func (st statement) fill(m *record.Message) bool {
	switch {
	case m.Kind == record.KindFault:
		return true
	case m.Kind == record.KindDevice && m.Framework == record.FromPyTorch:
		text := st.sentence()
		if begins := torchBegins().FindStringIndex(text); begins != nil {
			return readTorch(m, text[begins[1]:])
		}
	case m.Kind == record.KindShared:
		m.Asked = sizeIn(st.sentence(), sharedAsked)
		return m.Asked.Known() || st.text != "out of resource: "
	}
	text, whole := st.line.body[st.pos-len(st.before):], st.whole()
	readForms(m, strings.ToLower(strings.Join(strings.Fields(text[:len(st.before)]+whole), " ")), false)
	if m.Kind == record.KindDevice {
		m.GPU = indexIn(st.line.head + " " + namedDevice().ReplaceAllString(st.around, "gpu $1; "))
	}
	if m.GPU == nil && m.Kind == record.KindDevice && strings.Contains(whole, "evice") {
		m.GPU = indexIn(strings.ToLower(currentDevice().FindString(whole)))
	}
	first, _, _ := strings.Cut(whole, "\n")
	take(m, sizesIn(text[:len(st.before)]+first[:min(len(first), len(st.text)+maxAfter)]))
	if m.Framework == record.FromCuPy && !m.Allocated.Known() { // CuPy's total is the pool's
		m.Allocated, m.Total = m.Total, notSaid
	}
	if !m.Asked.Known() && len(whole) > len(st.line.body)-st.pos {
		take(m, sizesIn(whole), asked)
	}
	if m.Kind == record.KindDevice && m.Asked == notSaid {
		st.fillFromAbove(m)
	}
	return true
}

// fillFromAbove reads the request from the end of the line above: some programs, and narrow consoles, part a message.
func (st statement) fillFromAbove(m *record.Message) {
	for _, l := range st.near(-1, 1) {
		text := l.body + " " + st.line.body[:st.pos]
		if n := sizeIn(text, askedAbove); n.Bytes > 1<<10 {
			m.Asked, m.GPU = n, cmp.Or(m.GPU, indexIn(strings.ToLower(text)))
		}
	}
	for _, l := range st.near(-1, linesAbove) {
		if strings.Contains(l.lower, "memory trying to allocate ") {
			take(m, sizesIn(l.body), asked)
		}
	}
}

// maxWrapped limits how many lines are joined if a console's width or a progress display has split a message.
const (
	maxWrapped      = 12
	maxWrappedBytes = 2 << 10
)

// whole returns a statement's text from its sign on, including the lines below up to an empty line or another message.
func (st statement) whole() string {
	text := st.line.body[:min(len(st.line.body), st.pos+maxWrappedBytes)]
	for _, l := range st.near(1, maxWrapped) {
		if len(text)+len(l.body) > st.pos+maxWrappedBytes || len(l.facts.hits) > 0 {
			break
		}
		if !splitsNumber(text, l.body) {
			text += "\n"
		}
		text += l.body
	}
	return text[st.pos:]
}

const wideLine = 60 // bytes; a console has more columns, of which the prefix took some

// splitsNumber reports whether a console's width split a number between two lines.
func splitsNumber(above, below string) bool {
	return len(above)-strings.LastIndexByte(above, '\n') > wideLine && isDigit(above[len(above)-1]) &&
		restOfNumber().MatchString(below)
}

var restOfNumber = lazily(`^\d[\d.]*(?:$|[);,]| ?(?:[kKMGT]i?B|bytes)\b| has )`)

func (st statement) sentence() string {
	return strings.Join(strings.Fields(st.whole()), " ")
}

const size = `([\d.,]+ ?\w*)`

func form(text string) pattern {
	return lazily(strings.ReplaceAll(text, "SIZE", size))
}

// Other parts of messages with a fixed wording.
var (
	torchBegins   = lazily(`(?:memory\.|larger than \w+!) Tried to allocate `) // the second is of Intel's extension
	torchAsked    = form(`^SIZE`)
	torchReserved = form(`SIZE reserved in total`)
	torchGPU      = lazily(`[GNX]PU (\d{1,3})\b`)
	torchVariable = lazily(`PYTORCH_(?:(?:CUDA|HIP|NPU)_)?ALLOC_CONF`)
	torchProcess  = form(`Process (\d{1,7}) has SIZE memory in use`)
	// only advice or another line follows
	torchEnd    = lazily(`^.*?(?:by PyTorch\)|cached\)|but unallocated)`)
	askedAbove  = form(`(?i)(?:allocate|allocating|allocation of) SIZE[^.\d]*\d{0,3}[^.\d]*$`)
	sharedAsked = form(`(?:Required: |requested |needed |memory size to |` +
		`(?:shared data|memory size|requested shared memory) \()(0x[0-9a-f]+|\d+)`)
)

// readForms reads the figures whose wording words.txt has, those of PyTorch's allocator or the others.
func readForms(m *record.Message, lower string, torch bool) {
	fields := append(m.Figures(), &gpu.Figure{Unknown: "not said"})
	for _, f := range vocabulary().figures {
		if f.word.is("torch") == torch && strings.Contains(lower, f.sign) && !fields[f.of].Known() {
			*fields[f.of] = sizeIn(lower, f.form)
		}
	}
	m.Cap = max(m.Cap, fields[len(fields)-1].Bytes)
}

// deviceIndex matches how programs name a GPU by its number: "on device 1", "GPU:1", "cuda:0", "device ordinal 2". What
// follows tells it from a size or a version. The allocator "GPU_0_bfc" is numbered by its program.
var deviceIndex = lazily(`(?:^|[^a-z0-9_])(?:[gnx]pu(?:_mgr)?|cuda|dml|dev|device|device ordinal|device id)` +
	`(?:[ :=#]{1,2}|\(id:)(\d{1,3})(?:$|[^a-z0-9. %/]|[. ](?:$|[^0-9%kmgtb]|[kmgt][ac-hj-z]|b[a-xz]|by ))`)

// currentDevice matches what llama.cpp, Omniverse and TensorFlow have below their messages.
var currentDevice = lazily(`(?:current|failed for the) device: \d+|device="/job:\S*(?:gpu|GPU):\d+`)

// namedDevice matches how NCCL's lines begin, with host, process, thread and the GPU's index.
var namedDevice = lazily(`^\S+:\d+:\d+ \[(\d{1,3})\] .*\b[nr]ccl `)

// indexIn returns the number of the GPU that a text names; nil if it names none, or several.
func indexIn(lower string) *int {
	all := deviceIndex().FindAllStringSubmatch(lower, MaxOthers)
	if len(all) == 0 || slices.ContainsFunc(all, func(words []string) bool { return words[1] != all[0][1] }) {
		return nil
	}
	return number(all[0][1], maxGPU)
}

// sizeIn returns the size that a form matches, or unknown if there is no match.
func sizeIn(text string, f pattern) gpu.Figure {
	if words := f().FindStringSubmatch(text); words != nil {
		n, _, _ := sized(strings.Join(words[1:], ""))
		return n
	}
	return notSaid
}

// torchSetting returns what helps against fragmentation with the version of PyTorch that printed the message, empty if
// that is not known. Up to 2.0, which has figures before their names, expandable_segments is an error of its own;
// builds for ROCm that name their own variable do not know it.
func torchSetting(m record.Message, rest string) string {
	variable := torchVariable().FindString(rest)
	switch {
	case variable != "":
	case strings.Contains(m.Line, "CUDA out of memory"):
		variable = "PYTORCH_CUDA_ALLOC_CONF"
	case strings.Contains(m.Line, "HIP out of memory"):
		variable = "PYTORCH_HIP_ALLOC_CONF"
	default:
		return ""
	}
	if strings.Contains(rest, "already allocated") || variable == "PYTORCH_HIP_ALLOC_CONF" {
		return variable + splitting
	}
	return variable + expanding
}

const (
	splitting = "=max_split_size_mb:128"
	expanding = "=expandable_segments:True"
)

// isSetting reports whether the setting in a message from another process is one of those that readTorch finds.
func isSetting(text string) bool {
	variable, found := strings.CutSuffix(text, splitting)
	if !found {
		variable, found = strings.CutSuffix(text, expanding)
	}
	return text == "" || found && variable != "" && torchVariable().FindString(variable) == variable
}

func readTorch(m *record.Message, rest string) bool {
	m.Setting = torchSetting(*m, rest)
	if sentence := torchEnd().FindString(rest); sentence != "" {
		rest = sentence
	}
	readForms(m, strings.ToLower(rest), true)
	m.Asked = sizeIn(rest, torchAsked)
	if m.Asked == notSaid && !strings.HasPrefix(rest, "more than 1EB") {
		return false
	}
	if words := torchGPU().FindStringSubmatch(rest); words != nil {
		m.GPU = number(words[1], maxGPU)
	}
	if kept := sizeIn(rest, torchReserved); kept.Known() && m.Allocated.Known() && kept.Bytes >= m.Allocated.Bytes {
		m.Idle = gpu.Bytes(kept.Bytes - m.Allocated.Bytes)
	}
	if m.InUse.Known() { // in a container, PyTorch may list the process itself under another PID
		for _, words := range torchProcess().FindAllStringSubmatch(rest, MaxOthers) {
			if pid := number(words[1], maxPID); pid != nil && *pid > 0 {
				n, _, _ := sized(words[2])
				m.Others = append(m.Others, gpu.Process{PID: *pid, Memory: n})
			}
		}
	}
	return true
}
