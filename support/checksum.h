/* CRC-64 with the polynomial of ECMA-182, reflected, as the .xz format uses it. */
#ifndef COTANGENT_SUPPORT_CHECKSUM_H
#define COTANGENT_SUPPORT_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* Goes on from crc, which is 0 at first. */
uint64_t ct__crc64(uint64_t crc, const void *bytes, size_t size);

/* A checksum in parts, in any order: that of so many zeros, and by exclusive or what each part of the bytes adds to it,
 * `after` bytes before the end. */
uint64_t ct__crc64_zeros(uint64_t size);
uint64_t ct__crc64_part(const void *bytes, size_t size, uint64_t after);

#endif
