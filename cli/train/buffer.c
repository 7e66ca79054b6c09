/* Texts that grow, and whole files. */
#include "cli/train/buffer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool reserve(buffer *b, size_t more) {
    if (b->failed || more > SIZE_MAX / 2 - b->n) return !(b->failed = true);
    if (b->n + more + 1 <= b->capacity) return true;
    size_t capacity = b->capacity ? b->capacity : 256;
    while (capacity < b->n + more + 1) capacity *= 2;
    char *at = realloc(b->at, capacity);
    if (!at) return !(b->failed = true);
    b->at = at;
    b->capacity = capacity;
    return true;
}

void buffer_bytes(buffer *b, const void *bytes, size_t n) {
    if (!reserve(b, n)) return;
    if (n) memcpy(b->at + b->n, bytes, n);
    b->n += n;
    b->at[b->n] = 0;
}

void buffer_text(buffer *b, const char *text) { buffer_bytes(b, text, strlen(text)); }

void buffer_add(buffer *b, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    const int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0) b->failed = true;
    else if (reserve(b, (size_t)n)) {
        vsnprintf(b->at + b->n, (size_t)n + 1, format, again);
        b->n += (size_t)n;
    }
    va_end(again);
}

void buffer_free(buffer *b) {
    free(b->at);
    *b = (buffer){0};
}

void buffer_html(buffer *b, const char *text) {
    for (; *text; text++) switch (*text) {
        case '<': buffer_text(b, "&lt;"); break;
        case '>': buffer_text(b, "&gt;"); break;
        case '&': buffer_text(b, "&amp;"); break;
        case '"': buffer_text(b, "&quot;"); break;
        default: buffer_bytes(b, text, 1);
        }
}

void buffer_json(buffer *b, const char *text) {
    buffer_text(b, "\"");
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') buffer_add(b, "\\%c", c);
        else if (c == '\n') buffer_text(b, "\\n");
        else if (c < 32 || c == 127) buffer_add(b, "\\u%04x", c);
        else buffer_bytes(b, text, 1);
    }
    buffer_text(b, "\"");
}

void buffer_base64(buffer *b, const void *bytes, size_t n) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *in = bytes;
    for (size_t i = 0; i < n; i += 3) {
        const unsigned left = n - i < 3 ? (unsigned)(n - i) : 3;
        const unsigned group =
            (unsigned)in[i] << 16 | (left > 1 ? (unsigned)in[i + 1] << 8 : 0) | (left > 2 ? in[i + 2] : 0);
        const char four[4] = {digits[group >> 18], digits[group >> 12 & 63], left > 1 ? digits[group >> 6 & 63] : '=',
                              left > 2 ? digits[group & 63] : '='};
        buffer_bytes(b, four, 4);
    }
}

char *text_copy(const char *text) {
    const size_t n = strlen(text) + 1;
    char *copy = malloc(n);
    if (copy) memcpy(copy, text, n);
    else ct_fail(CT_ERR_MEMORY, NULL, "out of memory");
    return copy;
}

bool file_exists(const char *path) {
    struct stat status;
    return stat(path, &status) == 0;
}

char *file_read(const char *path, size_t limit, size_t *n) {
    FILE *file = fopen(path, "rb");
    if (!file) {
        ct_fail(CT_ERR_IO, NULL, "%s: %s", path, strerror(errno));
        return NULL;
    }
    buffer b = {0};
    char piece[16384];
    size_t got;
    while (b.n <= limit && (got = fread(piece, 1, sizeof piece, file)) > 0) buffer_bytes(&b, piece, got);
    buffer_bytes(&b, "", 0);
    if (ferror(file)) ct_fail(CT_ERR_IO, NULL, "%s: %s", path, strerror(errno));
    else if (b.n > limit)
        ct_fail(CT_ERR_IO, NULL, "%s: the file is longer than the %zu bytes that are allowed", path, limit);
    else if (b.failed) ct_fail(CT_ERR_MEMORY, NULL, "%s: out of memory", path);
    else {
        fclose(file);
        *n = b.n;
        return b.at;
    }
    fclose(file);
    buffer_free(&b);
    return NULL;
}

bool file_write(const char *path, const void *bytes, size_t n, bool sync) {
    char part[4096];
    if (snprintf(part, sizeof part, "%s.part", path) >= (int)sizeof part)
        return ct_fail(CT_ERR_IO, NULL, "%s: the name is too long", path);
    FILE *file = fopen(part, "wb");
    if (!file) return ct_fail(CT_ERR_IO, NULL, "%s: %s", part, strerror(errno));
    bool written = fwrite(bytes, 1, n, file) == n && fflush(file) == 0 && (!sync || fsync(fileno(file)) == 0);
    written = fclose(file) == 0 && written;
    if (written && rename(part, path) == 0) return true;
    ct_fail(CT_ERR_IO, NULL, "%s: cannot be written: %s", path, strerror(errno));
    remove(part);
    return false;
}
