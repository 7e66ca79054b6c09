/* Files with a checksum, opened; and errors about them, told again. */
#include "io/checked.h"

#include "io/safetensors.h"
#include "support/bytes.h"

#include <stdio.h>
#include <string.h>

static ct__mapping *read_whole(const char *path, const char *op) {
    size_t size = 0;
    uint8_t *bytes = ct__bytes_load_raw(path, op, 0, &size);
    return bytes ? ct__mapping_of(bytes, size, op) : NULL;
}

ct_state *ct__open_checked(const char *path, bool map, const char *op, bool *has_checksum) {
    ct__mapping *mapping = map ? ct__mapping_open(path, op) : read_whole(path, op);
    if (!mapping) return NULL;
    size_t size;
    const uint8_t *bytes = ct__mapping_bytes(mapping, &size);
    const ct__checksum checksum = ct__safetensors_verify(bytes, size);
    ct_state *state = NULL;
    *has_checksum = checksum != CT__CHECKSUM_NONE;
    if (checksum == CT__CHECKSUM_WRONG)
        ct_fail(CT_ERR_IO, op, "%s: is damaged: its checksum does not fit what is in it", path);
    else state = ct__safetensors_parse(mapping, path, op);
    ct__mapping_release(mapping);
    return state;
}

const char *ct__error_text(void) {
    const char *text = ct_error(), *raised_by = ct_error_op();
    const size_t length = strlen(raised_by);
    return strncmp(text, raised_by, length) == 0 && strncmp(text + length, ": ", 2) == 0 ? text + length + 2 : text;
}

void ct__say_file(const char *path, const char *op) {
    const ct_code code = ct_error_code();
    char text[1024];
    snprintf(text, sizeof text, "%s", ct__error_text());
    ct_error_clear();
    ct_fail(code, op, "%s: %s", path, text);
}
