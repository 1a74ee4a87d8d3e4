// What the driver's accounting keeps of processes, in the folder accounting/ of the world:
//   GPU-PID-START  a process's most memory on a card, written by itself whenever what it holds changes
//   .mode-GPU      what nvmlDeviceSetAccountingMode made of gpuN.accounting_mode: 0 or 1
//   .switches      every call of it: GPU MODE
#ifndef FAKEGPU_ACCOUNTING_H
#define FAKEGPU_ACCOUNTING_H

#include "world.h"

struct accounted {
	int pid;
	unsigned long long start;      // field 22 of /proc/PID/stat
	unsigned long long peak;       // bytes; ~0: not available
	long long began, last;         // first and last change, microseconds since 1970
	bool running;
};

// accounting_on says whether a card's accounting is on; never in MIG mode.
bool accounting_on(const struct world *w, int gpu);
bool accounting_switch(int gpu, unsigned mode);
// accounting_note keeps what this process now holds on the card of one of its ledgers, if that is more than ever.
void accounting_note(const struct ledger *l);

#endif
