/* The one place that raises errors, and how a worker's error travels to the caller's thread. */
#ifndef COTANGENT_CORE_ERROR_H
#define COTANGENT_CORE_ERROR_H

#include <cotangent.h>

typedef struct ct_error_record {
    ct_code code;
    char op[64];
    char text[1024];
} ct_error_record;

bool ct__failv(ct_code code, const char *op, const char *format, va_list args);
bool ct__fail_null(const char *op,
                   const char *argument); /* required argument is NULL: an error unless one is pending */
bool ct__fail_memory(const char *op, size_t bytes);
bool ct__pending(void);                            /* an error is pending: change nothing */
void ct__error_take(ct_error_record *record);      /* moves this thread's error out (code CT_OK: none) */
void ct__error_put(const ct_error_record *record); /* raises a copy on this thread; the first one is kept */

#endif
