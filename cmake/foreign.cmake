# Libraries that io/, data/ and the command use where they are there: images, compression, JSON, YAML. Only their headers
# are needed here; the libraries themselves are loaded when they are first used (support/foreign.h), so that the library keeps
# needing none. Without a header the calls that want it fail and say so. CT_FOREIGN_FOUND and CT_FOREIGN_MISSING are for
# the summary.
include(CheckIncludeFile)
set(CT_WITHOUT "" CACHE STRING "Libraries to do without though they are here, as in ZLIB;LIBYAML: to see what a machine without them sees")
set(CT_FOREIGN_FOUND)
set(CT_FOREIGN_MISSING)
set(CT_FOREIGN_DEFINITIONS)

# ct_foreign(NAME HEADER PACKAGE): CT_HAVE_NAME=1 where the header is found.
macro(ct_foreign name header package)
    if(NOT CT_HEADER_${name}) # it may have been installed since
        unset(CT_HEADER_${name} CACHE)
    endif()
    check_include_file(${header} CT_HEADER_${name})
    if(CT_HEADER_${name} AND NOT "${name}" IN_LIST CT_WITHOUT)
        list(APPEND CT_FOREIGN_FOUND ${name})
        list(APPEND CT_FOREIGN_DEFINITIONS CT_HAVE_${name}=1)
    else()
        list(APPEND CT_FOREIGN_MISSING "${name} (Debian: ${package})")
    endif()
endmacro()
ct_foreign(ZLIB zlib.h zlib1g-dev)
ct_foreign(LIBZIP zip.h libzip-dev)
ct_foreign(LIBPNG png.h libpng-dev)
ct_foreign(TURBOJPEG turbojpeg.h libturbojpeg0-dev)
ct_foreign(JANSSON jansson.h libjansson-dev)
ct_foreign(LIBYAML yaml.h libyaml-dev)

function(ct_foreign_definitions target)
    target_compile_definitions(${target} PRIVATE ${CT_FOREIGN_DEFINITIONS})
endfunction()
