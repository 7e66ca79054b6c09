/* Choice by measuring: libraries offer several algorithms for one shape, and which is the fastest is known only when they have run. */
#ifndef COTANGENT_BACKENDS_CUDA_TUNE_H
#define COTANGENT_BACKENDS_CUDA_TUNE_H

#include "backends/cuda/cuda.h"

/* The fastest of n candidates for this key on the call's device, measured at its first use and kept, in memory and in
 * $XDG_CACHE_HOME/cotangent (or ~/.cache/cotangent), one file per name of device and driver. Candidate 0 is the library's own
 * first choice, and the answer without measuring where CT_TUNE=0, while the call's stream is being captured, and where n is 1.
 *
 * attempt enqueues candidate i once on the call's stream and returns false, without raising an error, where it cannot; such a candidate
 * is skipped. It runs many times on the call's operands, so it must not read what it writes, and scratch has to be enough for each
 * candidate. It must not tune itself. The call waits for the device only when it measures.
 *
 * family: letters, digits and ._-, which name the kind of problem and the version of the library that the candidates come from, since
 * candidates of another version are others ("cublaslt-130100"). key: bytes without padding, at most CT_CHOICE_KEY
 * (backends/cuda/choices.h), that say all on which the speed depends, but for the device. All candidates have to give the same
 * bits at every run. */
int ct_cuda_tune(const ct_call *call, const char *family, const void *key, size_t key_bytes, int n,
                 bool (*attempt)(void *context, int candidate), void *context);

bool ct_cuda_tune_is_on(void); /* CT_TUNE=0: nothing is measured */

/* Work on the stream is being recorded, not run, so that nothing can be measured. */
bool ct_cuda_is_capturing(CUstream stream);

/* Whether f32 products and convolutions of this call may run in TF32 (ct_set_tf32). Plans and keys depend on it. */
static inline bool ct_cuda_tf32(const ct_call *call) { return (call->flags & CT_CALL_TF32) != 0; }

#endif
