# Installs a build into an empty folder, then configures, builds and runs a project that finds it
# there. Variables: BUILD_DIR and SOURCE_DIR of the repository, WORK_DIR, CXX, CXX_FLAGS, GENERATOR.
function(run what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output
                  ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${what} failed (${status}):\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK_DIR})
run("install" ${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${WORK_DIR}/prefix)
run("configure" ${CMAKE_COMMAND} -S ${SOURCE_DIR}/tests/repo/consumer -B ${WORK_DIR}/build
    -G ${GENERATOR} -DEXAMPLE=${SOURCE_DIR}/examples/minimal_trainer.cpp
    -DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix -DCMAKE_CXX_COMPILER=${CXX}
    -DCMAKE_CXX_FLAGS=${CXX_FLAGS})
run("build" ${CMAKE_COMMAND} --build ${WORK_DIR}/build)
run("trainer" ${WORK_DIR}/build/trainer ${SOURCE_DIR}/LICENSE)
run("schedules" ${WORK_DIR}/build/schedules)
