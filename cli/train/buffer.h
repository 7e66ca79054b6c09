/* A text that grows. After a failed allocation it stays as it was and `failed` is set, so that one check at the end is
 * enough. Zeroed, it is empty. */
#ifndef COTANGENT_CLI_TRAIN_BUFFER_H
#define COTANGENT_CLI_TRAIN_BUFFER_H

#include <cotangent.h>

typedef struct buffer {
    char *at; /* ended by a zero once something was added */
    size_t n, capacity;
    bool failed;
} buffer;

void buffer_bytes(buffer *b, const void *bytes, size_t n);
void buffer_text(buffer *b, const char *text);
void buffer_add(buffer *b, const char *format, ...) CT_PRINTF(2, 3);
void buffer_free(buffer *b);

/* A text as UTF-8 that is safe to show: what is not UTF-8, and control characters but those of `keep`, become U+FFFD. */
void buffer_clean(buffer *b, const char *text, const char *keep);
/* How many of the first `most` bytes make whole characters. */
size_t text_cut(const char *text, size_t most);
bool text_is_utf8(const char *text);

/* For web pages: < > & and quotes as entities, line ends and tabs kept. For JSON: with the quotes around it. What is not UTF-8
 * becomes U+FFFD in both. */
void buffer_html(buffer *b, const char *text);
void buffer_json(buffer *b, const char *text);
/* A number of JSON with so many digits, and null for NaN and infinities, which JSON does not have. */
void buffer_json_number(buffer *b, double value, int digits);
void buffer_base64(buffer *b, const void *bytes, size_t n);

/* A whole file, ended by a zero that n does not count; NULL with an error. At most `limit` bytes. */
char *file_read(const char *path, size_t limit, size_t *n);
/* Writes under another name in the same folder, and renames: the file appears whole or stays as it was. */
bool file_write(const char *path, const void *bytes, size_t n, bool sync); /* sync: it survives a power cut */
bool file_exists(const char *path);
/* A copy that is the caller's; NULL with an error. */
char *text_copy(const char *text);

#endif
