/* Random graphs of 50 ops, captured with passes in random orders, against the same calls done eagerly: the same bits, on the CPU and on a
 * device. CT_TEST_GRAPHS=n does n of them in place of a few dozen. */
#include <stdlib.h>

#include "tests/fail_everywhere.h"
#include "tests/random_graph.h"

/* Constants and shared results may take a little more memory than there was, and one call of several takes scratch for its tiles. */
static int64_t allowance(const char *passes) {
    if (strstr(passes, "fuse")) return INT32_MAX;
    return ((strstr(passes, "hoist") != NULL) + (strstr(passes, "cse") != NULL)) * (int64_t)CT__LITTLE_MEMORY;
}

static int graphs(int few) {
    const char *text = getenv("CT_TEST_GRAPHS");
    return text ? atoi(text) : few;
}

TEST_LIMIT(random_graphs_with_passes_in_any_order_have_the_bits_of_eager_calls, 3600) {
    const ct_device cpu = {CT_CPU, 0};
    for (int seed = 0; seed < graphs(1000) && !harness_failed(); seed++) {
        char passes[256];
        ct_graph_info as_recorded, info;
        random_passes((uint64_t)seed, NULL, passes, sizeof passes);
        if (random_check((uint64_t)seed, OPS, "none", cpu, &as_recorded) &&
            random_check((uint64_t)seed, OPS, passes, cpu, &info))
            harness_check(info.needed_bytes <= as_recorded.needed_bytes + allowance(passes), __FILE__, __LINE__,
                          "seed %d, passes %s: %lld bytes in use, as recorded %lld", seed, passes,
                          (long long)info.needed_bytes, (long long)as_recorded.needed_bytes);
        random_check((uint64_t)seed, OPS, "", cpu, &info);
    }
}

/* Every order of every set of these, on small graphs. */
static void try_orders(const char *const *names, int n, bool *used, char *text, uint64_t *seed) {
    const ct_device cpu = {CT_CPU, 0};
    ct_graph_info info;
    random_check(++*seed, 20, text[0] ? text : "none", cpu, &info);
    const size_t length = strlen(text);
    for (int i = 0; i < n && !harness_failed(); i++) {
        if (used[i]) continue;
        used[i] = true;
        snprintf(text + length, 256 - length, "%s%s", length ? "," : "", names[i]);
        try_orders(names, n, used, text, seed);
        text[length] = 0;
        used[i] = false;
    }
}

TEST_LIMIT(every_order_of_every_set_of_passes_has_them, 120) {
    static const char *const names[] = {"dead", "cse", "hoist", "recompute", "fuse", "order", "overwrite"};
    bool used[7] = {false};
    char text[256] = "";
    uint64_t seed = 1000;
    try_orders(names, 7, used, text, &seed);
}

TEST_LIMIT(on_a_device_they_have_them_too, 3600) {
    ct_device device;
    setenv("CT_BACKEND_PATH", CT_TEST_MODULES, 1);
    setenv("CT_GUARD_QUEUE", "1", 1);
    setenv("CT_GUARD_RECORD", "1", 1);
    CHECK(ct_device_parse("guard", &device));
    for (int seed = 0; seed < graphs(200) && !harness_failed(); seed++) {
        char passes[256];
        ct_graph_info info;
        random_passes((uint64_t)seed + 7, NULL, passes, sizeof passes);
        random_check((uint64_t)seed + 5000, OPS, passes, device, &info);
    }
}

static bool capture_and_replay(void) {
    static const ct_device cpu = {CT_CPU, 0};
    bool ok = false;
    ct_scope {
        random_program p;
        random_make(&p, 3, 25, cpu);
        ct_graph *g = ct_ok() && ct_capture_passes("cse,dead,hoist,recompute,fuse,order,overwrite")
                          ? ct_capture(random_run, &p, CT_CAPTURE_WARM)
                          : NULL;
        ok = g && ct_replay(g);
        ct_graph_free(g);
        random_drop(&p);
    }
    return ok;
}

TEST_LIMIT(any_allocation_of_a_capture_with_all_passes_may_fail, 120) { FAIL_EVERYWHERE(capture_and_replay); }
