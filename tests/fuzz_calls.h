/* Random calls of the library, each made from a number of its own, so that one is repeated without those before it. They
 * are made in a child process: one that kills it is a failure with a description, not the end of the run. */
#ifndef COTANGENT_TESTS_FUZZ_CALLS_H
#define COTANGENT_TESTS_FUZZ_CALLS_H

#include <cotangent.h>

#include <stdint.h>

typedef struct fuzz_calls {
    const char *program;
    int64_t calls;       /* without an argument */
    bool (*start)(void); /* in each child, before its first call; may be NULL */
    void (*call)(void);  /* one call, drawn from fuzz_draw() and the like */
    int seconds;         /* of the processor, the most that one call may take */
} fuzz_calls;

/* `program [calls] [seed] [first]`: calls number first, first + 1, ... of that seed; one alone is described. Returns the
 * exit status. */
int fuzz_calls_run(int argc, char **argv, const fuzz_calls *calls);

/* ---- For a call ---- */

uint64_t fuzz_draw(void);
uint64_t fuzz_upto(uint64_t n); /* below n, which is positive */
bool fuzz_chance(int percent);
int64_t fuzz_int(void);   /* mostly small, now and then the extremes */
double fuzz_double(void); /* likewise, and NaN and infinities */
uint64_t fuzz_seed(void); /* of the run */
/* Adds to the description of the call, which is printed if it fails or dies. */
void fuzz_say(const char *format, ...) CT_PRINTF(1, 2);
/* The call did what it was asked to: how many did is printed, since a fuzzer of errors alone finds little. */
void fuzz_worked(void);
/* A check: what does not hold is printed with the description. */
bool fuzz_expect(bool held, const char *format, ...) CT_PRINTF(2, 3);

/* Lets the library have no more than this, in blocks of no more than that, so that absurd sizes are out of memory and do not
 * bring the machine down. Before the first tensor. */
bool fuzz_limit_memory(size_t total, size_t block);

#endif
