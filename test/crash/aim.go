package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"bookend/test/intercept"
)

// aim kills hooks at random points of a life.
type aim struct {
	rng *rand.Rand
	// calls is the most that a hook was seen to make of a call, longest the longest that one was seen to take.
	calls   map[hookName]map[string]int
	longest map[hookName]time.Duration
}

func newAim(rng *rand.Rand) *aim {
	return &aim{
		rng:     rng,
		calls:   map[hookName]map[string]int{prolog: {}, epilog: {}},
		longest: map[hookName]time.Duration{prolog: 20 * time.Millisecond, epilog: 30 * time.Millisecond},
	}
}

// victim is what was killed.
type victim string

// The victims.
const (
	alive  victim = ""
	atCall victim = "a process before a call"
	atHook victim = "the hook's group before a call"
	timed  victim = "the hook's group after a while"
	aChild victim = "a child after a while"
)

// targets are the calls at which hooks are killed; the likelier the more change.
var targets = []string{"openat", "openat", "write", "write", "renameat", "mkdirat", "unlinkat", "fchmod", "close",
	"fstat", "fsync", "flock"}

// shoot runs a hook and kills it, a child of it or its group, at a random call or after a random time. One in eight
// lives.
func (a *aim) shoot(n *node, s step) (out outcome, killed victim, err error) {
	switch a.rng.IntN(8) {
	case 0:
		out, err = n.call(s, kinds("lseek"), func(int, intercept.Call) intercept.Answer { return intercept.Pass() })
		return out, alive, err
	case 1, 2, 3:
		return a.atTime(n, s)
	}
	return a.atCall(n, s)
}

// atCall kills before a call that touches what the hooks keep.
func (a *aim) atCall(n *node, s step) (out outcome, killed victim, err error) {
	call := targets[a.rng.IntN(len(targets))]
	at, met := 1+a.rng.IntN(max(4, a.calls[s.hook][call])), 0
	group := a.rng.IntN(2) == 0
	t := newTracer(n.dir)
	out, err = n.call(s, kinds(call), func(hook int, c intercept.Call) intercept.Answer {
		if _, ok := t.point(c); !ok || killed != alive {
			return intercept.Pass()
		}
		if met++; met != at {
			return intercept.Pass()
		}
		if killed = atCall; group {
			killed = atHook
			_ = unix.Kill(-hook, unix.SIGKILL)
			return intercept.Pass()
		}
		return intercept.Kill()
	})
	a.calls[s.hook][call] = max(a.calls[s.hook][call], met)
	return out, killed, err
}

// atTime kills after a while: the group, or whatever child of the hook there is.
func (a *aim) atTime(n *node, s step) (out outcome, killed victim, err error) {
	after := time.Duration(a.rng.Int64N(int64(a.longest[s.hook])))
	group := a.rng.IntN(3) > 0
	began := time.Now()
	var once sync.Once
	var mu sync.Mutex
	out, err = n.call(s, kinds("openat"), func(hook int, _ intercept.Call) intercept.Answer {
		once.Do(func() { // its first call: the program itself is running by now
			time.AfterFunc(after, func() {
				mu.Lock()
				defer mu.Unlock()
				killed = strike(hook, group)
			})
		})
		return intercept.Pass()
	})
	mu.Lock()
	defer mu.Unlock()
	if killed == timed && out.exit != -1 {
		killed = alive // it had ended by then
	}
	if killed == alive {
		a.longest[s.hook] = max(a.longest[s.hook], min(time.Since(began), 100*time.Millisecond))
	}
	return out, killed, err
}

// strike kills a hook's group, or a child of the hook, and says which there was.
func strike(hook int, group bool) victim {
	if group {
		if unix.Kill(-hook, unix.SIGKILL) != nil {
			return alive
		}
		return timed
	}
	lists, _ := filepath.Glob("/proc/" + strconv.Itoa(hook) + "/task/*/children")
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for word := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(word); err == nil && unix.Kill(pid, unix.SIGKILL) == nil {
				return aChild
			}
		}
	}
	return alive
}
