# dependencies.cmake - find the chosen parts' dependencies, and name all missing ones in one line.

set(missing "")

# need(<header> <library> <Debian package>) - look for both; if one is missing, note the package.
function(need header library package)
    string(MAKE_C_IDENTIFIER "${library}" id)
    find_path(SNIB_${id}_INCLUDE ${header})
    find_library(SNIB_${id}_LIBRARY ${library})
    mark_as_advanced(SNIB_${id}_INCLUDE SNIB_${id}_LIBRARY)
    if(NOT SNIB_${id}_INCLUDE OR NOT SNIB_${id}_LIBRARY)
        set(missing ${missing} ${package} PARENT_SCOPE)
    endif()
endfunction()

need(hiredis/read.h hiredis libhiredis-dev)
need(uuid/uuid.h uuid uuid-dev)
need(openssl/ssl.h ssl libssl-dev)
need(openssl/crypto.h crypto libssl-dev)
if(SNIB_CLI)
    need(cjson/cJSON.h cjson libcjson-dev)
endif()
if(SNIB_TESTS)
    need(cmocka.h cmocka libcmocka-dev)
endif()
list(REMOVE_DUPLICATES missing)
if(missing)
    list(JOIN missing " " missing)
    message(FATAL_ERROR "Missing libraries.  On Debian: apt install ${missing}")
endif()

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

# Libraries are linked by their plain names, so that no local path gets into the installed package;
# these are their folders, if not the default ones.
set(SNIB_DEPENDENCY_INCLUDES "")
foreach(id hiredis uuid ssl crypto cjson cmocka)
    if(SNIB_${id}_LIBRARY)
        get_filename_component(folder ${SNIB_${id}_LIBRARY} DIRECTORY)
        if(NOT folder IN_LIST CMAKE_C_IMPLICIT_LINK_DIRECTORIES)
            link_directories(${folder})
        endif()
        if(NOT SNIB_${id}_INCLUDE IN_LIST CMAKE_C_IMPLICIT_INCLUDE_DIRECTORIES)
            list(APPEND SNIB_DEPENDENCY_INCLUDES ${SNIB_${id}_INCLUDE})
        endif()
    endif()
endforeach()
list(REMOVE_DUPLICATES SNIB_DEPENDENCY_INCLUDES)
