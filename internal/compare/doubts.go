package compare

import (
	"cmp"
	"fmt"
	"slices"

	"bookend/internal/gpu"
	"bookend/internal/record"
)

// faultDoubts returns what keeps a fault from proving this GPU unusable. Sharing makes a fault no less certain.
func (v view) faultDoubts() []string {
	return reasons(
		doubt{v.device.Parent != "",
			"it is a part of a GPU (MIG or partition): what its driver reports of one was never measured"},
		doubt{v.in.Doubt != "", v.in.Doubt},
	)
}

func (v view) doubts() []string {
	s, unread := v.in, v.in.Unread[v.device.ID]
	return append(v.faultDoubts(), reasons(
		doubt{s.RunDoubt != "", s.RunDoubt},
		doubt{unread != "", unread},
		doubt{s.Shared != "", "this GPU may be shared: " + s.Shared},
		doubt{s.SharedUnknown != "", "whether this GPU is shared could not be told: " + s.SharedUnknown},
	)...)
}

type doubt struct {
	is   bool
	text string
}

func reasons(all ...doubt) (texts []string) {
	for _, d := range all {
		if d.is {
			texts = append(texts, d.text)
		}
	}
	return texts
}

// certain adds the doubts that concern the GPU as a whole. Without a recorded clean start, with another job on the same
// GPU, or with little memory held, nothing proves that the next job cannot use it.
func (v view) certain(found []record.Finding) []record.Finding {
	excuse(found)
	start, little := v.startDoubt(), tooLittle(v.in.Limits, found)
	more := slices.Concat(reasons(doubt{v.in.ending() && start != "", start}), v.in.shareDoubts(v.device.ID),
		reasons(doubt{little != "", little}))
	for i := range found {
		found[i].Doubts = append(found[i].Doubts, more...)
	}
	return found
}

// startDoubt says why the GPU may not have been clean when the job started.
func (v view) startDoubt() string {
	tells := v.thenState == record.Flat || v.thenState == record.Unreadable && v.then.Memory.Unjudged != ""
	switch {
	case v.in.Before == nil:
		return "there is no record of the job's start"
	case v.thenState == record.Clean, tells && v.startedAtRest():
		return ""
	case v.thenState.Dirty():
		return "the GPU was not clean when the job started"
	}
	return "the GPU could not be read when the job started"
}

// shareDoubts names other jobs that were given the GPU and may live: Slurm gives a suspended job's GPUs to others. A
// health check judges no GPU that one has.
func (s Input) shareDoubts(id gpu.ID) (doubts []string) {
	for _, o := range s.Book.Others {
		switch {
		case s.between() || !o.MayHold(id):
		case o.Live():
			doubts = append(doubts, fmt.Sprintf("job %d was given the same GPU, or may have been", o.Job))
		case o.Unseen:
			doubts = append(doubts, fmt.Sprintf("job %d was given the same GPU, and no one saw its end", o.Job))
		}
	}
	return doubts
}

// tooLittle says why the memory that these findings hold for certain is not enough to drain for, empty if it is.
func tooLittle(l record.Limits, found []record.Finding) string {
	held, unknown := uint64(0), ""
	for _, f := range found {
		switch {
		case f.Unknown != "" || len(f.Doubts) > 0:
		case !f.Bytes.Known():
			unknown = "how much memory is held is unknown: " + f.Bytes.Unknown
		default:
			held += f.Bytes.Bytes
		}
	}
	if held >= l.Drain {
		return ""
	}
	return cmp.Or(unknown,
		fmt.Sprintf("%d MiB held for certain is less than the %d MiB that drain", held>>20, l.Drain>>20))
}

// excuse casts doubt on memory without a process if a live job's, root's or an unknown owner's process may hold it.
func excuse(found []record.Finding) {
	for _, f := range found {
		if f.Holder == nil || f.Holder.Gone || len(f.Doubts) == 0 {
			continue
		}
		for i := range found {
			why := fmt.Sprintf("process %d on the same GPU may hold it", f.Holder.PID)
			if found[i].WithoutProcess() && !slices.Contains(found[i].Doubts, why) {
				found[i].Owner, found[i].Doubts = nil, append(found[i].Doubts, why)
			}
		}
	}
}
