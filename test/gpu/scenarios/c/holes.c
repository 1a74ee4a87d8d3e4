// A card full of holes.
#define _GNU_SOURCE
#include "driver.h"

#include <stdlib.h>

// The most blocks that are taken: a card of 256 GiB in pieces of 64 KiB.
#define MAX_BLOCKS (4ULL << 20)

static unsigned long long take_all(unsigned long long block, unsigned long long *all) {
	unsigned long long n = 0, most = flags.mib ? flags.mib * MIB / block : MAX_BLOCKS;
	for (; n < most && n < MAX_BLOCKS; n++) {
		int rc = cu.alloc(&all[n], block);
		if (rc == OUT_OF_MEMORY) break;
		check(rc, "cuMemAlloc");
	}
	return n;
}

unsigned long long make_holes(unsigned long long block) {
	unsigned long long *all = calloc(MAX_BLOCKS, sizeof *all), kept = 0;
	if (!all) die("no memory for a list of blocks");
	unsigned long long n = take_all(block, all);
	for (unsigned long long i = 0; i < n; i++) {
		if (i % 2) check(cu.free(all[i]), "cuMemFree");
		else kept += block;
	}
	free(all);
	return kept;
}
