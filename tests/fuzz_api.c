/* Random calls of every function of the public headers, as the generated list has them (tests/fuzz_api.awk): NULL, zero,
 * negative, huge and NaN arguments and options, small tensors and modules now and then. Constructors make something or
 * leave an error; nothing crashes, prints, exits or leaks.
 *     fuzz_api [calls] [seed] [first]      see tests/fuzz_calls.h */
#include <cotangent.h>
#include <cotangent/backend.h>
#include <cotangent/capture.h>
#include <cotangent/data.h>
#include <cotangent/dist.h>
#include <cotangent/dlpack.h>
#include <cotangent/graph.h>
#include <cotangent/io.h>
#include <cotangent/metrics.h>
#include <cotangent/nn.h>
#include <cotangent/op.h>
#include <cotangent/optim.h>
#include <cotangent/run.h>
#include <cotangent/state.h>
#include <cotangent/train.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fuzz_calls.h"
#include "tests/host_memory.h"

enum {
    ENTRIES = 64,       /* of every array that is given: more than any count that goes with it */
    MEMORY = 192 << 20, /* for the library */
    BLOCK = 24 << 20,   /* at once */
    SLACK = 4 << 20,    /* memory that may stay in use: caches, and released handles that a debug build keeps */
};

/* ---- Arguments ---- */

static int64_t any_count(void) { return (int64_t)fuzz_upto(10) - 1; }
static size_t any_size(void) { return (size_t)fuzz_upto(10); }
static int any_enum(void) { return fuzz_chance(85) ? (int)fuzz_upto(6) : (int)fuzz_int(); }
static ct_opt any_opt(void) { return (ct_opt){fuzz_chance(80), fuzz_double()}; }
static ct_device any_device(void) {
    return (ct_device){fuzz_chance(70) ? CT_CPU : (ct_device_type)any_enum(), fuzz_chance(80) ? 0 : (int)fuzz_int()};
}

static ct_dims any_list(void) {
    ct_dims list = {.n = (int)fuzz_upto(fuzz_chance(90) ? 5 : CT_MAX_LIST + 1)};
    for (int i = 0; i < list.n; i++) list.d[i] = fuzz_int();
    if (fuzz_chance(5)) list.n = (int[]){-1, CT_MAX_LIST + 1, INT32_MAX, INT32_MIN}[fuzz_upto(4)];
    return list;
}

static const char *any_text(void) { /* all of the same length and more, since a count may go with it */
    static const char texts[][ENTRIES] = {
        "",      "a",    "x.y",      "f32",  "lstm", "linear",    "weight", "no/such/file",
        "1e400", "a\nb", "\xff\xfe", "relu", "avx2", "ij,jk->ik", "..",     "%s%n"};
    return fuzz_chance(15) ? NULL : texts[fuzz_upto(sizeof texts / sizeof *texts)];
}

static char room[ENTRIES];
static char *any_room(void) { return fuzz_chance(20) ? NULL : room; }
static void *any_bytes(void) { return fuzz_chance(20) ? NULL : room; }

static int64_t *any_integers(void) {
    static int64_t values[ENTRIES];
    for (int i = 0; i < ENTRIES; i++) values[i] = fuzz_int();
    return fuzz_chance(20) ? NULL : values;
}

static double *any_numbers(void) {
    static double values[ENTRIES];
    for (int i = 0; i < ENTRIES; i++) values[i] = fuzz_chance(60) ? (double)fuzz_upto(5) : fuzz_double();
    return fuzz_chance(20) ? NULL : values;
}

static ct_tensor *any_tensor(void) {
    if (fuzz_chance(25)) return NULL;
    ct_dims shape = {.n = (int)fuzz_upto(5)};
    for (int i = 0; i < shape.n; i++) shape.d[i] = (int64_t)fuzz_upto(5);
    static const ct_dtype dtypes[] = {CT_F32, CT_F32, CT_F32, CT_I64, CT_F64, CT_BF16, CT_BOOL, CT_U8};
    const ct_dtype dtype = dtypes[fuzz_upto(8)];
    ct_tensor *x = ct_cast(ct_mul_s(ct_rand(shape), 4), dtype);
    if (x && ct_dtype_is_float(dtype) && fuzz_chance(40)) ct_set_requires_grad(x, true);
    return x;
}

static ct_tensor *const *any_tensors(void) {
    static ct_tensor *list[ENTRIES];
    ct_tensor *few[4];
    for (int i = 0; i < 4; i++) few[i] = any_tensor();
    for (int i = 0; i < ENTRIES; i++) list[i] = few[i % 4];
    return fuzz_chance(20) ? NULL : list;
}

static ct_tensor *results[ENTRIES];
static ct_tensor **any_results(void) { return fuzz_chance(20) ? NULL : results; }
static ct_tensor **any_result(void) { return fuzz_chance(30) ? NULL : &results[fuzz_upto(ENTRIES)]; }

/* Objects live until the end of the call. */
static ct_module *modules[8];
static ct_dataset *datasets[8];
static ct_state *states[8];
static ct_optim *optims[8];
static int module_count, dataset_count, state_count, optim_count;

static ct_module *new_module(void) {
    switch (fuzz_upto(4)) {
    case 0: return ct_nn_sequential(ct_nn_linear(3, 2), ct_nn_relu(), ct_nn_batch_norm(2));
    case 1: return ct_nn_lstm(2, 3);
    case 2: return ct_nn_transformer_encoder_layer(4, 2);
    default: return ct_nn_linear(4, 3);
    }
}

static ct_module *any_module(void) {
    return fuzz_chance(30) || module_count == 8 ? NULL : (modules[module_count++] = new_module());
}

static ct_dataset *any_dataset(void) {
    if (fuzz_chance(30) || dataset_count == 8) return NULL;
    ct_tensor *fields[] = {ct_rand(CT_DIMS(5, 3, 4, 4)), ct_arange(0, 5, 1, .dtype = CT_I64)};
    return datasets[dataset_count++] = ct_dataset_tensors(fields, 2);
}

static ct_state *any_state(void) {
    if (fuzz_chance(30) || state_count == 8) return NULL;
    ct_state *state = states[state_count++] = ct_state_new();
    ct_state_put(state, "weight", ct_rand(CT_DIMS(3, 4)));
    return state;
}

static ct_optim *any_optim(void) {
    ct_module *net = optim_count == 8 ? NULL : any_module();
    return net ? (optims[optim_count++] = ct_sgd(net, .lr = 0.1)) : NULL;
}

static void free_objects(void) {
    while (optim_count) ct_optim_free(optims[--optim_count]);
    while (module_count) ct_module_free(modules[--module_count]);
    while (dataset_count) ct_dataset_free(datasets[--dataset_count]);
    while (state_count) ct_state_free(states[--state_count]);
}

/* ---- Calls ---- */

/* What makes something makes it, or leaves an error; not both. */
static void expect_made(bool made, bool or_error) {
    fuzz_expect(!(made && !ct_ok()), "it made something, and left an error: %s", ct_error());
    fuzz_expect(made || !or_error || !ct_ok(), "it made nothing, and left no error");
}

/* What was made is used a little: it works or leaves an error. */
static void expect_sound(bool done, const char *what) {
    fuzz_expect(done == ct_ok(), "%s: %s, with error '%s'", what, done ? "done" : "not done", ct_error());
}

static void use_module(ct_module *module) {
    if (!module || !ct_ok()) return;
    ct_tensor *x = fuzz_chance(50) ? any_tensor() : ct_rand(CT_DIMS(2, 3, 8, 8)), *y = x ? ct_forward(module, x) : NULL;
    if (x) expect_sound(y != NULL, "forward");
    if (y && ct_requires_grad(y) && ct_dtype_is_float(ct_dtype_of(y))) expect_sound(ct_backward(ct_sum(y)), "backward");
}

static void use_transform(ct_transform *transform) {
    if (!transform || !ct_ok()) return;
    const bool batch = fuzz_chance(30);
    ct_tensor *image = ct_cast(ct_mul_s(ct_rand(batch ? CT_DIMS(2, 3, 6, 5) : CT_DIMS(3, 6, 5)), 255), CT_U8);
    ct_tensor *fields[] = {fuzz_chance(30) ? any_tensor() : image, ct_arange(0, 2, 1, .dtype = CT_I64)};
    if (fields[0]) expect_sound(ct_transform_apply(transform, fields, 2, batch, 3, 1, 0, 0), "apply");
}

static void use_optim(ct_optim *optim) {
    if (optim && ct_ok()) expect_sound(ct_optim_step(optim), "step");
}

static void use_schedule(ct_schedule *schedule) {
    for (int i = 0; schedule && ct_ok() && i < 3; i++)
        expect_sound(ct_schedule_step_metric(schedule, fuzz_double()), "step");
}

static void use_dataset(ct_dataset *dataset) {
    ct_tensor *fields[2];
    if (dataset && ct_ok()) expect_sound(ct_dataset_get(dataset, 0, fields, 1), "get");
}

/* Options as callers of other versions have them: cut short at the end of readable memory, longer than today's with something set
 * or nothing, or with no size that can be. */
static void *other_size(void *options, size_t size) {
    static char *end; /* of what can be read */
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), most = 4 * page;
    if (fuzz_chance(85)) return options;
    if (!end) {
        char *memory = mmap(NULL, most + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED || mprotect(memory + most, page, PROT_NONE) != 0) return options;
        end = memory + most;
    }
    size_t says = sizeof says * (1 + fuzz_upto(size / sizeof says + 2)), bytes = says;
    if (fuzz_chance(15))
        says = (size_t[]){0, 3, SIZE_MAX, SIZE_MAX / 2 + 1, 1 << 20}[fuzz_upto(5)], bytes = sizeof says;
    fuzz_say(", options of %zu bytes where %zu are known", says, size);
    memset(end - bytes, fuzz_chance(50) ? 0 : 0x41, bytes);
    memcpy(end - bytes, options, bytes < size ? bytes : size);
    memcpy(end - bytes, &says, sizeof says);
    return end - bytes;
}

#include "fuzz_api.inc"

enum { CALL_COUNT = sizeof public_calls / sizeof *public_calls };

/* What is written to standard output during a call. */
static int real_output, catcher;

static void catch_output(void) {
    fflush(stdout);
    dup2(catcher, STDOUT_FILENO);
}

static void check_output(void) {
    fflush(stdout);
    const off_t bytes = lseek(catcher, 0, SEEK_CUR);
    dup2(real_output, STDOUT_FILENO);
    lseek(catcher, 0, SEEK_SET);
    fuzz_expect(bytes == 0, "it printed %lld bytes", (long long)bytes);
}

/* By a driver on the CPU, which would clear any amount of memory, and takes a minute to fill the weights of a whole network. */
enum { DEVICE_MEMORY = 2 << 20 };
static bool device_is_there;

static void restore_settings(void) {
    ct_set_grad_enabled(true);
    ct_set_autocast(CT_F32);
    ct_set_anomaly(false);
    ct_set_exact_conv(false);
    ct_set_tf32(false);
    ct_set_grain(0);
    harness_reset_peak();
    ct_set_memory_limit((ct_device){CT_CPU, 0}, 0);
    if (device_is_there) ct_set_memory_limit((ct_device){CT_WEBGPU, 0}, DEVICE_MEMORY);
    ct_error_clear();
}

static void call(void) {
    const int which = (int)fuzz_upto(CALL_COUNT);
    fuzz_say("%s(...)", public_calls[which].name);
    ct_seed(fuzz_draw());
    const int64_t live = ct_live_objects(), in_use = harness_memory().in_use;
    memset(results, 0, sizeof results);
    ct_scope {
        catch_output();
        public_calls[which].call();
        check_output();
        if (ct_ok()) fuzz_worked();
        free_objects();
        restore_settings();
    }
    fuzz_expect(ct_live_objects() == live, "%lld objects leak", (long long)(ct_live_objects() - live));
    fuzz_expect(harness_memory().in_use <= in_use + SLACK, "%lld bytes leak",
                (long long)(harness_memory().in_use - in_use));
}

static bool start(void) {
    /* what would be saved under a drawn name finds no place: the current folder is one that is gone */
    char folder[] = "/tmp/cotangent-fuzz-XXXXXX";
    if (!mkdtemp(folder) || chdir(folder) != 0 || rmdir(folder) != 0)
        return ct_fail(CT_ERR_IO, "fuzz_api", "no folder %s", folder);
    real_output = dup(STDOUT_FILENO);
    catcher = memfd_create("output", 0);
    device_is_there = ct_set_memory_limit((ct_device){CT_WEBGPU, 0}, DEVICE_MEMORY);
    ct_error_clear();
    return fuzz_limit_memory(MEMORY, BLOCK) && ct_set_threads(1);
}

int main(int argc, char **argv) {
    setenv("NODEVICE_SELECT", "1", 1); /* a layer of Mesa's that prints */
    static const fuzz_calls calls = {
        .program = "fuzz_api", .calls = 20000, .start = start, .call = call, .seconds = 20};
    return fuzz_calls_run(argc, argv, &calls);
}
