// Command bookend-gpu is the NVIDIA backend: one request on stdin, JSON lines on stdout (package wire), then
// it ends. It is the only program of Bookend that runs the vendor's code, and so the one that may crash, hang
// or be killed; whoever starts it treats that as an answer. It reads nothing but its stdin and the driver.
//
// A test allocation (op probe) asks CUDA for the largest block of memory that one call gives, where NVML says that
// nobody else is on the card, and gives it back at once. CUDA starts beside NVML, as that is what takes the time. It
// makes no context, is never a client of MPS, holds the card's lock while it has
// memory, and never asks for more than is free. See probe.go for the order of things, package serve for the search,
// probe_card.go for what forbids a test and cuda_errors.go for what the driver's codes mean.
//
// Build it lazily bound: go-nvml leaves some 400 driver functions to be resolved when called, and a program
// that resolves them at start dies on every driver that lacks one of them.
//
//	go build -trimpath -ldflags '-X main.version=1.2.3 -extldflags=-Wl,-z,lazy' -o bookend-gpu ./cuda
//
// Exit codes: those of package serve; 127 the driver lacks a function that was called nevertheless.
package main

import (
	"os"

	"bookend/internal/gpu"
	"bookend/internal/routine"
	"bookend/internal/serve"
)

var version = "devel" // set by the linker

func main() {
	p := serve.Program{
		Name: "bookend-gpu", Vendor: gpu.NVIDIA.Name, Version: version,
		Boot: routine.SystemClock().Boot, Exit: os.Exit, Answer: answer,
	}
	// No nvmlShutdown: it costs 3 to 6 ms, and the driver cleans up after a process anyway.
	os.Exit(p.Run(os.Args[1:]))
}
