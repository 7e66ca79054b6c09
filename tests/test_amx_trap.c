/* AMX's instructions, by the processor where it has them and else by the trap that stands for them in tests (amx_trap.h): the same answers
 * are expected of both, so that what passes by the trap can be believed. */
#include <math.h>
#include <signal.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/amx_tiles.h"
#include "tests/amx_trap.h"
#include "tests/harness.h"

#if defined(CT_TEST_AMX) /* the compiler knows the instructions */
#include <immintrin.h>
#include <ucontext.h>

#define REQUIRE_AMX \
    if (!amx_trap_start()) SKIP("this machine has neither AMX nor AVX-512 BF16")

typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

typedef union tile { /* 16 rows of 64 bytes */
    float f32[16 * 16];
    uint32_t u32[16 * 16];
    uint16_t bf16[16 * 32];
    uint8_t u8[16 * 64];
} tile;

static tile_config whole(void) {
    tile_config c = {.palette = 1};
    for (int i = 0; i < 8; i++) c.rows[i] = 16, c.row_bytes[i] = 64;
    return c;
}

static void configure(const tile_config *c) { __asm__ volatile("ldtilecfg %0" ::"m"(*c)); }
static void release(void) { __asm__ volatile("tilerelease"); }

/* One instruction on memory: the tile's address and stride in registers of choice. */
#define WITH_ADDRESS(instruction, base, index, at, stride)                                               \
    __asm__ volatile("mov %0, %%" base "\n\tmov %1, %%" index "\n\t" instruction ::"r"((uintptr_t)(at)), \
                     "r"((int64_t)(stride))                                                              \
                     : base, index, "memory")
#define ADDRESS(displacement, base, index, scale) displacement "(%%" base ",%%" index "," scale ")"
#define LOAD(name, tmm, displacement, base, index, scale, from, stride) \
    WITH_ADDRESS(name " " ADDRESS(displacement, base, index, scale) ", %%" tmm, base, index, from, stride)
#define STORE(tmm, displacement, base, index, scale, to, stride) \
    WITH_ADDRESS("tilestored %%" tmm ", " ADDRESS(displacement, base, index, scale), base, index, to, stride)

/* ---- Addresses ---- */

static const tile_config of_the_program = {
    .palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};

static unsigned char lines[40][256];
static void fill_lines(void) {
    for (int i = 0; i < 40; i++)
        for (int j = 0; j < 256; j++) lines[i][j] = (unsigned char)(i * 7 + j * 3 + i * j);
}
static bool same_rows(const tile *got, const unsigned char *from, int64_t stride) {
    for (int i = 0; i < 16; i++)
        if (memcmp(got->u8 + 64 * i, from + i * stride, 64) != 0) return false;
    return true;
}

static void store_dense(tile *to) { STORE("tmm7", "", "rax", "rcx", "1", to, 64); }

TEST(addresses_are_those_of_the_processor) {
    REQUIRE_AMX;
    tile got;
    fill_lines();
    __asm__ volatile("ldtilecfg %0" ::"m"(of_the_program)); /* beside the program */
#define CASE(name, displacement, number, base, index, scale)                                                       \
    memset(&got, 0, sizeof got);                                                                                   \
    LOAD(name, "tmm7", displacement, base, index, #scale, (uintptr_t)&lines[0][5] - (uintptr_t)(intptr_t)(number), \
         256 / (scale));                                                                                           \
    store_dense(&got);                                                                                             \
    CHECK(same_rows(&got, &lines[0][0] + 5, 256))
    CASE("tileloadd", "", 0, "rax", "rdx", 1);
    CASE("tileloaddt1", "", 0, "rdi", "rsi", 1);
    CASE("tileloadd", "", 0, "rcx", "r9", 2);
    CASE("tileloadd", "", 0, "r8", "rdi", 4);
    CASE("tileloadd", "", 0, "r12", "r13", 8);
    CASE("tileloadd", "", 0, "r13", "r12", 1);
    CASE("tileloadd", "0x7f", 0x7f, "r15", "r14", 1);
    CASE("tileloadd", "-0x80", -0x80, "r10", "r11", 2);
    CASE("tileloadd", "0x12345", 0x12345, "r11", "r10", 1);
    CASE("tileloadd", "-0x12345", -0x12345, "r13", "rax", 1);
    /* the same row again and again: no index */
    __asm__ volatile("tileloadd (%0), %%tmm7" ::"r"(&lines[3][9]) : "memory");
    store_dense(&got);
    CHECK(same_rows(&got, &lines[3][9], 0));
    /* backwards, and stored as it was loaded */
    static unsigned char to[16][256];
    LOAD("tileloadd", "tmm7", "", "r9", "r8", "1", &lines[15][0], -256);
    STORE("tmm7", "-0x40", "r14", "r15", "2", &to[15][0x40], -128);
    for (int i = 0; i < 16; i++) CHECK(memcmp(to[i], lines[i], 64) == 0 && to[i][64] == 0);
    release();
}

TEST(configurations_are_read_from_where_they_are) {
    REQUIRE_AMX;
    alignas(64) tile_config several[9];
    for (int i = 0; i < 9; i++) several[i] = whole();
    several[8].rows[7] = 3;
    tile got = {{0}}, ones;
    memset(&ones, 0x11, sizeof ones);
    __asm__ volatile("mov %0, %%r12\n\tmov $64, %%r13\n\tldtilecfg (%%r12,%%r13,8)" ::"r"(several) : "r12", "r13");
    LOAD("tileloadd", "tmm7", "", "rax", "rcx", "1", &ones, 64);
    store_dense(&got);
    CHECK(got.u8[3 * 64 - 1] == 0x11 && got.u8[3 * 64] == 0);
    __asm__ volatile("mov %0, %%r13\n\tldtilecfg -64(%%r13)" ::"r"(several + 1) : "r13");
    store_dense(&got);
    CHECK(got.u8[0] == 0 && got.u8[16 * 64 - 1] == 0); /* and the registers are cleared */
    release();
}

TEST(a_smaller_register_reads_and_writes_no_more) {
    REQUIRE_AMX;
    tile_config c = whole();
    c.rows[7] = 5, c.row_bytes[7] = 24;
    tile got;
    memset(&got, 0x77, sizeof got);
    fill_lines();
    configure(&c);
    LOAD("tileloadd", "tmm7", "", "rax", "rcx", "1", lines, 256);
    store_dense(&got);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 64; j++) CHECK(got.u8[64 * i + j] == (i < 5 && j < 24 ? lines[i][j] : 0x77));
    __asm__ volatile("tilezero %%tmm7" ::);
    store_dense(&got);
    CHECK(got.u8[0] == 0 && got.u8[4 * 64 + 23] == 0 && got.u8[4 * 64 + 24] == 0x77);
    release();
}

/* ---- Products ---- */

static uint16_t bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return (uint16_t)(bits >> 16);
}

static void multiply_bf16(tile *c, const tile *a, const tile *b) {
    LOAD("tileloadd", "tmm0", "", "rax", "rcx", "1", c, 64);
    LOAD("tileloadd", "tmm1", "", "rax", "rcx", "1", a, 64);
    LOAD("tileloadd", "tmm2", "", "rax", "rcx", "1", b, 64);
    __asm__ volatile("tdpbf16ps %%tmm2, %%tmm1, %%tmm0" ::);
    STORE("tmm0", "", "rax", "rcx", "1", c, 64);
}
static void multiply_u8(tile *c, const tile *a, const tile *b) {
    LOAD("tileloadd", "tmm5", "", "rax", "rcx", "1", c, 64);
    LOAD("tileloadd", "tmm6", "", "rax", "rcx", "1", a, 64);
    LOAD("tileloadd", "tmm4", "", "rax", "rcx", "1", b, 64);
    __asm__ volatile("tdpbusd %%tmm4, %%tmm6, %%tmm5" ::);
    STORE("tmm5", "", "rax", "rcx", "1", c, 64);
}

/* c[0][0] + a[0] b[0] + a[1] b[1] + ..., in the order of the elements. */
static float dot(float start, const float *a, const float *b, int n) {
    tile c = {{start}}, x = {{0}}, y = {{0}};
    for (int i = 0; i < n; i++) x.bf16[i] = bf16(a[i]), y.bf16[i / 2 * 32 + i % 2] = bf16(b[i]);
    multiply_bf16(&c, &x, &y);
    return c.f32[0];
}
#define DOT(start, a, b) dot(start, (const float[]){a}, (const float[]){b}, sizeof((const float[]){a}) / sizeof(float))
#define LIST(...)        __VA_ARGS__

TEST(pairs_of_bf16_are_summed_as_the_manual_says) {
    REQUIRE_AMX;
    const tile_config c = whole();
    configure(&c);
    CHECK(DOT(1, LIST(2, 3, 5, 7), LIST(11, 13, 17, 19)) == 1 + 22 + 39 + 85 + 133);
    /* the elements of a pair apart: one after another the ones would not be lost */
    CHECK(DOT(0, LIST(0x1p24f, -0x1p24f, 1, 0), LIST(1, 1, 1, 1)) == 0);
    /* both with each other before c */
    CHECK(DOT(0x1p24f, LIST(1, 1), LIST(1, 1)) == 0x1p24f + 2);
    /* ties to even */
    CHECK(DOT(0x1p24f, LIST(1, 0), LIST(1, 0)) == 0x1p24f && DOT(0x1p24f + 2, LIST(1, 0), LIST(1, 0)) == 0x1p24f + 4);
    /* numbers below the normal ones are zeros: of the result, of an element, of c */
    CHECK(DOT(0, LIST(0x1p-70f, 0), LIST(0x1p-70f, 0)) == 0);
    CHECK(DOT(0, LIST(0x1p-130f, 0), LIST(0x1p100f, 0)) == 0);
    CHECK(DOT(0x1p-130f, LIST(0, 0), LIST(0, 0)) == 0);
    CHECK(DOT(0, LIST(0x1p-63f, 0), LIST(0x1p-63f, 0)) == 0x1p-126f);
    /* one rounding of product and sum: the product alone would be flushed, or too large */
    CHECK(DOT(0, LIST(0x1p-62f, 0, -0x1p-64f, 0), LIST(0x1p-63f, 0, 0x1p-64f, 0)) == 0x1.cp-126f);
    CHECK(DOT(0, LIST(-0x1p127f, 0, 0x1p64f, 0), LIST(1, 0, 0x1p64f, 0)) == 0x1p127f);
    release();
}

TEST(the_control_register_of_vectors_does_not_matter) {
    REQUIRE_AMX;
    const tile_config c = whole();
    configure(&c);
    const unsigned before = _mm_getcsr(), upwards = (before & ~0x603fu) | _MM_ROUND_UP;
    _mm_setcsr(upwards);
    const float sum = DOT(0x1p24f, LIST(1, 0), LIST(1, 0));
    const unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    CHECK(sum == 0x1p24f);
    CHECK(after == upwards);
    release();
}

TEST(bytes_are_unsigned_by_signed_and_wrap) {
    REQUIRE_AMX;
    const tile_config config = whole();
    configure(&config);
    tile a, b, c;
    for (int i = 0; i < 16 * 64; i++)
        a.u8[i] = (uint8_t)(i * 31 + i / 64), b.u8[i] = (uint8_t)(i * 77 + i / 8), c.u8[i] = (uint8_t)(i * 41 + 101);
    tile expected = c;
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 16; n++)
            for (int k = 0; k < 64; k++)
                expected.u32[16 * m + n] += (uint32_t)(a.u8[64 * m + k] * (int8_t)b.u8[k / 4 * 64 + 4 * n + k % 4]);
    multiply_u8(&c, &a, &b);
    CHECK(memcmp(&c, &expected, sizeof c) == 0);
    release();
}

TEST(a_product_leaves_what_its_registers_do_not_have) {
    REQUIRE_AMX;
    tile_config config = whole();
    config.rows[0] = config.rows[1] = 3, config.row_bytes[0] = config.row_bytes[2] = 20;
    config.row_bytes[1] = 8, config.rows[2] = 2;
    tile a, b, c;
    for (int i = 0; i < 16 * 32; i++) a.bf16[i] = b.bf16[i] = bf16(1);
    a.bf16[0] = bf16(INFINITY);
    for (int i = 0; i < 16 * 16; i++) c.f32[i] = 5;
    configure(&config);
    multiply_bf16(&c, &a, &b);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) CHECK(c.f32[16 * i + j] == (i < 3 && j < 5 ? i == 0 ? INFINITY : 5 + 4 : 5));
    release();
}

/* Any numbers: of all sizes, infinite and not a number. */
TEST(the_processor_gives_the_bits_of_the_software) {
    REQUIRE_AMX;
    if (amx_trap_is_set()) SKIP("this machine lacks AMX: the software would be compared with itself");
    const tile_config config = whole();
    uint64_t state = 1;
    for (int round = 0; round < 2000; round++) {
        tile of[3], mine;
        for (int i = 0; i < 3 * 256; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            const uint32_t x = (uint32_t)(state >> 32);
            /* exponents near each other, or any */
            of[i / 256].u32[i % 256] = round % 2 ? (x & 0x83ff83ffu) | 0x3c003c00u : x;
        }
        const bool bytes = round % 3 == 0;
        configure(&config), amx_configure(&config);
        mine = of[0];
        amx_load(0, &mine, 64), amx_load(1, &of[1], 64), amx_load(2, &of[2], 64);
        if (bytes) amx_product_u8(0, 1, 2), multiply_u8(&of[0], &of[1], &of[2]);
        else amx_product_bf16(0, 1, 2), multiply_bf16(&of[0], &of[1], &of[2]);
        amx_store(0, &mine, 64);
        int different = 0;
        for (int i = 0; i < 16 * 16; i++) {
            const float x = mine.f32[i], y = of[0].f32[i];
            different += mine.u32[i] != of[0].u32[i] && (bytes || x == x || y == y);
        }
        CHECK(different == 0);
    }
    release();
}

/* ---- Faults ---- */

/* The process that does it ends by this signal; the trap says why. */
static void expect_end(void (*does)(void), int signal_number, const char *text) {
    FILE *output = tmpfile();
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        dup2(fileno(output), STDERR_FILENO);
        does();
        _exit(0);
    }
    int status = 0;
    char said[1024] = "";
    waitpid(child, &status, 0);
    rewind(output);
    said[fread(said, 1, sizeof said - 1, output)] = 0;
    fclose(output);
    const int ended_by = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    harness_check(ended_by == signal_number, __FILE__, __LINE__, "%s: ended by signal %d: %s", text, ended_by, said);
    if (amx_trap_is_set())
        harness_check(strstr(said, text) != NULL, __FILE__, __LINE__, "not '%s' but '%s'", text, said);
}

#define CONFIGURED_BY(name, change) \
    static void name(void) {        \
        tile_config c = whole();    \
        change;                     \
        configure(&c);              \
    }
CONFIGURED_BY(palette_2, c.palette = 2)
CONFIGURED_BY(a_reserved_byte, c.reserved[13] = 9)
CONFIGURED_BY(a_ninth_register, c.rows[8] = 1)
CONFIGURED_BY(bytes_of_a_ninth_register, c.row_bytes[8] = 64)
CONFIGURED_BY(seventeen_rows, c.rows[3] = 17)
CONFIGURED_BY(rows_too_long, c.row_bytes[2] = 68)
CONFIGURED_BY(rows_of_nothing, c.row_bytes[4] = 0)
CONFIGURED_BY(no_rows, c.rows[5] = 0)

#define WITH_CONFIG(name, change, instruction)        \
    static void name(void) {                          \
        tile_config c = whole();                      \
        change;                                       \
        configure(&c);                                \
        __asm__ volatile(instruction ::"r"(lines) :); \
    }
WITH_CONFIG(palette_0, memset(&c, 0, sizeof c), "tilezero %%tmm0")
WITH_CONFIG(one_left_out, c.rows[6] = 0; c.row_bytes[6] = 0, "tileloadd (%0), %%tmm6")
WITH_CONFIG(odd_bytes, c.row_bytes[6] = 22, "tilestored %%tmm6, (%0)")
WITH_CONFIG(rows_past_the_last, c.start_row = 9; c.rows[1] = 9, "tileloadd (%0), %%tmm1")
WITH_CONFIG(rows_that_differ, c.rows[1] = 7, "tdpbf16ps %%tmm2, %%tmm1, %%tmm0")
WITH_CONFIG(columns_that_differ, c.row_bytes[2] = 60, "tdpbusd %%tmm2, %%tmm1, %%tmm0")
WITH_CONFIG(depths_that_differ, c.rows[2] = 15, "tdpbf16ps %%tmm2, %%tmm1, %%tmm0")
WITH_CONFIG(one_register_twice, (void)c, ".byte 0xc4, 0xe2, 0x72, 0x5c, 0xc1 # tdpbf16ps tmm0, tmm1, tmm1")

static void released(void) {
    const tile_config c = whole();
    configure(&c);
    release();
    __asm__ volatile("tilezero %%tmm0" ::);
}

TEST(what_a_processor_refuses_ends_the_process) {
    REQUIRE_AMX;
    expect_end(palette_2, SIGSEGV, "#GP: ldtilecfg: the palette, byte 0 is 2,");
    expect_end(a_reserved_byte, SIGSEGV, "#GP: ldtilecfg: reserved byte 15 is 9,");
    expect_end(a_ninth_register, SIGSEGV, "#GP: ldtilecfg: reserved byte 56 is 1,");
    expect_end(bytes_of_a_ninth_register, SIGSEGV, "#GP: ldtilecfg: reserved byte 32 is 64,");
    expect_end(seventeen_rows, SIGSEGV, "#GP: ldtilecfg: rows of register 3 is 17,");
    expect_end(rows_too_long, SIGSEGV, "#GP: ldtilecfg: bytes of a row of register 2 is 68,");
    expect_end(rows_of_nothing, SIGSEGV, "#GP: ldtilecfg: rows of register 4 is 16,");
    expect_end(no_rows, SIGSEGV, "#GP: ldtilecfg: rows of register 5 is 0,");
    expect_end(palette_0, SIGILL, "#UD: tilezero with no configuration loaded");
    expect_end(released, SIGILL, "#UD: tilezero with no configuration loaded");
    expect_end(one_left_out, SIGILL, "#UD: tileloadd of register 6, which is not configured");
    expect_end(odd_bytes, SIGILL, "#UD: tilestored of register 6, whose rows have 22 bytes");
    expect_end(rows_past_the_last, SIGILL, "#UD: tileloadd of register 1 from row 9 on, of 9");
    expect_end(rows_that_differ, SIGILL, "0 (16 rows of 64 bytes) += 1 (7 of 64) times 2 (16 of 64)");
    expect_end(columns_that_differ, SIGILL, "0 (16 rows of 64 bytes) += 1 (16 of 64) times 2 (16 of 60)");
    expect_end(depths_that_differ, SIGILL, "0 (16 rows of 64 bytes) += 1 (16 of 64) times 2 (15 of 64)");
    expect_end(one_register_twice, SIGILL, "#UD: tdpbf16ps of registers 0, 1 and 1, not three");
}

/* ---- The signal ---- */

static volatile sig_atomic_t others;
static void step_over(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    others++;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2;
}
static void zero_a_register(void) { __asm__ volatile("tilezero %%tmm0" ::); }
static void undefined_instruction(void) { __asm__ volatile("ud2"); }

TEST(any_other_illegal_instruction_is_the_business_of_who_came_before) {
    struct sigaction theirs = {.sa_sigaction = step_over, .sa_flags = SA_SIGINFO}, now;
    sigaction(SIGILL, &theirs, NULL);
    REQUIRE_AMX;
    const tile_config c = whole();
    configure(&c);
    const int64_t before = amx_trap_count();
    undefined_instruction();
    CHECK(others == 1);
    zero_a_register();
    CHECK(others == 1);
    CHECK(amx_trap_count() == before + amx_trap_is_set());
    release();
    amx_trap_stop();
    sigaction(SIGILL, NULL, &now);
    CHECK(now.sa_sigaction == step_over);
    signal(SIGILL, SIG_DFL);
    expect_end(undefined_instruction, SIGILL, "");
    REQUIRE_AMX;
    expect_end(undefined_instruction, SIGILL, "");
}
#else
TEST(amx) { SKIP("this compiler does not know AMX, or this processor is of another kind"); }
#endif
