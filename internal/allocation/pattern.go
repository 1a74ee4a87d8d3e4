package allocation

import (
	_ "embed"
	"fmt"
	"runtime"
	"slices"
	"time"

	"bookend/internal/backendkit"
	"bookend/internal/gpu"
)

//go:embed pattern.ptx
var patternKernels string

// patternSpare is what a pattern test leaves of the free memory, in bytes: the driver's own tables need some.
const patternSpare = 64 << 20

// patternTime is what a pattern test needs, most of it for the context: 0.7 to 0.9 s on 139 GiB (measured).
const patternTime = 900 * time.Millisecond

// patternSeed makes the pattern; its inverse is the second round's.
const patternSeed = 0x5bd1e9955bd1e995

// firstWrong is how many wrong words the kernel keeps of a reading.
const firstWrong = 8

// eccUncorrectable is CUDA's code for memory that its own check finds wrong. Any other failure of a pattern test may
// come from the test itself, and says nothing about the memory.
const eccUncorrectable = 214

// pattern returns a test's result with what came of writing and reading the device's free memory. The driver may take
// longer than there is time for it, as to make a context on a busy node: that is no fault.
func (v *vacancy) pattern(result gpu.Probe) gpu.Probe {
	result.Pattern = &gpu.Pattern{At: v.Boot(), Why: outOfTime}
	if v.until-v.Boot() < patternTime {
		return result
	}
	release, why := v.lock(v.device.ID)
	if why != "" {
		result.Pattern.Why = why
		return result
	}
	written, done, err := await(v.tests, func() (gpu.Probe, error) {
		defer release() // without an end the lock stays with the memory, as long as this process
		w := result
		v.write(&w)
		return w, nil
	})
	if err != nil {
		result.Pattern.Why = backendkit.Bounded(err.Error())
	}
	if !done || err != nil {
		return result
	}
	return written
}

func (v *vacancy) write(result *gpu.Probe) {
	runtime.LockOSThread() // the context is current in this thread alone
	defer runtime.UnlockOSThread()
	result.Pattern = &gpu.Pattern{}
	why, failed := v.roundsOf(result.Pattern)
	result.Pattern.At = v.Boot()
	switch p := result.Pattern; {
	case failed != nil && failed.code == eccUncorrectable:
		fail(result, *failed)
	case failed != nil:
		why = failed.words()
	case p.Wrong > 0:
		result.Result = gpu.ProbeWrong
		result.Why = fmt.Sprintf("%d of its words came back otherwise than they were written", p.Wrong)
	}
	if why != "" {
		result.Pattern.Why = backendkit.Bounded(why)
	}
}

// roundsOf makes both rounds in a context of its own. why says what kept it from a result, apart from a failed call.
func (v *vacancy) roundsOf(p *gpu.Pattern) (why string, failed *outcome) {
	if failed := v.enter(v.number); failed != nil {
		return "", failed
	}
	_, why = v.free() // a process that came while the context was made gets the memory
	var a area
	if why == "" {
		a, failed = v.reserve()
	}
	if why != "" || failed != nil {
		v.leave(v.number)
		return why, failed
	}
	for _, seed := range []uint64{patternSeed, ^uint64(patternSeed)} {
		if _, no := v.free(); no != "" { // a process that came meanwhile gets the memory
			why = no
		}
		if why == "" && failed == nil {
			why, failed = a.round(p, seed)
		}
	}
	if why == outOfTime {
		return why, nil // the kernel still runs: giving back would wait for it, the end of this process does not
	}
	if why == "" && failed == nil {
		p.Bytes = a.bytes
	}
	v.drop(a.result)
	v.drop(a.at)
	v.leave(v.number)
	return why, failed
}

// area is the memory of a pattern test, with the words for its result.
type area struct {
	*vacancy
	kernels           []kernel // that fill and check it
	at, bytes, result uint64
}

// reserve takes all of the free memory but patternSpare.
func (v *vacancy) reserve() (a area, failed *outcome) {
	a.vacancy = v
	if a.kernels, failed = v.compile(patternKernels, "fill", "check"); failed != nil {
		return a, failed
	}
	if a.result, failed = v.alloc(8 + 16*firstWrong); failed != nil {
		return a, failed
	}
	free, failed := v.room()
	if failed != nil {
		return a, failed
	}
	a.bytes = max(free, 2*patternSpare) - patternSpare
	a.bytes -= a.bytes % searchStep
	a.at, failed = v.alloc(a.bytes)
	return a, failed
}

// round writes the memory, reads it, and counts what differs.
func (a area) round(p *gpu.Pattern, seed uint64) (why string, failed *outcome) {
	pairs := a.bytes / 16
	if failed := a.clear(a.result, 1+2*firstWrong); failed != nil {
		return "", failed
	}
	wrote, why, failed := a.run(a.kernels[0], [4]uint64{a.at, pairs, seed, 0})
	if why == "" && failed == nil {
		p.Write = shorter(p.Write, wrote)
		plant(a)
		var read time.Duration
		read, why, failed = a.run(a.kernels[1], [4]uint64{a.at, pairs, seed, a.result})
		p.Read = shorter(p.Read, read)
	}
	if why != "" || failed != nil {
		return why, failed
	}
	var found [1 + 2*firstWrong]uint64
	if failed := a.copy(found[:], a.result); failed != nil {
		return "", failed
	}
	p.Wrong += found[0]
	for word := range slices.Chunk(found[1:1+2*min(found[0], firstWrong)], 2) {
		p.First = append(p.First, gpu.WrongWord{Offset: 8 * word[0], Flipped: word[1] ^ valueAt(word[0], seed)})
	}
	return "", nil
}

func shorter(known, now time.Duration) time.Duration {
	if known == 0 {
		return now
	}
	return min(known, now)
}

// valueAt is what the kernels write to the word at an index.
func valueAt(index, seed uint64) uint64 { return index*0x9e3779b97f4a7c15 ^ seed }

// run runs a kernel as long as there is time for it.
func (a area) run(k kernel, arguments [4]uint64) (took time.Duration, why string, failed *outcome) {
	const pause = 200 * time.Microsecond
	begin := a.Boot()
	failed = a.launch(k, arguments)
	for failed == nil {
		done, wrong := a.idle()
		if failed = wrong; done {
			break
		}
		if !a.more() {
			return 0, outOfTime, nil
		}
		time.Sleep(pause)
	}
	return a.Boot() - begin, "", failed
}
