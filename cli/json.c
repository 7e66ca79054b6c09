/* JSON on standard output, for the tables that the command prints. */
#include "cli/cli.h"

void cli_json_string(const char *text) {
    putchar('"');
    for (const unsigned char *c = (const unsigned char *)(text ? text : ""); *c; c++) {
        if (*c == '"' || *c == '\\') printf("\\%c", *c);
        else if (*c == '\n') printf("\\n");
        else if (*c < 0x20) printf("\\u%04x", *c);
        else putchar(*c);
    }
    putchar('"');
}

void cli_json_key(const char *key, const char *text) {
    printf("\"%s\":", key);
    cli_json_string(text);
}

void cli_json_attr(const ct_attr *attr, const char *value) {
    static const char *const types[] = {
        [CT_ATTR_INT] = "int",   [CT_ATTR_DOUBLE] = "double", [CT_ATTR_BOOL] = "bool", [CT_ATTR_DIMS] = "dims",
        [CT_ATTR_OPT] = "opt",   [CT_ATTR_DTYPE] = "dtype",   [CT_ATTR_ENUM] = "enum", [CT_ATTR_TEXT] = "text",
        [CT_ATTR_AXES] = "axes", [CT_ATTR_DEVICE] = "device",
    };
    printf("{");
    cli_json_key("name", attr->name);
    if (attr->plural) printf(","), cli_json_key("plural", attr->plural);
    printf(","), cli_json_key("type", types[attr->type]);
    printf(",\"required\":%s", attr->required ? "true" : "false");
    if (value) printf(","), cli_json_key("default", value);
    if (attr->type == CT_ATTR_ENUM && attr->values) {
        printf(",\"values\":[");
        for (int i = 0; attr->values[i]; i++) printf("%s", i ? "," : ""), cli_json_string(attr->values[i]);
        printf("]");
    }
    if (attr->doc && attr->doc[0]) printf(","), cli_json_key("doc", attr->doc);
    printf("}");
}
