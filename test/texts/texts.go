// Package texts is a collection of what programs print when memory runs out, and of what only looks so, with what a person
// says of each. It tells how much of it Bookend understands.
package texts

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"bookend/internal/gpu"
	"bookend/internal/oomlog"
	"bookend/internal/record"
)

// The files of the collection. Written were at hand while the rules were written; Formats are the forms in which programs'
// sources have their messages. Heldout has texts that the rules were not tuned on. They move to the others once a rule is
// changed for one of them; until new ones come it is empty.
const (
	Written = "written.txt"
	Formats = "formats.txt"
	Heldout = "heldout.txt"
)

// Text is one of them. Kind is of what ran out, "none" for nothing; Asked is the size that could not be had as it stands
// in the text, "-" where it is not said. Figures are what else it says: "total=79.11 GiB; gpu=0; rank=3; in=vLLM".
type Text struct {
	Name, Kind, Asked, Family, Figures, Said string
}

// About is the text's kind, or "document" for a document that tells of no shortage.
func (t Text) About() string {
	if t.Kind == "none" && strings.HasPrefix(t.Name, "d-") {
		return "document"
	}
	return t.Kind
}

// Load reads a file of texts: each begins with "-- NAME | KIND | ASKED | FAMILY | SOURCE --", or with "| FIGURES --" after
// the source.
func Load(path string) ([]Text, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read texts: %w", err)
	}
	var all []Text
	for line := range strings.Lines(string(data)) {
		head, ok := strings.CutPrefix(line, "-- ")
		if fields := strings.Split(head, " | "); ok && len(fields) >= 5 && strings.HasSuffix(line, " --\n") {
			fields = append(strings.Split(strings.TrimSuffix(head, " --\n"), " | "), "")
			all = append(all, Text{Name: fields[0], Kind: fields[1], Asked: fields[2], Family: fields[3], Figures: fields[5]})
			continue
		}
		if len(all) == 0 {
			return nil, fmt.Errorf("read texts: %s does not begin with a text's name", path)
		}
		all[len(all)-1].Said += line
	}
	return all, nil
}

// Score counts texts: those that tell of a shortage and were recognised, those that say the size and had it read, and those
// that tell of none and were taken for one. Figures are further figures that they say, Right how many of them were read.
type Score struct {
	Shortages, Recognised, Sized, Read, Others, Taken, Figures, Right int
}

// Of scores texts.
func Of(all []Text) (s Score) {
	for _, t := range all {
		one, _ := t.Judge()
		s.Shortages, s.Recognised, s.Sized = s.Shortages+one.Shortages, s.Recognised+one.Recognised, s.Sized+one.Sized
		s.Read, s.Others, s.Taken = s.Read+one.Read, s.Others+one.Others, s.Taken+one.Taken
		s.Figures, s.Right = s.Figures+one.Figures, s.Right+one.Right
	}
	return s
}

// Judge compares what Bookend finds in a text with what a person says of it.
func (t Text) Judge() (s Score, found []record.Message) {
	found = oomlog.Find([]byte(t.Said))
	asked, sized := bytes(t.Asked)
	if t.Kind == "none" {
		s.Others = 1
	} else if s.Shortages = 1; sized {
		s.Sized = 1
	}
	for figure := range strings.SplitSeq(t.Figures, "; ") {
		if figure != "" {
			s.Figures++
		}
		if says := func(m record.Message) bool { return is(m, figure) }; figure != "" && slices.ContainsFunc(found, says) {
			s.Right++
		}
	}
	for _, m := range found {
		if t.Kind == "none" && m.Kind != record.KindFault {
			s.Taken = 1
		}
		if !t.is(m.Kind) {
			continue
		}
		s.Recognised = 1
		if sized && m.Asked.Known() && math.Abs(float64(m.Asked.Bytes)-asked) <= asked/100 { // as programs round
			s.Read = 1
		}
	}
	return s, found
}

// is reports whether the message has a figure: "free=1.02 GiB", "gpu=0", "in=vLLM".
func is(m record.Message, figure string) bool {
	name, value, _ := strings.Cut(figure, "=")
	figures := map[string]gpu.Figure{"total": m.Total, "free": m.Free, "in_use": m.InUse, "allocated": m.Allocated,
		"idle": m.Idle, "cap": gpu.Bytes(m.Cap), "pid": gpu.Bytes(uint64(m.PID))}
	is := func(p gpu.Process) bool { return value == fmt.Sprint(p.PID) }
	if name == "pid" && slices.ContainsFunc(m.Others, is) {
		return true
	}
	for name, n := range map[string]*int{"gpu": m.GPU, "rank": m.Rank} {
		if figures[name] = gpu.Unknown("not said"); n != nil {
			figures[name] = gpu.Bytes(uint64(*n))
		}
	}
	if name == "in" {
		return string(m.Program) == value
	}
	want, ok := bytes(value)
	return ok && figures[name].Known() && math.Abs(float64(figures[name].Bytes)-want) <= want/1000
}

// is: a person cannot always tell a failed start from a full GPU.
func (t Text) is(k record.MessageKind) bool {
	if k == record.KindInit {
		k = record.KindDevice
	}
	return string(k) == strings.Replace(t.Kind, "init", "device", 1)
}

// bytes reads a label's size: "2.43MiB", "1,024 bytes", "0x1000 bytes", "64G".
func bytes(label string) (n float64, ok bool) {
	digits := strings.ReplaceAll(label, ",", "")
	if hex, ok := strings.CutPrefix(digits, "0x"); ok {
		hex, _, _ = strings.Cut(hex, " ")
		n, err := strconv.ParseUint(hex, 16, 64)
		return float64(n), err == nil
	}
	end := strings.IndexFunc(digits, func(c rune) bool { return !strings.ContainsRune("0123456789.eE+", c) })
	if end < 0 {
		end = len(digits)
	}
	n, err := strconv.ParseFloat(digits[:end], 64)
	if unit := strings.TrimLeft(digits[end:], " "); unit != "" {
		if power := strings.IndexByte("KMGT", unit[0]&^0x20); power >= 0 {
			n *= math.Pow(1024, float64(power+1))
		}
	}
	return n, err == nil && n < 4<<50 // a larger one is an overflow, and no size
}
