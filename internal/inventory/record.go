package inventory

import (
	"bytes"
	"strconv"
	"strings"
	"time"

	"bookend/internal/gpu"
)

// record is one entry of the log: "prio,seq,stamp,flags[,more];text".
type record struct {
	mark     gpu.KernelMark
	facility uint64 // 0: the kernel's own
	text     []byte // escaped
}

// kernel is the facility of what the kernel itself says. It makes it 1 (user) for a program that asks for it.
const kernel = 0

// maxStamp is the largest stamp, in microseconds, that a duration can hold.
const maxStamp = uint64(1<<63-1) / uint64(time.Microsecond)

// parseRecord parses the first line of an entry; its further lines begin with a blank.
func parseRecord(line []byte) (record, bool) {
	head, text, ok := bytes.Cut(line, []byte(";"))
	fields := strings.SplitN(string(head), ",", 4)
	if !ok || len(fields) < 4 {
		return record{}, false
	}
	var n [3]uint64
	for i, bits := range []int{32, 64, 64} {
		v, err := strconv.ParseUint(fields[i], 10, bits)
		if err != nil {
			return record{}, false
		}
		n[i] = v
	}
	if n[2] > maxStamp {
		return record{}, false
	}
	at := time.Duration(n[2]) * time.Microsecond
	return record{gpu.KernelMark{Seq: n[1], At: at}, n[0] >> 3, text}, true
}

// unescape undoes the kernel's \xNN, which stands for what is not printable ASCII and for a backslash. The result has
// at most maxText bytes.
func unescape(text []byte) string {
	out := make([]byte, 0, min(len(text), maxText))
	for i := 0; i < len(text) && len(out) < maxText; i++ {
		if text[i] == '\\' && i+3 < len(text) && text[i+1] == 'x' {
			if v, err := strconv.ParseUint(string(text[i+2:i+4]), 16, 8); err == nil {
				out = append(out, byte(v))
				i += 3
				continue
			}
		}
		out = append(out, text[i])
	}
	return string(out)
}
