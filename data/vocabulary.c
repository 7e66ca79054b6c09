/* Vocabularies: which number stands for which character, or byte. */
#include "data/vocabulary.h"

struct ct_vocabulary {
    _Atomic int refs;
    bool bytes;
    int64_t size;
    uint32_t *characters; /* sorted; NULL for bytes */
    char *text;           /* the same as UTF-8 */
};

/* ---- UTF-8 ---- */

/* The character that begins at text, and how many bytes it has; 0 where there is none: too short, too long a form, a
 * surrogate, or above the end of Unicode. */
static int decode(const uint8_t *text, size_t left, uint32_t *character) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const uint8_t first = text[0];
    const int n = first < 0x80 ? 1 : first >> 5 == 6 ? 2 : first >> 4 == 14 ? 3 : first >> 3 == 30 ? 4 : 0;
    if (n == 0 || (size_t)n > left) return 0;
    uint32_t value = n == 1 ? first : first & (0xffu >> (n + 1));
    for (int i = 1; i < n; i++) {
        if (text[i] >> 6 != 2) return 0;
        value = value << 6 | (text[i] & 63);
    }
    if (value < least[n] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) return 0;
    *character = value;
    return n;
}

static int encode(uint32_t c, char *to) {
    const int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const uint8_t lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (int i = n - 1; i > 0; i--, c >>= 6) to[i] = (char)(0x80 | (c & 63));
    to[0] = (char)(lead[n] | c);
    return n;
}

/* ---- Making ---- */

static ct_vocabulary *blank(void) {
    ct_vocabulary *vocabulary = ct__zeroed("vocabulary", 1, sizeof *vocabulary);
    if (vocabulary) atomic_init(&vocabulary->refs, 1);
    return vocabulary;
}

ct_vocabulary *ct_vocabulary_keep(ct_vocabulary *vocabulary) {
    if (vocabulary) atomic_fetch_add_explicit(&vocabulary->refs, 1, memory_order_relaxed);
    return vocabulary;
}

void ct_vocabulary_free(ct_vocabulary *vocabulary) {
    if (!vocabulary || atomic_fetch_sub_explicit(&vocabulary->refs, 1, memory_order_acq_rel) != 1) return;
    ct_free(vocabulary->characters);
    ct_free(vocabulary->text);
    ct_free(vocabulary);
}

ct_vocabulary *ct_vocabulary_bytes(void) {
    ct_vocabulary *vocabulary = blank();
    if (!vocabulary) return NULL;
    vocabulary->bytes = true;
    vocabulary->size = 256;
    return vocabulary;
}

enum { UNICODE = 0x110000 };

ct_vocabulary *ct__vocabulary_of(const char *text, size_t bytes, const char *op, const char *path) {
    uint8_t *seen = ct__zeroed(op, UNICODE / 8, 1);
    if (!seen) return NULL;
    int64_t count = 0;
    for (size_t i = 0; i < bytes;) {
        uint32_t c = 0;
        const int n = decode((const uint8_t *)text + i, bytes - i, &c);
        if (n == 0) {
            ct_fail(CT_ERR_IO, op, "%s%sthe byte 0x%02x at position %zu is not UTF-8; read the text as bytes",
                    path ? path : "", path ? ": " : "", (uint8_t)text[i], i);
            ct_free(seen);
            return NULL;
        }
        if (c == 0) { /* ct_vocabulary_text could not hold it */
            ct_fail(CT_ERR_IO, op, "%s%sthere is a zero byte at position %zu; read the text as bytes", path ? path : "",
                    path ? ": " : "", i);
            ct_free(seen);
            return NULL;
        }
        count += !(seen[c / 8] >> c % 8 & 1);
        seen[c / 8] |= (uint8_t)(1 << c % 8);
        i += (size_t)n;
    }
    ct_vocabulary *vocabulary = blank();
    if (vocabulary) {
        vocabulary->characters = ct__zeroed(op, count, sizeof *vocabulary->characters);
        vocabulary->text = vocabulary->characters ? ct__zeroed(op, 4 * count + 1, 1) : NULL;
    }
    if (vocabulary && !vocabulary->text) {
        ct_vocabulary_free(vocabulary);
        vocabulary = NULL;
    }
    size_t used = 0;
    for (uint32_t c = 0; vocabulary && c < UNICODE; c++) {
        if (!(seen[c / 8] >> c % 8 & 1)) continue;
        vocabulary->characters[vocabulary->size++] = c;
        used += (size_t)encode(c, vocabulary->text + used);
    }
    ct_free(seen);
    return vocabulary;
}

ct_vocabulary *ct_vocabulary_characters(const char *text, size_t bytes) {
    if (!text) {
        ct__null("vocabulary_characters", "text");
        return NULL;
    }
    return ct__vocabulary_of(text, bytes, "vocabulary_characters", NULL);
}

int64_t ct_vocabulary_size(const ct_vocabulary *vocabulary) { return vocabulary ? vocabulary->size : 0; }
const char *ct_vocabulary_text(const ct_vocabulary *vocabulary) {
    return vocabulary && vocabulary->text ? vocabulary->text : "";
}

/* ---- Using ---- */

static int64_t find(const ct_vocabulary *vocabulary, uint32_t character) {
    int64_t low = 0, high = vocabulary->size;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (vocabulary->characters[middle] < character) low = middle + 1;
        else high = middle;
    }
    return low < vocabulary->size && vocabulary->characters[low] == character ? low : -1;
}

bool ct__vocabulary_read(const ct_vocabulary *vocabulary, const char *text, size_t bytes, bool skip, const char *op,
                         int32_t *numbers, int64_t *count) {
    *count = 0;
    for (size_t i = 0; i < bytes;) {
        uint32_t c = (uint8_t)text[i];
        int n = 1;
        int64_t number = c;
        if (!vocabulary->bytes) {
            n = decode((const uint8_t *)text + i, bytes - i, &c);
            number = n ? find(vocabulary, c) : -1;
        }
        if (number < 0 && !skip && n)
            return ct_fail(CT_ERR_VALUE, op,
                           "the character '%.*s' (U+%04X) at byte %zu is not among the %lld that are known", n,
                           text + i, (unsigned)c, i, (long long)vocabulary->size);
        if (n == 0 && !skip)
            return ct_fail(CT_ERR_VALUE, op, "the byte 0x%02x at position %zu is not UTF-8", (uint8_t)text[i], i);
        if (number >= 0) numbers[(*count)++] = (int32_t)number;
        i += n ? (size_t)n : 1;
    }
    return true;
}

ct_tensor *ct_vocabulary_encode(const ct_vocabulary *vocabulary, const char *text, size_t bytes, bool skip) {
    if (!vocabulary || !text) {
        ct__null("vocabulary_encode", vocabulary ? "text" : "vocabulary");
        return NULL;
    }
    int32_t *numbers = ct__zeroed("vocabulary_encode", (int64_t)bytes, sizeof *numbers);
    int64_t count;
    ct_tensor *result = NULL;
    if (numbers && ct__vocabulary_read(vocabulary, text, bytes, skip, "vocabulary_encode", numbers, &count)) {
        void *data;
        result = ct__blank(CT_DIMS(count), CT_I64, &data);
        for (int64_t i = 0; result && i < count; i++) ((int64_t *)data)[i] = numbers[i];
    }
    ct_free(numbers);
    return result;
}

int ct_vocabulary_decode(const ct_vocabulary *vocabulary, int64_t number, char bytes[4]) {
    if (!vocabulary || !bytes || number < 0 || number >= vocabulary->size) return 0;
    if (!vocabulary->bytes) return encode(vocabulary->characters[number], bytes);
    bytes[0] = (char)(uint8_t)number;
    return 1;
}
