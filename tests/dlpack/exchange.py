"""Tensors go to NumPy or PyTorch and back through ctypes and DLPack alone: exchange.py LIBRARY numpy|torch [cpu|cuda]."""
import ctypes
import sys

library = ctypes.CDLL(sys.argv[1])
which = sys.argv[2]
where = sys.argv[3] if len(sys.argv) > 3 else "cpu"
if which == "numpy":
    import numpy as other
else:
    import torch as other

MAX_LIST = 16


class Dims(ctypes.Structure):
    _fields_ = [("n", ctypes.c_int), ("d", ctypes.c_int64 * MAX_LIST)]


def dims(*values):
    return Dims(len(values), (ctypes.c_int64 * MAX_LIST)(*values))


class Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("index", ctypes.c_int)]


pointer = ctypes.c_void_p
for name, result, arguments in [
    ("ct_from_data", pointer, [ctypes.c_char_p, Dims, ctypes.c_int]),
    ("ct_t", pointer, [pointer]),
    ("ct_to_dlpack", pointer, [pointer]),
    ("ct_to_dlpack_unversioned", pointer, [pointer]),
    ("ct_from_dlpack", pointer, [pointer]),
    ("ct_from_dlpack_unversioned", pointer, [pointer]),
    ("ct_read", ctypes.c_bool, [pointer, pointer, ctypes.c_size_t]),
    ("ct_shape", Dims, [pointer]),
    ("ct_dtype_of", ctypes.c_int, [pointer]),
    ("ct_numel", ctypes.c_int64, [pointer]),
    ("ct_dtype_size", ctypes.c_size_t, [ctypes.c_int]),
    ("ct_fill", pointer, [pointer, ctypes.c_double]),
    ("ct_device_parse", ctypes.c_bool, [ctypes.c_char_p, ctypes.POINTER(Device)]),
    ("ct_set_device", ctypes.c_bool, [Device]),
    ("ct_synchronize", ctypes.c_bool, [Device]),
    ("ct_error", ctypes.c_char_p, []),
    ("ct_error_clear", None, []),
    ("ct_live_objects", ctypes.c_int64, []),
    ("ct_scope_begin", ctypes.c_size_t, []),
    ("ct_scope_end", None, [ctypes.c_size_t]),
]:
    function = getattr(library, name)
    function.restype, function.argtypes = result, arguments

new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [pointer, ctypes.c_char_p, pointer]
get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
get_pointer.restype, get_pointer.argtypes = pointer, [ctypes.py_object, ctypes.c_char_p]
get_name = ctypes.pythonapi.PyCapsule_GetName
get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
set_name = ctypes.pythonapi.PyCapsule_SetName
set_name.restype, set_name.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
kept_names = {name: ctypes.c_char_p(name) for name in (b"dltensor", b"dltensor_versioned", b"used_dltensor", b"used_dltensor_versioned")}


device = Device()
assert library.ct_device_parse(where.encode(), device) and library.ct_set_device(device), library.ct_error()


class Shown:
    """A tensor of ours, for from_dlpack of another library."""

    def __init__(self, tensor, versioned=True):
        self.tensor, self.versioned = tensor, versioned

    def __dlpack_device__(self):
        return (2 if where == "cuda" else 1, 0)

    def __dlpack__(self, stream=None, max_version=None, dl_device=None, copy=None):
        versioned = self.versioned and max_version is not None and max_version[0] >= 1
        managed = library.ct_to_dlpack(self.tensor) if versioned else library.ct_to_dlpack_unversioned(self.tensor)
        if not managed:
            raise BufferError(library.ct_error())
        return new_capsule(managed, kept_names[b"dltensor_versioned" if versioned else b"dltensor"], None)


def taken(value, versioned):
    """A value of another library as a tensor of ours."""
    if which == "numpy" and not versioned and not value.flags.writeable:
        value = value.copy(order="K")  # what NumPy took in the older form it takes as read-only, which that cannot say
    if where == "cuda":
        other.cuda.synchronize()  # of whose streams the library knows nothing
    capsule = value.__dlpack__(max_version=(1, 0)) if versioned else value.__dlpack__()
    name = get_name(capsule)
    versioned = name == b"dltensor_versioned"
    managed = get_pointer(capsule, name)
    set_name(capsule, kept_names[b"used_dltensor_versioned" if versioned else b"used_dltensor"])
    tensor = library.ct_from_dlpack(managed) if versioned else library.ct_from_dlpack_unversioned(managed)
    assert tensor, library.ct_error()
    return tensor


def bytes_of(tensor):
    size = library.ct_numel(tensor) * library.ct_dtype_size(library.ct_dtype_of(tensor))
    room = ctypes.create_string_buffer(max(size, 1))
    assert library.ct_read(tensor, room, size), library.ct_error()
    return room.raw[:size]


def their_bytes(value):
    if which == "numpy":
        return value.tobytes()
    value = value.contiguous()
    return bytes(value.view(other.uint8).flatten().tolist()) if value.numel() else b""


# our number, their name
names = {0: "float32", 1: "float64", 2: "float16", 4: "int8", 5: "int16", 6: "int32", 7: "int64", 8: "uint8", 10: "uint16", 11: "uint32", 12: "uint64", 15: "complex64"}
names[9] = "bool"
if which == "torch":
    names[3] = "bfloat16"
    if hasattr(other, "float8_e4m3fn"):
        names[13], names[14] = "float8_e4m3fn", "float8_e5m2"
checks = 0


def expect(held, text):
    global checks
    checks += 1
    if not held:
        sys.exit(f"{which}: {text}")


mark = library.ct_scope_begin()
before = library.ct_live_objects()
for number, name in names.items():
    dtype = getattr(other, name) if which == "torch" else other.dtype(name)
    raw = bytes([0, 1, 1, 0, 1, 1] if name == "bool" else [(7 * i) % 100 for i in range(6 * library.ct_dtype_size(number))])
    for versioned in (True, False):
        scope = library.ct_scope_begin()
        x = library.ct_from_data(raw, dims(2, 3), number)
        try:
            value = other.from_dlpack(Shown(x, versioned))
        except (RuntimeError, BufferError, ValueError) as problem:
            # an older library may not know a dtype, but says so
            if number not in (13, 14):
                sys.exit(f"{which}: {name} does not go out: {problem}")
            library.ct_scope_end(scope)
            continue
        expect(value.dtype == dtype and tuple(value.shape) == (2, 3), f"{name} goes out as {value.dtype}")
        expect(their_bytes(value) == raw, f"{name} goes out with other bytes")
        turned = other.from_dlpack(Shown(library.ct_t(x), versioned))
        expect(their_bytes(turned) == their_bytes(value.T if which == "numpy" else value.t()), f"{name} goes out transposed")
        if not (which == "torch" and number in (13, 14)):
            expect(their_bytes(value[1:, ::2]) == bytes_of(taken(value[1:, ::2], versioned)), f"a slice of {name} comes in")
            back = taken(turned, versioned)
            expect(library.ct_dtype_of(back) == number and list(library.ct_shape(back).d[:2]) == [3, 2], f"{name} comes in")
            expect(bytes_of(back) == their_bytes(turned), f"{name} comes in with other bytes")
        del value, turned
        library.ct_scope_end(scope)
expect(library.ct_live_objects() == before, "something leaks")

# the memory is one and the same
theirs = other.zeros((4,), dtype=other.float32, **({"device": where} if which == "torch" else {}))
ours = taken(theirs, True)
expect(library.ct_fill(ours, 5.0) and library.ct_synchronize(device), library.ct_error())
expect(float(theirs[3]) == 5, "a change is not seen")
if which == "numpy":
    theirs.flags.writeable = False
    fixed = taken(theirs, True)
    expect(not library.ct_fill(fixed, 1.0) and b"read-only" in library.ct_error(), "read-only memory was written")
    library.ct_error_clear()
expect(library.ct_numel(taken(other.zeros((0, 3)), True)) == 0, "an empty one comes in")
library.ct_scope_end(mark)
print(f"{checks} checks")
