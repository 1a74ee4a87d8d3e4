package main

import (
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// The reasons why a device's memory says nothing about what a job left behind.
const (
	isCut  = "the card is in MIG mode: what it holds is its instances'"
	isNUMA = "the operating system keeps files in this GPU's memory"
	isVGPU = "a vGPU: its memory is a share of a card that other guests use"
)

// onGrace are the models that hang on the CPU's memory bus, by the word after the vendor's.
var onGrace = []string{"GH200", "GB200", "GB300", "GB10"}

// unjudged returns the reason for a card; an instance shares it unless it is MIG mode. Where the driver does not
// tell its addressing mode, its name for the card does.
func (l *library) unjudged(card device) string {
	mode, failed := ask(card.handle.GetVirtualizationMode, l, "nvmlDeviceGetVirtualizationMode")
	if failed == nil && mode == nvml.GPU_VIRTUALIZATION_MODE_VGPU {
		return isVGPU
	}
	addressing, failed := ask(card.handle.GetAddressingMode, l, "nvmlDeviceGetAddressingMode")
	if failed == nil && addressing.Value == uint32(nvml.DEVICE_ADDRESSING_MODE_ATS) || failed != nil &&
		namesGrace(card.Name) {
		return isNUMA
	}
	return ""
}

func namesGrace(name string) bool {
	words := strings.Fields(name)
	if len(words) > 1 && words[0] == "NVIDIA" {
		words = words[1:]
	}
	return len(words) > 0 && slices.Contains(onGrace, words[0])
}
