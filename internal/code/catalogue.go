package code

import "slices"

// All returns every entry, in the order of the documentation.
func All() []Entry { return slices.Clone(catalogue) }

// Lookup returns a code's entry; false for a code that does not exist.
func Lookup(c Code) (Entry, bool) {
	for i := range catalogue {
		if catalogue[i].Code == c {
			return catalogue[i], true
		}
	}
	return Entry{}, false
}

// A slice and no map: the hooks start for every job, and a literal of strings costs them nothing.
var catalogue = []Entry{
	{
		Orphan, Serious, Card, Job, "process outlived its job",
		"A process of the ended job still holds memory on the card after settling. How sure it is that the " +
			"process was the job's, the evidence level says.",
		"See who it is with ps -o pid,user,lstart,args -p PID and end it; the memory is free once it is gone. " +
			"Tell its owner: workers must be ended with their parent.",
	},
	{
		Residue, Serious, Card, Node, "memory in use, no process",
		"The card reports memory in use that no listed process explains, after settling. Usually a process that the " +
			"driver does not list holds a handle to it. Bookend searches the node for it (look.holders) and names as " +
			"candidates the processes that have the driver open and nothing that explains why. A descriptor proves no bytes: " +
			"among several candidates nobody can tell which one holds the memory.",
		"Look at the candidates and end those that belong to no job. Where none is named, look again with " +
			"fuser -v /dev/nvidia*. If memory stays with no holder left, reset the card (nvidia-smi --gpu-reset -i GPU) or " +
			"reboot the node. A card that carries up to 64 MiB without any job: bookend baseline accept GPU.",
	},
	{
		Phantom, Serious, Card, Job, "driver lists a dead process",
		"The driver lists memory under a process id that no longer exists, after settling. The process is gone, but " +
			"something it started or passed a handle to keeps its memory alive. Bookend searches the node for that holder " +
			"(look.holders) and names the live processes that have this very card open.",
		"End the holders that are named, if they belong to no job; the memory is free once the last one is gone. Where none " +
			"is named, look who has the driver open with fuser -v /dev/nvidia*. If the memory stays, reset the card " +
			"(nvidia-smi --gpu-reset -i GPU) or reboot the node.",
	},
	{
		Dirty, Warning, Card, Node, "card was not clean at the start",
		"Memory was in use on the card before the job began. The job had less memory than the card's size and is not " +
			"to blame for it. At a job's end this is found only where something more than at its start stays: then it " +
			"names what was there before, beside the finding on what is new.",
		"See the finding that names the holder and the job that left it. The user may ask for another node.",
	},
	{
		Foreign, Warning, Card, Node, "another job is on the card",
		"A process of another live job uses a card that Slurm gave to this job. Where sharing is intended " +
			"(shards, MPS, partitions named in slurm.shared_partitions) this is not reported.",
		"Set ConstrainDevices=yes in cgroup.conf, and check how the other job got to the card (containers " +
			"started by an outside daemon are not fenced). Name the partition as shared if this is intended.",
	},
	{
		Stray, Serious, Card, Node, "process of no job that had this card",
		"A process that belongs neither to the ended job nor to a live one came onto the card during the job: " +
			"a login, a service, a container started by an outside daemon, or a process of another job that has ended.",
		"End it or move it off the node; adopt logins with pam_slurm_adopt, fence devices with ConstrainDevices=yes.",
	},
	{
		Moving, Warning, Card, Node, "memory still changing",
		"The card's readings still changed, or had not been watched long enough, when the time to settle was over. " +
			"Large processes take seconds to go; this is no proof of a leftover. A process that every sample of the watch shows is " +
			"reported by itself, with the least memory that it held.",
		"None, if it is rare. If it is common, raise settle.epilog.max together with deadlines.epilog.driver.",
	},
	{
		Lost, Serious, Card, Node, "card is lost or needs a reset",
		"The driver answered for this card with its error code \"GPU is lost\" (fallen off the bus) or \"reset " +
			"required\". Nothing else is looked at: not the recovery action that newer drivers state, and no kernel log.",
		"Drain the node, read the kernel log for Xid messages, then reset the card or reboot; replace it if it recurs.",
	},
	{
		Missing, Serious, Card, Node, "assigned card does not exist",
		"Slurm gave the job a card that the driver does not have.",
		"Compare nvidia-smi -L with slurmd -v -G and gres.conf: the GPU has failed, is bound to another driver, or " +
			"nvidia.gpu_map is wrong. Take one that is gone for good out of gres.conf and slurm.conf, and restart slurmd.",
	},
	{
		Unread, Warning, Card, Node, "card could not be read",
		"The card's memory or its process list could not be read, so whether it is clean is unknown.",
		"Read the reason given with it and run nvidia-smi on the node. On some driver versions the list itself is wrong.",
	},
	{
		Trespass, Warning, Elsewhere, Node, "job on a card it was not given",
		"A process of a live job, or of one that Bookend has no record of, is on a card of the node that was not given to " +
			"that job. The hook that saw it is of a job with other cards: the finding is the admin's, decides no exit code " +
			"and never drains. A job without GPUs that uses one is found so.",
		"Set ConstrainDevices=yes in cgroup.conf and check how the process got to the card (containers started by an " +
			"outside daemon are not fenced). If the sharing is intended, name the partition in slurm.shared_partitions.",
	},
	{
		Unjudged, Note, Card, Node, "memory of this card says nothing",
		"What is in use on this card does not tell what a job left: its memory belongs to the operating system, which keeps " +
			"files in it (GH200, GB200), it is a virtual GPU, or a whole card in MIG mode. Its processes are judged, its " +
			"memory is not.",
		"None.",
	},
	{
		Ended, Note, Card, Job, "leftover process ended by Bookend",
		"A process that the ended job left on the card was ended (clean_up.enabled): its cgroup proved, now or when it " +
			"was recorded, that it was the job's. The card was watched again afterwards; what stayed is a finding of its own.",
		"None for the node. Tell the job's owner: workers must be ended with their parent.",
	},

	{
		Gap, Warning, Card, Node, "free memory that comes in pieces",
		"The test allocation got a much smaller block than the card has free, in two searches. Jobs that need one large " +
			"allocation may run out of memory though enough is free. Something that no process list shows holds memory, or " +
			"the driver's own figures are wrong; pieces of 2 MiB and more that others left do not do this (measured).",
		"Look at bookend show JOBID for figures and holders. If it stays on an idle card, reset it or reboot the node.",
	},
	{
		Blocked, Serious, Card, Node, "no memory to be had",
		"The card has free memory and the test allocation got none of it, or the card takes nobody in: it is busy or in a mode " +
			"that forbids it.",
		"Look at the CUDA error and its remedy given with it; nvidia-smi -q -d COMPUTE shows the mode.",
	},
	{
		Broken, Serious, Card, Node, "CUDA does not work on the card",
		"The test failed with a CUDA error, in two tries: jobs would fail the same way. \"Out of memory\" from the allocation " +
			"itself is none of these (BKD-GAP, BKD-BLOCKED); from CUDA's start it is.",
		"The error and its remedy stand with the finding; docs/cuda-errors.md has the table.",
	},
	{
		Recovery, Serious, Card, Node, "driver asks for recovery",
		"The driver itself says that this card needs a reset, a reboot or a drain before it can be relied on (NVML's GPU " +
			"recovery action).",
		"Do what it says: nvidia-smi --gpu-reset -i GPU once no process uses it, or reboot the node.",
	},
	{
		RemapFailed, Serious, Card, Node, "row remapping failed",
		"A memory row with uncorrectable errors could not be replaced. NVIDIA's memory error management calls for this card to " +
			"be replaced.",
		"Run NVIDIA's field diagnostics and return the card.",
	},
	{
		RemapPending, Warning, Card, Node, "row remapping waits for a reset",
		"Memory rows with errors will be replaced at the next reset. Until then the card goes on, and the bad page stays set aside.",
		"Reset the card or reboot the node at the next maintenance.",
	},
	{
		Pages, Warning, Card, Node, "pages wait to be retired",
		"Memory pages with errors will be taken out of use at the next reset (cards before Ampere).",
		"Reset the card or reboot the node at the next maintenance.",
	},
	{
		ECC, Warning, Card, Node, "uncorrectable memory errors",
		"The card counted uncorrectable memory errors since the last look at it. A program that used that memory was ended or " +
			"read wrong data; the card itself may be well.",
		"Watch the card: bookend show JOBID has the counts. Follow what the driver says under recovery action and remapping.",
	},
	{
		Fabric, Warning, Card, Node, "NVLink fabric is not ready",
		"The card has not joined the NVLink fabric, or joining failed: CUDA may refuse to start (error 802).",
		"See that nvidia-fabricmanager runs and is of the driver's version.",
	},
	{
		BAR1, Warning, Card, Node, "BAR1 still mapped",
		"Much of the card's BAR1 window is mapped though nobody uses the card: a leaked mapping, often of GPUDirect RDMA. New " +
			"mappings may fail while memory is free.",
		"Find who has the card open (bookend snapshot, fuser -v /dev/nvidia*); if nobody, reset the card.",
	},
	{
		Xid, Warning, Card, Job, "driver reported an error (Xid)",
		"The kernel log has an Xid on this card since the job began, of a kind that most often comes from the program that ran: " +
			"a wrong access, a bug in a kernel, a process that was ended.",
		"Look at the program first. docs/health.md says what each number means; if other programs meet it too, test the card.",
	},
	{
		XidFatal, Serious, Card, Node, "driver reported a card fault (Xid)",
		"The kernel log has an Xid on this card since the job began after which NVIDIA calls for a reset, a reboot or a repair.",
		"Do what docs/health.md says of the number.",
	},
	{
		Throttle, Note, Card, Node, "card is slowed down",
		"The driver holds the card's clocks down for heat or power. Jobs are slower; memory is not affected.",
		"Check cooling and power if it stays.",
	},
	{
		Persistence, Note, Card, Site, "persistence mode is off",
		"Without it the driver lets go of a card that nobody uses: each hook and each job waits seconds for the card to wake up, " +
			"and accounting and ECC counts are lost.",
		"Enable nvidia-persistenced, or nvidia-smi -pm 1.",
	},

	{
		NoDriver, Serious, Driver, Node, "no GPU driver",
		"A job has GPUs, but the vendor's library or the driver behind it is not there.",
		"Run nvidia-smi on the node. Load or install the driver; check nvidia.nvml_library.",
	},
	{
		Mismatch, Serious, Driver, Node, "driver and library differ",
		"The vendor's library and the loaded kernel module are of different versions, as after an update " +
			"without a reboot. No new GPU program can start.",
		"Reboot the node, or unload and load the kernel modules.",
	},
	{
		DriverKO, Warning, Driver, Node, "driver reported an error",
		"The driver answered with an error that concerns no single card.",
		"Run nvidia-smi on the node and read the kernel log. The driver's own words stand with the finding.",
	},
	{
		Old, Note, Driver, Node, "driver lacks a call",
		"The driver is too old to answer something that Bookend asks for; the figures concerned are unknown.",
		"Update the driver when convenient: NVIDIA 510 or later tells memory and processes in full. What only newer drivers " +
			"tell of a card's condition, such as the recovery action (about 570 and later), is left out and no finding.",
	},
	{
		Hang, Serious, Driver, Node, "driver does not answer",
		"The backend did not answer within its time and was killed, or could not be killed. One hang is a warning.",
		"Run nvidia-smi on the node: if it hangs too, read the kernel log for Xid messages and reboot.",
	},
	{
		Stuck, Serious, Driver, Node, "driver still does not answer",
		"A backend that an earlier hook had to leave behind is still stuck in the driver. No new one is started " +
			"while it lives.",
		"Reboot the node; the stuck process cannot be killed. Its pid and since when stand with the finding.",
	},
	{
		Slow, Warning, Driver, Node, "driver too slow for the window",
		"The driver answered, but too late for the hook's time, so some cards were not read.",
		"Switch on persistence mode (nvidia-persistenced): without it each card takes seconds to wake up.",
	},

	{
		BackendMissing, Warning, Own, Site, "backend is missing",
		"The backend program was not found or could not be started.",
		"Install it, or correct the key backend.",
	},
	{
		BackendRefused, Warning, Own, Site, "backend is not trusted",
		"The backend, or a library named for it, was not started: it or a folder above it is not root's, or others may write to it.",
		"The path stands with the finding; bookend doctor has the command. What others could have written: install it anew, or " +
			"compare it with a copy you trust; a new owner or mode alone is not enough. A folder above it: chown root and chmod " +
			"go-w, and compare what is in it.",
	},
	{
		BackendCrash, Warning, Own, Node, "backend crashed",
		"The backend ended by a signal or with an error. As the vendor's library runs inside it, that may be the cause.",
		"Run bookend snapshot on the node as root; report it with the driver's version if it crashes again.",
	},
	{
		BackendGarbage, Warning, Own, Self, "backend answer is malformed",
		"The backend's answer could not be understood or was cut off; nothing of it is used.",
		"Check that key backend names bookend-gpu of the same release; else report it.",
	},
	{
		BackendVersion, Warning, Own, Site, "backend speaks another version",
		"Hook and backend come from different releases.",
		"Install both from the same package.",
	},
	{
		BackendFlood, Warning, Own, Self, "backend answer is too long",
		"The backend wrote more than the protocol allows and was stopped.",
		"Report it with the backend's version.",
	},

	{
		Untraced, Note, Own, Node, "not everything was looked at",
		"Something on a card is unexplained, and Bookend's search of the node's processes for its holder failed or was not " +
			"finished: the holder may be one that was not looked into, so nothing is certain enough to drain for. Or the " +
			"node's other cards could not be looked at: then no job on a card that it was not given is found there. Or part of " +
			"the kernel's log was overwritten before the job's end read it: an Xid may be missing.",
		"Read the reason given with it. If the search ran out of time, raise deadlines.epilog.scan; processes that " +
			"cannot be read for long hang in the kernel: ps -eo pid,stat,wchan,args shows them in state D.",
	},
	{
		Ambiguous, Warning, Own, Site, "cannot tell which cards",
		"What the job's GPU numbers mean could not be told with certainty, so no GPU was judged. Slurm's own list " +
			"(slurmd -G) could not be had, or is not the one that the running slurmd counts by: its configuration files have " +
			"changed since it started.",
		"Run bookend doctor: gpu-order says why. Restart slurmd after a change of gres.conf, slurm.conf or its own program; " +
			"running jobs go on. Or set nvidia.gpu_order: map, with nvidia.gpu_map.",
	},
	{
		NoRecord, Note, Own, None, "no record of the job's start",
		"The job's end has no start to compare with: no PrologFlags=Alloc, or the node restarted meanwhile. " +
			"What is found cannot be blamed on the job by comparison.",
		"Set PrologFlags=Alloc or Contain in slurm.conf if this is common.",
	},
	{
		Again, Note, Own, None, "end of a job seen twice",
		"Slurm ran the epilog a second time, perhaps while the first was still at work. The cards were measured anew and not tested, " +
			"nothing was written to the user again.",
		"None: Slurm before 26.05 does this when a completion message is lost.",
	},
	{
		RunInJob, Note, Own, None, "hook runs inside the job",
		"Under PrologFlags=RunInJob a hook runs in the job's cgroup and is told no exit status. As shipped it asks no driver from there; " +
			"where it may, it sees the job's own cards only, and nothing it finds drains.",
		"Remove RunInJob from PrologFlags, or accept it; slurm.run_in_job_backend lets the hook measure there.",
	},
	{
		BadEnv, Warning, Own, Site, "unusable environment",
		"A variable that Slurm sets for its hooks is missing or malformed, so the job or its cards are unknown.",
		"Check that the program is named as Prolog, Epilog, TaskProlog or TaskEpilog and no wrapper clears its environment.",
	},
	{
		BadConfig, Warning, Own, Site, "configuration is not valid",
		"The configuration file has mistakes or is not trusted. Bookend observes with the shipped policy; " +
			"paths, backend, nvidia, log and metrics are kept where they are valid.",
		"Correct the lines named with the finding; docs/config.md lists every key.",
	},
	{
		StateDamage, Warning, Own, Self, "record is damaged",
		"A record in Bookend's state was cut off or altered. It was set aside and the hook went on without it.",
		"None, if once after a crash. If it recurs, check the file system of paths.run.",
	},
	{
		StateWrite, Warning, Own, Site, "record could not be written",
		"Bookend could not keep what it found, or not write its metrics: full or read-only file system, or wrong ownership.",
		"Check space, mount and ownership of paths.run and paths.var, and of the folder of metrics.textfile.",
	},
	{
		StateLock, Note, Own, Self, "record was locked",
		"Another hook held a shared record for too long; what it says is unknown to this hook.",
		"None, if it is rare; report it if it is common.",
	},
	{
		LogFailed, Warning, Own, Site, "log could not be written",
		"Bookend's own log could not be written. Verdict and records are not affected.",
		"Check space and ownership of paths.log.",
	},
	{
		Output, Note, Own, None, "job's output could not be reached",
		"The end report could not be added to the job's output: the file system that it lies on does not answer, or the child that " +
			"writes as the user was stopped, or kept from becoming the user. While a child cannot be killed there, no other is started " +
			"for that user: his reports are not delivered meanwhile; other users' are. Verdict and records are not affected.",
		"None for a user's own file system; bookend show JOBID has the report. Where outputs lie on a file system of the site's, see " +
			"why it does not answer. If no job gets its report, slurmd lacks a capability: deploy/systemd.md has the list.",
	},
	{
		ReasonFailed, Warning, Own, Site, "drain reason not written",
		"A hook (drain.reason_by: hook) or the health check was to ask Slurm about the node's drain, to give the reason or to " +
			"resume it, and could not; or, at a hook, somebody else's reason stands there. A hook's drain is not affected: it " +
			"goes by the exit code. The next health check tries again.",
		"Run scontrol show node NODE as root on the node; check slurm.scontrol and that slurmctld answers.",
	},
	{
		Panicked, Warning, Own, Self, "Bookend failed inside",
		"A defect in Bookend stopped a part of the hook; the rest went on.",
		"Report it with the stack trace from the log.",
	},
	{
		Deadline, Warning, Own, Node, "hook ran out of time",
		"The hook reached its time limit, or slurmd told it to end (SIGTERM), and it left with what it knew by then.",
		"See which step is slow in the log. Compare deadlines with PrologEpilogTimeout, or raise them.",
	},
}
