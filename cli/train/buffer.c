/* Texts that grow, and whole files. */
#include "cli/train/buffer.h"

#include <errno.h>
#include <math.h>
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

/* ---- Characters ---- */

/* The bytes of the character that a text begins with, and its number; 0 when they are not UTF-8. */
static size_t character(const char *text, uint32_t *number) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *s = (const unsigned char *)text;
    const size_t n = s[0] < 0x80 ? 1 : s[0] >> 5 == 6 ? 2 : s[0] >> 4 == 14 ? 3 : s[0] >> 3 == 30 ? 4 : 0;
    *number = n == 1 ? s[0] : n ? s[0] & 0x7fu >> n : 0;
    for (size_t i = 1; i < n; i++) {
        if (s[i] >> 6 != 2) return 0; /* the zero at the end as well */
        *number = *number << 6 | (s[i] & 63);
    }
    return n && (*number < least[n] || *number > 0x10ffff || *number >> 11 == 27) ? 0 : n;
}

static bool is_control(uint32_t number) { return number < 32 || (number >= 127 && number < 160); }

static const char unknown[] = "\xef\xbf\xbd";

/* Gives each character of a text to `add`, and U+FFFD for each byte that belongs to none. */
static void each_character(buffer *b, const char *text, const void *context,
                           void (*add)(buffer *b, const char *at, size_t n, uint32_t number, const void *context)) {
    for (uint32_t number; *text;) {
        const size_t n = character(text, &number);
        if (n) add(b, text, n, number, context);
        else buffer_text(b, unknown);
        text += n ? n : 1;
    }
}

static void add_clean(buffer *b, const char *at, size_t n, uint32_t number, const void *keep) {
    if (is_control(number) && !(n == 1 && strchr(keep, *at))) buffer_text(b, unknown);
    else buffer_bytes(b, at, n);
}

void buffer_clean(buffer *b, const char *text, const char *keep) {
    each_character(b, text, keep, add_clean);
    buffer_bytes(b, "", 0); /* so that there is a text */
}

static void add_html(buffer *b, const char *at, size_t n, uint32_t number, const void *context) {
    switch (number) {
    case '<': buffer_text(b, "&lt;"); break;
    case '>': buffer_text(b, "&gt;"); break;
    case '&': buffer_text(b, "&amp;"); break;
    case '"': buffer_text(b, "&quot;"); break;
    default: add_clean(b, at, n, number, context);
    }
}

void buffer_html(buffer *b, const char *text) { each_character(b, text, "\n\r\t", add_html); }

static void add_json(buffer *b, const char *at, size_t n, uint32_t number, const void *context) {
    (void)context;
    if (number == '"' || number == '\\') buffer_add(b, "\\%c", *at);
    else if (number == '\n') buffer_text(b, "\\n");
    else if (is_control(number)) buffer_add(b, "\\u%04x", (unsigned)number);
    else buffer_bytes(b, at, n);
}

void buffer_json(buffer *b, const char *text) {
    buffer_text(b, "\"");
    each_character(b, text, NULL, add_json);
    buffer_text(b, "\"");
}

void buffer_json_number(buffer *b, double value, int digits) {
    if (isfinite(value)) buffer_add(b, "%.*g", digits, value);
    else buffer_text(b, "null");
}

size_t text_cut(const char *text, size_t most) {
    size_t n = strlen(text);
    if (n <= most) return n;
    for (n = most; n > 0 && (text[n] & 0xc0) == 0x80;) n--;
    return n;
}

bool text_is_utf8(const char *text) {
    for (uint32_t number; *text;) {
        const size_t n = character(text, &number);
        if (n == 0) return false;
        text += n;
    }
    return true;
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
