// A program of CUDA's runtime that takes blocks of 2 GiB until there is no more, with the check that such programs have.
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#define CHECK(call)                                                                                                            \
	do {                                                                                                                   \
		cudaError_t err = (call);                                                                                      \
		if (err != cudaSuccess) {                                                                                      \
			fprintf(stderr, "GPUassert: %s %s %d\n", cudaGetErrorString(err), __FILE__, __LINE__);                 \
			exit(EXIT_FAILURE);                                                                                    \
		}                                                                                                              \
	} while (0)

int main(int argc, char **)
{
	const size_t block = (size_t)2 << 30;
	for (;;) {
		void *p;
		if (argc > 1 && cudaMalloc(&p, block) == cudaErrorMemoryAllocation) { // caught
			fprintf(stderr, "cudaMalloc failed: %s, working with what there is\n", cudaGetErrorString(cudaGetLastError()));
			return 0;
		}
		if (argc == 1) CHECK(cudaMalloc(&p, block));
		CHECK(cudaMemset(p, 7, block));
	}
}
