# Helpers that give every Penstock target the same language level, warnings and sanitizers.

function(penstock_compile_options target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set(cxx_warnings -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual)
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${cxx_warnings}>"
    # CMake 3.25 knows no standards of nvcc 13. constexpr functions are for kernels too; a device's
    # a·b + c stays what the source says.
    "$<$<COMPILE_LANGUAGE:CUDA>:--std=c++20;--expt-relaxed-constexpr;--fmad=false;-Xcompiler=-Wall,-Wextra,-Wshadow>")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # GCC 12 warns about "literal" + std::string inside its own <string> (GCC bug 105651).
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
  endif()
  if(PENSTOCK_WERROR)
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-Werror>"
      "$<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings;-Xcompiler=-Werror>")
  endif()
  if(PENSTOCK_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${PENSTOCK_SANITIZE}
                                             -fno-sanitize-recover=all -fno-omit-frame-pointer)
    if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)  # wrong about instrumented code of the standard library
      target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized)
    endif()
    target_link_options(${target} PUBLIC -fsanitize=${PENSTOCK_SANITIZE})
  endif()
endfunction()

# penstock_add_library(name SOURCES a.cpp… HEADERS a.h… LINK penstock::tensor… PRIVATE_LINK lib…
#                      HEADER_ONLY lib…)
# makes penstock_<name> with the alias penstock::<name>, included by path from the repository root.
# HEADERS are the public ones, which are installed; HEADER_ONLY libraries are used by the sources
# alone, so that who links the installed archive does not need them.
function(penstock_add_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;HEADERS;LINK;PRIVATE_LINK;HEADER_ONLY" ${ARGN})
  set(target penstock_${name})
  if(ARG_SOURCES)
    add_library(${target} STATIC ${ARG_SOURCES})
    set(scope PUBLIC)
    penstock_compile_options(${target})
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  else()
    add_library(${target} INTERFACE)
    target_compile_features(${target} INTERFACE cxx_std_20)
    set(scope INTERFACE)
  endif()
  add_library(penstock::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  target_sources(${target} ${scope} FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}
                                    FILES ${ARG_HEADERS})
  target_link_libraries(${target} ${scope} ${ARG_LINK})
  if(ARG_PRIVATE_LINK)
    target_link_libraries(${target} PRIVATE ${ARG_PRIVATE_LINK})
  endif()
  foreach(library IN LISTS ARG_HEADER_ONLY)
    target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:${library}>)
  endforeach()
  set_property(GLOBAL APPEND PROPERTY PENSTOCK_LIBRARIES ${target})
endfunction()

# Tests wait for the compiler far longer than they run, so they are built with less optimization.
function(penstock_test_options target)
  penstock_compile_options(${target})
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
endfunction()

# How tests start ranks: as root in a container too, more of them than there are cores too, without
# keeping the cores busy while they wait, and without tying the threads of a rank to one core.
set(PENSTOCK_MPIRUN_FLAGS --allow-run-as-root --oversubscribe --bind-to none
                          --mca mpi_yield_when_idle 1)

# penstock_add_test(name SOURCES… LINK… LABEL unit [RANKS n…] [TIMEOUT seconds]) makes one GoogleTest
# executable. RANKS runs it under mpirun with n processes, once for each n, as <name>_<n>.
function(penstock_add_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "SOURCES;LINK;RANKS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  penstock_test_options(${name})
  target_compile_definitions(${name} PRIVATE
                             PENSTOCK_GOLDEN_DIR="${PROJECT_SOURCE_DIR}/tests/golden")
  if(ARG_RANKS)
    target_link_libraries(${name} PRIVATE ${ARG_LINK} GTest::gtest)
    foreach(ranks ${ARG_RANKS})
      add_test(NAME ${name}_${ranks}
               COMMAND ${MPIEXEC_EXECUTABLE} ${PENSTOCK_MPIRUN_FLAGS} -n ${ranks}
                       $<TARGET_FILE:${name}>)
      list(APPEND tests ${name}_${ranks})
    endforeach()
    set_tests_properties(${tests} PROPERTIES RUN_SERIAL ON)
  else()
    set(tests ${name})
    target_link_libraries(${name} PRIVATE ${ARG_LINK} GTest::gtest GTest::gtest_main)
    add_test(NAME ${name} COMMAND ${name})
  endif()
  if(ARG_LABEL STREQUAL "multi")  # ranks as threads: as much work as two unit tests
    set_tests_properties(${name} PROPERTIES PROCESSORS 2)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(PENSTOCK_SANITIZE)  # a test takes up to ten times as long
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 6")
  endif()
  set_tests_properties(${tests} PROPERTIES LABELS "${ARG_LABEL}" TIMEOUT ${ARG_TIMEOUT})
  if(ARG_LABEL MATCHES "mpi|fault")
    # Open MPI keeps memory until the process ends, and unloads the plugins that a suppression could
    # name. The same code is looked at for leaks where ranks are threads.
    set_tests_properties(${tests} PROPERTIES ENVIRONMENT "LSAN_OPTIONS=detect_leaks=0")
  endif()
endfunction()
