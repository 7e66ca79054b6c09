/* Autorelease scopes: a stack of references per thread, cut by marks. Scope 0 is the root; it ends with the thread. */
#include <cotangent.h>
#include <pthread.h>

#include "core/alloc.h"
#include "core/error.h"
#include "core/hot.h"
#include "core/tensor.h"

typedef struct scope_stack {
    ct_tensor **items;
    size_t count, capacity;
    size_t *starts; /* where each open scope begins in items; starts[0] = 0 is the root's */
    size_t depth, starts_capacity;
} scope_stack;

static _Thread_local scope_stack stack;
static _Thread_local bool watched; /* the thread's end releases its root scope */
static pthread_key_t exit_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void release_down_to(size_t count) {
    /* Releasing may run code (hooks' contexts) that uses scopes, so the item leaves the stack first. */
    while (stack.count > count) {
        ct_tensor *x = stack.items[--stack.count];
        ct__tensor_release(x);
    }
}

static void thread_ends(void *unused) {
    (void)unused;
    release_down_to(0);
    ct__free(stack.items, stack.capacity * sizeof *stack.items);
    ct__free(stack.starts, stack.starts_capacity * sizeof *stack.starts);
    stack = (scope_stack){0};
    watched = false;
}

static void make_key(void) { pthread_key_create(&exit_key, thread_ends); }

/* Has the end of this thread release what the stack holds; called whenever it gets memory. */
static void watch(void) {
    if (watched) return;
    pthread_once(&once, make_key);
    pthread_setspecific(exit_key, &stack);
    watched = true;
}

static bool grow_items(void) {
    size_t larger = stack.capacity ? 2 * stack.capacity : 256;
    ct_tensor **items = ct__grow(stack.items, stack.capacity * sizeof *items, larger * sizeof *items);
    if (!items) return ct__fail_memory("scope", larger * sizeof *items);
    stack.items = items;
    stack.capacity = larger;
    watch();
    return true;
}

CT__HOT ct_tensor *ct__scope_adopt(ct_tensor *x) {
    if (!x) return NULL;
    if (stack.count == stack.capacity && !grow_items()) {
        ct__tensor_release(x);
        return NULL;
    }
    stack.items[stack.count++] = x;
    return x;
}

CT__HOT ct_scope_mark ct_scope_begin(void) {
    if (stack.depth == stack.starts_capacity) {
        size_t larger = stack.starts_capacity ? 2 * stack.starts_capacity : 64;
        size_t *starts = ct__grow(stack.starts, stack.starts_capacity * sizeof *starts, larger * sizeof *starts);
        if (!starts) { /* then this block shares the enclosing scope: later released, never wrongly */
            ct__fail_memory("scope", larger * sizeof *starts);
            return (ct_scope_mark){SIZE_MAX};
        }
        if (!stack.starts) ct__error_prepare(); /* a thread's first call: from now on it can say what fails */
        stack.starts = starts;
        stack.starts_capacity = larger;
        watch();
    }
    stack.starts[stack.depth] = stack.count;
    return (ct_scope_mark){stack.depth++};
}

CT__HOT void ct_scope_end(ct_scope_mark mark) {
    if (mark.depth >= stack.depth) return; /* ended already, with an outer one */
    release_down_to(stack.starts[mark.depth]);
    stack.depth = mark.depth;
}

ct_tensor *ct_pass(ct_tensor *x) {
    if (!ct__valid(x, "pass", "x")) return NULL;
    if (stack.depth == 0) return x; /* the root has no enclosing scope */
    size_t *start = &stack.starts[stack.depth - 1];
    for (size_t i = stack.count; i-- > *start;) {
        if (stack.items[i] != x) continue;
        stack.items[i] = stack.items[*start];
        stack.items[*start] = x;
        ++*start;
        break;
    }
    return x;
}
