// How programs say that memory ran out, PyTorch's words among them.
#define _GNU_SOURCE
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// size writes bytes as PyTorch does.
static const char *size(char text[32], unsigned long long bytes) {
	if (bytes <= 1024) snprintf(text, 32, "%llu bytes", bytes);
	else if (bytes <= MIB) snprintf(text, 32, "%.2f KiB", bytes / 1024.0);
	else if (bytes <= 1024 * MIB) snprintf(text, 32, "%.2f MiB", bytes / (double)MIB);
	else snprintf(text, 32, "%.2f GiB", bytes / (1024.0 * MIB));
	return text;
}

// another is what PyTorch says of somebody else's process on the card: --other PID:MIB.
static const char *another(char text[128]) {
	char mib[32];
	const char *colon = flags.other ? strchr(flags.other, ':') : NULL;
	text[0] = 0;
	if (colon) snprintf(text, 128, "Process %d has %s memory in use. ", atoi(flags.other), size(mib, atoll(colon + 1) * MIB));
	return text;
}

void run_out(int device, unsigned long long bytes, unsigned long long held) {
	size_t left = 0, total = 0;
	char asked[32], whole[32], rest[32], others[128], own[32], live[32], idle[32];
	if (!flags.torch) die("%llu bytes: %d CUDA_ERROR_OUT_OF_MEMORY", bytes, OUT_OF_MEMORY);
	cu.info(&left, &total);
	unsigned long long unused = flags.idle * MIB;
	die("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate %s. GPU %d has a total capacity of %s of which %s is "
	    "free. %sIncluding non-PyTorch memory, this process has %s memory in use. Of the allocated memory %s is allocated by "
	    "PyTorch, and %s is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
	    "PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.",
	    size(asked, bytes), device, size(whole, total), size(rest, left), another(others), size(own, held + 518 * MIB),
	    size(live, held - unused), size(idle, unused));
}
