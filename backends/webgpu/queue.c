/* Work of a device: it is recorded into a command buffer, which is submitted when somebody waits or enough has gathered. Uniforms and small
 * uploads gather in host memory, and are written to the device at once before the command buffer that reads them.
 *
 * A command buffer that is wrong would abort the process at its submission, so errors are caught when it is finished, and such a one is
 * never submitted. */
#include <float.h>
#include <stdio.h>
#include <stdlib.h>

#include "backends/webgpu/device.h"

WGPUBuffer ct_wgpu_make_buffer(ct_wgpu_device *d, uint64_t bytes, WGPUBufferUsage usage) {
    WGPUBufferDescriptor descriptor = WGPU_BUFFER_DESCRIPTOR_INIT;
    descriptor.size = bytes;
    descriptor.usage = usage;
    ct_wgpu_push(d);
    WGPUBuffer buffer = ct_wgpu.DeviceCreateBuffer(d->device, &descriptor);
    if (ct_wgpu_pop(d) && buffer) {
        ct_wgpu.BufferRelease(buffer);
        buffer = NULL;
    }
    return buffer;
}

bool ct_wgpu_queue_open(ct_wgpu_device *d) {
    const WGPUBufferUsage storage = WGPUBufferUsage_Storage | WGPUBufferUsage_CopySrc | WGPUBufferUsage_CopyDst;
    d->uniforms =
        ct_wgpu_make_buffer(d, CT_WGPU_RING + CT_WGPU_BLOCK, WGPUBufferUsage_Uniform | WGPUBufferUsage_CopyDst);
    d->staging = ct_wgpu_make_buffer(d, CT_WGPU_STAGING, storage);
    d->word = ct_wgpu_make_buffer(d, CT_WGPU_WORD, storage);
    if (!d->uniforms_here) d->uniforms_here = calloc(1, CT_WGPU_RING + CT_WGPU_BLOCK);
    if (!d->staging_here) d->staging_here = malloc(CT_WGPU_STAGING);
    d->uniforms_used = d->staging_used = 0;
    d->dispatches = d->n_noted = 0;
    return d->uniforms && d->staging && d->word && d->uniforms_here && d->staging_here;
}

static void drop(WGPUBuffer *buffer) {
    if (*buffer) ct_wgpu.BufferRelease(*buffer);
    *buffer = NULL;
}

static void end_pass(ct_wgpu_device *d) {
    if (!d->pass) return;
    ct_wgpu.ComputePassEncoderEnd(d->pass);
    ct_wgpu.ComputePassEncoderRelease(d->pass);
    d->pass = NULL;
    d->pipeline_set = NULL;
}

void ct_wgpu_queue_close(ct_wgpu_device *d) {
    end_pass(d);
    d->n_waiting = 0;
    if (d->encoder) ct_wgpu.CommandEncoderRelease(d->encoder);
    d->encoder = NULL;
    drop(&d->uniforms), drop(&d->staging), drop(&d->word), drop(&d->reading);
    d->reading_size = 0;
}

static WGPUCommandEncoder encoder(ct_wgpu_device *d) {
    if (!d->encoder) d->encoder = ct_wgpu.DeviceCreateCommandEncoder(d->device, NULL);
    return d->encoder;
}

static bool encode_one(ct_wgpu_device *d, const ct_wgpu_command *c, const char *op) {
    if (!encoder(d)) return ct_wgpu_host->fail(CT_ERR_DEVICE, op, "no commands can be recorded");
    if (!c->pipeline) {
        end_pass(d);
        ct_wgpu.CommandEncoderCopyBufferToBuffer(d->encoder, c->from, c->from_offset, c->to, c->to_offset, c->bytes);
        return true;
    }
    if (!d->pass) d->pass = ct_wgpu.CommandEncoderBeginComputePass(d->encoder, NULL);
    if (!d->pass) return ct_wgpu_host->fail(CT_ERR_DEVICE, op, "no commands can be recorded");
    if (d->pipeline_set != c->pipeline->made) ct_wgpu.ComputePassEncoderSetPipeline(d->pass, c->pipeline->made);
    d->pipeline_set = c->pipeline->made;
    ct_wgpu.ComputePassEncoderSetBindGroup(d->pass, 0, c->group, 1, &c->offset);
    ct_wgpu.ComputePassEncoderDispatchWorkgroups(d->pass, c->x, c->y, 1);
    return true;
}

bool ct_wgpu_record(ct_wgpu_device *d, const ct_wgpu_command *command, const char *op) {
    if (!d->n_waiting && (!command->pipeline || command->pipeline->made)) return encode_one(d, command, op);
    if (d->n_waiting == d->waiting_room) {
        const int room = d->waiting_room ? 2 * d->waiting_room : 256;
        ct_wgpu_command *grown = realloc(d->waiting, (size_t)room * sizeof *grown);
        if (!grown) return ct_wgpu_host->fail(CT_ERR_MEMORY, op, "no memory for a command");
        d->waiting = grown;
        d->waiting_room = room;
    }
    d->waiting[d->n_waiting++] = *command;
    return true;
}

static bool record_copy(ct_wgpu_device *d, WGPUBuffer from, uint64_t from_offset, WGPUBuffer to, uint64_t to_offset,
                        uint64_t bytes, const char *op) {
    const ct_wgpu_command command = {
        .from = from, .from_offset = from_offset, .to = to, .to_offset = to_offset, .bytes = bytes};
    return ct_wgpu_record(d, &command, op);
}

bool ct_wgpu_encode(ct_wgpu_device *d, const char *op) {
    const int n = d->n_waiting;
    if (!n) return true;
    d->n_waiting = 0; /* those that fail are not tried again */
    bool ok = ct_wgpu_pipelines_make(d);
    for (int i = 0; i < n && ok; i++) ok = encode_one(d, &d->waiting[i], op);
    return ok;
}

bool ct_wgpu_flush(ct_wgpu_device *d, const char *op) {
    if (!ct_wgpu_sound(d, op) || !ct_wgpu_encode(d, op)) return false;
    if (!d->encoder) return true;
    end_pass(d);
    ct_wgpu_push(d);
    WGPUCommandBuffer commands = ct_wgpu.CommandEncoderFinish(d->encoder, NULL);
    const char *error = ct_wgpu_pop(d);
    ct_wgpu.CommandEncoderRelease(d->encoder);
    d->encoder = NULL;
    const size_t uniforms = d->uniforms_used, staging = d->staging_used;
    d->uniforms_used = d->staging_used = 0;
    const bool computes = d->dispatches > 0;
    d->dispatches = 0;
    if (error || !commands) {
        if (commands) ct_wgpu.CommandBufferRelease(commands);
        return ct_wgpu_host->fail(CT_ERR_DEVICE, op, "WebGPU refuses the commands: %s",
                                  error ? error : "it gives no reason");
    }
    if (!ct_wgpu_sound(d, op)) { /* it was lost in the meantime */
        ct_wgpu.CommandBufferRelease(commands);
        return false;
    }
    if (uniforms) ct_wgpu.QueueWriteBuffer(d->queue, d->uniforms, 0, d->uniforms_here, uniforms);
    if (staging) ct_wgpu.QueueWriteBuffer(d->queue, d->staging, 0, d->staging_here, (staging + 3) & ~(size_t)3);
    ct_wgpu.QueueSubmit(d->queue, 1, &commands);
    ct_wgpu.CommandBufferRelease(commands);
    if (ct_wgpu.native.DevicePoll) ct_wgpu.native.DevicePoll(d->device, 0, NULL); /* lets go of what is done */
    if (computes) ct_wgpu_first_work(d);
    return true;
}

/* ---- Reading ---- */

typedef struct mapping {
    _Atomic int done;
    bool ok;
} mapping;

static void on_map(WGPUMapAsyncStatus status, WGPUStringView message, void *a, void *b) {
    (void)message, (void)b;
    mapping *m = a;
    m->ok = status == WGPUMapAsyncStatus_Success;
    atomic_store(&m->done, 1);
}

/* The first bytes of d->reading, which the commands that were submitted last have written, until it is unmapped; NULL after an error. */
static const char *map_reading(ct_wgpu_device *d, size_t bytes, const char *op) {
    mapping m = {0};
    const WGPUBufferMapCallbackInfo info = {
        .mode = WGPUCallbackMode_AllowSpontaneous, .callback = on_map, .userdata1 = &m};
    ct_wgpu.BufferMapAsync(d->reading, WGPUMapMode_Read, 0, bytes, info);
    ct_wgpu_until(d, &m.done);
    const char *there = m.ok ? ct_wgpu.BufferGetConstMappedRange(d->reading, 0, bytes) : NULL;
    if (m.ok && !there) ct_wgpu.BufferUnmap(d->reading);
    if (!there && ct_wgpu_sound(d, op)) ct_wgpu_host->fail(CT_ERR_DEVICE, op, "results cannot be read from the device");
    return there;
}

static bool reserve_reading(ct_wgpu_device *d, uint64_t bytes) {
    if (d->reading_size >= bytes) return true;
    uint64_t size = 1 << 16;
    while (size < bytes) size *= 2;
    drop(&d->reading);
    d->reading = ct_wgpu_make_buffer(d, size, WGPUBufferUsage_MapRead | WGPUBufferUsage_CopyDst);
    d->reading_size = d->reading ? size : 0;
    return d->reading || ct_wgpu_host->fail(CT_ERR_MEMORY, "webgpu", "no memory to read results with");
}

/* Raises what a kernel has noted, and clears the word. */
static bool report(ct_wgpu_device *d, const uint32_t *w) {
    if (!w[0]) return true;
    const int call = (int)w[1];
    static const uint32_t zero[CT_WGPU_WORD / 4];
    ct_wgpu.QueueWriteBuffer(d->queue, d->word, 0, zero, sizeof zero);
    if (call < 0 || call >= d->n_noted) return true; /* it was raised before */
    const ct_wgpu_noted *noted = &d->noted[call];
    int64_t pairs[4];
    float real[3];
    for (int i = 0; i < 4; i++) pairs[i] = (int64_t)((uint64_t)w[6 + 2 * i] | (uint64_t)w[7 + 2 * i] << 32);
    memcpy(real, w + 14, sizeof real);
    const ct_wrong_value wrong = {.op = noted->op,
                                  .called = noted->called,
                                  .flags = noted->flags,
                                  .code = w[2] == 0 ? CT_ERR_INDEX : CT_ERR_VALUE,
                                  .argument = (int)w[3],
                                  .what = w[4] && w[4] <= CT_WGPU_WHATS ? noted->whats[w[4] - 1] : NULL,
                                  .is_real = w[5] != 0,
                                  .position = pairs[0],
                                  .value = pairs[1],
                                  .low = pairs[2],
                                  .high = pairs[3],
                                  .real_value = (double)real[0],
                                  /* the bounds of f32 stand for those of f64 */
                                  .real_low = real[1] == FLT_MIN ? DBL_MIN : (double)real[1],
                                  .real_high = real[2] == FLT_MAX ? DBL_MAX : (double)real[2]};
    d->n_noted = 0;
    return ct_wgpu_host->fail_value(&wrong);
}

static void on_done(WGPUQueueWorkDoneStatus status, WGPUStringView message, void *a, void *b) {
    (void)status, (void)message, (void)b;
    atomic_store((_Atomic int *)a, 1);
}

/* The word is copied behind what is read, so that one mapping serves. */
static bool read_word(ct_wgpu_device *d, uint64_t at) {
    return record_copy(d, d->word, 0, d->reading, at, CT_WGPU_WORD, "webgpu");
}

/* Copies n bytes to host; behind the last of them what was done before is done, and the word is looked at. */
static bool read_part(ct_wgpu_device *d, void *host, const ct_wgpu_buffer *from, uint64_t at, size_t n,
                      const char *op) {
    const uint64_t skip = at % 4, copied = (skip + n + 3) & ~(uint64_t)3; /* sizes of buffers are multiples of 4 */
    if (!reserve_reading(d, CT_WGPU_WORD + copied) || !read_word(d, 0)) return false;
    if (n && !record_copy(d, from->buffer, at - skip, d->reading, CT_WGPU_WORD, copied, op)) return false;
    if (!ct_wgpu_flush(d, op)) return false;
    uint32_t word[CT_WGPU_WORD / 4];
    const char *mapped = map_reading(d, (size_t)(CT_WGPU_WORD + copied), op);
    if (!mapped) return false;
    memcpy(word, mapped, sizeof word);
    if (n) memcpy(host, mapped + CT_WGPU_WORD + skip, n);
    ct_wgpu.BufferUnmap(d->reading);
    const bool ok = ct_wgpu_sound(d, op) && report(d, word);
    d->n_noted = 0;
    return ok;
}

void ct_wgpu_settle(ct_wgpu_device *d) {
    _Atomic int done = 0;
    const WGPUQueueWorkDoneCallbackInfo info = {
        .mode = WGPUCallbackMode_AllowSpontaneous, .callback = on_done, .userdata1 = (void *)&done};
    ct_wgpu.QueueOnSubmittedWorkDone(d->queue, info);
    ct_wgpu_until(d, &done);
}

bool ct_wgpu_wait(ct_wgpu_device *d, const char *op) {
    if (d->n_noted) return read_part(d, NULL, NULL, 0, 0, op);
    if (!ct_wgpu_flush(d, op)) return false;
    ct_wgpu_settle(d);
    return ct_wgpu_sound(d, op);
}

bool ct_wgpu_download(ct_wgpu_device *d, void *host, const ct_wgpu_buffer *from, uint64_t offset, uint64_t bytes) {
    const uint64_t most = 64 << 20;
    if (bytes == 0) return ct_wgpu_wait(d, "read");
    for (uint64_t done = 0; done < bytes;) {
        const uint64_t n = bytes - done < most ? bytes - done : most;
        if (!read_part(d, (unsigned char *)host + done, from, offset + done, (size_t)n, "read")) return false;
        done += n;
    }
    return true;
}

/* ---- Writing ---- */

bool ct_wgpu_upload(ct_wgpu_device *d, ct_wgpu_buffer *to, uint64_t offset, const void *host, uint64_t bytes) {
    if (bytes == 0) return true;
    const uint64_t small = CT_WGPU_STAGING / 4;
    const unsigned char *from = host;
    if (offset % 4 == 0 && bytes >= small) { /* whole words directly, after all that was recorded before */
        const uint64_t whole = bytes & ~(uint64_t)3;
        if (!ct_wgpu_flush(d, "write")) return false;
        ct_wgpu.QueueWriteBuffer(d->queue, to->buffer, offset, from, (size_t)whole);
        if (whole == bytes) return ct_wgpu_sound(d, "write");
        return ct_wgpu_upload(d, to, offset + whole, from + whole, bytes - whole);
    }
    if (bytes > small) {
        for (uint64_t done = 0; done < bytes;) {
            const uint64_t n = bytes - done < small ? bytes - done : small - offset % 4;
            if (!ct_wgpu_upload(d, to, offset + done, from + done, n)) return false;
            done += n;
        }
        return true;
    }
    if (d->staging_used + bytes + 8 > CT_WGPU_STAGING && !ct_wgpu_flush(d, "write")) return false;
    const size_t at = d->staging_used;
    memcpy(d->staging_here + at, host, (size_t)bytes);
    d->staging_used = (at + (size_t)bytes + 15) & ~(size_t)15;
    if (offset % 4 == 0 && bytes % 4 == 0) return record_copy(d, d->staging, at, to->buffer, offset, bytes, "write");
    ct_wgpu_buffer staging = {d->staging, CT_WGPU_STAGING, d->generation};
    return ct_wgpu_move(d, 0, to, offset, &staging, at, bytes);
}
