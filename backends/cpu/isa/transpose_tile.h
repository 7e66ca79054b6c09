/* Transposes of tiles of elements of some bits, a template: BITS. Included by transpose.h. */
#define UNIT  CT_SIMD_PASTE(unit_, BITS)
#define OF(x) CT_SIMD_PASTE(x, BITS)

/* tile: square by square, down the rows of src, which the processor then sees as streams. staged: where lines of dst
 * begin anywhere, rows are gathered first and written whole; so are those of small elements, of which more lines are
 * begun at a time than the processor can keep open. */
static void OF(rest)(char *dst, int64_t dst_row, const char *src, int64_t src_row, int64_t rows, int64_t columns) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            ((UNIT *)(void *)(dst + r * dst_row))[c] = ((const UNIT *)(const void *)(src + c * src_row))[r];
}

TILE_INLINE void OF(tile)(char *dst, int64_t dst_row, const char *src, int64_t src_row, int64_t rows, int64_t columns,
                          bool stream) {
    enum { SIZE = BITS / 8, EDGE = 64 / SIZE };
    const int64_t whole_rows = rows / EDGE * EDGE, whole_columns = columns / EDGE * EDGE;
    for (int64_t c = 0; c < whole_columns; c += EDGE)
        for (int64_t r = 0; r < whole_rows; r += EDGE)
            OF(lines)(dst + r * dst_row + c * SIZE, dst_row, src + c * src_row + r * SIZE, src_row, stream);
    if (whole_columns < columns) {
        const int64_t left = columns - whole_columns;
        OF(rest)(dst + whole_columns * SIZE, dst_row, src + whole_columns * src_row, src_row, whole_rows, left);
    }
    if (whole_rows < rows)
        OF(rest)(dst + whole_rows * dst_row, dst_row, src + whole_rows * SIZE, src_row, rows - whole_rows, columns);
}

static void OF(plain)(char *dst, int64_t dst_row, const char *src, int64_t src_row, int64_t rows, int64_t columns) {
    OF(tile)(dst, dst_row, src, src_row, rows, columns, false);
}

static void OF(staged)(char *dst, int64_t dst_row, const char *src, int64_t src_row, int64_t rows, int64_t columns) {
    enum { SIZE = BITS / 8, PITCH = STAGE + 64 };
    char stage[STAGE_ROWS * PITCH] __attribute__((aligned(64)));
    for (int64_t r = 0; r < rows; r += STAGE_ROWS) {
        const int64_t n = rows - r < STAGE_ROWS ? rows - r : STAGE_ROWS;
        OF(plain)(stage, PITCH, src + r * SIZE, src_row, n, columns);
        for (int64_t i = 0; i < n; i++) stream_row(dst + (r + i) * dst_row, stage + i * PITCH, columns * SIZE);
    }
}

static void OF(transpose)(char *dst, int64_t dst_row, const char *src, int64_t src_row, int64_t rows, int64_t columns,
                          bool stream) {
    if (!stream) OF(plain)(dst, dst_row, src, src_row, rows, columns);
    else if (WHOLE_LINES && BITS >= 32 && ((uintptr_t)dst | (uintptr_t)dst_row) % 64 == 0)
        OF(tile)(dst, dst_row, src, src_row, rows, columns, true);
    else OF(staged)(dst, dst_row, src, src_row, rows, columns);
}

#undef UNIT
#undef OF
#undef BITS
