/* Memory that belongs to a thread and goes with it. Only a pointer is thread-local: a library that is opened at run time has
 * little room for thread-local data that can be reached without a call. */
#ifndef COTANGENT_CORE_THREAD_BLOCK_H
#define COTANGENT_CORE_THREAD_BLOCK_H

#include <stddef.h>

/* Points *slot, a thread-local pointer that is NULL, at bytes of zeros, until the thread ends: then it is NULL again.
 * Returns NULL when there is no memory, and raises no error. */
void *ct__thread_block(void **slot, size_t bytes);

#endif
