package code

import (
	"slices"
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
		"A process of the ended job still holds memory on the GPU. How sure that is, the evidence level says.",
		"Look at it with ps -o pid,user,lstart,args -p PID and end it. Tell its owner: workers must end with their " +
			"parent.",
		Traits{Exit: 10, Start: ToWarn, End: ToDrain, Memory: OwnProcess},
	},
	{
		Residue, Serious, Card, Node, "memory in use, no process",
		"Memory is in use that no listed process explains: usually a process that the driver does not list holds a " +
			"handle to it. Candidates have the driver open; which of several holds the memory no one can tell.",
		"End the candidates that belong to no job (fuser -v /dev/nvidia* lists more). If the memory stays, reset the " +
			"GPU (nvidia-smi --gpu-reset -i GPU) or reboot. Up to 64 MiB without any job: bookend baseline accept " +
			"GPU.",
		Traits{Exit: 11, Start: ToWarn, End: ToDrain, Memory: Unlisted},
	},
	{
		Phantom, Serious, Card, Job, "driver lists a dead process",
		"The driver lists memory under a process that is gone: something that it started, or passed a handle to, " +
			"keeps it. Live processes that have this very GPU open are named.",
		"End the holders that belong to no job (fuser -v /dev/nvidia* lists more). If the memory stays, reset the " +
			"GPU (nvidia-smi --gpu-reset -i GPU) or reboot.",
		Traits{Exit: 12, Start: ToWarn, End: ToDrain, Memory: Unlisted},
	},
	{
		Dirty, Warning, Card, Node, "GPU was not clean at the start",
		"Memory was in use before the job began: the job had less than the GPU's size, and is not to blame. At a " +
			"job's end it is next to the finding on what is new.",
		"See the finding that names the holder and the job that left it. The user may ask for another node.",
		Traits{Exit: 14, Start: ToWarn, End: ToNote, Memory: Inherited},
	},
	{
		Foreign, Warning, Card, Node, "another job is on the GPU",
		"A process of another live job uses a GPU that Slurm gave to this job, and no sharing is configured.",
		"Set ConstrainDevices=yes in cgroup.conf; containers of an outside daemon are not fenced by it. If the " +
			"sharing is intended, name the partition in slurm.shared_partitions.",
		Traits{Exit: 15, Start: ToWarn, End: ToWarn, Memory: Others},
	},
	{
		Stray, Serious, Card, Node, "process of no job that had this GPU",
		"A process came onto the GPU during the job that is neither this job's nor a live one's: a login, a service, " +
			"a container of an outside daemon, or another job's that has ended.",
		"End it or move it off the node; adopt logins with pam_slurm_adopt, fence devices with ConstrainDevices=yes.",
		Traits{Exit: 13, Start: ToWarn, End: ToDrain, Memory: Strangers},
	},
	{
		Moving, Warning, Card, Node, "memory still changing",
		"The GPU's readings still changed, or were not watched long enough: no proof of a leftover. A process that " +
			"every sample shows is reported separately.",
		"None, if it is rare. If it is common, raise settle.epilog.max together with deadlines.epilog.driver.",
		Traits{Start: ToWarn, End: ToWarn},
	},
	{
		Lost, Serious, Card, Node, "GPU is lost or needs a reset",
		"The driver answered for this GPU with its error code \"GPU is lost\" (fallen off the bus) or \"reset " +
			"required\".",
		"Drain the node, read the kernel log for Xid messages, then reset the GPU or reboot; replace it if it recurs.",
		Traits{Exit: 20, Start: ToDrain, End: ToDrain, Fault: "the GPU fell off the bus or needs a reset"},
	},
	{
		Missing, Serious, Card, Node, "assigned GPU does not exist",
		"Slurm gave the job a GPU that the driver does not have.",
		"Compare nvidia-smi -L with slurmd -v -G, gres.conf and nvidia.gpu_map. Take a GPU that is gone for good out " +
			"of gres.conf and slurm.conf, and restart slurmd.",
		Traits{Exit: 21, Start: ToWarn, End: ToWarn, Fault: "a GPU that Slurm gave is not there", Doubtful: true},
	},
	{
		Unread, Warning, Card, Node, "GPU could not be read",
		"The GPU's memory or its process list could not be read, so whether it is clean is unknown.",
		"Read the reason given with it and run nvidia-smi. On some driver versions the list itself is wrong.",
		Traits{Start: ToWarn, End: ToWarn, Silence: "a GPU could not be read"},
	},
	{
		Trespass, Warning, Elsewhere, Node, "job on a GPU it was not given",
		"A process of a live job, or of one without a record, is on a GPU of the node that its job was not given. A " +
			"health check found it: it decides no exit code and never drains.",
		"Set ConstrainDevices=yes in cgroup.conf; containers of an outside daemon are not fenced by it. If the " +
			"sharing is intended, name the partition in slurm.shared_partitions.",
		Traits{Start: ToWarn, End: ToWarn},
	},
	{
		Unjudged, Note, Card, Node, "memory of this GPU says nothing",
		"What is in use here does not tell what a job left: the operating system keeps files in this memory (GH200, " +
			"GB200), or it is a virtual GPU or a whole GPU in MIG mode. Its processes are judged.",
		"None.",
		Traits{Start: ToNote, End: ToNote},
	},
	{
		Ended, Note, Card, Job, "leftover process ended by Bookend",
		"A process that the ended job left was ended (clean_up.enabled): a cgroup proved whose it was. The GPU was " +
			"watched again; what stayed is a finding of its own.",
		"None for the node. Tell the job's owner: workers must be ended with their parent.",
		Traits{Start: ToNote, End: ToNote},
	},

	{
		Gap, Warning, Card, Node, "free memory is fragmented",
		"The test allocation got a much smaller block than is free, in two searches: jobs that need one large block " +
			"may fail.",
		"Look at bookend show JOBID for figures and holders. If it stays on an idle GPU, reset it or reboot the node.",
		Traits{Exit: 16, Start: ToWarn, End: ToWarn, Condition: true, Milder: "had fragmented memory"},
	},
	{
		Blocked, Serious, Card, Node, "no memory to be had",
		"The GPU has free memory and the test allocation got none: it is busy, or in a mode that forbids it.",
		"Look at the CUDA error and its remedy given with it; nvidia-smi -q -d COMPUTE shows the mode.",
		Traits{Exit: 17, Start: ToWarn, End: ToWarn, Condition: true,
			Silence: "a test allocation failed; that may be the test's own"},
	},
	{
		Broken, Serious, Card, Node, "CUDA does not work on the GPU",
		"The test failed with a CUDA error, in two tries: jobs would fail the same way.",
		"The error and its remedy stand with the finding; docs/cuda-errors.md has the table.",
		Traits{Exit: 18, Start: ToWarn, End: ToRepeat, Condition: true,
			Fault: "CUDA did not work in a test after your job", Doubtful: true,
			Silence: "a test allocation failed; that may be the test's own"},
	},
	{
		Recovery, Serious, Card, Node, "driver asks for recovery",
		"The driver says that this GPU needs a reset, a reboot or a drain before it can be relied on.",
		"Do what it says: nvidia-smi --gpu-reset -i GPU once no process uses it, or reboot the node.",
		Traits{Exit: 27, Start: ToWarn, End: ToDrain, Condition: true, Fault: "the driver asks to recover the GPU"},
	},
	{
		RemapFailed, Serious, Card, Node, "row remapping failed",
		"A memory row with uncorrectable errors could not be replaced: NVIDIA calls for a new GPU.",
		"Run NVIDIA's field diagnostics and return the GPU.",
		Traits{Exit: 28, Start: ToWarn, End: ToDrain, Condition: true, Fault: "a bad memory row could not be replaced"},
	},
	{
		RemapPending, Warning, Card, Node, "row remapping waits for a reset",
		"Memory rows with errors will be replaced at the next reset. Until then the bad page stays set aside.",
		"Reset the GPU or reboot the node at the next maintenance.",
		Traits{Start: ToWarn, End: ToWarn, Condition: true},
	},
	{
		Pages, Warning, Card, Node, "pages wait to be retired",
		"Memory pages with errors will be taken out of use at the next reset (GPUs before Ampere).",
		"Reset the GPU or reboot the node at the next maintenance.",
		Traits{Start: ToWarn, End: ToWarn, Condition: true},
	},
	{
		ECC, Warning, Card, Node, "uncorrectable memory errors",
		"The GPU counted uncorrectable errors since the last look: a program was ended or read wrong data.",
		"bookend show JOBID has the counts. Follow what the driver says under recovery action and remapping.",
		Traits{Start: ToWarn, End: ToWarn, Condition: true, Fault: "uncorrectable memory errors"},
	},
	{
		Fabric, Warning, Card, Node, "NVLink fabric is not ready",
		"The GPU has not joined the NVLink fabric, or joining failed: CUDA may refuse to start (error 802).",
		"See that nvidia-fabricmanager runs and is of the driver's version.",
		Traits{Start: ToWarn, End: ToWarn, Condition: true, Fault: "the NVLink fabric is not ready"},
	},
	{
		Xid, Warning, Card, Job, "driver reported an error (Xid)",
		"The kernel log has an Xid on this GPU since the job began, of a kind that most often comes from the program.",
		"Look at the program first. docs/health.md says what the number means; if other programs meet it, test the " +
			"GPU.",
		Traits{Start: ToNote, End: ToWarn, Condition: true, Milder: "met an error of a program"},
	},
	{
		XidFatal, Serious, Card, Node, "driver reported a GPU fault (Xid)",
		"The kernel log has an Xid on this GPU since the job began that calls for a reset, a reboot or a repair.",
		"Do what docs/health.md says of the number.",
		Traits{Exit: 29, Start: ToWarn, End: ToDrain, Condition: true, Fault: "the driver reported a fault of the GPU"},
	},
	{
		Throttle, Note, Card, Node, "GPU is slowed down",
		"The driver holds the GPU's clocks down for heat or power. Jobs are slower; memory is not affected.",
		"Check cooling and power if it stays.",
		Traits{Start: ToNote, End: ToNote, Condition: true, Milder: "was slow"},
	},
	{
		Persistence, Note, Card, Site, "persistence mode is off",
		"The driver lets go of a GPU that no one uses: hooks and jobs wait seconds for it, and counts are lost.",
		"Enable nvidia-persistenced, or nvidia-smi -pm 1.",
		Traits{Start: ToNote, End: ToNote, Condition: true, Milder: "was slow to wake up"},
	},
}
