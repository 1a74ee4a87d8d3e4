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
		"Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost. Reboot": "NVML 15",
		"Failed to initialize NVML: Unknown Error":                                        "NVML 999",
		"Failed to initialize NVML: NVML Shared Library Not Found":                        "NVML 12",
		"RuntimeError: CUDA error: an illegal memory access was encountered":              "CUDA 700",
		"code=719(cudaErrorLaunchFailure)":                                                "CUDA 719",
		"CUDA out of memory. Tried to allocate 2.00 GiB":                                  "CUDA 2|CUDA 2",
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
		for _, c := range l.codes() {
			if rows--; c.Code < Lacks || c.Name == "" || c.Meaning == "" || c.Remedy == "" || strings.Contains(c.Remedy, "|") {
				t.Errorf("%s: %+v", l.name, c)
			}
		}
	}
	if rows != 0 {
		t.Errorf("%d rows of codes.txt are not read", rows)
	}
}
