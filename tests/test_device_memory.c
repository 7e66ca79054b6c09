/* The memory and the streams of a device, seen from a backend that is part of the program: its buffers are no addresses, it has a
 * few megabytes, and it notes what it is asked to do. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cotangent/backend.h>

#include "tests/harness.h"

typedef struct buffer {
    char *bytes;
    size_t size;
} buffer;

static struct {
    size_t room, used, most_alignment;
    int allocations, releases, waits, streams, events, pinned;
    bool refuses;    /* to pin memory */
    char order[512]; /* "1>0 ": stream 0 waits for stream 1 */
    char discarded[64];
} trial = {.room = (size_t)64 << 20};

static int number_of(const ct_stream *stream) { return stream ? *(int *)stream->handle : 0; }

static bool take(void *self, int device, size_t bytes, void **made) {
    (void)self, (void)device;
    if (trial.used + bytes > trial.room) return false;
    buffer *b = malloc(sizeof *b);
    *b = (buffer){calloc(1, bytes), bytes};
    trial.used += bytes;
    trial.allocations++;
    *made = b;
    return true;
}

static void give(void *self, int device, void *gone, size_t bytes) {
    (void)self, (void)device;
    buffer *b = gone;
    CHECK(b->size == bytes);
    trial.used -= bytes;
    trial.releases++;
    free(b->bytes);
    free(b);
}

static char *at(const void *of, size_t offset, size_t bytes) {
    const buffer *b = of;
    if (offset % 256 > trial.most_alignment) trial.most_alignment = offset % 256;
    if (offset + bytes > b->size) abort();
    return b->bytes + offset;
}

static bool up(void *self, int device, void *b, size_t offset, const void *host, size_t bytes, ct_stream *stream) {
    (void)self, (void)device, (void)stream;
    memcpy(at(b, offset, bytes), host, bytes);
    return true;
}
static bool down(void *self, int device, void *host, const void *b, size_t offset, size_t bytes, ct_stream *stream) {
    (void)self, (void)device, (void)stream;
    memcpy(host, at(b, offset, bytes), bytes);
    return true;
}
static bool copy(void *self, int device, void *to, size_t to_offset, const void *from, size_t from_offset, size_t bytes,
                 ct_stream *stream) {
    (void)self, (void)device, (void)stream;
    memmove(at(to, to_offset, bytes), at(from, from_offset, bytes), bytes);
    return true;
}
static bool fill(void *self, int device, void *b, size_t offset, const void *pattern, size_t size, size_t count,
                 ct_stream *stream) {
    (void)self, (void)device, (void)stream;
    for (size_t i = 0; i < count; i++) memcpy(at(b, offset + i * size, size), pattern, size);
    return true;
}
static bool wait_for(void *self, int device, ct_stream *stream) {
    (void)self, (void)device, (void)stream;
    trial.waits++;
    return true;
}
static int count(void *self) {
    (void)self;
    return 1;
}
static bool info(void *self, int device, ct_device_info *about) {
    (void)self, (void)device;
    snprintf(about->name, sizeof about->name, "trial");
    return true;
}
static const ct_kernel *kernels(void *self, const ct_op *op) {
    (void)self, (void)op;
    return NULL;
}
static bool stream_new(void *self, int device, void **handle) {
    (void)self, (void)device;
    int *made = malloc(sizeof *made);
    *made = ++trial.streams;
    *handle = made;
    return true;
}
static void stream_free(void *self, int device, void *handle) {
    (void)self, (void)device;
    free(handle);
}
static ct_event *event_new(void *self, int device) {
    (void)self, (void)device;
    trial.events++;
    return calloc(1, sizeof(int));
}
static void event_free(void *self, int device, ct_event *event) {
    (void)self, (void)device;
    trial.events--;
    free(event);
}
static bool event_record(void *self, int device, ct_event *event, ct_stream *stream) {
    (void)self, (void)device;
    *(int *)(void *)event = number_of(stream);
    return true;
}
static bool event_wait(void *self, int device, ct_event *event, ct_stream *stream) {
    (void)self, (void)device;
    const size_t used = strlen(trial.order);
    snprintf(trial.order + used, sizeof trial.order - used, "%d>%d ", *(int *)(void *)event, number_of(stream));
    return true;
}
static bool pin(void *self, int device, size_t bytes, void **memory) {
    (void)self, (void)device;
    if (trial.refuses || !(*memory = aligned_alloc(64, bytes))) return false;
    trial.pinned++;
    return true;
}
static void unpin(void *self, int device, void *memory, size_t bytes) {
    (void)self, (void)device, (void)bytes;
    trial.pinned--;
    free(memory);
}
static void discard(void *self, int device, void *b, size_t offset, size_t bytes, ct_stream *stream) {
    (void)self, (void)device;
    memset(at(b, offset, bytes), 0xA5, bytes);
    snprintf(trial.discarded, sizeof trial.discarded, "%d", number_of(stream));
}

static const ct_backend backend = {.size = sizeof backend,
                                   .version = CT_BACKEND_VERSION,
                                   .name = "trial",
                                   .alignment = 256,
                                   .device_count = count,
                                   .device_info = info,
                                   .allocate = take,
                                   .release = give,
                                   .upload = up,
                                   .download = down,
                                   .copy = copy,
                                   .fill = fill,
                                   .stream_new = stream_new,
                                   .stream_free = stream_free,
                                   .event_new = event_new,
                                   .event_free = event_free,
                                   .event_record = event_record,
                                   .event_wait = event_wait,
                                   .wait = wait_for,
                                   .kernels = kernels,
                                   .discard = discard,
                                   .host_allocate = pin,
                                   .host_release = unpin};

static ct_device opened(void) {
    ct_device device = {0};
    CHECK(ct_backend_register(&backend) && ct_device_parse("trial", &device) && ct_set_device(device));
    return device;
}

static ct_memory stats(ct_device device) {
    ct_memory m = {.size = sizeof m};
    CHECK(ct_memory_stats(device, &m));
    return m;
}

/* Bytes of the current device that hold a number which says whose they are. */
static ct_tensor *bytes_of(int64_t bytes, char content) {
    char *data = malloc((size_t)bytes);
    memset(data, content, (size_t)bytes);
    ct_tensor *x = ct_from_data(data, CT_DIMS(bytes), CT_U8);
    free(data);
    return x;
}
static bool holds(ct_tensor *x, char content) {
    const size_t bytes = (size_t)ct_numel(x);
    char *data = malloc(bytes);
    bool same = ct_read(x, data, bytes);
    for (size_t i = 0; same && i < bytes; i++) same = data[i] == content;
    free(data);
    return same;
}

TEST(tensors_lie_side_by_side_in_large_parts) {
    const ct_device d = opened();
    ct_tensor *x[100];
    for (int i = 0; i < 100; i++) x[i] = bytes_of(1 + 97 * i, (char)i);
    for (int i = 0; i < 100; i++) CHECK(holds(x[i], (char)i));
    CHECK(trial.allocations == 1 && trial.most_alignment == 0);
    CHECK(stats(d).from_host == 1 && stats(d).requests == 100 && stats(d).reserved == (int64_t)trial.used);
    CHECK(stats(d).in_use == 100 + 97 * 99 * 50 && stats(d).peak == stats(d).in_use);
}

TEST(what_comes_back_is_joined_and_used_again) {
    const ct_device d = opened();
    ct_tensor *large = NULL;
    ct_scope {
        ct_tensor *x[8];
        for (int i = 0; i < 8; i++) x[i] = bytes_of(1 << 20, (char)i);
        for (int i = 0; i < 8; i++) CHECK(holds(x[i], (char)i));
        CHECK(stats(d).in_use == 8 << 20);
    }
    const int before = trial.allocations;
    for (int i = 0; i < 100; i++) {
        ct_scope {
            CHECK(holds(bytes_of(1 << 20, 1), 1) && holds(bytes_of((1 << 20) + 300 * i, 2), 2));
        }
    }
    CHECK(trial.allocations == before && stats(d).in_use == 0 && stats(d).peak == 8 << 20);
    large = bytes_of(2 << 20, 3); /* of two blocks that were neighbors */
    CHECK(holds(large, 3) && trial.allocations == before);
    CHECK(ct_memory_reset_peak(d) && stats(d).peak == 2 << 20);
}

TEST(unused_parts_go_back_before_memory_is_refused) {
    const ct_device d = opened();
    trial.room = 16 << 20;
    ct_scope {
        for (int i = 0; i < 7; i++) CHECK(bytes_of(2 << 20, 1) != NULL);
    }
    CHECK(stats(d).reserved >= 14 << 20 && trial.releases == 0);
    ct_scope {
        CHECK(holds(bytes_of(15 << 20, 2), 2)); /* no part is large enough, all are unused */
    }
    CHECK(trial.releases > 0 && trial.waits > 0 && trial.used <= trial.room);
    CHECK(!bytes_of(17 << 20, 3) && ct_error_code() == CT_ERR_MEMORY);
    ct_error_clear();
    ct_scope {
        CHECK(holds(bytes_of(1000, 4), 4));
    }
    CHECK(ct_memory_trim(d) && trial.used == 0 && stats(d).reserved == 0);
}

TEST(a_limit_is_kept) {
    const ct_device d = opened();
    CHECK(ct_set_memory_limit(d, 8 << 20) && stats(d).limit == 8 << 20);
    ct_tensor *x = bytes_of(5 << 20, 1);
    CHECK(x && !bytes_of(5 << 20, 2));
    CHECK_ERROR(CT_ERR_MEMORY,
                "from_data: out of memory: 5242880 bytes could not be had on trial; 5242880 are in use there, and "
                "6291456 taken by this process, which may take 8388608 (ct_set_memory_limit)");
    CHECK(ct_set_memory_limit(d, 0) && bytes_of(5 << 20, 2) && holds(x, 1));
    CHECK(!ct_set_memory_limit(d, -1));
    CHECK_ERROR(CT_ERR_VALUE, "set_memory_limit: -1 bytes cannot be had");
    ct_memory wrong = {0};
    CHECK(!ct_memory_stats(d, &wrong) && ct_error_code() == CT_ERR_VALUE);
    ct_error_clear();
    /* the host's too */
    const int64_t now = harness_memory().reserved;
    CHECK(ct_set_device((ct_device){CT_CPU, 0}) && ct_set_memory_limit((ct_device){CT_CPU, 0}, now + (4 << 20)));
    CHECK(!ct_zeros(CT_DIMS(4 << 20)) && ct_error_code() == CT_ERR_MEMORY);
    ct_error_clear();
    CHECK(ct_set_memory_limit((ct_device){CT_CPU, 0}, 0) && ct_zeros(CT_DIMS(4 << 20)));
}

TEST(a_limit_comes_from_the_environment) {
    setenv("CT_DEVICE_MEMORY", "6M", 1);
    const ct_device d = opened();
    CHECK(stats(d).limit == 6 << 20 && bytes_of(5 << 20, 1) && !bytes_of(5 << 20, 2));
    ct_error_clear();
    CHECK(ct_set_memory_limit(d, 0) && bytes_of(5 << 20, 2));
}

TEST(a_limit_that_is_no_number_is_an_error) {
    setenv("CT_DEVICE_MEMORY", "6 apples", 1);
    opened();
    CHECK(!bytes_of(10, 1));
    CHECK_ERROR(CT_ERR_VALUE, "CT_DEVICE_MEMORY is '6 apples'; it is a number of bytes, or of K, M, G or T, as 8G");
    setenv("CT_DEVICE_MEMORY", "1.5g", 1);
    CHECK(stats((ct_device){0}).limit == 3LL << 29);
}

/* ---- Pinned memory of the host ---- */

TEST(pinned_tensors_come_from_a_pool_of_the_device_and_go_back) {
    const ct_device d = opened(), cpu = {CT_CPU, 0};
    for (int round = 0; round < 5; round++)
        ct_scope {
            ct_tensor *x = ct_empty_pinned(CT_DIMS(1000, 100), CT_F32, d), *y = ct_empty_pinned(CT_DIMS(7), CT_U8, d),
                      *none = ct_empty_pinned(CT_DIMS(0, 3), CT_F32, d);
            CHECK(x && y && none && ct_numel(none) == 0 && ct_device_of(x).type == CT_CPU && trial.pinned == 1);
            memset(ct_data_mut(x), 0, 400000);
            memset(ct_data_mut(y), 3, 7);
            CHECK(holds(ct_to(y, d), 3) && ct_is_contiguous(x) && (uintptr_t)ct_data(x) % 64 == 0);
        }
    ct_scope {
        CHECK(ct_empty_pinned(CT_DIMS(5 << 20), CT_U8, d) && trial.pinned == 2);
    }
    CHECK(ct_memory_trim(d) && trial.pinned == 0);
    trial.refuses = true;
    CHECK(!ct_empty_pinned(CT_DIMS(10), CT_F32, d));
    CHECK_ERROR(CT_ERR_MEMORY, "empty_pinned: out of memory: 40 bytes of pinned memory could not be had from trial");
    CHECK(ct_empty_pinned(CT_DIMS(10), CT_F32, cpu)); /* where there is no such memory any will do */
}

/* ---- Streams ---- */

static const char *order(void) { /* since the last look */
    static char text[sizeof trial.order];
    memcpy(text, trial.order, sizeof text);
    trial.order[0] = 0;
    return text;
}

TEST(a_stream_waits_for_the_one_that_wrote_what_it_reads) {
    const ct_device d = opened();
    ct_stream *one = ct_stream_new(d), *two = ct_stream_new(d);
    REQUIRE(one && two);
    order(); /* a new stream begins after all that there is */
    ct_tensor *x = bytes_of(100, 7);
    CHECK(holds(x, 7));
    CHECK_TEXT(order(), "");
    CHECK(ct_set_stream(d, one) && ct_get_stream(d) == one && holds(x, 7));
    CHECK_TEXT(order(), "0>1 ");
    CHECK(holds(x, 7)); /* once is enough */
    CHECK_TEXT(order(), "");
    CHECK(ct_set_stream(d, two) && holds(x, 7));
    CHECK_TEXT(order(), "0>2 ");
    CHECK(ct_set_stream(d, NULL) && !ct_get_stream(d) && holds(x, 7));
    CHECK_TEXT(order(), "");
    ct_stream_free(one);
    ct_stream_free(two);
    CHECK_TEXT(order(), "1>0 2>0 ");
}

TEST(memory_is_reused_on_its_own_stream_at_once_and_elsewhere_after_an_event) {
    const ct_device d = opened();
    ct_stream *one = ct_stream_new(d);
    order();
    ct_scope {
        bytes_of(1 << 20, 1);
    }
    ct_scope {
        bytes_of(1 << 20, 2);
    }
    CHECK_TEXT(order(), "");
    CHECK(trial.allocations == 1);
    REQUIRE(ct_set_stream(d, one));
    ct_scope {
        bytes_of(1 << 20, 3); /* of a part of its own: nothing to wait for */
    }
    CHECK_TEXT(order(), "");
    CHECK_TEXT(trial.discarded, "1");
    CHECK(trial.allocations == 2);
    trial.room = trial.used; /* now there is only what the other stream has left over */
    ct_scope {
        bytes_of(2 << 20, 4);
        CHECK_TEXT(order(), "");
        bytes_of(2 << 20, 5);
        CHECK_TEXT(order(), "0>1 ");
    }
    CHECK_TEXT(order(), "1>0 "); /* back to where it belongs, after its last use */
    CHECK(ct_set_stream(d, NULL));
    ct_stream_free(one);
}

TEST(what_another_stream_has_read_is_freed_after_it) {
    const ct_device d = opened();
    ct_stream *one = ct_stream_new(d), *two = ct_stream_new(d);
    order();
    ct_scope {
        ct_tensor *x = bytes_of(100, 7);
        CHECK(ct_set_stream(d, one) && holds(x, 7) && ct_set_stream(d, two) && holds(x, 7) && ct_set_stream(d, NULL));
        CHECK_TEXT(order(), "0>1 0>2 ");
    }
    CHECK_TEXT(order(), "1>0 2>0 ");
    ct_stream_free(one);
    ct_stream_free(two);
}

TEST(a_stream_that_is_freed_leaves_its_tensors_and_its_number) {
    const ct_device d = opened();
    ct_stream *one = ct_stream_new(d);
    REQUIRE(ct_set_stream(d, one));
    ct_tensor *x = bytes_of(100, 7);
    order();
    ct_stream_free(one);
    CHECK(!ct_get_stream(d) && holds(x, 7)); /* the device's own has waited for it */
    CHECK_TEXT(order(), "1>0 ");
    CHECK(!ct_set_stream(d, one));
    CHECK_ERROR(CT_ERR_STATE, "set_stream: the stream has been freed");
    ct_stream *next = ct_stream_new(d);
    CHECK_TEXT(order(), "0>2 "); /* so what is noted of the old one is true of it as well */
    CHECK(ct_set_stream(d, next) && holds(x, 7));
    CHECK_TEXT(order(), "");
    ct_stream_free(next);
    ct_stream *all[64] = {0};
    int n = 0;
    while (n < 64 && (all[n] = ct_stream_new(d))) n++;
    CHECK(n == 63);
    CHECK_ERROR(CT_ERR_STATE, "stream_new: trial has 63 streams already");
    while (n > 0) ct_stream_free(all[--n]);
    CHECK(ct_set_stream(d, NULL) && ct_stream_synchronize(next) == false);
    CHECK_ERROR(CT_ERR_STATE, "stream_synchronize: the stream has been freed");
}

TEST(the_cpu_takes_streams_and_needs_none) {
    const ct_device host = {CT_CPU, 0};
    ct_stream *s = ct_stream_new(host);
    REQUIRE(s && ct_set_stream(host, s));
    CHECK(ct_item(ct_sum(ct_ones(CT_DIMS(10)))) == 10 && ct_stream_synchronize(s) && ct_synchronize(host));
    ct_stream_free(s);
    ct_stream_free(NULL);
}
