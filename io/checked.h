/* What checkpoints, files of weights and `cotangent inspect` share. */
#ifndef COTANGENT_IO_CHECKED_H
#define COTANGENT_IO_CHECKED_H

#include <cotangent/state.h>

/* The text that marks a safetensors file as a checkpoint; its value is the version of the layout. */
#define CT__RUN_FORMAT "cotangent.run"
/* Its integers: where the run is, and the default generator's seed and position. */
#define CT__RUN_COUNTERS "run.counters"
enum { CT__RUN_EPOCH, CT__RUN_STEP, CT__RUN_SEED, CT__RUN_POSITION, CT__RUN_COUNTER_COUNT };

/* The state in a safetensors file whose checksum, where it has one, is right; NULL with an error. With map the file is
 * mapped, for files that may be larger than the memory; without, it is read, so that a disk that fails is an error. */
ct_state *ct__open_checked(const char *path, bool map, const char *op, bool *has_checksum);

/* The pending error's text without the name of who raised it. */
const char *ct__error_text(void);
/* Says the pending error again with the file's name, raised by op. */
void ct__say_file(const char *path, const char *op);

#endif
