/* A network's weights in a file of their own. */
#include <cotangent/io.h>
#include <cotangent/nn.h>

#include "io/checked.h"
#include "io/safetensors.h"
#include "support/options.h"

bool ct_save(const char *path, ct_module *net) {
    if (!ct_ok()) return false; /* after an error the values are not what the caller meant to keep */
    if (!net) return ct_fail(CT_ERR_NULL, "save", "argument net is NULL");
    ct_state *state = ct_state_new();
    const bool good = state && ct_module_put_state(net, state, "") && ct__safetensors_write(path, state, true, "save");
    ct_state_free(state);
    return good;
}

bool ct_load_p(const char *path, ct_module *net, const ct_load_options *options) {
    TAKE_OPTIONS(ct_load_options, o, options);
    if (o.report) *o.report = NULL;
    if (!ct_ok()) return false;
    if (!net) return ct_fail(CT_ERR_NULL, "load", "argument net is NULL");
    bool has_checksum;
    ct_state *state = ct__open_checked(path, false, "load", &has_checksum);
    if (!state) return false;
    const bool run = ct_state_text(state, CT__RUN_FORMAT) != NULL;
    const bool good = ct_module_take_state_p(net, state, run ? "net." : "", &o);
    if (!good) ct__say_file(path, "load");
    ct_state_free(state);
    return good;
}
