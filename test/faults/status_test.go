package faults

import (
	"strings"
	"testing"
)

// A driver that even SIGKILL cannot free: "bookend status" says so in its time, with all else that it knows, and records the
// child that it had to leave there: neither it nor a hook starts another.
func TestStatusOnAStuckDriver(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	n.clean(prolog, newJob())
	n.clean(epilog, newJob())
	must(t, n.world.Set("on.nvmlDeviceGetMemoryInfo_v2", "freeze"))
	first, exit := n.bookend("status")
	if exit != 0 || len(lines(first, "driver: no answer: BKD-")) != 1 || len(lines(first, "job 100  GPU 0")) != 1 {
		t.Errorf("exit %d:\n%s", exit, first)
	}
	if len(lines(first, "memory: unknown: the driver gave no answer")) == 0 {
		t.Errorf("the card that records know:\n%s", first)
	}
	left := n.stuck()
	if len(left) != 1 {
		t.Fatalf("stuck: %v", left)
	}
	second, _ := n.bookend("status")
	if len(lines(second, "driver: not asked: ")) != 1 || !strings.Contains(second, "driver not answering since ") {
		t.Errorf("again:\n%s", second)
	}
	if o := n.hook(prolog, numbered(101)); o.exit != 0 {
		t.Errorf("%v", o)
	}
	if now := n.stuck(); len(now) != 1 || now[0] != left[0] {
		t.Errorf("stuck: %v, then %v", left, now)
	}
	n.unstick("nvmlDeviceGetMemoryInfo_v2")
	if again, _ := n.bookend("status"); len(lines(again, "driver: ", "answered in ")) != 1 || strings.Contains(again, "not answering") {
		t.Errorf("afterwards:\n%s", again)
	}
}
