package leftover

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ParseSegments returns the segments in the text of /proc/sysvipc/shm that the user owns. Its first line names the
// columns, whose order and number differ between kernels. A segment that a process has mapped is in use. One that
// another user created counts as in use too: it may have been given to this user to be blamed on their job.
func ParseSegments(text string, uid uint32) (all []Item, err error) {
	head, rest, _ := strings.Cut(text, "\n")
	columns := strings.Fields(head)
	for line := range strings.Lines(rest) {
		fields := strings.Fields(line)
		number := func(column string) (n uint64) {
			at := slices.Index(columns, column)
			if at < 0 || len(fields) != len(columns) {
				err = fmt.Errorf("parse segments: no column %q in %d fields", column, len(fields))
				return 0
			}
			n, wrong := strconv.ParseUint(fields[at], 10, 63)
			if wrong != nil {
				err = fmt.Errorf("parse segments: %q: %w", column, wrong)
			}
			return n
		}
		owner, s := number("uid"), Item{ID: number("shmid"), Bytes: min(number("rss"), number("size")),
			Made: time.Unix(int64(number("ctime")), 0), InUse: number("nattch") > 0 || number("cuid") != uint64(uid)}
		if err != nil {
			return nil, err
		}
		if owner == uint64(uid) {
			all = append(all, s)
		}
	}
	return all, nil
}
