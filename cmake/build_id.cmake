# build_id.cmake - one id for the core's sources, the same in every package.
#
#   cmake -DDIR=core [-DOUT=snib_build_id.h] -P cmake/build_id.cmake
#
# The first 16 hex digits of the SHA-256 over the lines "<sha256 of file>  <path below DIR>\n" of
# all sources, sorted by path.  In a shell, inside DIR:
#
#   sha256sum $(ls include/*.h {api,driver,engine,locks,net}/*.[ch] api/*.def lua/*.lua |
#               LC_ALL=C sort) | sha256sum
#
# Without OUT the id is printed.
cmake_minimum_required(VERSION 3.25)

file(REAL_PATH ${DIR} DIR)
set(globs ${DIR}/include/*.h ${DIR}/api/*.def ${DIR}/lua/*.lua)
foreach(folder api driver engine locks net)
    list(APPEND globs ${DIR}/${folder}/*.c ${DIR}/${folder}/*.h)
endforeach()
file(GLOB files RELATIVE ${DIR} ${globs})
list(SORT files)
if(NOT files)
    message(FATAL_ERROR "no sources in ${DIR}")
endif()
set(lines "")
foreach(file IN LISTS files)
    file(SHA256 ${DIR}/${file} hash)
    string(APPEND lines "${hash}  ${file}\n")
endforeach()
string(SHA256 id "${lines}")
string(SUBSTRING ${id} 0 16 id)

if(OUT)
    file(WRITE ${OUT} "#define SNIB_BUILD_ID \"${id}\"\n")
else()
    execute_process(COMMAND ${CMAKE_COMMAND} -E echo ${id}) # message() would write to stderr
endif()
