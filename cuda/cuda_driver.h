// The calls of the CUDA driver that a test allocation needs, by dlopen and own prototypes: nothing of a toolkit is
// needed to build or to run. Each returns the driver's code, 0 for success.
#ifndef BOOKEND_CUDA_DRIVER_H
#define BOOKEND_CUDA_DRIVER_H

#include <stddef.h>

// The vendor's libraries see every name that this program exports: none of these is.
#pragma GCC visibility push(hidden)

// The driver has no such function.
#define CUDA_LACKS (-1)

// cuda_environment empties this process's environment, but for what keeps the driver to the cards named and away from
// a multi-process service. Nothing else may run in the vendor's code meanwhile.
int cuda_environment(const char *visible, const char *empty);
// cuda_load loads the library. On failure it writes the linker's words and returns CUDA_LACKS.
int cuda_load(const char *path, char *why, size_t room);
int cuda_init(void);
// cuda_name returns the driver's name for a code, or NULL.
const char *cuda_name(int code);

int cuda_first(int *device);
int cuda_by_bus(const char *bus, int *device);
int cuda_uuid(int device, unsigned char uuid[16]);
// cuda_virtual tells whether a card's memory can be had without a context.
int cuda_virtual(int device, int *can);

// Without a context.
int cuda_granularity(int device, size_t *bytes);
int cuda_create(int device, size_t bytes, unsigned long long *handle);
int cuda_release(unsigned long long handle);

// With the card's primary context, which belongs to the thread that entered it.
int cuda_retain(int device, void **context);
int cuda_enter(void *context);
int cuda_info(size_t *free);
int cuda_alloc(size_t bytes, unsigned long long *address);
int cuda_free(unsigned long long address);
int cuda_leave(int device);

#pragma GCC visibility pop
#endif
