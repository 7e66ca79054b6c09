/* The allocator: what it counts, what it keeps, and the host's own in its place. */
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "tests/harness.h"

TEST(in_use_goes_up_and_comes_back) {
    ct_scope {
        ct_ones(CT_DIMS(10));
    } /* first use opens caches */
    ct_memory before = harness_memory();
    ct_scope {
        ct_tensor *x = ct_ones(CT_DIMS(1000, 1000));
        ct_memory during = harness_memory();
        CHECK(during.in_use - before.in_use >= 4000000);
        CHECK(during.in_use - before.in_use < 4400000);
        CHECK(during.reserved >= during.in_use);
        CHECK(during.requests > before.requests);
        CHECK(x != NULL);
    }
    CHECK(harness_memory().in_use <= before.in_use + harness_buried());
}

TEST(peak_is_the_most_since_it_was_reset) {
    ct_scope {
        ct_ones(CT_DIMS(1 << 20));
    }
    harness_reset_peak();
    int64_t base = harness_memory().in_use;
    CHECK(harness_memory().peak == base);
    ct_scope {
        ct_ones(CT_DIMS(1 << 18));
    }
    int64_t peak = harness_memory().peak;
    CHECK(peak - base >= 1 << 20 && peak - base < (1 << 20) + (1 << 17));
    ct_scope {
        ct_ones(CT_DIMS(1 << 10));
    }
    CHECK(harness_memory().peak == peak);
    harness_reset_peak();
    CHECK(harness_memory().peak <= base + harness_buried());
}

TEST(blocks_are_reused_not_asked_for_again) {
    if (harness_sanitized()) SKIP("under a sanitizer blocks are not kept");
    for (int i = 0; i < 3; i++) {
        ct_scope {
            ct_add(ct_ones(CT_DIMS(300000)), ct_ones(CT_DIMS(300000)));
        }
    }
    int64_t from_host = harness_memory().from_host;
    for (int i = 0; i < 100; i++) {
        ct_scope {
            ct_add(ct_ones(CT_DIMS(300000)), ct_ones(CT_DIMS(300000)));
        }
    }
    CHECK(harness_memory().from_host == from_host);
}

TEST(trim_gives_unused_blocks_back) {
    if (harness_sanitized()) SKIP("under a sanitizer blocks are not kept");
    ct_scope {
        ct_ones(CT_DIMS(1 << 22));
    }
    int64_t kept = harness_memory().reserved;
    CHECK(kept >= 4 << 22);
    ct_memory_trim((ct_device){CT_CPU, 0});
    CHECK(harness_memory().reserved <= kept - (4 << 22));
    CHECK(ct_item(ct_sum(ct_ones(CT_DIMS(1000)))) == 1000);
}

TEST(memory_is_aligned_to_a_cache_line) {
    for (int64_t n = 1; n < 100000; n = n * 3 + 1) {
        ct_tensor *x = ct_empty(CT_DIMS(n));
        CHECK((uintptr_t)ct_data(x) % 64 == 0);
    }
}

/* ---- The host's allocator ---- */

static struct {
    int64_t bytes, calls, failures;
    int64_t limit;
} host;

static void *host_allocate(void *context, size_t bytes, size_t alignment) {
    if (context != &host) abort();
    if (host.limit && host.bytes + (int64_t)bytes > host.limit) {
        host.failures++;
        return NULL;
    }
    host.calls++;
    host.bytes += (int64_t)bytes;
    void *memory = NULL;
    return posix_memalign(&memory, alignment, bytes) == 0 ? memory : NULL;
}

static void host_release(void *context, void *memory, size_t bytes) {
    if (context != &host) abort();
    host.bytes -= (int64_t)bytes;
    free(memory);
}

TEST_BARE(all_memory_comes_from_the_hosts_allocator) {
    REQUIRE(ct_set_allocator(host_allocate, host_release, &host));
    ct_scope {
        ct_tensor *x = ct_ones(CT_DIMS(512, 512));
        CHECK(ct_item(ct_sum(ct_matmul(x, x))) == 512.0 * 512 * 512);
        CHECK(host.calls > 0 && host.bytes >= 2 * 512 * 512 * 4);
        CHECK(harness_memory().reserved == host.bytes);
        CHECK(harness_memory().from_host == host.calls);
    }
    ct_memory_trim((ct_device){CT_CPU, 0});
    CHECK(host.bytes < 4 << 20); /* slabs of small blocks stay */
}

TEST(the_allocator_is_set_before_the_first_tensor_or_not_at_all) {
    ct_ones(CT_DIMS(1));
    CHECK(!ct_set_allocator(host_allocate, host_release, &host));
    CHECK_ERROR(CT_ERR_STATE,
                "set_allocator: memory is in use already; set the allocator before the first tensor is made");
    CHECK(!ct_set_allocator(host_allocate, NULL, &host));
    CHECK_ERROR(CT_ERR_VALUE, "set_allocator: allocate and release have to be given together");
}

TEST_BARE(when_the_host_has_no_memory_there_is_an_error_and_it_goes_on) {
    host.limit = 24 << 20;
    REQUIRE(ct_set_allocator(host_allocate, host_release, &host));
    CHECK(ct_ones(CT_DIMS(16 << 20)) == NULL);
    CHECK(ct_error_code() == CT_ERR_MEMORY && host.failures > 0);
    ct_error_clear();
    /* blocks that lie unused are given back before a refusal */
    for (int i = 0; i < 4; i++) {
        ct_scope {
            CHECK(ct_ones(CT_DIMS(2000000 + 600000 * i)) != NULL);
        }
    }
    ct_scope {
        CHECK(ct_item(ct_sum(ct_ones(CT_DIMS(1000)))) == 1000);
    }
}

TEST_BARE(small_blocks_get_the_memory_that_large_ones_left) {
    if (harness_sanitized()) SKIP("nothing is cached under a sanitizer");
    host.limit = 3 << 20;
    REQUIRE(ct_set_allocator(host_allocate, host_release, &host));
    void *large = ct__alloc(5 << 19), *small[2000];
    REQUIRE(large != NULL);
    ct__free(large, 5 << 19); /* kept, and leaves room for one slab */
    int had = 0;
    while (had < 2000 && (small[had] = ct__alloc(1024))) had++;
    CHECK(had == 2000);
    while (had) ct__free(small[--had], 1024);
}

TEST(zero_bytes_can_be_had_and_given_back) {
    void *nothing = ct__alloc(0);
    CHECK(nothing != NULL);
    ct__free(nothing, 0);
    ct__free(NULL, 100);
    char *grown = ct__grow(NULL, 0, 10);
    REQUIRE(grown != NULL);
    memcpy(grown, "cotangent", 10);
    grown = ct__grow(grown, 10, 100000);
    CHECK_TEXT(grown, "cotangent");
    ct__free(grown, 100000);
}

TEST(an_injected_failure_hits_exactly_one_allocation) {
    ct__alloc_fail_at(2);
    void *a = ct__alloc(10), *b = ct__alloc(10), *c = ct__alloc(10);
    CHECK(a && !b && c);
    CHECK(ct__alloc_fail_left() == 0);
    ct__free(a, 10);
    ct__free(c, 10);
}
