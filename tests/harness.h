/* A test is a named function that runs in a process of its own, under a time limit, and leaves no object behind.
 *     TEST(sum_of_nothing_is_zero) { CHECK(ct_item(ct_sum(ct_zeros(CT_DIMS(0)))) == 0); }
 * A program of tests needs no main: harness.c has it. */
#ifndef COTANGENT_TESTS_HARNESS_H
#define COTANGENT_TESTS_HARNESS_H

#include <cotangent.h>
#include <cotangent/op.h>

#include "tests/host_memory.h"

typedef struct harness_test {
    const char *name;
    void (*run)(void);
    int seconds; /* time limit */
    bool bare;   /* without a scope around it: for tests of what comes before the first tensor */
    struct harness_test *next;
} harness_test;

void harness_add(harness_test *test);
/* Each of these returns whether the check held; a failure is printed and the test goes on. */
bool harness_check(bool held, const char *file, int line, const char *format, ...) CT_PRINTF(4, 5);
bool harness_error(const char *file, int line, ct_code code, const char *text);
bool harness_text(const char *file, int line, const char *what, const char *got, const char *expected);
void harness_skip(const char *format, ...) CT_PRINTF(1, 2);
bool harness_failed(void);    /* some check of this test did not hold */
void harness_may_leak(void);  /* this test is about something else: do not count live objects after it */
double harness_seconds(void); /* a clock */
int64_t harness_buried(void); /* bytes that a debug build may keep of released tensors */
bool harness_sanitized(void); /* built with a sanitizer: everything is several times slower */

enum { HARNESS_SECONDS = 60 };

#define TEST_WITH(name, limit, bare)                                                                    \
    static void test_##name(void);                                                                      \
    static harness_test test_entry_##name = {#name, test_##name, (limit), (bare), NULL};                \
    __attribute__((constructor)) static void test_add_##name(void) { harness_add(&test_entry_##name); } \
    static void test_##name(void)
#define TEST(name)              TEST_WITH(name, HARNESS_SECONDS, false)
#define TEST_LIMIT(name, limit) TEST_WITH(name, limit, false)
#define TEST_BARE(name)         TEST_WITH(name, HARNESS_SECONDS, true)

#define CHECK(condition) harness_check((condition), __FILE__, __LINE__, "%s", #condition)
/* Leaves the test when it does not hold: what follows would make no sense. */
#define REQUIRE(condition)             \
    do {                               \
        if (!CHECK(condition)) return; \
    } while (0)
/* Two numbers, and how far apart they may be. NaN is near NaN; an infinity near itself. */
#define CHECK_NEAR(got, expected, tolerance) harness_near(__FILE__, __LINE__, #got, (got), (expected), (tolerance))
/* Exactly this error is pending; it is cleared. */
#define CHECK_ERROR(code, text)   harness_error(__FILE__, __LINE__, (code), (text))
#define CHECK_TEXT(got, expected) harness_text(__FILE__, __LINE__, #got, (got), (expected))
#define SKIP(...)                  \
    do {                           \
        harness_skip(__VA_ARGS__); \
        return;                    \
    } while (0)

bool harness_near(const char *file, int line, const char *what, double got, double expected, double tolerance);

/* ---- Values in tests ---- */

/* Tensors from literals: F64(CT_DIMS(2, 2), 1, 2, 3, 4). The number of values has to be that of the shape. */
ct_tensor *harness_tensor(ct_dtype dtype, ct_dims shape, const double *values, int count);
#define TENSOR(dtype, shape, ...)                               \
    harness_tensor(dtype, shape, (const double[]){__VA_ARGS__}, \
                   (int)(sizeof((const double[]){__VA_ARGS__}) / sizeof(double)))
#define F32(shape, ...) TENSOR(CT_F32, shape, __VA_ARGS__)
#define F64(shape, ...) TENSOR(CT_F64, shape, __VA_ARGS__)
#define I64(shape, ...) TENSOR(CT_I64, shape, __VA_ARGS__)

double harness_at(ct_tensor *x,
                  int64_t index); /* the element at a row-major position, as a double; NaN after an error */
bool harness_same_bits(ct_tensor *a, ct_tensor *b); /* dtype, shape and every bit; not of NULL */
ct_tensor *harness_randn(ct_dims shape);            /* the same numbers each time, whatever else was drawn */
/* x is of this shape and its elements are near these. */
bool harness_values(const char *file, int line, const char *what, ct_tensor *x, ct_dims shape, const double *values,
                    int count, double tolerance);
#define CHECK_VALUES(x, shape, tolerance, ...)                                          \
    harness_values(__FILE__, __LINE__, #x, (x), (shape), (const double[]){__VA_ARGS__}, \
                   (int)(sizeof((const double[]){__VA_ARGS__}) / sizeof(double)), (tolerance))

/* Collects the lines of the dispatch log. Start clears; calls counts the lines that begin with "op(". */
void harness_log_start(void);
void harness_log_stop(void);
int harness_log_calls(const char *op);   /* NULL: all */
const char *harness_log_line(int index); /* NULL past the end */

#endif
