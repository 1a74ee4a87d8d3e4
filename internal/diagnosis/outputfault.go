package diagnosis

import (
	"slices"
	"strings"

	"bookend/internal/catalog"
	"bookend/internal/record"
)

// OutputFault is an error of a GPU, its driver or a kernel that programs print. docs/users.md has the same table.
type OutputFault struct {
	Says  []string // texts and names by which it is recognised, in any case
	Claim string   // what such a message reports
	Cause catalog.Cause
	// Certain means that no program can cause it.
	Certain bool
	Means   string
	Try     string // NODE stands for the job's node

	kind  record.MessageKind // of the message, a fault if empty
	keeps []record.CauseName // these are not ruled out after it
}

// What to try after several of the faults.
const (
	elsewhereToo = "resubmit with sbatch --exclude=NODE, and tell your admin"
	sanitizer    = "run once with CUDA_LAUNCH_BLOCKING=1 or under compute-sanitizer (AMD: AMD_SERIALIZE_KERNEL=3)"
)

var ofGPU = []record.CauseName{record.CauseFault}

// outputFaults has what a message means: the first row with a text that is in the message decides. Errors that CUDA or
// HIP attribute to the program say nothing against a GPU, and nothing for it either. The last row is for all others.
var outputFaults = []OutputFault{
	{[]string{"uncorrectable ECC error", "cudaErrorECCUncorrectable", "CUDA_ERROR_ECC_UNCORRECTABLE",
		"hipErrorECCNotCorrectable"}, "an uncorrectable memory error (ECC)", catalog.ByHardware, true,
		"The GPU's memory failed, not your code.", elsewhereToo, "", ofGPU},
	{[]string{"uncorrectable NVLink error", "cudaErrorNvlinkUncorrectable", "CUDA_ERROR_NVLINK_UNCORRECTABLE"},
		"an uncorrectable NVLink error", catalog.ByLink, true,
		"A link between GPUs failed, not your code.", elsewhereToo, "", ofGPU},
	{[]string{"GPU is lost", "NVMLError_GpuIsLost", "NVML_ERROR_GPU_IS_LOST"}, "that a GPU is lost", catalog.ByHardware,
		true, "The driver no longer reaches a GPU: not your code.", elsewhereToo, "", ofGPU},
	{[]string{"Unable to determine the device handle for", "GPU requires reset", "NVMLError_ResetRequired",
		"couldn't communicate with the NVIDIA driver", "NVML: Driver Not Loaded", "NVMLError_DriverNotLoaded"},
		"that the driver did not reach a GPU", catalog.ByDriver, false,
		"A GPU or its driver failed, not your code.", elsewhereToo, "", ofGPU},
	{[]string{"system not yet initialized", "cudaErrorSystemNotReady", "CUDA_ERROR_SYSTEM_NOT_READY"},
		"that CUDA was not ready on this node (802)", catalog.ByDriver, false,
		"With NVSwitch, the NVLink fabric is not up (nvidia-fabricmanager): the node's fault, not your code.",
		elsewhereToo, "", ofGPU},
	{[]string{"driver/library version mismatch", "NVMLError_LibRmVersionMismatch", "NVML/RM version mismatch"},
		"that the driver and its library have different versions", catalog.ByDriver, false,
		"The node's driver was upgraded and not reloaded, so no job can use a GPU there: not your code.", elsewhereToo,
		"", ofGPU},
	{[]string{"devices are busy or unavailable", "is/are busy or unavailable", "cudaErrorDevicesUnavailable",
		"cudaErrorDeviceUnavailable", "CUDA_ERROR_DEVICE_UNAVAILABLE"},
		"that the GPU was refused as busy", catalog.Unclear, false,
		"Another process has it for itself, or its compute mode admits no other: no proof of a fault.",
		"is a second process of yours on it? If not, " + elsewhereToo, "",
		[]record.CauseName{record.CauseFault, record.CauseOthers}},
	{[]string{"MPS client", "MPS server", "device connections have been exhausted", "CUDA_ERROR_MPS_", "cudaErrorMps"},
		"that MPS did not answer", catalog.Unclear, false,
		"The MPS daemon was not started, has ended or is full, or CUDA_MPS_PIPE_DIRECTORY names another directory.",
		"start nvidia-cuda-mps-control in your job, or unset that variable", "", ofGPU},
	{[]string{"nvidia-container-cli: ", "nvidia-container-runtime: ", "could not select device driver", "CDI devices",
		"98-nvidia.sh exited"}, "that the container did not get the GPU", catalog.Unclear, false,
		"The node's driver or container tools, or an image that needs a newer driver: which cannot be told.",
		"does the image run on another node? " + elsewhereToo, "", ofGPU},
	{[]string{"CUDA driver version is insufficient", "NVIDIA driver on your system is too old",
		"unsupported display driver / cuda driver combination", "forward compatibility was attempted",
		"cudaErrorInsufficientDriver", "hipErrorInsufficientDriver", "cudaErrorSystemDriverMismatch",
		"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
		"that the node's driver does not fit the program's CUDA", catalog.Unclear, false,
		"Your CUDA or container is newer than the node's driver, or brings a driver library of its own.",
		"an older image or toolkit, or a node with a newer driver", "", ofGPU},
	{[]string{"no CUDA-capable device", "no ROCm-capable device", "No CUDA GPUs are available",
		"No HIP GPUs are available", "Found no NVIDIA driver", "could not find any nv files",
		"ROCk module is NOT loaded", "open /dev/kfd", "cudaErrorNoDevice", "CUDA_ERROR_NO_DEVICE", "hipErrorNoDevice"},
		"that no GPU was visible", catalog.Unclear, false,
		"The job has no GPU, a variable or a container hides it, or the driver lost it.",
		"echo $SLURM_JOB_GPUS $CUDA_VISIBLE_DEVICES; if both are right, " + elsewhereToo, "", ofGPU},
	{[]string{"illegal memory access", "cudaErrorIllegalAddress", "CUDA_ERROR_ILLEGAL_ADDRESS",
		"hipErrorIllegalAddress", "Memory access fault by GPU", "HSA_STATUS_ERROR_MEMORY_FAULT",
		"HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION", "misaligned address", "cudaErrorMisalignedAddress",
		"CUDA_ERROR_MISALIGNED_ADDRESS", "illegal instruction", "cudaErrorIllegalInstruction",
		"CUDA_ERROR_ILLEGAL_INSTRUCTION", "invalid program counter", "launch failure", "cudaErrorLaunchFailure",
		"CUDA_ERROR_LAUNCH_FAILED", "hipErrorLaunchFailure"},
		"that a kernel used a wrong address or instruction", catalog.ByProgram, false,
		"Most likely an error of your program, such as an index out of range.", sanitizer, "", nil},
	{[]string{"device-side assert", "cudaErrorAssert", "CUDA_ERROR_ASSERT", "hipErrorAssert"},
		"a failed assertion in a kernel", catalog.ByProgram, false,
		"Most likely an error of your program, such as a label or token id beyond the number of classes.", sanitizer,
		"", nil},
	{[]string{"launch timed out", "cudaErrorLaunchTimeout", "CUDA_ERROR_LAUNCH_TIMEOUT", "hipErrorLaunchTimeOut"},
		"that a kernel ran for too long", catalog.ByProgram, false,
		"A kernel of your program exceeded the driver's time limit.", "shorter kernels; " + sanitizer, "", nil},
	{[]string{"invalid device ordinal", "cudaErrorInvalidDevice", "CUDA_ERROR_INVALID_DEVICE", "hipErrorInvalidDevice"},
		"a GPU number that the job does not have", catalog.ByProgram, false,
		"GPUs count from 0 in each job or task.", "set the device from the local rank (SLURM_LOCALID, LOCAL_RANK)",
		"", nil},
	{[]string{"memory capacity is unbalanced"}, "that other processes may hold memory of its GPUs", catalog.Unclear,
		false, "One GPU of the job had far less free memory than another.",
		"nvidia-smi in your job: is the other process yours?", record.KindDevice,
		[]record.CauseName{record.CauseOthers}},
	{[]string{"NVRM: Xid", "CUDA unknown error", "CUDA driver initialization failed", "Failed to initialize NVML",
		"NVMLError_Unknown", "hardware stack error", "HW Exception by GPU", "HSA_STATUS_ERROR_EXCEPTION",
		"peer GPU memory over nvlink or a hardware error", "cudaErrorContained", "CUDA_ERROR_CONTAINED",
		"initialization error", "unknown error", "cudaErrorUnknown", "CUDA_ERROR_UNKNOWN", "hipErrorUnknown"},
		"an error of the GPU or its driver", catalog.Unclear, false, "Whose fault it was cannot be told.",
		"resubmit once with sbatch --exclude=NODE; if it fails there too, look at your program", "", ofGPU},
}

// OutputFaults returns the whole table.
func OutputFaults() []OutputFault { return outputFaults }

// outputFault returns the row for a message, nil if it reports no fault. A fault that is in no row is of the last.
func outputFault(m record.Message) *OutputFault {
	line := strings.ToLower(m.Line)
	for i, f := range outputFaults {
		said := func(text string) bool { return strings.Contains(line, strings.ToLower(text)) }
		if f.isOf(m.Kind) && (slices.ContainsFunc(f.Says, said) || i == len(outputFaults)-1) {
			return &outputFaults[i]
		}
	}
	return nil
}

func (f OutputFault) isOf(k record.MessageKind) bool {
	return k == f.kind || k == record.KindFault && f.kind == ""
}

func (f OutputFault) ofProgram() bool { return f.Cause == catalog.ByProgram }

// advice returns what it means and what to do, for the owner of a job on one node.
func (f OutputFault) advice(node string) string {
	return f.Means + " Try: " + strings.ReplaceAll(f.Try, "NODE", node)
}

// faultsIn returns the faults that messages report: certain ones first, a program's own last.
func faultsIn(all []record.Message) (found []*OutputFault) {
	for _, m := range all {
		if f := outputFault(m); f != nil && !slices.Contains(found, f) {
			found = append(found, f)
		}
	}
	weight := func(f *OutputFault) int {
		switch {
		case f.Certain:
			return 0
		case f.ofProgram():
			return 2
		}
		return 1
	}
	slices.SortStableFunc(found, func(a, b *OutputFault) int { return weight(a) - weight(b) })
	return found
}

// afterFault reports whether a message about memory follows one about a fault that is not known as the program's: that
// may have caused it.
func afterFault(e evidence) bool {
	faulty := map[int]bool{}
	for _, m := range e.in.Messages {
		if m.Kind == record.KindDevice && faulty[m.File] {
			return true
		}
		f := outputFault(m)
		faulty[m.File] = faulty[m.File] || f != nil && f.kind == "" && !f.ofProgram()
	}
	return false
}

// withdrawn takes back what the job's output contradicts: a cause that one of its messages speaks for is not ruled out,
// and a request for memory that failed next to a fault does not prove that the job needed too much.
func withdrawn(e evidence, c record.Cause) record.Cause {
	ofJob := []record.CauseName{record.CauseOwn, record.CausePool, record.CauseProcesses}
	for _, f := range e.faults {
		if c.Answer == record.No && slices.Contains(f.keeps, c.Name) {
			c.Answer, c.Evidence = record.CannotTell, "your program's output reports "+f.Claim
		}
	}
	if e.metFault && c.Answer == record.Yes && slices.Contains(ofJob, c.Name) {
		c.Answer, c.Evidence = record.CannotTell, c.Evidence+", but the GPU or its driver had an error"
	}
	return c
}

// mostReported limits how many faults of its output a report explains.
const mostReported = 2

// reported explains the faults in the job's output to its owner.
func reported(e evidence) (lines []string) {
	node := e.in.Job.Node
	if e.spread {
		node = "NODE"
	}
	for _, f := range e.faults[:min(len(e.faults), mostReported)] {
		lines = append(lines, f.advice(node))
	}
	return lines
}
