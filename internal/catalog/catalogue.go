package catalog

import (
	"slices"
	"strings"
)

// All returns every entry, in the order of the documentation.
func All() []Entry { return slices.Clone(entries) }

// Lookup returns a code's entry; false for a code that does not exist.
func Lookup(c Code) (Entry, bool) {
	if i := slices.IndexFunc(entries, func(e Entry) bool { return e.Code == c }); i >= 0 {
		return entries[i], true
	}
	return Entry{}, false
}

// Parse returns the code for user input, with or without "BKD-", in any case; false if there is no such code.
func Parse(written string) (Code, bool) {
	name := Code(strings.ToUpper(strings.TrimSpace(written)))
	for _, c := range []Code{name, "BKD-" + name} {
		if _, ok := Lookup(c); ok {
			return c, true
		}
	}
	return "", false
}

// entries is a slice, not a map: hooks start for every job, and a literal of strings costs them nothing.
var entries = []Entry{
	// one GPU
	{Orphan, Serious, Card, Job, "process outlived its job",
		"A process of the ended job still holds memory on the GPU. The evidence level shows how certain.",
		"Check it with ps -o pid,user,lstart,args -p PID and end it. Tell its owner that workers must end with their " +
			"parent.",
		Traits{Exit: 10, Start: ToWarn, End: ToDrain, Memory: OwnProcess}},
	{Residue, Serious, Card, Node, "memory in use, no process",
		"Memory is in use that no listed process accounts for. Usually a process that the driver does not list holds " +
			"a handle to it. Candidates have the driver open; which of several holds the memory is unknown.",
		"End the candidates that belong to no job (fuser -v /dev/nvidia* lists more). If the memory stays, reset the " +
			"GPU (bookend reset GPU) or reboot. Up to 64 MiB without any job: bookend baseline accept GPU.",
		Traits{Exit: 11, Start: ToWarn, End: ToDrain, Memory: Unlisted}},
	{Phantom, Serious, Card, Job, "driver lists a dead process",
		"The driver lists memory under a process that is gone. A process that it started, or passed a handle to, " +
			"keeps the memory. Live processes that have this GPU open are named.",
		"End the holders that belong to no job (fuser -v /dev/nvidia* lists more). If the memory stays, reset the " +
			"GPU (bookend reset GPU) or reboot.",
		Traits{Exit: 12, Start: ToWarn, End: ToDrain, Memory: Unlisted}},
	{Dirty, Warning, Card, Node, "GPU was not clean at the start",
		"Memory was in use before the job started. The job had less than the whole GPU and is not to blame. At a " +
			"job's end, this finding accompanies those about new memory.",
		"See the finding that names the holder and the job that left it. The user can request another node.",
		Traits{Exit: 14, Start: ToWarn, End: ToNote, Memory: Inherited}},
	{Foreign, Warning, Card, Node, "another job is on the GPU",
		"A process of another live job uses a GPU that Slurm gave to this job, and sharing is not configured.",
		"Set ConstrainDevices=yes in cgroup.conf; it does not constrain containers of an outside daemon. If sharing " +
			"is intended, add the partition to slurm.shared_partitions.",
		Traits{Exit: 15, Start: ToWarn, End: ToWarn, Memory: Others}},
	{Stray, Serious, Card, Node, "process of no job that had this GPU",
		"During the job a process appeared on the GPU that belongs neither to this job nor to a live one: a login, a " +
			"service, a container of an outside daemon, or a process of another job that has ended. With the " +
			"evidence level recorded only the recorder saw it, while the job ran: then it never drains.",
		"End it or move it off the node. Adopt logins with pam_slurm_adopt, and set ConstrainDevices=yes.",
		Traits{Exit: 13, Start: ToWarn, End: ToDrain, Memory: Strangers}},
	{Moving, Warning, Card, Node, "memory still changing",
		"The GPU's memory was still changing, or was not sampled for long enough: this is no proof of a leftover. A " +
			"process that is in every sample is reported separately.",
		"None, if it is rare. If it is common, raise settle.epilog.max together with deadlines.epilog.driver.",
		Traits{Start: ToWarn, End: ToWarn}},
	{Lost, Serious, Card, Node, "GPU is lost or needs a reset",
		"The driver answered for this GPU with \"GPU is lost\" (fallen off the bus) or \"reset required\".",
		"Drain the node, read the kernel log for Xids, then reset the GPU or reboot. Replace the GPU if it recurs.",
		Traits{Exit: 20, Start: ToDrain, End: ToDrain, Unusable: true,
			Fault: "the GPU fell off the bus or needs a reset"}},
	{Missing, Serious, Card, Node, "assigned GPU does not exist",
		"Slurm gave the job a GPU that the driver does not have. If the driver had it earlier since the node booted, " +
			"the GPU is gone; if not, its number may be configured wrongly, and the finding never drains.",
		"Compare nvidia-smi -L with slurmd -v -G, gres.conf and nvidia.gpu_map. If the GPU is gone for good, remove " +
			"it from gres.conf and slurm.conf, and restart slurmd.",
		Traits{Exit: 21, Start: ToRepeat, End: ToRepeat, Unusable: true, Fault: "a GPU that Slurm gave is not there",
			Doubtful: true}},
	{NoAnswer, Serious, Card, Node, "GPU does not answer",
		"The driver could not open the GPU or read its memory, in several samples. Error 999 (Unknown Error) is " +
			"common for a GPU that has failed; a code that Bookend does not know counts the same.",
		"bookend show JOBID has the GPU's index and bus id. Read the kernel log for it (Xid, NVRM), then reset the " +
			"GPU or reboot. Replace the GPU if it recurs.",
		Traits{Exit: 19, Start: ToRepeat, End: ToRepeat, Unusable: true, Fault: "the GPU did not answer the driver",
			Doubtful: true}},
	{Unread, Warning, Card, Node, "GPU could not be read",
		"The GPU's memory or its process list could not be read, so whether it is clean is unknown.",
		"Read the reason given with it and run nvidia-smi. Some driver versions return a wrong list.",
		Traits{Start: ToWarn, End: ToWarn, Silence: "a GPU could not be read"}},
	{Trespass, Warning, Elsewhere, Node, "job on a GPU it was not given",
		"A process of a live job, or of a job without a record, is on a GPU that its job was not given. A health " +
			"check found it, or the recorder did: then it is on the record of that process's own job. It has no exit " +
			"code and never drains.",
		"Set ConstrainDevices=yes in cgroup.conf; it does not constrain containers of an outside daemon. If sharing " +
			"is intended, add the partition to slurm.shared_partitions.",
		Traits{Start: ToWarn, End: ToWarn}},
	{Unjudged, Note, Card, Node, "memory use of this GPU cannot be judged",
		"Memory use does not show here what a job left: the operating system keeps files in this memory (GH200, " +
			"GB200), or it is a virtual GPU or a whole GPU in MIG mode. Processes are judged.",
		"None.",
		Traits{Start: ToNote, End: ToNote}},
	{Ended, Note, Card, Job, "leftover process ended by Bookend",
		"A process that the ended job left was ended (clean_up.enabled); a cgroup proved that it was the job's. The " +
			"GPU was sampled again, and what stayed is a separate finding.",
		"None for the node. Tell the job's owner that workers must end with their parent.",
		Traits{Start: ToNote, End: ToNote}},

	{Gap, Warning, Card, Node, "free memory is fragmented",
		"In two searches, the test allocation got a much smaller block than is free. Holes that processes leave do " +
			"not cause that (from 2 MiB on they limit no allocation), and no healthy GPU has shown it: the driver " +
			"is not well.",
		"See bookend show JOBID for figures and holders. If it stays on an idle GPU, reset it or reboot the node.",
		Traits{Exit: 16, Start: ToWarn, End: ToWarn, Condition: true, Milder: "had fragmented memory"}},
	{Blocked, Serious, Card, Node, "no memory could be allocated",
		"The GPU has free memory, but the test allocation got none; or its compute mode is PROHIBITED, so that no " +
			"program can use it.",
		"See the error and its remedy in the finding. For the compute mode, run nvidia-smi -i GPU -c 0.",
		Traits{Exit: 17, Start: ToWarn, End: ToWarn, Condition: true, Unusable: true,
			Silence: "a test allocation got no memory, or the GPU's compute mode lets no program in"}},
	{Broken, Serious, Card, Node, "CUDA does not work on the GPU",
		"The test allocation failed with a CUDA error, in two tries. Jobs would fail the same way.",
		"The error and its remedy are in the finding; docs/cuda-errors.md lists all.",
		Traits{Exit: 18, Start: ToWarn, End: ToRepeat, Condition: true, Unusable: true,
			Fault: "CUDA did not work in a test after your job", Doubtful: true,
			Silence: "a test allocation failed; that may be the test's own"}},
	{Bits, Serious, Card, Node, "memory gives back wrong bits",
		"The pattern test wrote the GPU's free memory and read something else from it. It drains if a second process " +
			"finds wrong bits too: results of jobs on this GPU may be wrong.",
		"bookend show JOBID has the places. Drain the node, run bookend diagnose --level 3, then bookend reset GPU; " +
			"return it if it recurs.",
		Traits{Exit: 30, Start: ToWarn, End: ToDrain, Condition: true,
			Fault: "the GPU's memory gave back wrong bits in a test after your job", Doubtful: true}},
	{SlowMemory, Note, Card, Node, "memory is slower than it was",
		"The pattern test took more than twice as long as the median of this GPU's earlier ones (at least five, of a " +
			"comparable size, since the driver was loaded).",
		"Look at clocks and heat (nvidia-smi -q -d PERFORMANCE). If it stays: bookend diagnose, bookend rma GPU.",
		Traits{Start: ToNote, End: ToNote, Condition: true, Milder: "was slow"}},
	{Reset, Serious, Card, Node, "reset did not repair the GPU",
		"Memory that no process held was left on the GPU. The health check began to reset it (repair.enabled): that " +
			"failed, it is not proven well, or the drain was not ended. It drains nothing: it replaces that drain's " +
			"reason.",
		"For a day bookend status says what failed. Reboot the node and run bookend test GPU: if it passes, end the " +
			"drain, else bookend rma GPU.",
		Traits{Start: ToNote, End: ToNote, Condition: true, Unusable: true}},
	{Diagnosed, Serious, Card, Node, "DCGM's test failed",
		"bookend diagnose had DCGM test the node. A test failed for the hardware, as DCGM says, and the GPU is to be " +
			"isolated or reset. Without a GPU, which one is not certain. It drains nothing: it replaces the reason " +
			"of a drain by Bookend.",
		"bookend status says which test. Follow DCGM's text; bookend rma GPU has it for the ticket. Once repaired, " +
			"run bookend diagnose again at that level, which ends it in bookend status, and end the drain.",
		Traits{Start: ToNote, End: ToNote, Condition: true, Unusable: true}},
	{Recovery, Serious, Card, Node, "driver asks for recovery",
		"The driver reports that this GPU needs a reset, a reboot or a drain before it is reliable again.",
		"Do what it says: bookend reset GPU on the drained node, or reboot it.",
		Traits{Exit: 27, Start: ToWarn, End: ToDrain, Condition: true, Unusable: true,
			Fault: "the driver asks to recover the GPU"}},
	{RemapFailed, Serious, Card, Node, "row remapping failed",
		"A memory row with uncorrectable errors could not be replaced. NVIDIA recommends replacing the GPU.",
		"Run NVIDIA's field diagnostics and return the GPU.",
		Traits{Exit: 28, Start: ToWarn, End: ToDrain, Condition: true,
			Fault: "a bad memory row could not be replaced"}},
	{RemapPending, Warning, Card, Node, "row remapping waits for a reset",
		"Memory rows with errors will be replaced at the next reset. Until then the bad page is not used.",
		"Reset the GPU or reboot the node at the next maintenance.",
		Traits{Start: ToWarn, End: ToWarn, Condition: true}},
	{Pages, Warning, Card, Node, "pages wait to be retired",
		"Memory pages with errors will be taken out of use at the next reset (GPUs before Ampere).",
		"Reset the GPU or reboot the node at the next maintenance.",
		Traits{Start: ToWarn, End: ToWarn, Condition: true}},
	{ECC, Warning, Card, Node, "uncorrectable memory errors",
		"The GPU has counted uncorrectable errors since the last sample: a program was ended or read wrong data.",
		"bookend show JOBID has the counts. Follow the driver's recovery action and remapping state.",
		Traits{Start: ToWarn, End: ToWarn, Condition: true, Fault: "uncorrectable memory errors"}},
	{Fabric, Warning, Card, Node, "NVLink fabric is not ready",
		"The GPU has not joined the NVLink fabric, or joining failed: CUDA may refuse to start (error 802).",
		"Check that nvidia-fabricmanager runs and has the driver's version.",
		Traits{Start: ToWarn, End: ToWarn, Condition: true, Unusable: true, Fault: "the NVLink fabric is not ready"}},
	{Xid, Warning, Card, Job, "driver reported an error (Xid)",
		"The kernel log has an Xid on this GPU since the job started that leaves the GPU usable. Some are caused by " +
			"a program, others by the hardware, the driver or a link.",
		"docs/health.md explains the number. If the program causes it, check the program first. If other programs " +
			"have it too, test the GPU.",
		Traits{Start: ToNote, End: ToWarn, Condition: true, Milder: "met an error"}},
	{XidFatal, Serious, Card, Node, "driver reported a GPU fault (Xid)",
		"The kernel log has an Xid on this GPU that requires a reset, a reboot or a repair: since the job started, " +
			"or from before, and nothing shows that it is over.",
		"Follow docs/health.md for the number.",
		Traits{Exit: 29, Start: ToWarn, End: ToDrain, Condition: true, Unusable: true,
			Fault: "the driver reported a fault of the GPU"}},
	{Throttle, Note, Card, Node, "GPU is slowed down",
		"The driver lowers the GPU's clocks because of heat or power. Jobs are slower; memory is not affected.",
		"If it stays, check cooling and power.",
		Traits{Start: ToNote, End: ToNote, Condition: true, Milder: "was slow"}},
	{Persistence, Note, Card, Site, "persistence mode is off",
		"The driver unloads a GPU that is not in use. Hooks and jobs wait seconds for it, and counters are lost.",
		"Enable nvidia-persistenced, or run nvidia-smi -pm 1.",
		Traits{Start: ToNote, End: ToNote, Condition: true, Milder: "was slow to wake up"}},
	{Exclusive, Note, Card, Site, "exclusive compute mode",
		"The GPU's compute mode admits one process at a time (EXCLUSIVE_PROCESS): a second one fails with CUDA error " +
			"46. No test allocation is made, as it could keep a job's process out.",
		"None, if it is intended, as for MPS. Otherwise run nvidia-smi -i GPU -c 0.",
		Traits{Start: ToNote, End: ToNote, Condition: true, Milder: "admits one process at a time"}},

	// the driver as a whole
	{NoDriver, Serious, Driver, Node, "no GPU driver",
		"A job has GPUs, but the vendor's library or its driver is missing.",
		"Run nvidia-smi on the node. Load or install the driver; check nvidia.nvml_library.",
		Traits{Exit: 22, Start: ToRepeat, End: ToRepeat, Fault: "no GPU driver, or not its library", Doubtful: true}},
	{Mismatch, Serious, Driver, Node, "driver and library differ",
		"Library and kernel module differ in version, as after an update without a reboot: no GPU program starts.",
		"Reboot the node, or unload and load the kernel modules.",
		Traits{Exit: 23, Start: ToRepeat, End: ToRepeat, Fault: "driver and library are of different versions"}},
	{DriverKO, Serious, Driver, Node, "driver reported an error",
		"The driver returned an error that does not concern a single GPU, as when it cannot be initialized.",
		"Run nvidia-smi on the node and read the kernel log. The driver's error text is in the finding.",
		Traits{Exit: 24, Start: ToRepeat, End: ToRepeat, Silence: "the driver reported an error"}},
	{Old, Note, Driver, Node, "driver lacks a call",
		"The driver is too old for a call that Bookend needs; the figures concerned are unknown.",
		"Update the driver when convenient: NVIDIA 510 or later has all calls.",
		Traits{Start: ToNote, End: ToNote}},
	{Hang, Serious, Driver, Node, "driver does not answer",
		"The backend did not answer in time and was killed, or could not be killed. A single hang is a warning.",
		"Run nvidia-smi on the node. If it hangs too, read the kernel log for Xids and reboot.",
		Traits{Exit: 26, Start: ToWarn, End: ToWarn, Silence: "the driver did not answer in time"}},
	{Stuck, Serious, Driver, Node, "driver still does not answer",
		"A backend that an earlier hook left behind is still stuck in the driver, so no new one is started.",
		"Reboot the node; the stuck process cannot be killed. Its PID and start time are in the finding.",
		Traits{Exit: 25, Start: ToWarn, End: ToWarn, Fault: "the driver hangs: a process stays stuck in it",
			Doubtful: true}},
	{Slow, Warning, Driver, Node, "driver too slow for the window",
		"The driver answered too late for the hook's time limit, so some GPUs were not read.",
		"Switch persistence mode on (nvidia-persistenced): without it each GPU takes seconds to wake up.",
		Traits{Start: ToWarn, End: ToWarn, Silence: "the driver was too slow to be asked for everything"}},
	{KernelLog, Warning, Driver, Node, "kernel log has a fault of unnamed GPUs",
		"The kernel log has an error of an NVSwitch, a PCIe slot or AMD's driver since the job started. The line " +
			"names no GPU, so which jobs it hit is unknown.",
		"Follow docs/health.md for the line. Other findings and Xids of the same time tell which GPUs it hit.",
		Traits{Start: ToNote, End: ToWarn, Condition: true, Milder: "may have had a fault",
			Silence: "the kernel log has a fault that names no GPU"}},
	{External, Serious, Driver, Node, "the site's own check found a fault",
		"The program of health.external says CRITICAL or WARNING, or its verdict is unknown: it says so, it is not " +
			"understood, or it did not come in time. Only a CRITICAL that two health checks in a row get can drain.",
		"Run the program by hand and do what it says. By default this only warns: policy.health_check with " +
			"{BKD-EXTERNAL: drain} lets it drain an idle node.",
		Traits{Start: ToWarn, End: ToWarn}},

	// the host's memory
	{SharedMemory, Warning, Host, Job, "shared memory left behind",
		"Files in /dev/shm, System V segments, POSIX message queues (/dev/mqueue) or huge page files " +
			"(/dev/hugepages) of the job's user that were not there at its start and that no process uses: 64 MiB " +
			"or more in all, or 100 of them. They take the node's memory until they are " +
			"removed. This job alone is named only if it had the node to itself and nothing else of its user was " +
			"seen there.",
		"Remove them with the command in the finding. A private /dev/shm for each job (JobContainerType) prevents it.",
		Traits{Start: ToWarn, End: ToWarn}},
	{HostMemory, Warning, Host, Node, "host memory did not come back",
		"While no job is on the node, less host memory is available than twice before in this boot: 5 % of it, or 16 " +
			"GiB. The finding names what has grown: shared memory by owner, huge pages, unreclaimable kernel memory, " +
			"processes. Growth of system services, or of huge pages that root reserves, alone is a note. The page " +
			"cache and what ZFS would give back count as available. The next jobs read of it while it stands and " +
			"no other job may have the memory.",
		"Remove the files or end the processes that it names, unless they belong to the node; memory that nothing " +
			"names may take a reboot.",
		Traits{Start: ToWarn, End: ToWarn}},
	{Survivor, Warning, Host, Job, "process left running",
		"A process of the job's user began while the job ran and is still running outside its cgroup, with or " +
			"without a GPU: a daemon, MPS, the monitor of a container. This job alone is named only if the process's " +
			"environment names it. Processes of logins, services and other jobs are not reported.",
		"End it with the command in the finding. ProctrackType=proctrack/cgroup ends what stays in a job's cgroup; " +
			"stop a daemon's containers in the script.",
		Traits{Start: ToWarn, End: ToWarn}},

	{BackendMissing, Warning, Own, Site, "backend is missing",
		"The backend program was not found or could not be started.",
		"Install it, or correct the key backend.",
		Traits{Exit: 32, Start: ToWarn, End: ToWarn}},
	{BackendRefused, Warning, Own, Site, "backend is not trusted",
		"The backend, a library named for it, or a directory above it is not owned by root, or writable by others.",
		"bookend doctor has the command. If others could have written the file, install it again or compare it with " +
			"a trusted copy; a new owner or mode is not enough.",
		Traits{Exit: 33, Start: ToWarn, End: ToWarn}},
	{BackendCrash, Warning, Own, Node, "backend crashed",
		"The backend ended by a signal or with an error. The cause may be the vendor's library, which runs inside it.",
		"Run bookend snapshot on the node as root. If it crashes again, report it with the driver's version.",
		Traits{Exit: 34, Start: ToWarn, End: ToWarn, Silence: "asking the driver failed"}},
	{BackendGarbage, Warning, Own, Self, "backend answer is malformed",
		"The backend's answer is malformed or incomplete; none of it is used.",
		"Check that the key backend names bookend-gpu of the same release; otherwise report it.",
		Traits{Exit: 35, Start: ToWarn, End: ToWarn}},
	{BackendVersion, Warning, Own, Site, "backend speaks another version",
		"Hook and backend come from different releases.",
		"Install both from the same package.",
		Traits{Exit: 36, Start: ToWarn, End: ToWarn}},
	{BackendFlood, Warning, Own, Self, "backend answer is too long",
		"The backend wrote more than the protocol allows and was stopped.",
		"Report it with the backend's version.",
		Traits{Exit: 37, Start: ToWarn, End: ToWarn}},

	{Untraced, Note, Own, Node, "search is incomplete",
		"The search for holders of unexplained memory is incomplete, so nothing is certain enough to drain; or not " +
			"all of the kernel log could be read.",
		"Read the reason given with it. If the search ran out of time, raise deadlines.epilog.processes. Processes " +
			"that cannot be read hang in the kernel: ps -eo pid,stat,wchan,args shows them in state D.",
		Traits{Start: ToNote, End: ToNote}},
	{Ambiguous, Warning, Own, Site, "cannot tell which GPUs",
		"The meaning of the job's GPU numbers is not certain, so no GPU was judged: slurmd -G gave no list, or its " +
			"files have changed since slurmd started.",
		"Run bookend doctor: gpu-order gives the reason. After a change of its files or program, restart slurmd; " +
			"running jobs continue. Or set nvidia.gpu_map.",
		Traits{Start: ToWarn, End: ToWarn}},
	{NoRecord, Note, Own, None, "no record of the job's start",
		"The job's end has no start to compare with: PrologFlags=Alloc is missing, or the node restarted meanwhile.",
		"If this is common, set PrologFlags=Alloc or Contain in slurm.conf.",
		Traits{Start: ToNote, End: ToNote}},
	{Again, Note, Own, None, "end of a job seen twice",
		"Slurm ran the epilog a second time. The GPUs were sampled again; the user got no second report.",
		"None: Slurm before 26.05 does this when a completion message is lost.",
		Traits{Start: ToNote, End: ToNote}},
	{RunInJob, Note, Own, None, "hook runs inside the job",
		"Under PrologFlags=RunInJob a hook runs in the job's cgroup and gets no exit status. By default it does not " +
			"ask the driver there. If allowed, it sees only the job's own GPUs, and its findings never drain.",
		"Remove RunInJob from PrologFlags, or accept it; slurm.run_in_job_backend lets the hook ask the driver.",
		Traits{Start: ToNote, End: ToNote}},
	{BadEnv, Warning, Own, Site, "unusable environment",
		"A variable that Slurm sets for its hooks is missing or malformed, so the job or its GPUs are unknown.",
		"Check that slurm.conf names the right program for each hook, and that no wrapper clears its environment.",
		Traits{Exit: 31, Start: ToWarn, End: ToWarn, Unchecked: true}},
	{BadConfig, Warning, Own, Site, "configuration is not valid",
		"The configuration file has mistakes or is not trusted. Bookend observes with the default policy; paths, " +
			"backend, nvidia, log and metrics are kept if they are valid.",
		"Correct the lines that the finding names, or install the file that it misses; docs/config.md lists every key.",
		Traits{Start: ToWarn, End: ToWarn}},
	{StateDamage, Warning, Own, Self, "record is damaged",
		"A record in Bookend's state is incomplete or was altered. It was set aside, and the hook continued. " +
			"If it is a job's, that job may still run: what is found on a GPU is not certain until the job's end is " +
			"on record, or a health check has seen that GPU without memory and processes. bookend status lists such " +
			"records.",
		"None, if it happens once after a crash. If it recurs, check the file system of paths.run.",
		Traits{Exit: 38, Start: ToWarn, End: ToWarn}},
	{StateWrite, Warning, Own, Site, "record could not be written",
		"Bookend could not write its records or metrics: the file system is full or read-only, or its owner is wrong.",
		"Check space, mount and ownership of paths.run and paths.var, and of the directories of metrics.textfile and " +
			"metrics.job_map.",
		Traits{Exit: 39, Start: ToWarn, End: ToWarn}},
	{StateLock, Note, Own, Self, "record was locked",
		"Another hook held a shared record for too long, so its content is unknown to this hook.",
		"None, if it is rare; report it if it is common.",
		Traits{Start: ToNote, End: ToNote}},
	{LogFailed, Warning, Own, Site, "log could not be written",
		"Bookend's own log could not be written. Verdict and records are not affected.",
		"Check space and ownership of paths.log.",
		Traits{Start: ToWarn, End: ToWarn}},
	{Output, Note, Own, None, "job's output could not be reached",
		"The end report could not be appended to the job's output: its file system does not answer, the child that " +
			"writes as the user was stopped, or the name of the file is not known. While a child hangs there, that " +
			"user gets no reports.",
		"bookend show JOBID has the report. Check the file system. Task hooks tell the name (bookend setup). If no " +
			"job gets its report, slurmd lacks a capability: deploy/systemd.md lists them.",
		Traits{Start: ToNote, End: ToNote}},
	{ReasonFailed, Warning, Own, Site, "drain reason not written",
		"A hook or the health check could not set the reason of the node's drain, or resume the node; or another " +
			"reason is set. The drain itself depends on the exit code, and the next health check tries again; but " +
			"with expedited requeue a leftover drains by scontrol alone, and the finding says whether it did.",
		"Run scontrol show node NODE as root on the node; check slurm.scontrol and that slurmctld answers.",
		Traits{Start: ToWarn, End: ToWarn}},
	{Panicked, Warning, Own, Self, "internal error in Bookend",
		"A defect in Bookend stopped part of the hook; the rest continued.",
		"Report it with the stack trace from the log.",
		Traits{Exit: 41, Start: ToWarn, End: ToWarn, Unchecked: true}},
	{Deadline, Warning, Own, Node, "hook ran out of time",
		"The hook reached its time limit, or slurmd ended it (SIGTERM). It kept what it had found until then.",
		"The log shows which step is slow. Compare deadlines with PrologEpilogTimeout, or raise them.",
		Traits{Exit: 42, Start: ToWarn, End: ToWarn, Unchecked: true}},
}
