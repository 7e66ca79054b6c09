/* What the two halves of the checkpoints share: one file (run.c) and the folder of them (run_folder.c). */
#ifndef COTANGENT_IO_RUN_H
#define COTANGENT_IO_RUN_H

#include <cotangent/run.h>

/* A run as this version knows it: what a shorter one lacks is nothing. False with an error where it has no size or no net; and
 * what has become of it, back into the one that was given. */
bool ct__run_open_struct(ct_run *whole, const ct_run *given);
void ct__run_close_struct(const ct_run *whole, ct_run *given);
/* The pieces of ct_run_save and ct_run_load: a file written, and the parts of one that was opened (ct_run_open) taken. */
bool ct__run_write(const ct_run *run, const char *path);
bool ct__run_take(ct_run *run, const ct_state *stored, const char *path);

#endif
