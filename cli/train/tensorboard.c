/* An event file is a row of records: the length (8 bytes), its checksum, an Event, its checksum. An Event is a protocol
 * buffer, of which these few fields are written by hand:
 *     Event    1 wall_time (double)  2 step  3 file_version  5 summary  7 session_log
 *     Summary  1 value: 1 tag  2 simple_value (float)  4 image  8 tensor  9 metadata
 *     Image    1 height  2 width  3 color channels  4 encoded bytes
 * Checksums are CRC-32C, rotated and shifted so that a checksum of checksums is not zero. */
#include "cli/train/tensorboard.h"

#include "cli/train/buffer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct board {
    FILE *file;
    char path[4096];
};

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

uint32_t board_crc32c(const void *bytes, size_t n) {
    const unsigned char *at = bytes;
    uint32_t crc = ~(uint32_t)0;
    for (size_t i = 0; i < n; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

static uint32_t masked(const void *bytes, size_t n) {
    const uint32_t crc = board_crc32c(bytes, n);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static void put_little_endian(buffer *b, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) {
        const unsigned char byte = (unsigned char)(value >> (8 * i));
        buffer_bytes(b, &byte, 1);
    }
}

static void put_varint(buffer *b, uint64_t value) {
    for (; value >= 128; value >>= 7) put_little_endian(b, (value & 127) | 128, 1);
    put_little_endian(b, value, 1);
}

static void put_tag(buffer *b, int field, int type) { put_varint(b, (uint64_t)field << 3 | (uint64_t)type); }

static void put_number(buffer *b, int field, int64_t value) {
    put_tag(b, field, VARINT);
    put_varint(b, (uint64_t)value);
}

static void put_bytes(buffer *b, int field, const void *bytes, size_t n) {
    put_tag(b, field, BYTES);
    put_varint(b, n);
    buffer_bytes(b, bytes, n);
}

static void put_text(buffer *b, int field, const char *text) { put_bytes(b, field, text, strlen(text)); }

/* A message as a field of another one; frees the inner one. */
static void put_message(buffer *b, int field, buffer *inner) {
    put_bytes(b, field, inner->at, inner->n);
    b->failed |= inner->failed;
    buffer_free(inner);
}

static buffer begin_event(int64_t step) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const double seconds = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    uint64_t bits;
    memcpy(&bits, &seconds, 8);
    buffer event = {0};
    put_tag(&event, 1, FIXED64);
    put_little_endian(&event, bits, 8);
    put_number(&event, 2, step);
    return event;
}

static bool end_event(board *b, buffer *event) {
    if (!b) { /* another process writes it */
        buffer_free(event);
        return true;
    }
    buffer record = {0};
    put_little_endian(&record, event->n, 8);
    put_little_endian(&record, masked(record.at, record.n), 4);
    buffer_bytes(&record, event->at, event->n);
    put_little_endian(&record, masked(event->at, event->n), 4);
    bool written = false;
    if (record.failed || event->failed) ct_fail(CT_ERR_MEMORY, NULL, "%s: out of memory", b->path);
    else {
        written = fwrite(record.at, 1, record.n, b->file) == record.n && fflush(b->file) == 0;
        if (!written) ct_fail(CT_ERR_IO, NULL, "%s: cannot be written: %s", b->path, strerror(errno));
    }
    buffer_free(&record);
    buffer_free(event);
    return written;
}

/* One value of a summary, wrapped up as an event. */
static bool write_value(board *b, int64_t step, buffer *value) {
    buffer summary = {0}, event = begin_event(step);
    put_message(&summary, 1, value);
    put_message(&event, 5, &summary);
    return end_event(b, &event);
}

board *board_open(const char *folder, int64_t first_step) {
    board *b = calloc(1, sizeof *b);
    if (!b) {
        ct_fail(CT_ERR_MEMORY, NULL, "out of memory");
        return NULL;
    }
    char host[64] = "host";
    gethostname(host, sizeof host - 1);
    /* TensorBoard reads the files of a folder by name, so a later one has to come later in that order. */
    long long moment = (long long)time(NULL);
    do {
        snprintf(b->path, sizeof b->path, "%s/events.out.tfevents.%010lld.%s", folder, moment++, host);
    } while (file_exists(b->path));
    b->file = fopen(b->path, "wb");
    if (!b->file) {
        ct_fail(CT_ERR_IO, NULL, "%s: %s", b->path, strerror(errno));
        board_close(b);
        return NULL;
    }
    buffer event = begin_event(first_step);
    put_text(&event, 3, "brain.Event:2");
    bool right = end_event(b, &event);
    if (right && first_step > 0) {
        buffer session = {0};
        put_number(&session, 1, 1); /* START: steps from here on count anew */
        event = begin_event(first_step);
        put_message(&event, 7, &session);
        right = end_event(b, &event);
    }
    if (right) return b;
    board_close(b);
    return NULL;
}

void board_close(board *b) {
    if (!b) return;
    if (b->file) fclose(b->file);
    free(b);
}

bool board_scalar(board *b, int64_t step, const char *tag, double value) {
    const float rounded = (float)value;
    uint32_t bits;
    memcpy(&bits, &rounded, 4);
    buffer v = {0};
    put_text(&v, 1, tag);
    put_tag(&v, 2, FIXED32);
    put_little_endian(&v, bits, 4);
    return write_value(b, step, &v);
}

bool board_image(board *b, int64_t step, const char *tag, int width, int height, const void *png, size_t bytes) {
    buffer v = {0}, image = {0};
    put_text(&v, 1, tag);
    put_number(&image, 1, height);
    put_number(&image, 2, width);
    put_number(&image, 3, 3);
    put_bytes(&image, 4, png, bytes);
    put_message(&v, 4, &image);
    return write_value(b, step, &v);
}

bool board_text(board *b, int64_t step, const char *tag, const char *text) {
    buffer v = {0}, tensor = {0}, metadata = {0}, plugin = {0};
    put_text(&v, 1, tag);
    put_number(&tensor, 1, 7); /* DT_STRING, of shape [] */
    put_message(&tensor, 2, &(buffer){0});
    put_text(&tensor, 8, text);
    put_message(&v, 8, &tensor);
    put_text(&plugin, 1, "text");
    put_message(&metadata, 1, &plugin);
    put_message(&v, 9, &metadata);
    return write_value(b, step, &v);
}
