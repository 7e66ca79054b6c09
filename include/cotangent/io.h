/* Reading and writing tensors in files: .npy and .npz, safetensors, PNG and JPEG. Include it beside cotangent.h.
 *
 * Everything read is checked against the file: nothing in one can make these functions read outside it, and what is
 * refused is refused with CT_ERR_IO and a text that names the file. Files are written under another name in the same
 * folder, synced and renamed, and the folder is synced: a file appears whole or not at all, and is on the disk when the
 * call returns. One that is replaced passes its permissions on, and a link stays a link. While an error is pending nothing
 * is written.
 *
 * safetensors files need jansson to be read, .npz libzip, PNG libpng and JPEG TurboJPEG at run time: each is loaded when
 * it is first used, and where it is missing only these calls fail, with CT_ERR_UNSUPPORTED and the name of what to install.
 *
 * Threads: any number may read and write files at once, one file included: it is replaced whole, by the last who comes. A network
 * that is saved must not be trained meanwhile, and one that is loaded not used. */
#ifndef COTANGENT_IO_H
#define COTANGENT_IO_H

#include <cotangent.h>
#include <cotangent/state.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ct_module ct_module; /* cotangent/nn.h */

/* ---- A network's weights ------------------------------------------------------------------------- */

/* Writes every parameter and buffer of net to a safetensors file, by its path ("layers.0.weight"). */
CT_API bool ct_save(const char *path, ct_module *net);
/* Reads them back: every name, shape and dtype has to fit, or nothing is changed. A checkpoint of a run
 * (cotangent/run.h) serves as well: its network is taken and its checksum verified. So does a state dict that PyTorch wrote
 * (safetensors.torch.save_file): layers and models here have the names of torch.nn and torchvision, and what only PyTorch
 * needs (num_batches_tracked) is passed over. Options, as in ct_load_options:
 *     ct_load(path, net)                                             strict
 *     ct_load(path, net, .lenient = true, .report = &report)         what fits, and a list of what does not
 *     ct_load(path, net, .renames = (ct_rename[]){{"module.*", "*"}}, .rename_count = 1)
 * Weights of convolutions are converted between channels first and last where file and network differ. */
CT_API bool ct_load_p(const char *path, ct_module *net, const ct_load_options *options);

/* ---- safetensors --------------------------------------------------------------------------------- */

/* Reads a safetensors file. The texts of its metadata become the state's texts. The file is mapped, not read: a tensor's
 * bytes come from it when they are first used, and the mapping lives as long as the last of the tensors. Changing a
 * tensor in place is fine and never reaches the file. Replacing the file by another (as ct_safetensors_save does) is
 * fine too; cutting it short while its tensors are alive is not, as with any mapped file. Tensors that are not aligned
 * in the file for their dtype are copied, and a pipe is read whole. Refused, among others: a dtype that this library
 * lacks, by its name; tensors that overlap or leave holes; a size that does not fit the shape; a header above 100 MB. */
CT_API ct_state *ct_safetensors_load(const char *path);

/* Writes a state: its tensors by name, its texts as metadata. What a killed process has left of an earlier
 * attempt is removed. Tensors of larger elements come first, so that each is aligned. complex64 is written as C64. */
CT_API bool ct_safetensors_save(const char *path, const ct_state *state);

/* Where everything goes in the file of a state that has a checksum, as checkpoints have one: for programs that write it in parts. */
typedef struct ct_safetensors_layout {
    char *header;          /* the file up to the data */
    uint64_t header_bytes; /* of it */
    uint64_t *begin;       /* of each tensor in the file, by its place in the state */
    uint64_t file_bytes;
    /* Where the 16 hexadecimal digits are that are '0' in the header: the CRC-64 (ECMA-182, reflected, as in .xz) of the file as it is
     * with these zeros. */
    uint64_t checksum_at;
} ct_safetensors_layout;
CT_API ct_safetensors_layout *ct_safetensors_plan(const ct_state *state);
CT_API void ct_safetensors_layout_free(ct_safetensors_layout *layout); /* NULL is fine */

/* ---- NumPy --------------------------------------------------------------------------------------- */

/* Reads a .npy file (NumPy's format, versions 1.0 to 3.0) into a CPU tensor. Either byte order, row-major and Fortran
 * order, 0-d and zero-size arrays. f2 f4 f8 i1 i2 i4 i8 u1 u2 u4 u8 b1 c8 become the dtype of the same size; NumPy has
 * no bfloat16, so where bf16 is true, u2 is taken as the raw bits of one. Object arrays (pickles), structured dtypes,
 * more than CT_MAX_DIMS dimensions and files whose length does not fit their header are refused with CT_ERR_IO; the
 * text names the file. Nothing in a file can make this read outside it or ask for more memory than it has bytes. */
CT_API ct_tensor *ct_npy_load(const char *path, bool bf16);

/* Writes x, in row-major order and in this machine's byte order, as version 1.0. bf16 is written as u2, its raw bits;
 * the 8-bit floats have no .npy form and are refused. */
CT_API bool ct_npy_save(const char *path, ct_tensor *x);

/* Reads every array of a .npz archive, stored or compressed, by its name without ".npy"; or only the one called name.
 * An entry that is not a .npy file is an error in the first and ignored by the second. */
CT_API ct_state *ct_npz_load(const char *path);
CT_API ct_tensor *ct_npz_load_one(const char *path, const char *name);

/* Writes the state's tensors as a .npz archive, each as ct_npy_save does, deflated where compressed is true. A state with
 * texts is refused: the format has no place for them. The same state gives the same bytes. */
CT_API bool ct_npz_save(const char *path, const ct_state *state, bool compressed);

/* ---- Images -------------------------------------------------------------------------------------- */

typedef struct ct_image_options {
    size_t size;
    int64_t height, width; /* resized to these, as by ct_transform_resize, and u8 again; both 0: as it is */
    int64_t max_pixels;    /* refuse a picture that has more, before any memory is asked for; 0: 2^28 */
    bool as_stored;        /* leave it as it lies in the file, whichever way up the camera was held */
} ct_image_options;

/* Reads a PNG or JPEG file, whichever its first bytes say, as u8 [C,H,W]. channels: 1 gray, 2 gray and alpha, 3 RGB,
 * 4 RGB and alpha; 0: as many as the file has (a palette counts as RGB). Colors of 16 bits become 8. Where the file has an
 * alpha and it is not asked for, the picture is laid on black, mixed as light is; a gamma that a PNG file notes, other than
 * the usual one, is applied. A picture is turned the way that the camera noted (the orientation of EXIF). CMYK becomes RGB,
 * each color times black, of inks inverted as Photoshop writes them.
 *     ct_image_load("photo.jpg", 3, .height = 224, .width = 224)
 * With a size, a large picture is made smaller as it is decoded, and needs little memory: of most PNG files two rows; a JPEG
 * file is halved up to three times in its cosine transform, as long as twice the size that is wanted is left. */
CT_API ct_tensor *ct_image_load_p(const char *path, int channels, const ct_image_options *options);
CT_API ct_tensor *ct_image_decode_p(const void *bytes, size_t size, int channels, const ct_image_options *options);

/* Writes u8 [H,W], or [C,H,W] with 1 to 4 channels, as a PNG file; or gives its bytes, for the caller to ct_free. */
CT_API bool ct_image_save(const char *path, ct_tensor *x);
CT_API bool ct_image_encode_png(ct_tensor *x, void **bytes, size_t *size);

#ifdef __cplusplus
}
#endif

#include <cotangent/io_options.h> /* ct_load(path, net, .lenient = true) and so on, over the functions ending in _p */

#endif
