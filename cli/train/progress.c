/* The progress of a training, for a person. */
#include "cli/train/progress.h"

#include "cli/train/number.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

void format_duration(double seconds, char *text, size_t capacity) {
    if (!(seconds >= 0 && seconds < 1e9)) snprintf(text, capacity, "?");
    else if (seconds < 3600) snprintf(text, capacity, "%d:%02d", (int)seconds / 60, (int)seconds % 60);
    else snprintf(text, capacity, "%d:%02d:%02d", (int)seconds / 3600, (int)seconds / 60 % 60, (int)seconds % 60);
}

void format_score(const task_info *task, double score, char *text, size_t capacity) {
    if (task->percent) snprintf(text, capacity, "%.2f %%", 100 * score);
    else snprintf(text, capacity, "%s", number_of(score, 4, NUMBER_PLAIN).text);
}

static bool says_utf8(void) {
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (int i = 0; i < 3; i++) {
        const char *value = getenv(names[i]);
        if (value && *value) return strstr(value, "UTF-8") || strstr(value, "utf8") || strstr(value, "UTF8");
    }
    return false;
}

void progress_begin(progress *p, bool quiet, const task_info *task, int64_t epochs, int64_t batches, int64_t batch,
                    ct_device device) {
    const char *term = getenv("TERM");
    *p = (progress){
        .quiet = quiet, .task = task, .epochs = epochs, .batches = batches, .items = batch, .device = device};
    p->terminal = !quiet && isatty(STDOUT_FILENO) && !(term && strcmp(term, "dumb") == 0);
    p->utf8 = says_utf8();
    p->start = seconds_now();
}

/* The most memory that the device has had in use, behind what is to stand before it; nothing where the device is the CPU. */
static const char *memory_text(const progress *p, const char *before, char *text, size_t capacity) {
    ct_memory has = {.size = sizeof has};
    text[0] = 0;
    if (p->device.type == CT_CURRENT || !ct_ok() || !ct_memory_stats(p->device, &has)) return text;
    const double mib = (double)has.peak / 0x1p20;
    const bool large = mib >= 1000;
    snprintf(text, capacity, "%s%.*f %s", before, large, large ? mib / 1024 : mib, large ? "GiB" : "MiB");
    return text;
}

void progress_clear(progress *p) {
    if (p->terminal && p->drawn > 0) printf("\r\033[K");
    fflush(stdout);
    p->drawn = 0;
}

void progress_say(progress *p, const char *format, ...) {
    if (p->quiet) return;
    progress_clear(p);
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
    fflush(stdout);
}

static int columns(void) {
    struct winsize size;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/* A bar of that many cells, in eighths of a cell where the terminal can. */
static void draw_bar(const progress *p, double done, int cells) {
    static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    const int filled = (int)(done * cells * 8 + 0.5);
    int used = 0;
    printf(p->utf8 ? "\033[36m" : "[");
    for (; used < filled / 8; used++) printf("%s", p->utf8 ? "█" : "#");
    if (p->utf8 && used < cells && filled % 8) {
        printf("%s", eighths[filled % 8]);
        used++;
    }
    printf(p->utf8 ? "\033[0m\033[2m" : "");
    for (; used < cells; used++) printf("%s", p->utf8 ? "·" : ".");
    printf(p->utf8 ? "\033[0m" : "]");
}

bool progress_due(const progress *p) { return p->terminal && (p->drawn == 0 || seconds_now() - p->drawn >= 0.1); }

void progress_step(progress *p, int64_t epoch, int64_t position, double loss, double score, double lr, bool draw) {
    p->steps++;
    if (!draw) return;
    const double now = seconds_now();
    const double each = (now - p->start) / (double)p->steps;
    const double left = each * (double)((p->epochs - epoch) * p->batches - position - 1);
    char value[64], time_left[32], memory[32], text[256];
    format_score(p->task, score, value, sizeof value);
    format_duration(left, time_left, sizeof time_left);
    const int n = snprintf(text, sizeof text, "  loss %.4f  %s %s  %.0f/s  lr %.2g%s  %s left", loss, p->task->score,
                           value, (double)p->items / each, lr, memory_text(p, "  ", memory, sizeof memory), time_left);
    const int room = columns() - n - 14, cells = room > 30 ? 30 : room;
    printf("\repoch %2lld/%lld ", (long long)epoch + 1, (long long)p->epochs);
    if (cells >= 5) draw_bar(p, (double)(position + 1) / (double)p->batches, cells);
    printf("%.*s\033[K", columns() - 14 > 0 ? columns() - 14 : 0, text);
    fflush(stdout);
    p->drawn = now;
}

void progress_note(progress *p, const char *text) {
    if (!p->terminal) return;
    printf("\r%s\033[K", text);
    fflush(stdout);
    p->drawn = seconds_now();
}

void progress_epoch(progress *p, const epoch_record *r, bool best) {
    char score[64], valid_score[64], rate[32], memory[32];
    format_score(p->task, r->score, score, sizeof score);
    format_score(p->task, r->valid_score, valid_score, sizeof valid_score);
    snprintf(rate, sizeof rate, r->rate >= 100 ? "%.0f/s" : "%.3g/s", r->rate);
    progress_say(p, "epoch %2.0f/%lld  train loss %.4f, %s %s;  valid loss %.4f, %s %s%s  (%.1f s, %s, lr %.2g%s)",
                 r->epoch, (long long)p->epochs, r->loss, p->task->score, score, r->valid_loss, p->task->score,
                 valid_score, best ? " *" : "  ", r->seconds, rate, r->lr, memory_text(p, ", ", memory, sizeof memory));
}
