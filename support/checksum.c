/* CRC-64, eight bytes per step ("slicing by eight"): table[k][b] is what byte b does when k more bytes follow it. What
 * a byte does to the remainder does not depend on the others, so parts can be added up: one that is followed by n bytes
 * counts times x^(8 n). */
#include "support/checksum.h"

#include <pthread.h>

enum { ONE_BIT = 63 }; /* the bit of x^0: the polynomials are reflected */
static const uint64_t polynomial = 0xC96C5795D7870F42u;
static uint64_t table[8][256];

static void fill_table(void) {
    for (unsigned byte = 0; byte < 256; byte++) {
        uint64_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? polynomial : 0);
        table[0][byte] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (unsigned byte = 0; byte < 256; byte++)
            table[k][byte] = table[k - 1][byte] >> 8 ^ table[0][table[k - 1][byte] & 0xff];
}

uint64_t ct__crc64(uint64_t crc, const void *bytes, size_t size) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_table);
    const uint8_t *at = bytes;
    crc = ~crc;
    for (; size >= 8; at += 8, size -= 8) {
        for (int k = 0; k < 8; k++) crc ^= (uint64_t)at[k] << (8 * k);
        crc = table[7][crc & 0xff] ^ table[6][crc >> 8 & 0xff] ^ table[5][crc >> 16 & 0xff] ^
              table[4][crc >> 24 & 0xff] ^ table[3][crc >> 32 & 0xff] ^ table[2][crc >> 40 & 0xff] ^
              table[1][crc >> 48 & 0xff] ^ table[0][crc >> 56];
    }
    for (; size > 0; at++, size--) crc = crc >> 8 ^ table[0][(crc ^ *at) & 0xff];
    return ~crc;
}

static uint64_t multiply(uint64_t a, uint64_t b) {
    uint64_t product = 0;
    for (int bit = ONE_BIT; bit >= 0; bit--) {
        if (a >> bit & 1) product ^= b;
        b = b >> 1 ^ (b & 1 ? polynomial : 0);
    }
    return product;
}

/* x^(8 bytes) */
static uint64_t power(uint64_t bytes) {
    uint64_t result = (uint64_t)1 << ONE_BIT, square = (uint64_t)1 << (ONE_BIT - 8);
    for (; bytes; bytes >>= 1) {
        if (bytes & 1) result = multiply(result, square);
        square = multiply(square, square);
    }
    return result;
}

uint64_t ct__crc64_zeros(uint64_t size) { return ~multiply(~(uint64_t)0, power(size)); }

uint64_t ct__crc64_part(const void *bytes, size_t size, uint64_t after) {
    return multiply(~ct__crc64(~(uint64_t)0, bytes, size), power(after));
}
