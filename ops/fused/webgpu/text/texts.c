/* Texts of fused kernels, each kept once: pipelines are known by the address of their text. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "ops/fused/webgpu/text/text.h"

typedef struct kept {
    struct kept *next;
    uint64_t hash;
    char text[];
} kept;

enum { BUCKETS = 256 };
static kept *table[BUCKETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

const char *ct_wgpu_fused_keep(const char *text) {
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    size_t length = 0;
    for (; text[length]; length++) hash = (hash ^ (unsigned char)text[length]) * 0x100000001b3u;
    kept **bucket = &table[hash % BUCKETS];
    pthread_mutex_lock(&lock);
    kept *found = *bucket;
    while (found && (found->hash != hash || strcmp(found->text, text) != 0)) found = found->next;
    if (!found && (found = malloc(sizeof *found + length + 1))) {
        found->hash = hash;
        memcpy(found->text, text, length + 1);
        found->next = *bucket;
        *bucket = found;
    }
    pthread_mutex_unlock(&lock);
    return found ? found->text : NULL;
}
