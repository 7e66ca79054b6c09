/* cotangent inspect: what is in a file of tensors, as a table or as JSON. */
#include "cli/inspect.h"

#include "cli/cli.h"
#include "io/checked.h"

#include <cotangent/io.h>
#include <cotangent/op.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "usage: cotangent inspect FILE [--json]\n\n"
    "Lists the tensors of a safetensors, checkpoint, .npy or .npz file: name, dtype, shape, and the mean, standard\n"
    "deviation, least and largest of the finite values, how many are not finite, and a histogram of 16 bins from the\n"
    "least to the largest. --json prints the same as one JSON object. A checksum, where the file has one, is "
    "verified.\n";

typedef struct contents {
    const char *kind;     /* "checkpoint" */
    const char *checksum; /* "right", or "none" */
    ct_state *state;
    int64_t counters[CT__RUN_COUNTER_COUNT]; /* of a checkpoint */
} contents;

/* ---- Which kind of file ---- */

static bool first_bytes(const char *path, uint8_t bytes[9]) {
    memset(bytes, 0, 9);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return ct_fail(CT_ERR_IO, "inspect", "%s: cannot be opened: %s", path, strerror(errno));
    const ssize_t got = read(fd, bytes, 9);
    const int error = errno;
    const bool pipe = got >= 0 && lseek(fd, 0, SEEK_SET) != 0; /* these bytes would be missing afterwards */
    close(fd);
    if (pipe) return ct_fail(CT_ERR_IO, "inspect", "%s: is a pipe; inspect needs a file", path);
    if (got < 0) return ct_fail(CT_ERR_IO, "inspect", "%s: cannot be read: %s", path, strerror(error));
    return true;
}

static bool open_npy(const char *path, contents *file) {
    bool good = false;
    file->kind = "npy";
    ct_scope {
        ct_tensor *x = ct_npy_load(path, false);
        file->state = x ? ct_state_new() : NULL;
        good = file->state && ct_state_put(file->state, "array", x);
    }
    return good;
}

static bool open_file(const char *path, contents *file) {
    uint8_t bytes[9];
    if (!first_bytes(path, bytes)) return false;
    file->checksum = "none";
    if (memcmp(bytes, "\x93NUMPY", 6) == 0) return open_npy(path, file);
    if (memcmp(bytes, "PK", 2) == 0) {
        file->kind = "npz";
        file->state = ct_npz_load(path);
        return file->state != NULL;
    }
    if (bytes[8] != '{')
        return ct_fail(CT_ERR_IO, "inspect", "%s: is none of safetensors, checkpoint, .npy and .npz", path);
    bool has_checksum = false;
    file->state = ct__open_checked(path, true, "inspect", &has_checksum);
    if (!file->state) return false;
    if (has_checksum) file->checksum = "right";
    const bool run = ct_state_text(file->state, CT__RUN_FORMAT) != NULL;
    file->kind = run ? "checkpoint" : "safetensors";
    return !run || ct_state_integers(file->state, CT__RUN_COUNTERS, file->counters, CT__RUN_COUNTER_COUNT);
}

/* ---- Text out of a file ---- */

/* The bytes of the well-formed character of UTF-8 at text, 0 where there is none. */
static int character_length(const char *text) {
    const unsigned char *c = (const unsigned char *)text;
    const int length = c[0] < 0x80 ? 1 : c[0] < 0xc2 ? 0 : c[0] < 0xe0 ? 2 : c[0] < 0xf0 ? 3 : c[0] < 0xf5 ? 4 : 0;
    for (int i = 1; i < length; i++)
        if ((c[i] & 0xc0) != 0x80) return 0;
    if ((c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xed && c[1] > 0x9f)) return 0; /* too long a form; a surrogate */
    if ((c[0] == 0xf0 && c[1] < 0x90) || (c[0] == 0xf4 && c[1] > 0x8f)) return 0; /* the same; above U+10FFFF */
    return length;
}

/* What could move the cursor or turn the line around: controls (U+0000 to U+001F, U+007F to U+009F), and the marks for
 * the direction of writing (U+202A to U+202E, U+2066 to U+2069). */
static bool is_control(const char *text) {
    const unsigned char *c = (const unsigned char *)text;
    if (c[0] < 0x20 || c[0] == 0x7f) return true;
    if (c[0] == 0xc2) return c[1] < 0xa0;
    if (c[0] != 0xe2) return false;
    return (c[1] == 0x80 && c[2] >= 0xaa && c[2] <= 0xae) || (c[1] == 0x81 && c[2] >= 0xa6 && c[2] <= 0xa9);
}

/* ---- As a table ---- */

static bool terminal_is_utf8(void) {
    static const char *const variables[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (int i = 0; i < 3; i++) {
        const char *value = getenv(variables[i]);
        if (value && value[0])
            return strstr(value, "UTF-8") || strstr(value, "utf-8") || strstr(value, "UTF8") || strstr(value, "utf8");
    }
    return false;
}

static int column_count(const char *text) {
    int columns = 0;
    for (int length; *text; text += length ? length : 1, columns++) length = character_length(text);
    return columns;
}

/* Text out of a file, at most `width` columns (0: all): what could do more than be read becomes '?'. Returns the columns. */
static int print_text(FILE *to, const char *text, int width, bool utf8) {
    int columns = 0;
    while (*text) {
        const int length = character_length(text);
        if (width > 0 && columns == width - 1 && column_count(text) > 1) { /* more to come than there is room */
            putc('~', to);
            return columns + 1;
        }
        if (length == 0 || is_control(text) || (length > 1 && !utf8)) putc('?', to);
        else fwrite(text, 1, (size_t)length, to);
        text += length ? length : 1;
        columns++;
    }
    return columns;
}

static void print_histogram(const inspect_stats *stats, bool utf8) {
    static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const letters[] = {" ", ".", ":", "-", "=", "+", "*", "#", "@"};
    int64_t most = 1;
    for (int i = 0; i < INSPECT_BINS; i++)
        if (stats->histogram[i] > most) most = stats->histogram[i];
    putchar('|');
    for (int i = 0; i < INSPECT_BINS; i++) {
        const int64_t n = stats->histogram[i];
        /* something is always seen of a bin that has something */
        const int height = n == 0 ? 0 : 1 + (int)((double)n / (double)most * 7.0);
        fputs((utf8 ? blocks : letters)[height > 8 ? 8 : height], stdout);
    }
    putchar('|');
}

static void print_size(double bytes) {
    static const char *const units[] = {"bytes", "kB", "MB", "GB", "TB"};
    int unit = 0;
    for (; bytes >= 1000 && unit < 4; unit++) bytes /= 1000;
    printf(unit ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
}

static int name_width(const ct_state *state) {
    enum { LEAST = 6, MOST = 44 };
    int width = LEAST;
    for (int64_t i = 0; i < ct_state_count(state); i++) {
        const int columns = column_count(ct_state_name(state, i));
        if (columns > width) width = columns;
    }
    return width < MOST ? width : MOST;
}

static void print_stats(const ct_tensor *x, const inspect_stats *stats, bool utf8) {
    if (!stats->known || stats->finite == 0) {
        if (ct_numel(x) == 0) printf("  empty");
        else if (stats->known)
            printf("  nothing finite: %" PRId64 " NaN, %" PRId64 " infinite", stats->nan, stats->infinite);
        else printf("  no statistics of %s", ct_dtype_name(ct_dtype_of(x)));
        return;
    }
    printf(" %10.4g %10.4g %10.4g %10.4g  ", stats->mean, stats->std, stats->min, stats->max);
    print_histogram(stats, utf8);
    if (stats->nan) printf("  %" PRId64 " NaN", stats->nan);
    if (stats->infinite) printf("  %" PRId64 " infinite", stats->infinite);
}

static void print_table(const char *path, const contents *file) {
    const bool utf8 = terminal_is_utf8();
    const ct_state *state = file->state;
    int64_t numbers = 0;
    double bytes = 0;
    for (int64_t i = 0; i < ct_state_count(state); i++) {
        const ct_tensor *x = ct_state_at(state, i);
        numbers += ct_numel(x);
        bytes += (double)ct_numel(x) * (double)ct_dtype_size(ct_dtype_of(x));
    }
    print_text(stdout, path, 0, utf8);
    printf(": %s, %" PRId64 " tensors, %" PRId64 " numbers, ", file->kind, ct_state_count(state), numbers);
    print_size(bytes);
    if (strcmp(file->checksum, "right") == 0) printf(", checksum right");
    putchar('\n');
    for (int64_t i = 0; i < ct_state_text_count(state); i++) {
        printf("  ");
        print_text(stdout, ct_state_text_name(state, i), 0, utf8);
        printf(" = ");
        print_text(stdout, ct_state_text_at(state, i), 100, utf8);
        putchar('\n');
    }
    static const char *const counters[CT__RUN_COUNTER_COUNT] = {"epoch", "step", "seed", "position in its stream"};
    for (int i = 0; strcmp(file->kind, "checkpoint") == 0 && i < CT__RUN_COUNTER_COUNT; i++)
        printf("  %s = %" PRIu64 "\n", counters[i], (uint64_t)file->counters[i]);
    if (ct_state_count(state) == 0) return;
    const int width = name_width(state);
    printf("\n%-*s  %-9s %-16s %10s %10s %10s %10s  histogram\n", width, "name", "dtype", "shape", "mean", "std", "min",
           "max");
    for (int64_t i = 0; i < ct_state_count(state); i++) {
        ct_tensor *x = ct_state_at(state, i);
        const inspect_stats stats = inspect_tensor(x);
        const int columns = print_text(stdout, ct_state_name(state, i), width, utf8);
        printf("%*s  %-9s %-16s", width - columns, "", ct_dtype_name(ct_dtype_of(x)), ct_dims_text(ct_shape(x)));
        print_stats(x, &stats, utf8);
        putchar('\n');
    }
}

/* ---- As JSON ---- */

static void json_text(const char *text) {
    putchar('"');
    for (int length; *text; text += length ? length : 1) {
        length = character_length(text);
        if (length == 0) fputs("\\ufffd", stdout); /* the name of a file may be anything; JSON is UTF-8 */
        else if (*text == '"' || *text == '\\') printf("\\%c", *text);
        else if ((unsigned char)*text < 0x20) printf("\\u%04x", *text);
        else fwrite(text, 1, (size_t)length, stdout);
    }
    putchar('"');
}

static void json_number(const char *key, double value) {
    if (isfinite(value)) printf(",\"%s\":%.17g", key, value);
    else printf(",\"%s\":null", key);
}

static void json_tensor(const char *name, ct_tensor *x) {
    const inspect_stats stats = inspect_tensor(x);
    const ct_dims shape = ct_shape(x);
    printf("{\"name\":");
    json_text(name);
    printf(",\"dtype\":\"%s\",\"shape\":[", ct_dtype_name(ct_dtype_of(x)));
    for (int i = 0; i < shape.n; i++) printf("%s%" PRId64, i ? "," : "", shape.d[i]);
    printf("],\"elements\":%" PRId64, ct_numel(x));
    if (stats.known) {
        json_number("mean", stats.mean);
        json_number("std", stats.std);
        json_number("min", stats.min);
        json_number("max", stats.max);
        printf(",\"nan\":%" PRId64 ",\"infinite\":%" PRId64 ",\"histogram\":[", stats.nan, stats.infinite);
        for (int i = 0; i < INSPECT_BINS; i++) printf("%s%" PRId64, i ? "," : "", stats.histogram[i]);
        putchar(']');
    }
    putchar('}');
}

static void print_json(const char *path, const contents *file) {
    printf("{\"file\":");
    json_text(path);
    printf(",\"kind\":\"%s\",\"checksum\":\"%s\",\"metadata\":{", file->kind, file->checksum);
    for (int64_t i = 0; i < ct_state_text_count(file->state); i++) {
        if (i) putchar(',');
        json_text(ct_state_text_name(file->state, i));
        putchar(':');
        json_text(ct_state_text_at(file->state, i));
    }
    printf("}");
    if (strcmp(file->kind, "checkpoint") == 0)
        printf(",\"epoch\":%" PRId64 ",\"step\":%" PRId64 ",\"seed\":%" PRIu64 ",\"position\":%" PRIu64,
               file->counters[CT__RUN_EPOCH], file->counters[CT__RUN_STEP], (uint64_t)file->counters[CT__RUN_SEED],
               (uint64_t)file->counters[CT__RUN_POSITION]);
    printf(",\"tensors\":[");
    for (int64_t i = 0; i < ct_state_count(file->state); i++) {
        printf(i ? ",\n" : "\n");
        json_tensor(ct_state_name(file->state, i), ct_state_at(file->state, i));
    }
    printf("]}\n");
}

int cli_inspect(int argc, char **argv) {
    if (cli_wants_help(argc, argv)) {
        fputs(usage, stdout);
        return CLI_DONE;
    }
    const char *path = NULL;
    bool json = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) json = true;
        else if (argv[i][0] == '-' && argv[i][1]) {
            fprintf(stderr, "error: inspect has no option %s; it has --json\n", argv[i]);
            return CLI_USAGE;
        } else if (path) {
            fprintf(stderr, "error: inspect takes one file; '%s' is one too many\n", argv[i]);
            return CLI_USAGE;
        } else path = argv[i];
    }
    if (!path) {
        fprintf(stderr, "error: inspect: which file?\n");
        return CLI_USAGE;
    }
    contents file = {0};
    const bool good = open_file(path, &file);
    if (good && json) print_json(path, &file);
    else if (good) print_table(path, &file);
    ct_state_free(file.state);
    if (good && (fflush(stdout) != 0 || ferror(stdout)))
        ct_fail(CT_ERR_IO, "inspect", "the output cannot be written: %s", strerror(errno));
    if (ct_ok()) return CLI_DONE;
    fputs("error: ", stderr);
    print_text(stderr, ct_error(), 0, terminal_is_utf8()); /* names out of the file are in it */
    putc('\n', stderr);
    return CLI_FAILED;
}
