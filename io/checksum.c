/* CRC-64, eight bytes per step ("slicing by eight"): table[k][b] is what byte b does when k more bytes follow it. */
#include "io/checksum.h"

#include <pthread.h>

static uint64_t table[8][256];

static void fill_table(void) {
    for (unsigned byte = 0; byte < 256; byte++) {
        uint64_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xC96C5795D7870F42u : 0);
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
