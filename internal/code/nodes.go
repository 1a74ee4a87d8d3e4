package code

// ofNodes are the findings about the driver as a whole, and about Bookend itself.
var ofNodes = []Entry{
	{
		NoDriver, Serious, Driver, Node, "no GPU driver",
		"A job has GPUs, but the vendor's library or its driver is missing.",
		"Run nvidia-smi on the node. Load or install the driver; check nvidia.nvml_library.",
		Traits{Exit: 22, Start: ToRepeat, End: ToRepeat, Fault: "no GPU driver, or not its library", Doubtful: true},
	},
	{
		Mismatch, Serious, Driver, Node, "driver and library differ",
		"Library and kernel module have different versions, as after an update without a reboot. No new GPU program " +
			"can start.",
		"Reboot the node, or unload and load the kernel modules.",
		Traits{Exit: 23, Start: ToRepeat, End: ToRepeat, Fault: "driver and library are of different versions"},
	},
	{
		DriverKO, Warning, Driver, Node, "driver reported an error",
		"The driver returned an error that does not concern a single GPU.",
		"Run nvidia-smi on the node and read the kernel log. The driver's error text is in the finding.",
		Traits{Exit: 24, Start: ToWarn, End: ToWarn, Silence: "the driver reported an error"},
	},
	{
		Old, Note, Driver, Node, "driver lacks a call",
		"The driver is too old for a call that Bookend needs; the figures concerned are unknown.",
		"Update the driver when convenient: NVIDIA 510 or later has all calls.",
		Traits{Start: ToNote, End: ToNote},
	},
	{
		Hang, Serious, Driver, Node, "driver does not answer",
		"The backend did not answer in time and was killed, or could not be killed. A single hang is a warning.",
		"Run nvidia-smi on the node. If it hangs too, read the kernel log for Xids and reboot.",
		Traits{Exit: 26, Start: ToWarn, End: ToWarn, Silence: "the driver did not answer in time"},
	},
	{
		Stuck, Serious, Driver, Node, "driver still does not answer",
		"A backend that an earlier hook left behind is still stuck in the driver, so no new one is started.",
		"Reboot the node; the stuck process cannot be killed. Its PID and start time are in the finding.",
		Traits{Exit: 25, Start: ToWarn, End: ToWarn, Fault: "the driver hangs: a process stays stuck in it",
			Doubtful: true},
	},
	{
		Slow, Warning, Driver, Node, "driver too slow for the window",
		"The driver answered too late for the hook's time limit, so some GPUs were not read.",
		"Switch persistence mode on (nvidia-persistenced): without it each GPU takes seconds to wake up.",
		Traits{Start: ToWarn, End: ToWarn, Silence: "the driver was too slow to be asked for everything"},
	},

	{
		BackendMissing, Warning, Own, Site, "backend is missing",
		"The backend program was not found or could not be started.",
		"Install it, or correct the key backend.",
		Traits{Exit: 32, Start: ToWarn, End: ToWarn},
	},
	{
		BackendRefused, Warning, Own, Site, "backend is not trusted",
		"The backend, a library named for it, or a directory above it is not owned by root, or writable by others.",
		"bookend doctor has the command. If others could have written the file, install it again or compare it with " +
			"a trusted copy; a new owner or mode is not enough.",
		Traits{Exit: 33, Start: ToWarn, End: ToWarn},
	},
	{
		BackendCrash, Warning, Own, Node, "backend crashed",
		"The backend ended by a signal or with an error. The cause may be the vendor's library, which runs inside it.",
		"Run bookend snapshot on the node as root. If it crashes again, report it with the driver's version.",
		Traits{Exit: 34, Start: ToWarn, End: ToWarn, Silence: "asking the driver failed"},
	},
	{
		BackendGarbage, Warning, Own, Self, "backend answer is malformed",
		"The backend's answer is malformed or incomplete; none of it is used.",
		"Check that the key backend names bookend-gpu of the same release; otherwise report it.",
		Traits{Exit: 35, Start: ToWarn, End: ToWarn},
	},
	{
		BackendVersion, Warning, Own, Site, "backend speaks another version",
		"Hook and backend come from different releases.",
		"Install both from the same package.",
		Traits{Exit: 36, Start: ToWarn, End: ToWarn},
	},
	{
		BackendFlood, Warning, Own, Self, "backend answer is too long",
		"The backend wrote more than the protocol allows and was stopped.",
		"Report it with the backend's version.",
		Traits{Exit: 37, Start: ToWarn, End: ToWarn},
	},

	{
		Untraced, Note, Own, Node, "search is incomplete",
		"The search for holders of unexplained memory is incomplete, so nothing is certain enough to drain; or not " +
			"all of the kernel log could be read.",
		"Read the reason given with it. If the search ran out of time, raise deadlines.epilog.processes. Processes " +
			"that cannot be read hang in the kernel: ps -eo pid,stat,wchan,args shows them in state D.",
		Traits{Start: ToNote, End: ToNote},
	},
	{
		Ambiguous, Warning, Own, Site, "cannot tell which GPUs",
		"The meaning of the job's GPU numbers is not certain, so no GPU was judged: slurmd -G gave no list, or its " +
			"files have changed since slurmd started.",
		"Run bookend doctor: gpu-order gives the reason. After a change of its files or program, restart slurmd; " +
			"running jobs continue. Or set nvidia.gpu_map.",
		Traits{Start: ToWarn, End: ToWarn},
	},
	{
		NoRecord, Note, Own, None, "no record of the job's start",
		"The job's end has no start to compare with: PrologFlags=Alloc is missing, or the node restarted meanwhile.",
		"If this is common, set PrologFlags=Alloc or Contain in slurm.conf.",
		Traits{Start: ToNote, End: ToNote},
	},
	{
		Again, Note, Own, None, "end of a job seen twice",
		"Slurm ran the epilog a second time. The GPUs were sampled again; the user got no second report.",
		"None: Slurm before 26.05 does this when a completion message is lost.",
		Traits{Start: ToNote, End: ToNote},
	},
	{
		RunInJob, Note, Own, None, "hook runs inside the job",
		"Under PrologFlags=RunInJob a hook runs in the job's cgroup and gets no exit status. By default it does not " +
			"ask the driver there. If allowed, it sees only the job's own GPUs, and its findings never drain.",
		"Remove RunInJob from PrologFlags, or accept it; slurm.run_in_job_backend lets the hook ask the driver.",
		Traits{Start: ToNote, End: ToNote},
	},
	{
		BadEnv, Warning, Own, Site, "unusable environment",
		"A variable that Slurm sets for its hooks is missing or malformed, so the job or its GPUs are unknown.",
		"Check that slurm.conf names the right program for each hook, and that no wrapper clears its environment.",
		Traits{Exit: 31, Start: ToWarn, End: ToWarn, Unchecked: true},
	},
	{
		BadConfig, Warning, Own, Site, "configuration is not valid",
		"The configuration file has mistakes or is not trusted. Bookend observes with the default policy; paths, " +
			"backend, nvidia, log and metrics are kept if they are valid.",
		"Correct the lines named in the finding; docs/config.md lists every key.",
		Traits{Start: ToWarn, End: ToWarn},
	},
	{
		StateDamage, Warning, Own, Self, "record is damaged",
		"A record in Bookend's state is incomplete or was altered. It was set aside, and the hook continued without " +
			"it.",
		"None, if it happens once after a crash. If it recurs, check the file system of paths.run.",
		Traits{Exit: 38, Start: ToWarn, End: ToWarn},
	},
	{
		StateWrite, Warning, Own, Site, "record could not be written",
		"Bookend could not write its records or metrics: the file system is full or read-only, or its owner is wrong.",
		"Check space, mount and ownership of paths.run and paths.var, and of the directory of metrics.textfile.",
		Traits{Exit: 39, Start: ToWarn, End: ToWarn},
	},
	{
		StateLock, Note, Own, Self, "record was locked",
		"Another hook held a shared record for too long, so its content is unknown to this hook.",
		"None, if it is rare; report it if it is common.",
		Traits{Start: ToNote, End: ToNote},
	},
	{
		LogFailed, Warning, Own, Site, "log could not be written",
		"Bookend's own log could not be written. Verdict and records are not affected.",
		"Check space and ownership of paths.log.",
		Traits{Start: ToWarn, End: ToWarn},
	},
	{
		Output, Note, Own, None, "job's output could not be reached",
		"The end report could not be appended to the job's output: its file system does not answer, or the child " +
			"that writes as the user was stopped. While a child hangs there, that user gets no reports.",
		"bookend show JOBID has the report. Check the file system. If no job gets its report, slurmd lacks a " +
			"capability: deploy/systemd.md lists them.",
		Traits{Start: ToNote, End: ToNote},
	},
	{
		ReasonFailed, Warning, Own, Site, "drain reason not written",
		"A hook or the health check could not set the reason of the node's drain, or resume the node; or another " +
			"reason is set. The drain itself depends on the exit code. The next health check tries again.",
		"Run scontrol show node NODE as root on the node; check slurm.scontrol and that slurmctld answers.",
		Traits{Start: ToWarn, End: ToWarn},
	},
	{
		Panicked, Warning, Own, Self, "internal error in Bookend",
		"A defect in Bookend stopped part of the hook; the rest continued.",
		"Report it with the stack trace from the log.",
		Traits{Exit: 41, Start: ToWarn, End: ToWarn, Unchecked: true},
	},
	{
		Deadline, Warning, Own, Node, "hook ran out of time",
		"The hook reached its time limit, or slurmd ended it (SIGTERM). It kept what it had found until then.",
		"The log shows which step is slow. Compare deadlines with PrologEpilogTimeout, or raise them.",
		Traits{Exit: 42, Start: ToWarn, End: ToWarn, Unchecked: true},
	},
}
