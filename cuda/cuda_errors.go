package main

import "bookend/internal/allocation"

const (
	kernelLog   = "Look for Xid and NVRM lines in the kernel's log (dmesg)"
	tellBookend = "Report it with both versions, the driver's and Bookend's"
)

var cuda = allocation.Library{
	Name: "CUDA", Prefix: "cu", Means: cudaErrors,
	Slow: " (persistence mode is off, or several start at once?)",
}

// cudaErrors are codes seen or documented for initialisation and allocation. Others keep the driver's own name.
var cudaErrors = []allocation.Meaning{
	allocation.Means(0, allocation.Load, "no CUDA library", "The linker could not load the driver's CUDA library.",
		"Install the CUDA part of the driver (libcuda.so.1), or correct nvidia.cuda_library in the configuration."),
	allocation.Means(allocation.Lacks, "", "missing function",
		"The driver's CUDA library lacks a function that every driver since 2015 has.",
		"See which file libcuda.so.1 leads to (ldconfig -p) and install the driver again."),
	allocation.Means(1, "", "CUDA_ERROR_INVALID_VALUE",
		"The driver did not accept the request for memory.", tellBookend+"."),
	allocation.Means(2, "cuInit", "CUDA_ERROR_OUT_OF_MEMORY",
		"CUDA could not start for lack of the host's memory or address space, not of the GPU's.",
		"Look for an address-space limit of slurmd's (LimitAS, ulimit -v) and for a host without free memory."),
	allocation.Means(2, "", "CUDA_ERROR_OUT_OF_MEMORY",
		"The GPU gave no block of memory although the driver reports it as free.",
		"Find what holds the GPU (fuser -v /dev/nvidia*); if nothing does, reset it (nvidia-smi --gpu-reset -i GPU)."),
	allocation.Means(34, "", "CUDA_ERROR_STUB_LIBRARY",
		"The library loaded is the toolkit's stub for linking, not the driver's.",
		"Take the toolkit's stubs directory out of /etc/ld.so.conf.d, or correct nvidia.cuda_library."),
	allocation.Means(46, "", "CUDA_ERROR_DEVICE_UNAVAILABLE",
		"The GPU accepts no new contexts: it is busy, in an exclusive or prohibited compute mode, or faulty.",
		"See nvidia-smi -q -d COMPUTE and what has the GPU open (fuser -v /dev/nvidia*); if nothing has, reset it."),
	allocation.Means(100, "", "CUDA_ERROR_NO_DEVICE", "CUDA sees none of the GPUs although the driver lists them.",
		"Check that /dev/nvidia* may be opened, that no GPU is in MIG mode without instances, and the kernel's log."),
	allocation.Means(101, "", "CUDA_ERROR_INVALID_DEVICE", "CUDA does not know the GPU that the driver lists.",
		kernelLog+" and test the GPU alone; if it stays, reset it."),
	allocation.Means(214, "", "CUDA_ERROR_ECC_UNCORRECTABLE",
		"The GPU's memory had an error that could not be corrected.",
		"See nvidia-smi -q -d ECC,ROW_REMAPPER; reset the GPU, and replace it if it fails again."),
	allocation.Means(304, "", "CUDA_ERROR_OPERATING_SYSTEM", "A system call of the driver's failed.",
		"Check that /dev/nvidia* may be opened and the node has memory and descriptors left; then the kernel's log."),
	allocation.Means(800, "", "CUDA_ERROR_NOT_PERMITTED", "The driver does not permit the call.",
		"See the permissions of /dev/nvidia* and what confines slurmd (SELinux, AppArmor, a device cgroup)."),
	allocation.Means(801, "", "CUDA_ERROR_NOT_SUPPORTED", "The GPU or driver cannot do what was asked.",
		"Switch the probe off for this partition (probe.at: never)."),
	allocation.Means(802, "", "CUDA_ERROR_SYSTEM_NOT_READY",
		"The node's NVSwitches are not set up: the fabric manager does not run or has not finished.",
		"Start nvidia-fabricmanager in the driver's version and see its log; with IMEX, that service's too."),
	allocation.Means(803, "", "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
		"The driver's library and the loaded kernel module are of different versions.",
		"Reboot the node, or unload and load the nvidia modules: an update changed the files under a running driver."),
	allocation.Means(999, "", "CUDA_ERROR_UNKNOWN",
		"The driver failed without saying why: /dev/nvidia-uvm is missing, or the driver or a GPU is faulty.",
		"Make the device files (nvidia-modprobe -u -c0); if they exist, see the kernel's log (Xid, NVRM) and reboot."),
}
