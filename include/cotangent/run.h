/* A training run that survives a power cut: everything that its next step depends on, written to a folder and read back
 * to the same bits. */
#ifndef COTANGENT_RUN_H
#define COTANGENT_RUN_H

#include <cotangent/data.h>
#include <cotangent/nn.h>
#include <cotangent/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The parts of a run. Only net is required. */
typedef struct ct_run {
    ct_module *net;
    ct_optim *optim;
    ct_schedule *schedule;
    ct_scaler *scaler;
    ct_ema *ema;
    ct_loader *loader;
    int64_t epoch, step; /* yours: stored and given back */
    ct_state *extra;     /* tensors and texts of your own, stored under "extra." (may be NULL) */
} ct_run;

/* Writes FOLDER/NAME.safetensors: to a temporary file, synced, renamed, and the folder synced, with a checksum inside.
 * The default generator's seed and position and the level of vector instructions are stored too. Whatever goes wrong, what
 * was there before stays. */
CT_API bool ct_run_save(const ct_run *run, const char *folder, const char *name);
/* The same as FOLDER/step-N.safetensors (N: run->step), keeping the newest `keep` of these (0: all). */
CT_API bool ct_run_checkpoint(const ct_run *run, const char *folder, int keep);
/* Reads one file into the parts: all of them or, with an error, none. */
CT_API bool ct_run_load(ct_run *run, const char *path);
/* Finds the newest step-N.safetensors in the folder that is whole, and loads it; true without any change, and run->step
 * 0, when there is none. One that is torn is passed over with a line in the log. */
CT_API bool ct_run_resume(ct_run *run, const char *folder);
/* The level of vector instructions that the loaded file was written under, "" before a load: on another level the next
 * steps give the same losses up to rounding, not the same bits. */
CT_API const char *ct_run_isa(const ct_run *run);

#ifdef __cplusplus
}
#endif
#endif
