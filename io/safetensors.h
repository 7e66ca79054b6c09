/* What the reader and the writer of safetensors share, and what checkpoints ask of them beyond the public functions.
 *
 * The format: 8 bytes, little-endian, of the header's length; the header, a JSON object {"name": {"dtype", "shape",
 * "data_offsets": [begin, end)}, ..., "__metadata__": {texts}}; then the data, which the tensors fill without a hole. */
#ifndef COTANGENT_IO_SAFETENSORS_H
#define COTANGENT_IO_SAFETENSORS_H

#include <cotangent/io.h>

/* A file with a checksum begins with this text behind its length, then CT__CHECKSUM_DIGITS of hexadecimal: the CRC-64 of
 * the whole file with those digits as '0'. At the very beginning it can be found without parsing anything. */
#define CT__CHECKSUM_NAME   "cotangent.crc64"
#define CT__CHECKSUM_BEFORE "{\"__metadata__\":{\"" CT__CHECKSUM_NAME "\":\""
enum { CT__CHECKSUM_DIGITS = 16, CT__CHECKSUM_AT = 8 + sizeof CT__CHECKSUM_BEFORE - 1 };

/* A file in memory, counted: every tensor that lies in it holds it. */
typedef struct ct__mapping ct__mapping;
/* Maps the file at path, or reads it where it cannot be mapped; NULL with an error. */
ct__mapping *ct__mapping_open(const char *path, const char *op);
/* Takes over bytes from ct_malloc. NULL, with an error and the bytes freed, without memory. */
ct__mapping *ct__mapping_of(uint8_t *bytes, size_t size, const char *op);
void ct__mapping_release(ct__mapping *mapping);
const uint8_t *ct__mapping_bytes(const ct__mapping *mapping, size_t *size);
/* The tensor whose `bytes` bytes begin at `at`, which the caller has checked. It lies in the mapping where it is aligned
 * there, else it is a copy; what is changed in it never reaches the file. */
ct_tensor *ct__mapping_tensor(ct__mapping *mapping, size_t at, ct_dims shape, ct_dtype dtype, size_t bytes);

/* The state in a mapping; the mapping stays the caller's. The text CT__CHECKSUM_NAME is left out. */
ct_state *ct__safetensors_parse(ct__mapping *mapping, const char *path, const char *op);

/* Whether a file has a checksum, and whether it is right. The beginning alone decides on the first, so a file whose
 * checksum was damaged counts as one without. */
typedef enum ct__checksum { CT__CHECKSUM_NONE, CT__CHECKSUM_RIGHT, CT__CHECKSUM_WRONG } ct__checksum;
ct__checksum ct__safetensors_verify(const uint8_t *bytes, size_t size);

/* Writes a state, with a checksum if asked. */
bool ct__safetensors_write(const char *path, const ct_state *state, bool checksum, const char *op);

#endif
