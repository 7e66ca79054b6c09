/* What the two halves of the checkpoints share: one file (run.c) and the folder of them (run_folder.c). */
#ifndef COTANGENT_IO_RUN_H
#define COTANGENT_IO_RUN_H

#include <cotangent/run.h>

/* The pieces of ct_run_save and ct_run_load: a file written, one opened that is whole and a checkpoint, its parts taken. */
bool ct__run_write(const ct_run *run, const char *path);
ct_state *ct__run_open(const char *path);
bool ct__run_take(ct_run *run, const ct_state *stored, const char *path);

#endif
