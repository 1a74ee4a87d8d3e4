// nvidia-cuda-mps-server of the fake vendor: started by its control daemon, it keeps 66 MiB on each card (measured,
// after its clients had ended) until it is told to end.
#define _GNU_SOURCE
#include "cuda_client.h"

#include <stdio.h>
#include <unistd.h>

#define SERVER_BYTES (66 * MIB)

int cuInit(unsigned flags);

int main(void) {
	struct world w;
	if (cuInit(0)) return 1;
	world_load(&w);
	for (int i = 0; i < cuda_visible_count; i++)
		if (client_context(&w, client_on(cuda_visible[i]), SERVER_BYTES)) return 1;
	puts("ready");
	fflush(stdout);
	if (!freopen("/dev/null", "w", stdout)) return 1;
	for (;;) pause();
}
