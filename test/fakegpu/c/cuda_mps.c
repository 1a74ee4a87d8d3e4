// libcuda.so.1: a process whose environment names an MPS daemon's folder computes through that daemon's server.
#define _GNU_SOURCE
#include "cuda.h"

#include "mps.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool cuda_join_mps(void) {
	char answer[64];
	const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
	// The daemon's default folder is left alone: it is the whole machine's, not this world's.
	return folder && mps_ask(folder, MPS_JOIN, answer, sizeof answer) && !strcmp(answer, MPS_JOINED);
}
