/* Copies of texts in the host's memory. */
#ifndef COTANGENT_SUPPORT_TEXT_H
#define COTANGENT_SUPPORT_TEXT_H

#include <cotangent.h>
#include <string.h>

/* The first length bytes of text and a zero, for the caller to ct_free; NULL without memory, and without an error. */
static inline char *ct__text_copy(const char *text, size_t length) {
    char *copy = ct_malloc(length + 1);
    if (!copy) return NULL;
    if (length) memcpy(copy, text, length);
    copy[length] = 0;
    return copy;
}

#endif
