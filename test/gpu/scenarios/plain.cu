// Programs of CUDA's runtime that take memory, with the check that such programs have.
//
// usage: plain          takes blocks of 2 GiB until there is no more
//        plain caught   does so, and ends well
//        plain half     takes half of the GPU
//        plain keep     frees most of the GPU into the pool of cudaMallocAsync, which keeps it, and waits
//        plain trim     does so, and trims the pool
//        plain heap     wants 64 MiB of the device's heap (malloc in a kernel), which has 8 MiB
//        plain larger   does so with a heap of 1 GiB
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>
#include <cuda_runtime.h>

#define CHECK(call)                                                                                                            \
	do {                                                                                                                   \
		cudaError_t err = (call);                                                                                      \
		if (err != cudaSuccess) {                                                                                      \
			fprintf(stderr, "GPUassert: %s %s %d\n", cudaGetErrorString(err), __FILE__, __LINE__);                 \
			exit(EXIT_FAILURE);                                                                                    \
		}                                                                                                              \
	} while (0)

static const size_t block = (size_t)2 << 30;

__global__ void fill(size_t bytes, int *failed)
{
	char *p = (char *)malloc(bytes);
	*failed = p == NULL;
	free(p);
}

static void heap(size_t limit)
{
	int *failed, seen;
	if (limit) CHECK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, limit));
	CHECK(cudaMalloc(&failed, sizeof *failed));
	fill<<<1, 1>>>((size_t)64 << 20, failed);
	CHECK(cudaGetLastError());
	CHECK(cudaMemcpy(&seen, failed, sizeof seen, cudaMemcpyDeviceToHost));
	if (seen) {
		fprintf(stderr, "CUDA error: malloc in a kernel failed: out of memory\n");
		exit(EXIT_FAILURE);
	}
}

static void pool(size_t bytes, bool trim)
{
	cudaMemPool_t all;
	uint64_t keep = UINT64_MAX;
	void *p;
	CHECK(cudaDeviceGetDefaultMemPool(&all, 0));
	CHECK(cudaMemPoolSetAttribute(all, cudaMemPoolAttrReleaseThreshold, &keep));
	CHECK(cudaMallocAsync(&p, bytes, 0));
	CHECK(cudaMemsetAsync(p, 7, bytes, 0));
	CHECK(cudaFreeAsync(p, 0));
	CHECK(cudaStreamSynchronize(0));
	if (trim) CHECK(cudaMemPoolTrimTo(all, 0));
	sleep(40);
}

static void blocks(bool caught)
{
	for (;;) {
		void *p;
		if (caught && cudaMalloc(&p, block) == cudaErrorMemoryAllocation) {
			fprintf(stderr, "cudaMalloc failed: %s, working with what there is\n", cudaGetErrorString(cudaGetLastError()));
			return;
		}
		if (!caught) CHECK(cudaMalloc(&p, block));
		CHECK(cudaMemset(p, 7, block));
	}
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";
	size_t free, total;
	CHECK(cudaMemGetInfo(&free, &total));
	if (!strcmp(how, "heap")) heap(0);
	else if (!strcmp(how, "larger")) heap((size_t)1 << 30);
	else if (!strcmp(how, "keep") || !strcmp(how, "trim")) pool(total / 10 * 7, !strcmp(how, "trim"));
	else if (!strcmp(how, "half")) {
		void *p;
		CHECK(cudaMalloc(&p, total / 2));
		CHECK(cudaMemset(p, 7, total / 2));
		CHECK(cudaDeviceSynchronize());
	} else blocks(!strcmp(how, "caught"));
	return 0;
}
