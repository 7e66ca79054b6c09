/* CRC-64 with the polynomial of ECMA-182, reflected, as the .xz format uses it. */
#ifndef COTANGENT_IO_CHECKSUM_H
#define COTANGENT_IO_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* Goes on from crc, which is 0 at first. */
uint64_t ct__crc64(uint64_t crc, const void *bytes, size_t size);

#endif
