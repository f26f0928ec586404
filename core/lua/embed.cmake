# embed.cmake - turn the Lua scripts of a folder into a C header.
#
#   cmake -DDIR=core/lua -DOUT=scripts.h -P core/lua/embed.cmake
#
# For each foo.lua, sorted by name, the header has an enumerator SNIB__SCRIPT_FOO and a row of
# snib__script_texts[] in the same order.  The text is the file without its comment lines and blank
# lines, each line ended by \n; the SHA1 is of exactly that text.

cmake_minimum_required(VERSION 3.25)

file(GLOB files "${DIR}/*.lua")
list(SORT files)
if(NOT files)
    message(FATAL_ERROR "no Lua scripts in ${DIR}")
endif()

set(names "")
set(rows "")
foreach(file IN LISTS files)
    get_filename_component(name "${file}" NAME_WE)
    string(TOUPPER "${name}" upper)

    # Never as a CMake list: lists would trip over ; and [ in the text.
    file(READ "${file}" text)
    if(text MATCHES "\\[=*\\[")
        message(FATAL_ERROR "${file}: long brackets would make line-wise stripping wrong")
    endif()
    set(text "\n${text}\n")
    string(REGEX REPLACE "\n[ \t]*--[^\n]*" "" text "${text}")
    string(REGEX REPLACE "\n[ \t\n]*\n" "\n" text "${text}")
    string(SUBSTRING "${text}" 1 -1 text)
    string(SHA1 sha1 "${text}")
    string(LENGTH "${text}" length)

    string(REPLACE "\\" "\\\\" text "${text}")
    string(REPLACE "\"" "\\\"" text "${text}")
    string(REPLACE "\n" "\\n\"\n     \"" text "${text}")
    string(REGEX REPLACE "\n     \"$" "" text "${text}") # the last newline opens no further literal

    string(APPEND names "    SNIB__SCRIPT_${upper},\n")
    string(APPEND rows "    {\"${name}\",\n     \"${text},\n     ${length}, \"${sha1}\"},\n")
endforeach()

set(temporary "${OUT}.new")
file(WRITE "${temporary}" "/* Generated from core/lua/*.lua by core/lua/embed.cmake; do not edit. */
#ifndef SNIB__SCRIPTS_H
#define SNIB__SCRIPTS_H

#include <stdint.h>

enum snib__script {
${names}    SNIB__SCRIPT_COUNT
};

static const struct snib__script_text {
    const char *name;
    const char *text;
    uint32_t length;
    char sha1[41];
} snib__script_texts[] = {
${rows}};

#endif
")
file(COPY_FILE "${temporary}" "${OUT}" ONLY_IF_DIFFERENT)
file(REMOVE "${temporary}")
