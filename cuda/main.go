// Command bookend-gpu is the NVIDIA backend. It reads one request from stdin, writes JSON lines to stdout (package
// wire) and exits. It is the only program of Bookend that runs NVIDIA's code, so it may crash, hang or be killed; its
// caller treats that as an answer. Its input is stdin and what the driver returns.
//
// A test allocation (op probe) asks CUDA for the largest block of memory that one call gives, if NVML lists no other
// process on the GPU, and releases it at once. CUDA starts in parallel with NVML, because that takes longest. The test
// creates no context, is never a client of MPS, holds the GPU's lock while it has memory, and never asks for more than
// is free. See probe.go for the order of steps, package serve for the search, probe_card.go for what forbids a test and
// cuda_errors.go for the meaning of the driver's codes.
//
// Build it with lazy binding: go-nvml leaves some 400 driver functions to be resolved when called, and a program that
// resolves them at the start fails with every driver that lacks one.
//
//	go build -trimpath -ldflags '-X main.version=1.2.3 -extldflags=-Wl,-z,lazy' -o bookend-gpu ./cuda
//
// Exit codes: those of package serve, and 127 if the driver lacks a function that was called nevertheless.
package main

import (
	"os"

	"bookend/internal/backendkit"
	"bookend/internal/child"
	"bookend/internal/gpu"
)

var version = "devel" // set by the linker

func main() {
	p := backendkit.Program{
		Name: "bookend-gpu", Vendor: gpu.NVIDIA.Name, Version: version,
		Boot: child.SystemClock().Boot, Exit: os.Exit, Answer: answer,
	}
	// There is no nvmlShutdown: it takes 3 to 6 ms, and the driver cleans up after a process anyway.
	os.Exit(p.Run(os.Args[1:]))
}
