/* Copies and fills of memory on the device, in words as far as words go. */
#include "backends/webgpu/device.h"

CT_WGPU_UNIT(backend_move);

typedef struct params {
    uint32_t n, shift, period, phase, pattern[4];
} params;
enum { THREADS = 256, BYTES_AT_ONCE = 1 << 30 };

static void add(ct_wgpu_launch *l, const char *name, ct_wgpu_buffer *buffer, uint64_t begin, uint64_t bytes,
                ct_dtype dtype, unsigned mode) {
    const uint64_t end = begin + bytes < buffer->size ? begin + bytes : buffer->size;
    l->operands[l->n++] = (ct_wgpu_operand){.name = name,
                                            .buffer = buffer,
                                            .begin = begin,
                                            .low = begin,
                                            .high = end,
                                            .dtype = (uint8_t)dtype,
                                            .mode = (uint8_t)mode};
}

static bool run(ct_wgpu_device *d, unsigned flags, const ct_wgpu_launch *l, const params *p) {
    const ct_wgpu_caller caller = {.called = "copy", .flags = flags & CT_CALL_LASTING};
    return ct_wgpu_dispatch(d, &caller, l, ct_wgpu_groups(p->n, THREADS), p, sizeof *p);
}

static bool copy_bytes(ct_wgpu_device *d, unsigned flags, ct_wgpu_buffer *to, uint64_t to_offset, ct_wgpu_buffer *from,
                       uint64_t from_offset, uint64_t n) {
    if (!n) return true;
    ct_wgpu_launch l = ct_wgpu_begin(&unit, "copy_bytes", THREADS);
    add(&l, "from", from, from_offset, n, CT_U8, 0);
    add(&l, "to", to, to_offset, n, CT_U8, CT_WGPU_WRITTEN);
    return run(d, flags, &l, &(params){.n = (uint32_t)n});
}

bool ct_wgpu_move(ct_wgpu_device *d, unsigned flags, ct_wgpu_buffer *to, uint64_t to_offset, ct_wgpu_buffer *from,
                  uint64_t from_offset, uint64_t bytes) {
    for (; bytes > BYTES_AT_ONCE; bytes -= BYTES_AT_ONCE, to_offset += BYTES_AT_ONCE, from_offset += BYTES_AT_ONCE)
        if (!ct_wgpu_move(d, flags, to, to_offset, from, from_offset, BYTES_AT_ONCE)) return false;
    const uint64_t before = (4 - to_offset % 4) % 4, first = before < bytes ? before : bytes;
    if (!copy_bytes(d, flags, to, to_offset, from, from_offset, first)) return false;
    to_offset += first, from_offset += first, bytes -= first;
    const uint64_t words = bytes / 4, shift = from_offset % 4;
    if (words) {
        ct_wgpu_launch l = ct_wgpu_begin(&unit, "copy_words", THREADS);
        add(&l, "from", from, from_offset - shift, 4 * words + (shift ? 4 : 0), CT_U32, CT_WGPU_WORDS);
        add(&l, "to", to, to_offset, 4 * words, CT_U32, CT_WGPU_WORDS | CT_WGPU_WRITTEN);
        if (!run(d, flags, &l, &(params){.n = (uint32_t)words, .shift = (uint32_t)(8 * shift)})) return false;
    }
    return copy_bytes(d, flags, to, to_offset + 4 * words, from, from_offset + 4 * words, bytes % 4);
}

static bool fill_bytes(ct_wgpu_device *d, ct_wgpu_buffer *to, uint64_t offset, uint64_t n, params p, uint64_t phase) {
    if (!n) return true;
    ct_wgpu_launch l = ct_wgpu_begin(&unit, "fill_bytes", THREADS);
    add(&l, "to", to, offset, n, CT_U8, CT_WGPU_WRITTEN);
    p.n = (uint32_t)n;
    p.phase = (uint32_t)(phase % (4 * p.period));
    return run(d, 0, &l, &p);
}

bool ct_wgpu_fill(ct_wgpu_device *d, ct_wgpu_buffer *to, uint64_t offset, const void *pattern, size_t size,
                  uint64_t n) {
    params p = {.period = size <= 4 ? 1 : (uint32_t)size / 4};
    for (size_t i = 0; i < 16; i++) ((unsigned char *)p.pattern)[i] = ((const unsigned char *)pattern)[i % size];
    uint64_t bytes = n * size;
    for (; bytes > BYTES_AT_ONCE; bytes -= BYTES_AT_ONCE, offset += BYTES_AT_ONCE)
        if (!ct_wgpu_fill(d, to, offset, pattern, size, BYTES_AT_ONCE / size)) return false;
    if (offset % 4) { /* an element of one or two bytes in the middle of a word */
        const uint64_t before = 4 - offset % 4, first = before < bytes ? before : bytes;
        if (!fill_bytes(d, to, offset, first, p, 0)) return false;
        offset += first, bytes -= first;
        if (first % size) return ct_wgpu_host->fail(CT_ERR_STATE, "fill", "an element lies across words");
    }
    const uint64_t words = bytes / 4;
    if (words) {
        ct_wgpu_launch l = ct_wgpu_begin(&unit, "fill_words", THREADS);
        add(&l, "to", to, offset, 4 * words, CT_U32, CT_WGPU_WORDS | CT_WGPU_WRITTEN);
        p.n = (uint32_t)words;
        if (!run(d, 0, &l, &p)) return false;
    }
    return fill_bytes(d, to, offset + 4 * words, bytes % 4, p, 4 * words);
}
