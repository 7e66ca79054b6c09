/* Host memory for what is not a tensor, as malloc and its relatives give it: the size is kept in front of each block, and the
 * block itself is the caching allocator's. */
#include <cotangent.h>
#include <string.h>

#include "core/alloc.h"

/* Under the address sanitizer a few bytes behind each block are nobody's, so that it sees what malloc would have let it see. */
#if defined(__SANITIZE_ADDRESS__)
#define GUARDED 1
#elif defined(__has_feature)
#define GUARDED __has_feature(address_sanitizer)
#else
#define GUARDED 0
#endif
#if GUARDED
#include <sanitizer/asan_interface.h>
enum { BEHIND = 64 };
#else
#define ASAN_POISON_MEMORY_REGION(address, size)   ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
enum { BEHIND = 0 };
#endif

enum { HEAD = 16 }; /* holds the size; blocks are aligned to 64 bytes, so what follows it is aligned for any type */
_Static_assert(HEAD >= sizeof(size_t) && HEAD % _Alignof(max_align_t) == 0, "what follows the size is aligned");

static size_t *head_of(void *memory) { return (size_t *)(void *)((char *)memory - HEAD); }

void *ct_malloc(size_t bytes) {
    if (bytes > SIZE_MAX / 2) return NULL;
    size_t *head = ct__alloc(HEAD + bytes + BEHIND);
    if (!head) return NULL;
    *head = bytes;
    char *memory = (char *)head + HEAD;
    ASAN_POISON_MEMORY_REGION(memory + bytes, BEHIND);
    return memory;
}

void *ct_calloc(size_t count, size_t bytes) {
    size_t total;
    if (__builtin_mul_overflow(count, bytes, &total)) return NULL;
    void *memory = ct_malloc(total);
    if (memory) memset(memory, 0, total);
    return memory;
}

void ct_free(void *memory) {
    if (!memory) return;
    size_t *head = head_of(memory), bytes = *head;
    ASAN_UNPOISON_MEMORY_REGION((char *)memory + bytes, BEHIND);
    ct__free(head, HEAD + bytes + BEHIND);
}

void *ct_realloc(void *memory, size_t bytes) {
    void *larger = ct_malloc(bytes);
    if (!larger || !memory) return larger;
    const size_t before = *head_of(memory);
    memcpy(larger, memory, before < bytes ? before : bytes);
    ct_free(memory);
    return larger;
}
