/* Attributes as they come from a caller, who may have written them by hand. */
#ifndef COTANGENT_CORE_ATTRS_H
#define COTANGENT_CORE_ATTRS_H

#include <cotangent/op.h>

/* What the types promise, before any infer, lowering or kernel reads them: lists no longer than they can be, dtypes, enums and
 * devices that exist, texts that end. */
bool ct__attrs_check(const ct_op *op, const void *attrs);
/* One attribute as ct_attrs_set takes it back to the same bits, cut to the room there is. False: it is an optional number that is not set,
 * or the current device; the text is then empty. */
bool ct__attr_text(const ct_attr *attr, const void *attrs, char *text, size_t room);

#endif
