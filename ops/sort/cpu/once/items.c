/* Items: keys of every dtype, and their sorts: radix sorts from the least digit on (Knuth, The Art of Computer
 * Programming 3, 5.2.5). Nothing here depends on the level of vector instructions. */
#include "ops/sort/cpu/items.h"

#include <string.h>

#include "core/dtype.h"
#include "core/threads.h"

enum { DIGIT_BITS = 8, RADIX = 1 << DIGIT_BITS, MOST_CHUNKS = 64, CHUNK = 32 * 1024 };

/* ---- Keys ---- */

int ct__key_bits(ct_dtype dtype) { return 8 * (int)ct_dtype_size(dtype); }
bool ct__items_wide(ct_dtype dtype, int64_t n) { return ct_dtype_size(dtype) > 4 || n > UINT32_MAX; }
size_t ct__item_size(ct_dtype dtype, int64_t n) {
    return ct__items_wide(dtype, n) ? sizeof(ct_wide_item) : sizeof(ct_narrow_item);
}

/* Floats order as their bits do once negative ones are complemented and positive ones get the sign bit. */
#define FLOAT_KEY(name, U, BITS, INFINITE)                \
    static inline U name(U bits) {                        \
        const U sign = (U)1 << (BITS - 1);                \
        U size = bits & (U)(sign - 1);                    \
        if (size > (U)INFINITE) return (U)-1; /* NaN */   \
        if (size == 0) return sign;                       \
        return bits & sign ? (U)~bits : (U)(bits | sign); \
    }
FLOAT_KEY(key_f32, uint32_t, 32, 0x7f800000u)
FLOAT_KEY(key_f64, uint64_t, 64, 0x7ff0000000000000ull)
FLOAT_KEY(key_f16, uint16_t, 16, 0x7c00)
FLOAT_KEY(key_bf16, uint16_t, 16, 0x7f80)
static inline uint8_t key_i8(uint8_t a) { return a ^ 0x80; }
static inline uint16_t key_i16(uint16_t a) { return a ^ 0x8000; }
static inline uint32_t key_i32(uint32_t a) { return a ^ 0x80000000u; }
static inline uint64_t key_i64(uint64_t a) { return a ^ 0x8000000000000000ull; }
static inline uint8_t key_u8(uint8_t a) { return a; }

#define MAKE(CODE, KEY, U)                                                                                           \
    case CODE: {                                                                                                     \
        const U *from = x, flip = descending ? (U)-1 : 0;                                                            \
        if (wide)                                                                                                    \
            for (int64_t i = 0; i < n; i++)                                                                          \
                ((ct_wide_item *)items)[i] = (ct_wide_item){(U)(KEY(from[i * step]) ^ flip), (uint64_t)(first + i)}; \
        else                                                                                                         \
            for (int64_t i = 0; i < n; i++)                                                                          \
                ((ct_narrow_item *)items)[i] =                                                                       \
                    (uint64_t)(U)(KEY(from[i * step]) ^ flip) << 32 | (uint32_t)(first + i);                         \
        break;                                                                                                       \
    }

void ct__items_make(void *items, bool wide, ct_dtype dtype, const void *x, int64_t step, int64_t n, int64_t first,
                    bool descending) {
    switch (dtype) {
        MAKE(CT_F32, key_f32, uint32_t)
        MAKE(CT_F64, key_f64, uint64_t)
        MAKE(CT_F16, key_f16, uint16_t)
        MAKE(CT_BF16, key_bf16, uint16_t)
        MAKE(CT_I8, key_i8, uint8_t)
        MAKE(CT_I16, key_i16, uint16_t)
        MAKE(CT_I32, key_i32, uint32_t)
        MAKE(CT_I64, key_i64, uint64_t)
        MAKE(CT_U8, key_u8, uint8_t)
        MAKE(CT_BOOL, key_u8, uint8_t)
    default: break;
    }
}

/* ---- Sorts ---- */

/* One digit of a long line. counts: for each chunk how many items have each digit, then where its next one goes. */
typedef struct radix_pass {
    const void *from;
    void *to;
    uint32_t *counts; /* (chunks, RADIX) */
    int64_t n, chunk;
    int shift;
} radix_pass;

static int64_t long_chunk(int64_t n) {
    int64_t least = ct__grain(CHUNK), even = (n + MOST_CHUNKS - 1) / MOST_CHUNKS;
    return even > least ? even : least;
}

size_t ct__sort_counts(int64_t n) {
    int64_t chunk = long_chunk(n > 0 ? n : 1);
    return (size_t)((n + chunk - 1) / chunk) * RADIX * sizeof(uint32_t);
}

/* False when all items have the same digit. */
static bool places_from_counts(radix_pass *p, int64_t chunks) {
    uint32_t start = 0;
    for (int k = 0; k < RADIX; k++) {
        uint32_t before = start;
        for (int64_t c = 0; c < chunks; c++) {
            uint32_t *count = p->counts + c * RADIX + k, here = *count;
            *count = start;
            start += here;
        }
        if (start - before == (uint64_t)p->n) return false;
    }
    return true;
}

#define ITEM                  ct_narrow_item
#define ITEM_FN(name)         narrow_##name
#define LESS(a, b)            ((a) < (b))
#define DIGIT(a, shift, mask) ((a) >> (32 + (shift)) & (mask))
#define PLACE(a)              (uint32_t)(a)
#include "ops/sort/cpu/sort_items.h"

#define ITEM                  ct_wide_item
#define ITEM_FN(name)         wide_##name
#define LESS(a, b)            ((a).key < (b).key || ((a).key == (b).key && (a).place < (b).place))
#define DIGIT(a, shift, mask) ((a).key >> (shift) & (mask))
#define PLACE(a)              (a).place
#include "ops/sort/cpu/sort_items.h"

void *ct__sort_items(void *items, void *spare, bool wide, int key_bits, int64_t n) {
    if (n < 2) return items;
    return wide ? (void *)wide_sort(items, spare, key_bits, n) : (void *)narrow_sort(items, spare, key_bits, n);
}

void *ct__sort_items_parallel(void *items, void *spare, void *counts, bool wide, int key_bits, int64_t n) {
    return wide ? (void *)wide_sort_parallel(items, spare, counts, key_bits, n)
                : (void *)narrow_sort_parallel(items, spare, counts, key_bits, n);
}

void ct__items_values(const void *items, bool wide, int64_t n, const void *x, int64_t x_step, void *y, int64_t y_step,
                      size_t element) {
    if (wide) wide_values(items, n, x, x_step, y, y_step, element);
    else narrow_values(items, n, x, x_step, y, y_step, element);
}

void ct__items_places(const void *items, bool wide, int64_t n, int64_t *y, int64_t step) {
    if (wide) wide_places(items, n, y, step);
    else narrow_places(items, n, y, step);
}

void ct__select_items(void *items, bool wide, int64_t n, int64_t k) {
    if (wide) wide_select(items, n, k);
    else narrow_select(items, n, k);
}

void ct__order_items(void *items, void *spare, bool wide, int64_t n) {
    if (wide) wide_merge_sort(items, spare, n);
    else narrow_merge_sort(items, spare, n);
}

int64_t ct__items_keep(void *kept, int64_t count, const void *more, int64_t n, bool wide, int64_t bar) {
    return wide ? wide_keep(kept, count, more, n, bar) : narrow_keep(kept, count, more, n, bar);
}

/* Of all floats only NaN has a key of ones alone. */
int64_t ct__items_first_nan(const void *items, bool wide, ct_dtype dtype, int64_t n) {
    int bits = ct__key_bits(dtype);
    uint64_t key = bits == 64 ? UINT64_MAX : ((uint64_t)1 << bits) - 1;
    for (int64_t i = 0; i < n; i++)
        if ((wide ? ((const ct_wide_item *)items)[i].key : ((const ct_narrow_item *)items)[i] >> 32) == key) return i;
    return -1;
}
