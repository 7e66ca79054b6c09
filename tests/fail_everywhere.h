/* Runs a step with its nth allocation failing, for every n until one is never reached: it succeeds or fails with an error of
 * memory, and whatever it made is gone afterwards. The step frees what it makes, whether or not it fails. */
#ifndef COTANGENT_TESTS_FAIL_EVERYWHERE_H
#define COTANGENT_TESTS_FAIL_EVERYWHERE_H

#include <stdio.h>

#include "core/alloc.h"
#include "tests/harness.h"
#include "tests/host_memory.h"

enum { FAIL_MOST = 200000 };

/* Returns how many allocations there were. after, if given, looks at what the step has left behind (files). */
static inline int64_t fail_everywhere_then(const char *name, bool (*step)(void), bool (*after)(bool ok)) {
    for (int i = 0; i < 2; i++) { /* caches fill up, tables are made, libraries are loaded */
        if (harness_check(step(), __FILE__, __LINE__, "%s: without a failure: %s", name, ct_error())) continue;
        ct_error_clear();
        return 0;
    }
    const int64_t live = ct_live_objects(), in_use = harness_memory().in_use;
    int64_t n = 1;
    for (bool reached = true; reached && n < FAIL_MOST && !harness_failed(); n++) {
        ct__alloc_fail_at(n);
        const bool ok = step();
        reached = ct__alloc_fail_left() <= 0;
        ct__alloc_fail_at(0);
        harness_check(ok == ct_ok() && (ok || ct_error_code() == CT_ERR_MEMORY), __FILE__, __LINE__,
                      "%s, allocation %lld: it returned %d with error '%s'", name, (long long)n, ok, ct_error());
        ct_error_clear();
        harness_check(!after || after(ok), __FILE__, __LINE__, "%s, allocation %lld: something is half done", name,
                      (long long)n);
        harness_check(ct_live_objects() == live, __FILE__, __LINE__, "%s, allocation %lld: %lld objects leaked", name,
                      (long long)n, (long long)(ct_live_objects() - live));
        harness_check(harness_memory().in_use <= in_use + harness_buried(), __FILE__, __LINE__,
                      "%s, allocation %lld: %lld bytes leaked", name, (long long)n,
                      (long long)(harness_memory().in_use - in_use));
        harness_check(ct_grad_enabled(), __FILE__, __LINE__, "%s, allocation %lld: grad mode was left off", name,
                      (long long)n);
    }
    return n;
}
static inline int64_t fail_everywhere(const char *name, bool (*step)(void)) {
    return fail_everywhere_then(name, step, NULL);
}
#define FAIL_EVERYWHERE(step) fail_everywhere(#step, step)

#endif
