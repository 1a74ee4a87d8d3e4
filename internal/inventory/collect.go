package inventory

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/health"
)

// collector picks from the log what is after a mark.
type collector struct {
	since   *gpu.KernelMark
	log     gpu.KernelLog
	records int
	next    uint64 // the first entry after the mark that was not seen yet
	gap     bool   // entries before the next one may be gone
	other   bool   // the entry of the mark's number is another one
	group   string // the cgroup that is being killed as a whole
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

// event adds what one line of the kernel's says.
func (c *collector) event(at gpu.KernelMark, text string) {
	for _, v := range gpu.Vendors {
		if v.Fault == nil {
			continue
		}
		if x, ok := v.Fault(text); ok {
			x.KernelMark = at
			c.xid(x)
			return
		}
		if line, ok := v.Mismatch(text); ok {
			c.log.Mismatch = line
			return
		}
	}
	if path, ok := parseGroup(text); ok {
		c.group = path
		return
	}
	k, ok := parseSummary(text)
	if ok {
		c.group = ""
	} else if k, ok = parseKilled(text); ok {
		k.Cgroup = c.group
	}
	if ok {
		k.KernelMark = at
		c.kill(k)
	}
}

// xid adds a line. Of lines that are alike a few stand for all, so that no program, however many it makes the driver
// write, pushes out those of another card.
func (c *collector) xid(x gpu.Xid) {
	if i := c.standsFor(x); i >= 0 {
		x.More += c.log.Xids[i].More + 1
		c.log.Xids = slices.Delete(c.log.Xids, i, i+1)
	} else if len(c.log.Xids) == maxXids {
		i := max(0, slices.IndexFunc(c.log.Xids, func(old gpu.Xid) bool { return !health.Fatal(old.Code) }))
		c.log.Xids = slices.Delete(c.log.Xids, i, i+1)
		c.log.Lost = true
	}
	c.log.Xids = append(c.log.Xids, x)
}

// maxAlike is how many lines of one number and card are kept: the first, and two of each of the first few processes.
const maxAlike = 8

// standsFor is the line that a new one stands for as well, -1 where there is room for both. Lines are alike of one
// number, and one card or one MIG instance.
func (c *collector) standsFor(x gpu.Xid) int {
	var all, its []int
	for i, old := range c.log.Xids {
		if old.Code != x.Code || old.BusID != x.BusID || !same(old.GI, x.GI) || !same(old.CI, x.CI) {
			continue
		}
		if all = append(all, i); old.PID == x.PID {
			its = append(its, i)
		}
	}
	switch {
	case len(its) > 1:
		return its[len(its)-1]
	case len(all) == maxAlike:
		return all[len(all)-1]
	}
	return -1
}

func same(a, b *int) bool { return a == b || a != nil && b != nil && *a == *b }

// again is how soon two lines of one process's end follow each other. The kernel writes them at once; nobody gets the
// same number and runs out of memory too within that time.
const again = time.Minute

// kill adds a process: the kernel's two lines of it, or three where it ends a whole cgroup, are one.
func (c *collector) kill(k gpu.HostKill) {
	for i := len(c.log.Kills) - 1; i >= 0; i-- {
		old := &c.log.Kills[i]
		if old.PID != k.PID || k.At-old.At > again {
			continue
		}
		old.Cgroup, old.Name = cmp.Or(old.Cgroup, k.Cgroup), cmp.Or(old.Name, k.Name)
		return
	}
	if len(c.log.Kills) == maxKills {
		c.log.Kills, c.log.Lost = slices.Delete(c.log.Kills, 0, 1), true
	}
	c.log.Kills = append(c.log.Kills, k)
}

// result is the log, or why this is not the log that the mark is of.
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
