package gpu

import (
	"strings"
	"testing"
)

func TestFindReturned(t *testing.T) {
	for text, want := range map[string]string{
		"999":                                   "NVML 999|CUDA 999",
		"nvml 999":                              "NVML 999",
		"cuda error 802":                        "CUDA 802",
		"Error 802: system not yet initialized": "CUDA 802",
		"CUDA 12345":                            "CUDA 12345",
		"Unknown Error":                         "NVML 999|CUDA 999",
		"CUDA_ERROR_NO_DEVICE":                  "CUDA 100",
		"cudaErrorNoDevice":                     "CUDA 100",
		"hipErrorNoDevice":                      "HIP 100",
		"NVML_ERROR_IN_USE (19)":                "NVML 19",
		"Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost. Reboot":                                                  "NVML 15",
		"Failed to initialize NVML: Unknown Error":                                                                                         "NVML 999",
		"Failed to initialize NVML: NVML Shared Library Not Found":                                                                         "NVML 12",
		"RuntimeError: CUDA error: an illegal memory access was encountered":                                                               "CUDA 700",
		"code=719(cudaErrorLaunchFailure)":                                                                                                 "CUDA 719",
		"CUDA out of memory. Tried to allocate 2.00 GiB":                                                                                   "CUDA 2",
		"HIP out of memory. Tried to allocate 2.00 GiB":                                                                                    "HIP 2",
		"Unable to determine the device handle for gpu 0000:3B:00.0: Unable to communicate with GPU because it is insufficiently powered.": "NVML 8",
		"No devices were found": "NVML 28",
		"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest": "NVML 9",
		"Failed to initialize NVML: GPU access blocked by the operating system":                                   "NVML 17",
		"RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable":                             "CUDA 46",
		"CUDA error: the remote procedural call between the MPS server and the MPS client failed":                 "CUDA 806",
		"CUDA error: the MPS server is not ready to accept new MPS client requests":                               "CUDA 807",
		"CUDA error: the hardware resources required to support device connections have been exhausted":           "CUDA 809",
		"torch.AcceleratorError: CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error":   "CUDA 226",
		"RuntimeError: No CUDA GPUs are available":                                                                "CUDA 100",
		"cuda device 2": "", "CUDA version 12": "", "cuda gpu 2": "", "nvidia-smi shows GPU 9": "", "libcuda.so 1": "", "cuda rank 100": "", "CUDA out of 8": "",
		"CUDA cuInit: 999": "CUDA 999", "CUDA status (2)": "CUDA 2", "CUDA cudaMalloc returned 2": "CUDA 2", "CUDA: 802": "CUDA 802",
		"error 802": "", "0": "", "-1": "", "": "", "an unknown error happened": "", "the chip is not found": "",
	} {
		var got []string
		for _, r := range FindReturned(text) {
			words := strings.Fields(r.Title())
			title := r.Library + " " + strings.Trim(words[len(words)-1], "()")
			got = append(got, title)
		}
		if strings.Join(got, "|") != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	rows := strings.Count(codesFile, " | ") / 5
	for _, l := range libraries {
		for _, c := range append(StartCodes(l.name), StartCodes(l.name+atWork)...) {
			if rows--; c.Code < Lacks || c.Name == "" || c.Meaning == "" || c.Remedy == "" || strings.Contains(c.Remedy, "|") {
				t.Errorf("%s: %+v", l.name, c)
			}
		}
	}
	if rows != 0 {
		t.Errorf("%d rows of codes.txt are not read", rows)
	}
}
