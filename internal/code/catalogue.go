package code

import (
	"slices"

	"bookend/internal/gpu"
)

// All returns every entry, in the order of the documentation.
func All() []Entry { return slices.Concat(ofCards, ofNodes) }

// Lookup returns a code's entry; false for a code that does not exist.
func Lookup(c Code) (Entry, bool) {
	for _, part := range [][]Entry{ofCards, ofNodes} {
		for i := range part {
			if part[i].Code == c {
				return part[i], true
			}
		}
	}
	return Entry{}, false
}

// ofCards are the findings about one GPU. Slices and no map: the hooks start for every job, and a literal of strings
// costs them nothing.
var ofCards = []Entry{
	{
		Orphan, Serious, Card, Job, "process outlived its job",
		"A process of the ended job still holds memory on the card after settling. How sure it is that the " +
			"process was the job's, the evidence level says.",
		"See who it is with ps -o pid,user,lstart,args -p PID and end it; the memory is free once it is gone. " +
			"Tell its owner: workers must be ended with their parent.",
		Traits{Exit: 10, Start: ToWarn, End: ToDrain, Memory: OwnProcess},
	},
	{
		Residue, Serious, Card, Node, "memory in use, no process",
		"The card reports memory in use that no listed process explains, after settling. Usually a process that the " +
			"driver does not list holds a handle to it. Bookend searches the node for it and names as " +
			"candidates the processes that have the driver open and nothing that explains why. A descriptor proves " +
			"no bytes: among several candidates nobody can tell which one holds the memory.",
		"Look at the candidates and end those that belong to no job. Where none is named, look again with " +
			"fuser -v /dev/nvidia*. If memory stays with no holder left, reset the card (nvidia-smi --gpu-reset -i " +
			"GPU) or reboot the node. A card that carries up to 64 MiB without any job: bookend baseline accept GPU.",
		Traits{Exit: 11, Start: ToWarn, End: ToDrain, Memory: Unlisted},
	},
	{
		Phantom, Serious, Card, Job, "driver lists a dead process",
		"The driver lists memory under a process id that no longer exists, after settling. The process is gone, but " +
			"something it started or passed a handle to keeps its memory alive. Bookend searches the node for that " +
			"holder and names the live processes that have this very card open.",
		"End the holders that are named, if they belong to no job; the memory is free once the last one is gone. " +
			"Where none is named, look who has the driver open with fuser -v /dev/nvidia*. If the memory stays, " +
			"reset the card (nvidia-smi --gpu-reset -i GPU) or reboot the node.",
		Traits{Exit: 12, Start: ToWarn, End: ToDrain, Memory: Unlisted},
	},
	{
		Dirty, Warning, Card, Node, "card was not clean at the start",
		"Memory was in use on the card before the job began. The job had less memory than the card's size and is not " +
			"to blame for it. At a job's end this is found only where something more than at its start stays: then " +
			"it names what was there before, beside the finding on what is new.",
		"See the finding that names the holder and the job that left it. The user may ask for another node.",
		Traits{Exit: 14, Start: ToWarn, End: ToNote, Memory: Inherited},
	},
	{
		Foreign, Warning, Card, Node, "another job is on the card",
		"A process of another live job uses a card that Slurm gave to this job. Where sharing is intended " +
			"(shards, MPS, partitions named in slurm.shared_partitions) this is not reported.",
		"Set ConstrainDevices=yes in cgroup.conf, and check how the other job got to the card (containers " +
			"started by an outside daemon are not fenced). Name the partition as shared if this is intended.",
		Traits{Exit: 15, Start: ToWarn, End: ToWarn, Memory: Others},
	},
	{
		Stray, Serious, Card, Node, "process of no job that had this card",
		"A process that belongs neither to the ended job nor to a live one came onto the card during the job: " +
			"a login, a service, a container started by an outside daemon, or a process of another job that has ended.",
		"End it or move it off the node; adopt logins with pam_slurm_adopt, fence devices with ConstrainDevices=yes.",
		Traits{Exit: 13, Start: ToWarn, End: ToDrain, Memory: Strangers},
	},
	{
		Moving, Warning, Card, Node, "memory still changing",
		"The card's readings still changed, or had not been watched long enough, when the time to settle was over. " +
			"Large processes take seconds to go; this is no proof of a leftover. A process that every sample of the " +
			"watch shows is reported by itself, with the least memory that it held.",
		"None, if it is rare. If it is common, raise settle.epilog.max together with deadlines.epilog.driver.",
		Traits{Start: ToWarn, End: ToWarn},
	},
	{
		Lost, Serious, Card, Node, "card is lost or needs a reset",
		"The driver answered for this card with its error code \"GPU is lost\" (fallen off the bus) or \"reset " +
			"required\". Nothing else is looked at: not the recovery action that newer drivers state, and no kernel " +
			"log.",
		"Drain the node, read the kernel log for Xid messages, then reset the card or reboot; replace it if it recurs.",
		Traits{Exit: 20, Start: ToDrain, End: ToDrain, Fault: "the GPU fell off the bus or needs a reset"},
	},
	{
		Missing, Serious, Card, Node, "assigned card does not exist",
		"Slurm gave the job a card that the driver does not have.",
		"Compare nvidia-smi -L with slurmd -v -G and gres.conf: the GPU has failed, is bound to another driver, or " +
			"nvidia.gpu_map is wrong. Take one that is gone for good out of gres.conf and slurm.conf, and restart " +
			"slurmd.",
		Traits{Exit: 21, Start: ToWarn, End: ToWarn, Fault: "a GPU that Slurm gave is not there", Doubtful: true},
	},
	{
		Unread, Warning, Card, Node, "card could not be read",
		"The card's memory or its process list could not be read, so whether it is clean is unknown.",
		"Read the reason given with it and run nvidia-smi on the node. On some driver versions the list itself is " +
			"wrong.",
		Traits{Start: ToWarn, End: ToWarn, Silence: "a GPU could not be read"},
	},
	{
		Trespass, Warning, Elsewhere, Node, "job on a card it was not given",
		"A process of a live job, or of one that Bookend has no record of, is on a card of the node that was not " +
			"given to that job. The hook that saw it is of a job with other cards: the finding is the admin's, " +
			"decides no exit code and never drains. A job without GPUs that uses one is found so.",
		"Set ConstrainDevices=yes in cgroup.conf and check how the process got to the card (containers started by an " +
			"outside daemon are not fenced). If the sharing is intended, name the partition in " +
			"slurm.shared_partitions.",
		Traits{Start: ToWarn, End: ToWarn},
	},
	{
		Unjudged, Note, Card, Node, "memory of this card says nothing",
		"What is in use on this card does not tell what a job left: its memory belongs to the operating system, " +
			"which keeps files in it (GH200, GB200), it is a virtual GPU, or a whole card in MIG mode. Its " +
			"processes are judged, its memory is not.",
		"None.",
		Traits{Start: ToNote, End: ToNote},
	},
	{
		Ended, Note, Card, Job, "leftover process ended by Bookend",
		"A process that the ended job left on the card was ended (clean_up.enabled): its cgroup proved, now or when " +
			"it was recorded, that it was the job's. The card was watched again afterwards; what stayed is a " +
			"finding of its own.",
		"None for the node. Tell the job's owner: workers must be ended with their parent.",
		Traits{Start: ToNote, End: ToNote},
	},

	{
		Gap, Warning, Card, Node, "free memory that comes in pieces",
		"The test allocation got a much smaller block than the card has free, in two searches. Jobs that need one " +
			"large allocation may run out of memory though enough is free. Something that no process list shows " +
			"holds memory, or the driver's own figures are wrong; pieces of 2 MiB and more that others left do not " +
			"do this (measured).",
		"Look at bookend show JOBID for figures and holders. If it stays on an idle card, reset it or reboot the node.",
		Traits{Exit: 16, Start: ToWarn, End: ToWarn, Condition: true},
	},
	{
		Blocked, Serious, Card, Node, "no memory to be had",
		"The card has free memory and the test allocation got none of it, or the card takes nobody in: it is busy " +
			"or in a mode that forbids it.",
		"Look at the CUDA error and its remedy given with it; nvidia-smi -q -d COMPUTE shows the mode.",
		Traits{
			Exit: 17, Start: ToWarn, End: ToWarn,
			Condition: true, Silence: "a test allocation failed; that may be the test's own",
		},
	},
	{
		Broken, Serious, Card, Node, "CUDA does not work on the card",
		"The test failed with a CUDA error, in two tries: jobs would fail the same way. \"Out of memory\" from the " +
			"allocation itself is none of these (BKD-GAP, BKD-BLOCKED); from CUDA's start it is.",
		"The error and its remedy stand with the finding; docs/cuda-errors.md has the table.",
		Traits{
			Exit: 18, Start: ToWarn, End: ToWarn,
			Condition: true, Fault: "CUDA did not work in a test after your job", Doubtful: true,
			Silence: "a test allocation failed; that may be the test's own",
		},
	},
	{
		Recovery, Serious, Card, Node, "driver asks for recovery",
		"The driver itself says that this card needs a reset, a reboot or a drain before it can be relied on " +
			"(NVML's GPU recovery action).",
		"Do what it says: nvidia-smi --gpu-reset -i GPU once no process uses it, or reboot the node.",
		Traits{
			Exit: 27, Start: ToWarn, End: ToDrain,
			Gone: Fact{gpu.RecoveryAction, "none"}, Condition: true, Fault: "the driver asks to recover the GPU",
		},
	},
	{
		RemapFailed, Serious, Card, Node, "row remapping failed",
		"A memory row with uncorrectable errors could not be replaced. NVIDIA's memory error management calls for " +
			"this card to be replaced.",
		"Run NVIDIA's field diagnostics and return the card.",
		Traits{
			Exit: 28, Start: ToWarn, End: ToDrain,
			Condition: true, Fault: "a bad memory row could not be replaced",
		},
	},
	{
		RemapPending, Warning, Card, Node, "row remapping waits for a reset",
		"Memory rows with errors will be replaced at the next reset. Until then the card goes on, and the bad page " +
			"stays set aside.",
		"Reset the card or reboot the node at the next maintenance.",
		Traits{Start: ToWarn, End: ToWarn, Gone: Fact{gpu.RemapPending, "no"}, Condition: true},
	},
	{
		Pages, Warning, Card, Node, "pages wait to be retired",
		"Memory pages with errors will be taken out of use at the next reset (cards before Ampere).",
		"Reset the card or reboot the node at the next maintenance.",
		Traits{Start: ToWarn, End: ToWarn, Gone: Fact{gpu.RetiredPending, "no"}, Condition: true},
	},
	{
		ECC, Warning, Card, Node, "uncorrectable memory errors",
		"The card counted uncorrectable memory errors since the last look at it. A program that used that memory " +
			"was ended or read wrong data; the card itself may be well.",
		"Watch the card: bookend show JOBID has the counts. Follow what the driver says under recovery action and " +
			"remapping.",
		Traits{Start: ToWarn, End: ToWarn, Condition: true, Fault: "uncorrectable memory errors"},
	},
	{
		Fabric, Warning, Card, Node, "NVLink fabric is not ready",
		"The card has not joined the NVLink fabric, or joining failed: CUDA may refuse to start (error 802).",
		"See that nvidia-fabricmanager runs and is of the driver's version.",
		Traits{
			Start: ToWarn, End: ToWarn,
			Gone: Fact{gpu.FabricState, "completed"}, Condition: true, Fault: "the NVLink fabric is not ready",
		},
	},
	{
		BAR1, Warning, Card, Node, "BAR1 still mapped",
		"Much of the card's BAR1 window is mapped though nobody uses the card: a leaked mapping, often of GPUDirect " +
			"RDMA. New mappings may fail while memory is free.",
		"Find who has the card open (bookend snapshot, fuser -v /dev/nvidia*); if nobody, reset the card.",
		Traits{Start: ToNote, End: ToWarn, Condition: true},
	},
	{
		Xid, Warning, Card, Job, "driver reported an error (Xid)",
		"The kernel log has an Xid on this card since the job began, of a kind that most often comes from the " +
			"program that ran: a wrong access, a bug in a kernel, a process that was ended.",
		"Look at the program first. docs/health.md says what each number means; if other programs meet it too, test " +
			"the card.",
		Traits{Start: ToNote, End: ToWarn, Condition: true, Milder: "met an error of a program"},
	},
	{
		XidFatal, Serious, Card, Node, "driver reported a card fault (Xid)",
		"The kernel log has an Xid on this card since the job began after which NVIDIA calls for a reset, a reboot " +
			"or a repair.",
		"Do what docs/health.md says of the number.",
		Traits{
			Exit: 29, Start: ToWarn, End: ToDrain,
			Condition: true, Fault: "the driver reported a fault of the GPU",
		},
	},
	{
		Throttle, Note, Card, Node, "card is slowed down",
		"The driver holds the card's clocks down for heat or power. Jobs are slower; memory is not affected.",
		"Check cooling and power if it stays.",
		Traits{Start: ToNote, End: ToNote, Condition: true, Milder: "was slow"},
	},
	{
		Persistence, Note, Card, Site, "persistence mode is off",
		"Without it the driver lets go of a card that nobody uses: each hook and each job waits seconds for the " +
			"card to wake up, and accounting and ECC counts are lost.",
		"Enable nvidia-persistenced, or nvidia-smi -pm 1.",
		Traits{Start: ToNote, End: ToNote, Condition: true, Milder: "was slow to wake up"},
	},
}
