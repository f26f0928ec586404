# python.cmake - the extension module snib._core, for the stable ABI of Python 3.10 and newer.
#
# Requires the core's objects (their target is named by snib_whole) and SNIB_CORE_LIBS.  Everything but the module's
# init function is hidden, so that other copies of the core or of hiredis do not matter.

if(CMAKE_VERSION VERSION_LESS 3.26)
    message(FATAL_ERROR "The Python extension needs CMake 3.26; `pip install .` brings it.")
endif()
find_package(Python 3.10 COMPONENTS Interpreter Development.SABIModule)
if(NOT Python_FOUND)
    message(FATAL_ERROR "The Python extension needs Python 3.10 or newer with its headers (Debian: python3-dev).")
endif()
# Handles and their locks rely on one Python thread at a time, and without the GIL there is no
# stable ABI.
execute_process(
    COMMAND ${Python_EXECUTABLE} -c
            "import sysconfig; print(sysconfig.get_config_var('Py_GIL_DISABLED') or 0)"
    OUTPUT_VARIABLE free_threaded OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT free_threaded STREQUAL "0")
    message(FATAL_ERROR "Snib does not support free-threaded Python; use a build with the GIL.")
endif()
find_program(SWIG_EXECUTABLE NAMES swig REQUIRED)

set(snib_bindings ${CMAKE_CURRENT_LIST_DIR})
set(snib_wrapper ${CMAKE_CURRENT_BINARY_DIR}/snib_wrap.c)
get_filename_component(snib_include ${snib_bindings}/../core/include ABSOLUTE)

add_custom_command(
    OUTPUT ${snib_wrapper}
    COMMAND ${SWIG_EXECUTABLE} -python -noproxy -threads -I${snib_include}
            -o ${snib_wrapper} ${snib_bindings}/snib.i
    DEPENDS ${snib_bindings}/snib.i ${snib_include}/snib.h
    VERBATIM)

Python_add_library(_core MODULE USE_SABI 3.10 WITH_SOABI
    ${snib_wrapper} ${snib_bindings}/python_calls.c ${snib_bindings}/python_drop.c
    ${snib_bindings}/python_events.c ${snib_bindings}/python_family.c ${snib_bindings}/python_scope.c
    ${snib_bindings}/python_values.c)
# Generated code follows its own rules, except for references and what newer compilers refuse to compile.
set(snib_generated -Wno-missing-prototypes -Wno-pedantic -Wno-unused-but-set-variable
    -Werror=incompatible-pointer-types -Werror=int-conversion -Werror=implicit-function-declaration)
set_source_files_properties(${snib_wrapper} PROPERTIES
    COMPILE_OPTIONS "${snib_generated};-include;${snib_bindings}/python_refs.h"
    OBJECT_DEPENDS ${snib_bindings}/python_refs.h)
target_include_directories(_core PRIVATE ${snib_bindings} ${snib_include})
target_compile_definitions(_core PRIVATE SWIG_TYPE_TABLE=snib SNIB_STATIC)
set_target_properties(_core PROPERTIES C_VISIBILITY_PRESET hidden)

# A static hiredis makes the wheel independent of the system's; libuuid.a cannot go into a module.
find_library(SNIB_HIREDIS_STATIC NAMES libhiredis.a)
# A private static OpenSSL does not collide with that of ssl, psycopg or cryptography.
find_library(SNIB_SSL_STATIC NAMES libssl.a)
find_library(SNIB_CRYPTO_STATIC NAMES libcrypto.a)
set(snib_libs ${SNIB_CORE_LIBS})
if(SKBUILD AND SNIB_SSL_STATIC AND SNIB_CRYPTO_STATIC)
    # Some archives need other libraries, such as zstd, whose names and archives cannot be known.  A module would be linked
    # without them, and not load; so a program, which is not, is tried first.
    set(snib_try ${CMAKE_CURRENT_BINARY_DIR}/own_openssl.c)
    file(WRITE ${snib_try} "#include <openssl/ssl.h>\nint main(void) { return !SSL_CTX_new(TLS_client_method()); }\n")
    try_compile(snib_openssl_own ${CMAKE_CURRENT_BINARY_DIR}/own_openssl SOURCES ${snib_try}
        LINK_LIBRARIES ${SNIB_SSL_STATIC} ${SNIB_CRYPTO_STATIC} Threads::Threads ${CMAKE_DL_LIBS})
endif()
if(snib_openssl_own)
    list(TRANSFORM snib_libs REPLACE "^ssl$" ${SNIB_SSL_STATIC})
    list(TRANSFORM snib_libs REPLACE "^crypto$" ${SNIB_CRYPTO_STATIC})
    target_compile_definitions(${snib_whole} PRIVATE SNIB_OPENSSL_OWN)
endif()
if(SNIB_HIREDIS_STATIC)
    list(TRANSFORM snib_libs REPLACE "^hiredis$" ${SNIB_HIREDIS_STATIC})
endif()
target_link_libraries(_core PRIVATE ${snib_whole} snib_warnings ${snib_libs})
target_link_options(_core PRIVATE
    -Wl,--version-script=${snib_bindings}/core.map -Wl,--gc-sections -Wl,-z,nodelete)
set_target_properties(_core PROPERTIES LINK_DEPENDS ${snib_bindings}/core.map)

install(TARGETS _core DESTINATION snib COMPONENT python)
