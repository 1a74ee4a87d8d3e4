// Package texts is a collection of what programs print when memory runs out, and of what only looks so, with what a person
// says of each. It tells how much of it Bookend understands.
package texts

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"bookend/internal/oomlog"
	"bookend/internal/record"
)

// The files of the collection. Written were at hand while the reader was written, Formats are the forms in which programs'
// sources have their messages, Heldout were read by nobody who writes rules.
const (
	Written = "written.txt"
	Formats = "formats.txt"
	Heldout = "heldout.txt"
)

// Text is one of them. Kind is of what ran out, "none" for nothing; Asked is the size that could not be had as it stands
// in the text, "-" where it is not said.
type Text struct {
	Name, Kind, Asked, Said string
}

// Load reads a file of texts: each begins with "-- NAME | KIND | ASKED | FAMILY | SOURCE --".
func Load(path string) ([]Text, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read texts: %w", err)
	}
	var all []Text
	for line := range strings.Lines(string(data)) {
		head, ok := strings.CutPrefix(line, "-- ")
		if fields := strings.Split(head, " | "); ok && len(fields) >= 5 && strings.HasSuffix(line, " --\n") {
			all = append(all, Text{Name: fields[0], Kind: fields[1], Asked: fields[2]})
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
// that tell of none and were taken for one.
type Score struct {
	Shortages, Recognised, Sized, Read, Others, Taken int
}

// Of scores texts.
func Of(all []Text) (s Score) {
	for _, t := range all {
		one, _ := t.Judge()
		s.Shortages, s.Recognised, s.Sized = s.Shortages+one.Shortages, s.Recognised+one.Recognised, s.Sized+one.Sized
		s.Read, s.Others, s.Taken = s.Read+one.Read, s.Others+one.Others, s.Taken+one.Taken
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
	for _, m := range found {
		if t.Kind == "none" && (m.Kind == record.KindDevice || m.Kind == record.KindInit || m.Kind == record.KindHost) {
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
	return n, err == nil
}
