/* The memory of devices: one caching allocator for all of them. The host's has a front of its own (alloc.c). */
#ifndef COTANGENT_CORE_DEVICE_MEMORY_H
#define COTANGENT_CORE_DEVICE_MEMORY_H

#include <cotangent/backend.h>

#include "core/arena.h"

/* A block of a device other than the CPU, to be used in the order of stream (NULL: the device's own). NULL: there is none. */
ct_block *ct__device_take(ct_device device, const ct_stream *stream, size_t bytes);
/* Work that uses it may be under way still: whoever gets it next waits for that where its order does not say so. */
void ct__device_give(ct_device device, ct_block *block);

/* Raises the error of a device that had no block of so many bytes, with what it has. Returns false. */
bool ct__fail_device_memory(const char *op, ct_device device, size_t bytes);

/* pinned.c: gives back what lies unused of the host's memory that the device has. The device's lock is held. */
struct ct_device_state;
void ct__pinned_trim_locked(struct ct_device_state *state);

/* Scratch of one call, on any device. block is what has to be given back; NULL on the CPU. */
bool ct__scratch_take(ct_device device, const ct_stream *stream, size_t bytes, ct_memory_part *part, ct_block **block);
void ct__scratch_give(ct_device device, const ct_memory_part *part, ct_block *block);

/* alloc.c: the CPU's part of ct_memory_stats and its like */
void ct__host_memory_stats(ct_memory *stats);
void ct__host_memory_reset_peak(void);
void ct__host_memory_trim(void);
void ct__host_memory_limit(int64_t bytes);

#endif
