// Package scenarios has the sources of the small programs that play users' jobs on GPUs.
package scenarios

import "embed"

// Program has c/: the C program that is cudajob on a real GPU and, built with -DFAKE_VENDOR, fakecuda on a fake one.
//
//go:embed c
var Program embed.FS
