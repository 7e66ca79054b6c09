# Files that the command carries: the recipes of recipes/, and the style of the report, written as C.
include_guard()
set(CT_ASSETS_C ${CMAKE_CURRENT_BINARY_DIR}/assets.c)
set(ct_arrays "")
set(ct_rows "")

# ct_asset(DECLARATION FILE): the file's bytes, ended by a zero, as an array.
macro(ct_asset declaration path)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
    file(READ ${path} ct_bytes HEX)
    string(REGEX REPLACE "(................................)" "\\1\n" ct_bytes "${ct_bytes}")
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," ct_bytes "${ct_bytes}")
    string(APPEND ct_arrays "${declaration}[] = {\n${ct_bytes}0};\n")
endmacro()

file(GLOB CT_RECIPES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/recipes/*.yaml)
foreach(recipe ${CT_RECIPES})
    get_filename_component(name ${recipe} NAME_WE)
    string(MAKE_C_IDENTIFIER ${name} id)
    ct_asset("static const char recipe_${id}" ${recipe})
    string(APPEND ct_rows "    {\"${name}\", recipe_${id}, sizeof recipe_${id} - 1},\n")
endforeach()
ct_asset("const char report_style" ${CMAKE_CURRENT_SOURCE_DIR}/cli/train/report.css)
file(GENERATE OUTPUT ${CT_ASSETS_C} CONTENT "/* Written by cmake/assets.cmake. */
#include \"cli/train/report.h\"

${ct_arrays}
const recipe_file recipe_files[] = {
${ct_rows}    {0},
};
")
