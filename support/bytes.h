/* The bytes of a whole file in memory, for readers that take them from there. */
#ifndef COTANGENT_SUPPORT_BYTES_H
#define COTANGENT_SUPPORT_BYTES_H

#include <cotangent.h>

/* The file at path, for the caller to ct_free(); NULL with an error raised by `op`. A file that begins as gzip does is
 * unpacked (several members in a row too), which needs zlib. limit: the most bytes that the result may have, 0 for
 * CT__BYTES_LIMIT. Memory grows with what has really been unpacked, so a small file that says it is huge costs nothing,
 * and one that is huge is refused at the limit. One byte more than *size is allocated, and is zero: texts are ended. */
#define CT__BYTES_LIMIT ((size_t)1 << 36)
uint8_t *ct__bytes_load(const char *path, const char *op, size_t limit, size_t *size);

/* The same as it lies on the disk, never unpacked. */
uint8_t *ct__bytes_load_raw(const char *path, const char *op, size_t limit, size_t *size);
/* The same of a file that is open already, and stays so: a pipe cannot be opened twice. path is only for error texts. */
uint8_t *ct__bytes_read(int fd, const char *path, const char *op, size_t limit, size_t *size);

/* Unpacks gzip in memory; path is only for error texts. */
uint8_t *ct__bytes_gunzip(const uint8_t *packed, size_t packed_size, const char *path, const char *op, size_t limit,
                          size_t *size);
bool ct__bytes_is_gzip(const uint8_t *bytes, size_t size);

#endif
