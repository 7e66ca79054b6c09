/* The one place that raises errors, whom they name, and how a worker's error travels to the caller's thread. */
#ifndef COTANGENT_CORE_ERROR_H
#define COTANGENT_CORE_ERROR_H

#include <cotangent/op.h>

typedef struct ct_error_record {
    ct_code code;
    char op[64];
    char text[1024];
} ct_error_record;

/* A thread's error. The record is behind a pointer (thread_block.h says why). */
typedef struct ct_error_state {
    ct_code code;            /* CT_OK: none is pending */
    uint32_t raised;         /* how many so far, those included that came second and were not kept */
    const char *called;      /* the op that the user called and this thread is inside of, or NULL */
    bool in_gradient;        /* inside of its vjp */
    ct_error_record *record; /* op and text; NULL: none so far, or no memory for one */
} ct_error_state;
extern _Thread_local ct_error_state ct__errors;

bool ct__failv(ct_code code, const char *op, const char *format, va_list args);
bool ct__fail_null(const char *op,
                   const char *argument); /* required argument is NULL: an error unless one is pending */
bool ct__fail_memory(const char *op, size_t bytes);
bool ct__error_prepare(void); /* makes room for this thread's error before memory runs out; false: there is none */
static inline bool ct__pending(void) { return ct__errors.code != CT_OK; } /* an error is pending: change nothing */
void ct__error_take(ct_error_record *record);      /* moves this thread's error out (code CT_OK: none) */
void ct__error_put(const ct_error_record *record); /* raises a copy on this thread; the first one is kept */

#endif
