/* The tile vocabulary in GCC vector extensions: any processor, NEON with a fused multiply-add, and
 * integers everywhere. Wants PORTABLE_SCALAR; optional PORTABLE_FMA, PORTABLE_BYTES. */
#ifndef CT_BACKENDS_CPU_GEMM_PORTABLE_H
#define CT_BACKENDS_CPU_GEMM_PORTABLE_H

#ifndef PORTABLE_BYTES
#define PORTABLE_BYTES 16
#endif
typedef PORTABLE_SCALAR portable_vec __attribute__((vector_size(PORTABLE_BYTES)));
typedef PORTABLE_SCALAR portable_loose
    __attribute__((vector_size(PORTABLE_BYTES), aligned(__alignof__(PORTABLE_SCALAR)), may_alias));

#define VEC                   portable_vec
#define MASK                  int
#define LANES                 ((int)(PORTABLE_BYTES / sizeof(PORTABLE_SCALAR)))
#define V_MASK(valid)         ((int)(valid))
#define V_ZERO                ((VEC){0})
#define V_LOAD(p)             ((VEC)(*(const portable_loose *)(p)))
#define V_STORE(p, v)         (*(portable_loose *)(p) = (portable_loose)(v))
#define V_LOAD_MASK(p, m)     portable_load((const char *)(p), m)
#define V_STORE_MASK(p, m, v) portable_store((char *)(p), m, v)
#define V_BROADCAST(p)        portable_broadcast(*(const PORTABLE_SCALAR *)(const void *)(p))
#ifdef PORTABLE_FMA
#define V_FMA(a, b, c) PORTABLE_FMA(a, b, c)
#else
#define V_FMA(a, b, c) ((a) * (b) + (c))
#endif
#define V_ADD(a, b)       ((a) + (b))
#define V_SCALE(v, alpha) ((v)*portable_broadcast((PORTABLE_SCALAR)(alpha)))

static inline VEC portable_broadcast(PORTABLE_SCALAR x) { return x + V_ZERO; }
static inline VEC portable_load(const char *p, int valid) {
    VEC v = {0};
    __builtin_memcpy(&v, p, (size_t)valid * sizeof(PORTABLE_SCALAR));
    return v;
}
static inline void portable_store(char *p, int valid, VEC v) {
    __builtin_memcpy(p, &v, (size_t)valid * sizeof(PORTABLE_SCALAR));
}
#endif
