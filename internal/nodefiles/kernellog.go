package nodefiles

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/gpu"
)

const (
	maxRecords = 200_000  // the largest ring usually configured, 16 MiB, has fewer
	maxRecord  = 16 << 10 // the kernel's own buffer for one record is 8 KiB
	maxXids    = 256
	maxKills   = 64
	maxText    = 1 << 10 // of one line; the kernel's are not longer
)

// ReadLog reads the kernel log, <dev>/kmsg, to its end, and collects what came after the mark; without one it only
// fills in Last. Last is valid unless Unknown is set. Strings in it come from outside: bounded, not sanitized.
//
// It counts only what the kernel itself wrote: what root's programs write to the log has another facility than the
// kernel's, which the kernel does not let them choose. Before is filled in from an earlier mark on, if there is one.
func ReadLog(dev string, since, before *gpu.KernelMark) gpu.KernelLog {
	path := filepath.Join(dev, "kmsg")
	fd, err := openFile(path)
	if err != nil {
		return gpu.KernelLog{Unknown: fmt.Sprintf("open %q: %v", path, err)}
	}
	defer unix.Close(fd)
	c := newCollector(since)
	c.before = before
	if err := drain(func(b []byte) (int, error) { return unix.Read(fd, b) }, c); err != nil {
		return gpu.KernelLog{Unknown: fmt.Sprintf("read %q: %v", path, err)}
	}
	return c.result()
}

func openFile(path string) (fd int, err error) {
	// Threat: in a container it may be a link to a console, a FIFO or a user's file: it is not followed or waited for,
	// does not become our terminal, and is not read without end.
	return unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
}

var errRecords = fmt.Errorf("more than %d entries", maxRecords)

type device struct {
	read  func([]byte) (int, error)
	gap   *bool
	reads int
}

func (d *device) Read(b []byte) (int, error) {
	for ; d.reads < maxRecords; d.reads++ {
		n, err := d.read(b)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN), err == nil && n == 0:
			return 0, io.EOF
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINVAL):
			*d.gap = true // overwritten meanwhile, or larger than the buffer: the next read returns the next entry
		case err != nil:
			return 0, err
		default:
			d.reads++
			return n, nil
		}
	}
	return 0, errRecords
}

// drain passes on each line to the end of the log, except those that are longer than any record or have no end. The
// device returns one record per read: a line for its text and further lines for its other data.
func drain(read func([]byte) (int, error), c *collector) error {
	log := bufio.NewReaderSize(&device{read: read, gap: &c.gap}, maxRecord)
	for long := false; ; {
		line, err := log.ReadSlice('\n')
		switch {
		case err == io.EOF:
			return nil
		case err != nil && err != bufio.ErrBufferFull:
			return err
		case err == nil && !long:
			c.line(line[:len(line)-1])
		}
		long = err != nil
	}
}

// record is one entry of the log: "prio,seq,stamp,flags[,more];text".
type record struct {
	mark     gpu.KernelMark
	facility uint64 // 0: the kernel's own
	text     []byte // escaped
}

// kernel is the facility of the kernel's own messages. A program that asks for it gets 1 (user).
const kernel = 0

// maxStamp is the largest stamp, in microseconds, that a duration can hold.
const maxStamp = uint64(1<<63-1) / uint64(time.Microsecond)

// parseRecord parses the first line of an entry; further lines begin with a space.
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

// unescape decodes the kernel's \xNN. The result has at most maxText bytes.
func unescape(text []byte) string {
	plain, err := strconv.Unquote(`"` + strings.ReplaceAll(string(text), `"`, `\"`) + `"`)
	if err != nil { // not written by a kernel
		plain = string(text)
	}
	return plain[:min(len(plain), maxText)]
}

type collector struct {
	since   *gpu.KernelMark
	before  *gpu.KernelMark // where KernelLog.Before begins, nil for none
	log     gpu.KernelLog
	records int
	next    uint64 // the first entry after the mark that was not seen yet
	gap     bool   // entries before the next one may be gone
	limit   uint64 // of the cgroup that the newest report of full memory names, bytes; 0 for none
	other   bool   // the entry with the mark's number is another one
}

func newCollector(since *gpu.KernelMark) *collector {
	c := &collector{since: since, gap: true}
	if since != nil {
		c.next = since.Seq + 1
	}
	return c
}

func (c *collector) line(line []byte) {
	if len(line) == 0 || line[0] == ' ' {
		return // KEY=value, of the record before
	}
	r, ok := parseRecord(line)
	if !ok {
		return
	}
	c.records++
	c.log.Last = r.mark
	gap := c.gap
	c.gap = false
	if c.since == nil || r.mark.Seq <= c.since.Seq {
		c.earlier(r)
	}
	if c.since == nil {
		return
	}
	if r.mark.Seq <= c.since.Seq {
		c.other = c.other || r.mark.Seq == c.since.Seq && r.mark.At != c.since.At
		return
	}
	c.log.Lost = c.log.Lost || gap && r.mark.Seq > c.next
	c.next = r.mark.Seq + 1
	if r.facility == kernel {
		c.event(r.mark, unescape(r.text))
	}
}

// earlier adds an error from before the mark since: the newest of those alike.
func (c *collector) earlier(r record) {
	if c.before == nil || r.mark.Seq <= c.before.Seq || r.facility != kernel {
		return
	}
	if x, ok := gpu.ParseKernelLine(unescape(r.text)); ok {
		x.KernelMark = r.mark
		c.log.Before, _ = keep(c.log.Before, x, 1)
	}
}

func (c *collector) event(at gpu.KernelMark, text string) {
	if x, ok := gpu.ParseKernelLine(text); ok {
		x.KernelMark = at
		c.xid(x)
	}
	if line, ok := gpu.NVIDIA.Mismatch(text); ok {
		c.log.Mismatch = line
	}
	if limit, ok := parseLimit(text); ok {
		c.limit = limit
	}
	if k, ok := parseKill(text); ok {
		if len(c.log.Kills) == maxKills {
			c.log.Kills, c.log.Lost = slices.Delete(c.log.Kills, 0, 1), true
		}
		k.KernelMark = at
		if ofJob(text) {
			k.Limit = c.limit
		}
		c.limit = 0
		c.log.Kills = append(c.log.Kills, k)
	}
}

// parseKill parses the summary that kernels write before a kill: "oom-kill:constraint=CONSTRAINT_MEMCG,...,
// task_memcg=/slurm/job_7,task=python,pid=123,uid=1000". A task chooses its name: the first ",task=" that can begin
// a name does, so that no name becomes part of the cgroup.
func parseKill(text string) (gpu.HostKill, bool) {
	const form = `(?s)^oom-kill:constraint=CONSTRAINT_(.*?),task=(.{0,15}),pid=([0-9]+),uid=[0-9]{1,10}$`
	if !strings.HasPrefix(text, "oom-kill:") {
		return gpu.HostKill{}, false
	}
	found := regexp.MustCompile(form).FindStringSubmatch(text)
	if found == nil {
		return gpu.HostKill{}, false
	}
	pid, ok := gpu.Decimal(found[3], gpu.MaxPID)
	k := gpu.HostKill{PID: pid, Name: found[2], Whole: strings.HasPrefix(found[1], "NONE,")}
	if head, group, one := strings.Cut(found[1], ",task_memcg="); one && !strings.Contains(head+group, ",task_memcg=") {
		k.Cgroup = group // a second one is part of a cgroup's own name
	}
	return k, ok && pid > 0
}

// ofJob reports whether the summary of a kill is about the memory of a job's cgroup, or of a cgroup in it.
func ofJob(text string) bool {
	_, rest, _ := strings.Cut(text, ",oom_memcg=/")
	group, _, _ := strings.Cut(rest, ",")
	const bySLUID = `slurmstepd\.scope/s[0-9A-Z]{13}(/|$)` // since Slurm 26.05
	return strings.Contains(group, "/job_") || regexp.MustCompile(bySLUID).MatchString(group)
}

// parseLimit parses what a kernel writes before the summary of a kill for a cgroup's memory: "memory: usage 16777216kB,
// limit 16777216kB, failcnt 12". It returns the limit in bytes.
func parseLimit(text string) (bytes uint64, ok bool) {
	rest, is := strings.CutPrefix(text, "memory: usage ")
	_, rest, _ = strings.Cut(rest, "kB, limit ")
	digits, _, _ := strings.Cut(rest, "kB, ")
	kib, err := strconv.ParseUint(digits, 10, 50)
	return kib << 10, is && err == nil
}

// maxAlike is how many lines of one code and cause and of one GPU or MIG instance are kept.
const maxAlike = 8

// startsAgain is the time within which two lines about a failed start count as one: each opening program causes two.
const startsAgain = time.Hour

func (c *collector) xid(x gpu.Xid) {
	xids, lost := keep(c.log.Xids, x, maxAlike)
	c.log.Xids, c.log.Lost = xids, c.log.Lost || lost
}

// keep adds a line. The newest of many alike stands for the rest, so that no program pushes out another GPU's lines.
func keep(xids []gpu.Xid, x gpu.Xid, most int) (kept []gpu.Xid, lost bool) {
	alike, last := 0, 0
	for i, old := range xids {
		if old.Code == x.Code && old.CausedBy == x.CausedBy && old.BusID == x.BusID && old.Instance == x.Instance {
			alike, last = alike+1, i
		}
	}
	switch {
	case x.Code == gpu.NotStarted && alike > 0 && x.At-xids[last].At < startsAgain:
		x.Text, x.More = xids[last].Text, xids[last].More
		xids = slices.Delete(xids, last, last+1)
	case alike == most:
		x.More += xids[last].More + 1
		xids = slices.Delete(xids, last, last+1)
	case len(xids) == maxXids:
		xids, lost = slices.Delete(xids, 0, 1), true
	}
	return append(xids, x), lost
}

func (c *collector) result() gpu.KernelLog {
	switch {
	case c.records == 0:
		return gpu.KernelLog{Unknown: "the kernel's log is empty"}
	case c.since == nil:
	case c.since.Seq > c.log.Last.Seq:
		return gpu.KernelLog{Unknown: fmt.Sprintf(
			"the kernel's log ends at entry %d, before the mark %d: it is another boot's", c.log.Last.Seq, c.since.Seq)}
	case c.other:
		return gpu.KernelLog{Unknown: fmt.Sprintf(
			"entry %d of the kernel's log is another than the mark: it is another boot's", c.since.Seq)}
	}
	return c.log
}

// Follower reads what is added to the kernel log, for a process that stays: the log is open, and only news are read.
type Follower struct {
	fd    int
	first [maxRecord]byte // of the news: usually there are none, and one call shows that
}

// Follow begins at the log's present end. If the log cannot be opened there are never news.
func Follow(dev string) *Follower {
	fd, err := openFile(filepath.Join(dev, "kmsg"))
	if err == nil {
		_, err = unix.Seek(fd, 0, unix.SEEK_END)
	}
	if err != nil {
		fd = -1 // each read of it fails
	}
	return &Follower{fd: fd}
}

// News returns the errors of GPUs that were added to the log since the last call. It never waits.
func (f *Follower) News() []gpu.Xid {
	n, err := unix.Read(f.fd, f.first[:])
	if n <= 0 && err != unix.EPIPE && err != unix.EINVAL { // those two mean that older entries were skipped
		return nil
	}
	begin := f.first[:max(n, 0)]
	c := newCollector(&gpu.KernelMark{})
	_ = drain(func(b []byte) (n int, err error) { // after a failure the next call goes on, as does the end of each job
		if n = copy(b, begin); n > 0 {
			begin = begin[n:]
			return n, nil
		}
		return unix.Read(f.fd, b)
	}, c)
	return c.log.Xids
}
