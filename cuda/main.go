// Command bookend-gpu is the NVIDIA backend. It reads one request from stdin, writes JSON lines to stdout (package
// protocol) and exits. It is the only program of Bookend that runs NVIDIA's code, so it may crash, hang or be killed:
// its caller treats that as an answer. Its input is stdin and what the driver returns.
//
// NVML starts before Go's runtime does (early.go). For a test allocation (package allocation) CUDA starts in parallel
// with NVML, because that takes longest; CUDA is never a client of MPS. See probe.go for what forbids a test; package
// gpu has what CUDA's codes mean.
//
// Build it with lazy binding: go-nvml leaves some 400 driver functions to be resolved when called, and a program that
// resolves them at the start fails with every driver that lacks one.
//
//	go build -trimpath -ldflags '-X main.version=1.2.3 -extldflags=-Wl,-z,lazy' -o bookend-gpu ./cuda
//
// Exit codes: those of package backendkit, and 127 if the driver lacks a function that was called nevertheless.
package main

import (
	"bookend/internal/backendkit"
	"bookend/internal/gpu"
)

var version = "devel" // set by the linker

func main() {
	// There is no nvmlShutdown: it takes 3 to 6 ms, and the driver cleans up after a process anyway.
	backendkit.Program{Name: "bookend-gpu", Vendor: gpu.NVIDIA.Name, Version: version, Answer: answer}.Main()
}
