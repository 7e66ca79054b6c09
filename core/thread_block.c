/* Blocks of a thread: a chain that the end of the thread frees. */
#include "core/thread_block.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct block {
    struct block *next;
    void **slot;
    max_align_t content[];
} block;

static pthread_key_t chain_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int no_key;

static void thread_ends(void *chain) {
    while (chain) {
        block *first = chain;
        chain = first->next;
        *first->slot = NULL;
        free(first);
    }
}

static void make_key(void) { no_key = pthread_key_create(&chain_key, thread_ends); }

/* malloc, not the library's allocator: that one has a block here, and what is kept here (errors above all) should not
 * depend on whether the allocator has anything left. */
void *ct__thread_block(void **slot, size_t bytes) {
    pthread_once(&once, make_key);
    block *made = no_key ? NULL : calloc(1, sizeof *made + bytes);
    if (!made) return NULL;
    made->next = pthread_getspecific(chain_key);
    made->slot = slot;
    if (pthread_setspecific(chain_key, made) != 0) {
        free(made);
        return NULL;
    }
    return *slot = made->content;
}
