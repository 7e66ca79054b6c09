/* The table of compiled kernels. A kernel is known by its whole text and the capability that it is compiled for; its file by a hash of both, of
 * what the text includes, and of the compiler's version. */
#include "ops/fused/cuda/fused/kernels.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/cache.h"

typedef enum kernel_state { NEW, BUSY, THERE, MISSING } kernel_state;

struct ct_fused_kernel {
    struct ct_fused_kernel *next;
    uint64_t hash;
    char *text;
    int pack, capability;
    uint64_t in_packs;
    ct_fused_rows rows;
    kernel_state state; /* of all that follows; the lock is held */
    void *code;
    size_t bytes;
    struct {
        _Atomic(CUmodule) module;
        _Atomic(CUfunction) functions[2]; /* fused and fused_total */
    } on[CT_CUDA_DEVICES];
};

enum { BUCKETS = 256, CODE_BYTES = 64 << 20 };
static ct_fused_kernel *table[BUCKETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static uint64_t hash_text(uint64_t hash, const char *text) { /* FNV-1a */
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    return hash;
}

/* ---- Files ---- */

typedef struct code_file {
    char magic[8];
    uint64_t bytes, sum;
} code_file;
static const char magic[8] = {'c', 't', 'f', 'u', 's', 'e', 'd', '1'};

static uint64_t sum_of(const void *code, size_t bytes) {
    uint64_t hash = 1469598103934665603u;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ ((const unsigned char *)code)[i]) * 1099511628211u;
    return hash;
}

static bool path_of(const ct_fused_kernel *k, char *path, size_t room) {
    int n;
    const ct_nvrtc_header *headers = ct_fused_headers(&n);
    uint64_t first = hash_text(1469598103934665603u, ct_nvrtc_version()), second = ~first;
    char name[128];
    for (int i = 0; i < n; i++) first = hash_text(hash_text(first, headers[i].name), headers[i].text);
    first = hash_text(first, k->text);
    for (const char *c = k->text; *c; c++) second = (second + (unsigned char)*c) * 0x9e3779b97f4a7c15u ^ second >> 29;
    snprintf(name, sizeof name, "kernels/sm_%d-%016llx%016llx.cubin", k->capability, (unsigned long long)first,
             (unsigned long long)second);
    return ct_cache_path(name, path, room);
}

static bool write_code(FILE *file, const void *context) {
    const ct_fused_kernel *k = context;
    code_file head = {.bytes = k->bytes, .sum = sum_of(k->code, k->bytes)};
    memcpy(head.magic, magic, sizeof magic);
    return fwrite(&head, sizeof head, 1, file) == 1 && fwrite(k->code, k->bytes, 1, file) == 1;
}

static void *read_code(const char *path, size_t *bytes) {
    size_t length = 0;
    char *all = ct_cache_read(path, CODE_BYTES, &length);
    code_file head;
    if (all && length > sizeof head) {
        memcpy(&head, all, sizeof head);
        *bytes = length - sizeof head;
        memmove(all, all + sizeof head, *bytes);
        if (!memcmp(head.magic, magic, sizeof magic) && head.bytes == *bytes && head.sum == sum_of(all, *bytes))
            return all;
    }
    free(all);
    return NULL;
}

/* ---- Compiling ---- */

static void make_code(ct_fused_kernel *k) {
    char path[4096], why[512], line[640];
    int n;
    const bool has_path = path_of(k, path, sizeof path);
    const ct_nvrtc_header *headers = ct_fused_headers(&n);
    if (has_path && (k->code = read_code(path, &k->bytes))) return;
    k->code = ct_nvrtc_compile(k->text, headers, n, k->capability, &k->bytes, why, sizeof why);
    if (k->code && has_path) ct_cache_replace(path, write_code, k);
    if (k->code) snprintf(line, sizeof line, "cuda: a fused kernel of %zu bytes is compiled", k->bytes);
    else snprintf(line, sizeof line, "cuda: a fused kernel cannot be compiled: %s", why);
    ct_cuda_host->log(line);
}

static void compile_one(void *context, int64_t i, int worker) {
    ct_fused_kernel *const *kernels = context;
    (void)worker;
    make_code(kernels[i]);
}

void ct_fused_compile(ct_fused_kernel *const *kernels, int n) {
    ct_fused_kernel **mine = malloc(((size_t)n + 1) * sizeof *mine);
    int count = 0;
    if (!mine) return; /* they stay new, and are not there */
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n; i++)
        if (kernels[i] && kernels[i]->state == NEW) {
            kernels[i]->state = BUSY;
            mine[count++] = kernels[i];
        }
    pthread_mutex_unlock(&lock);
    if (count) ct_cuda_host->parallel(count, compile_one, mine);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < count; i++) mine[i]->state = mine[i]->code ? THERE : MISSING;
    pthread_cond_broadcast(&changed);
    for (int i = 0; i < n; i++) /* those of other threads */
        while (kernels[i] && kernels[i]->state == BUSY) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    free(mine);
}

bool ct_fused_is_there(ct_fused_kernel *k) {
    pthread_mutex_lock(&lock);
    const bool there = k->state == THERE;
    pthread_mutex_unlock(&lock);
    return there;
}

/* ---- Finding ---- */

int ct_fused_kernel_pack(const ct_fused_kernel *k) { return k->pack; }
uint64_t ct_fused_kernel_in_packs(const ct_fused_kernel *k) { return k->in_packs; }
const ct_fused_rows *ct_fused_kernel_rows(const ct_fused_kernel *k) { return &k->rows; }

/* The lock is held; the text becomes the kernel's, or is freed. */
static ct_fused_kernel *find_or_add(ct_fused_text *text, int capability) {
    const uint64_t hash = hash_text(1469598103934665603u + (uint64_t)capability, text->text);
    ct_fused_kernel **bucket = &table[hash % BUCKETS];
    for (ct_fused_kernel *k = *bucket; k; k = k->next)
        if (k->hash == hash && k->capability == capability && strcmp(k->text, text->text) == 0) {
            ct_fused_text_free(text);
            return k;
        }
    ct_fused_kernel *made = calloc(1, sizeof *made);
    if (!made) {
        ct_fused_text_free(text);
        return NULL;
    }
    made->hash = hash;
    made->text = text->text;
    made->pack = text->pack;
    made->in_packs = text->in_packs;
    made->rows = text->rows;
    made->capability = capability;
    made->next = *bucket;
    return *bucket = made;
}

ct_fused_kernel *ct_fused_kernel_of(const ct_call *call) {
    const ct_fused *fused = call->attrs;
    ct_fused_kernel **known = fused->prepared_bytes >= sizeof *known ? (ct_fused_kernel **)fused->prepared : NULL;
    if (known && *known) return *known;
    const ct_cuda_device *d = ct_cuda_device_at(call->device.index);
    ct_fused_text text;
    if (!d) return NULL;
    if (!ct_fused_write(call, &text)) {
        ct_fused_text_free(&text);
        return NULL;
    }
    pthread_mutex_lock(&lock);
    ct_fused_kernel *found = find_or_add(&text, d->capability);
    pthread_mutex_unlock(&lock);
    if (known) *known = found;
    return found;
}

/* The lock is held. */
static CUfunction load(ct_fused_kernel *k, int index, int which, ct_cuda_device *device) {
    static const char *const names[] = {"fused", "fused_total"};
    CUfunction function = atomic_load(&k->on[index].functions[which]);
    CUmodule module = atomic_load(&k->on[index].module);
    if (function) return function;
    if (!module) {
        if (!ct_cuda_ok(device, ct_cuda.cuModuleLoadData(&module, k->code), "fused",
                        "its device code cannot be loaded"))
            return NULL;
        atomic_store(&k->on[index].module, module);
    }
    if (!ct_cuda_ok(device, ct_cuda.cuModuleGetFunction(&function, module, names[which]), "fused",
                    "it is not in the device code"))
        return NULL;
    atomic_store(&k->on[index].functions[which], function);
    return function;
}

CUfunction ct_fused_function(ct_fused_kernel *k, const ct_call *call, ct_cuda_device *device, bool total) {
    const int index = call->device.index;
    CUfunction function = atomic_load_explicit(&k->on[index].functions[total], memory_order_acquire);
    if (function) return function;
    pthread_mutex_lock(&lock);
    function = load(k, index, total, device);
    pthread_mutex_unlock(&lock);
    return function;
}
