/* Numbers that are kept on a device and say how exact a step is: rates, clocks, counts. They are f64, or f32 where the device has no
 * f64: then a clock counts to 2^24 and stays there, where no power of a rate that it is the exponent of is anything but 0. */
#include "optim/optim.h"

enum { FEW = 64 };

static ct_dtype dtype_on(ct_device device) { return ct_device_has_dtype(device, CT_F64) ? CT_F64 : CT_F32; }

ct_tensor *optim_numbers(ct_dims shape, double value, ct_device device) {
    return ct_full(shape, value, .dtype = dtype_on(device), .device = device);
}

static bool put_numbers(ct_tensor *x, const double *values) {
    const int64_t n = ct_numel(x);
    float few[FEW], *narrow = few;
    if (ct_dtype_of(x) == CT_F64) return ct_write(x, values, (size_t)n * sizeof *values);
    if (n > FEW && !(narrow = ct_malloc((size_t)n * sizeof *narrow)))
        return ct_fail(CT_ERR_MEMORY, "optim_step", "out of memory");
    for (int64_t i = 0; i < n; i++) narrow[i] = (float)values[i];
    const bool ok = ct_write(x, narrow, (size_t)n * sizeof *narrow);
    if (narrow != few) ct_free(narrow);
    return ok;
}

/* In a captured step it is not recorded: effects see to it in replays. */
bool optim_put_numbers(ct_tensor *x, const double *values) {
    const bool suspended = ct_capture_suspend();
    const bool ok = put_numbers(x, values);
    ct_capture_resume(suspended);
    return ok;
}

bool optim_get_clock(ct_tensor *clock, double *steps, double *remembered) {
    double wide[2];
    float narrow[2];
    const bool is_wide = ct_dtype_of(clock) == CT_F64;
    if (!(is_wide ? ct_read(clock, wide, sizeof wide) : ct_read(clock, narrow, sizeof narrow))) return false;
    *steps = is_wide ? wide[0] : (double)narrow[0];
    *remembered = is_wide ? wide[1] : (double)narrow[1];
    return true;
}
