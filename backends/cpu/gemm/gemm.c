/* The engine's entry points and the choice of the instruction set. */
#include "backends/cpu/gemm/amx.h"
#include "backends/cpu/gemm/arm.h"
#include "backends/cpu/gemm/plan.h"

const ct_gemm_isa *ct__gemm_isa;

/* The table of a level above base; NULL when this processor or this build lacks it. */
static const ct_gemm_isa *isa_at(int level) {
    (void)level;
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                      __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    const bool bf16 = avx512 && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni");
    (void)avx2, (void)bf16;
#if defined(CT_HAVE_AVX2)
    if (level == 1 && avx2) return &ct__gemm_isa_avx2;
#endif
#if defined(CT_HAVE_AVX512)
    if (level == 2 && avx512) return &ct__gemm_isa_avx512;
#endif
#if defined(CT_HAVE_AVX512BF16)
    if (level == 3 && bf16) return &ct__gemm_isa_avx512bf16;
#endif
#if defined(CT_HAVE_AVX512AMX)
    if (level == 4 && bf16 && ct__amx_is_granted()) return &ct__gemm_isa_avx512amx;
#endif
#elif defined(CT_HAVE_NEON)
    if (level == 1) return &ct__gemm_isa_neon;
#if defined(CT_HAVE_NEONBF16)
    if (level == 3 && ct__arm_has_bf16()) return &ct__gemm_isa_neonbf16;
#endif
#endif
    return NULL;
}

int ct__gemm_init(int level) {
    if (level < 0 || level > 4) level = 4;
    const ct_gemm_isa *isa = NULL;
    while (level > 0 && !(isa = isa_at(level))) level--;
    if (!isa) isa = &ct__gemm_isa_base;
    __atomic_store_n(&ct__gemm_isa, isa, __ATOMIC_RELEASE);
    return level;
}

void ct__gemm_ready(void) {
    if (!__atomic_load_n(&ct__gemm_isa, __ATOMIC_ACQUIRE)) ct__gemm_init(-1);
}

int ct__gemm_level(void) {
    ct__gemm_ready();
    return ct__gemm_isa->level;
}

bool ct__gemm_supported(ct_gemm_type a, ct_gemm_type b, ct_gemm_type c) {
    ct__gemm_ready();
    return ct__gemm_kernel(a, b, c) != NULL;
}

bool ct__gemm_geometry(const ct_gemm *g, ct_gemm_geometry *out) {
    ct__gemm_ready();
    const ct__kernel *k = ct__gemm_kernel(g->a_type, g->b_type, g->c_type);
    if (!k) return false;
    *out = (ct_gemm_geometry){k->name, k->rows, (int)ct__panel_width(k), k->group, k->packed, k->acc};
    return true;
}

size_t ct__gemm_scratch(const ct_gemm *g) {
    ct__plan plan;
    ct__gemm_ready();
    if (ct__gemm_is_vector(g) || ct__gemm_is_small(g) || !ct__gemm_plan(g, &plan)) return 0;
    return (size_t)plan.total_bytes;
}

bool ct__gemm(const ct_gemm *g, void *scratch) {
    ct__plan plan;
    ct__gemm_ready();
    if (ct__gemm_is_vector(g)) {
        ct__gemm_vector(g);
        return true;
    }
    if (ct__gemm_is_small(g)) {
        ct__gemm_small(g);
        return true;
    }
    if (!ct__gemm_plan(g, &plan) || (plan.total_bytes && !scratch)) return false;
    ct__gemm_run(&plan, scratch);
    return true;
}

size_t ct__gemm_pack_b_size(const ct_gemm *g) {
    ct__gemm_ready();
    const ct__kernel *k = ct__gemm_kernel(g->a_type, g->b_type, g->c_type);
    if (!k) return 0;
    const int64_t width = ct__panel_width(k), panels = ct__ceil_div(g->n, width);
    return (size_t)(panels * (ct__panel_bytes(k, g->k) + (k->unsigned_a ? width * 4 : 0)));
}

bool ct__gemm_pack_b(const ct_gemm *g, void *packed) {
    ct__gemm_ready();
    const ct__kernel *k = ct__gemm_kernel(g->a_type, g->b_type, g->c_type);
    if (!k) return false;
    const int64_t width = ct__panel_width(k), panels = ct__ceil_div(g->n, width);
    const int64_t bytes = ct__panel_bytes(k, g->k);
    int32_t *offsets = (int32_t *)(void *)((char *)packed + panels * bytes);
    if (!g->pack_b) {
        const ct__matrix src = {g->b, g->b_type, g->b_row, g->b_col};
        ct__gemm_isa->pack_b(k, &src, packed, g->k, g->n);
    }
    for (int64_t panel = 0; panel < panels; panel++) {
        const int64_t col = panel * width, cols = ct__min(width, g->n - col);
        char *dst = (char *)packed + panel * bytes;
        if (g->pack_b) g->pack_b(g->pack_b_ctx, 0, dst, 0, g->k, col, cols);
        if (k->unsigned_a) ct__gemm_isa->offsets(k, dst, g->k, offsets + col);
    }
    return true;
}
