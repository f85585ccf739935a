#!/bin/bash
# Stands for each program that tools/gpu_check starts, by the name that it is copied to: says what
# that one would say. FAKE names what goes wrong.
is_fake() { case " $FAKE " in *" $1 "*) true ;; *) false ;; esac }
tests() {
  echo "[==========] Running $1 tests from 1 test suite."
  for ((i = 0; i < $2; ++i)); do echo "[       OK ] Small/Op.Case/$i (3 ms)"; done
}

case "${0##*/} $*" in
  ldd*) ! is_fake no-library || printf '\tlibnccl.so.2 => not found\n' ;;
  nvidia-smi*)
    if is_fake no-device; then echo "No devices were found"; exit 6; fi
    echo "NVIDIA H200, 580.1, 143771 MiB" ;;
  compute-sanitizer*)
    shift 4  # its own options
    "$@"
    status=$?
    if is_fake race; then
      echo "========= RACECHECK SUMMARY: 3 hazards displayed (3 errors)"
      exit 9
    fi
    echo "========= ERROR SUMMARY: 0 errors"
    exit $status ;;
  *TwoStagesOnOneDevice*)  # sees one, or its ranks would take two
    case "$CUDA_VISIBLE_DEVICES" in *,* | "") exit 1 ;; esac
    tests 4 4 ;;
  *TwoStagesOverNccl*)
    if [ "$CUDA_MODULE_LOADING $NCCL_P2P_DIRECT_DISABLE" != "EAGER 1" ]; then exit 1; fi
    tests 1 0
    printf 'a.cpp:3: Skipped\none device, not two\n\n[  SKIPPED ] T.TwoStagesOverNccl (0 ms)\n' ;;
  "tensor_cuda_parity_test_gpu ")
    if is_fake no-cuda; then exit 77; fi
    if is_fake slow; then tests 5 2; sleep 60; fi
    if is_fake crash; then tests 5 1; kill -SEGV $$; fi
    if is_fake wrong; then
      tests 5 2
      echo "[  FAILED  ] Small/Op.Case/gelu, where GetParam() = gelu (4 ms)"
      exit 1
    fi
    tests 5 5 ;;
  *_test_gpu*) tests 4 4 ;;
  penstock-train*)
    while [ "$1" != --run ]; do
      if [ "$1" = --config ] && grep -q cuda "$2"; then place=cuda; fi
      shift
    done
    mkdir -p "$2"
    echo "step,loss" >"$2/losses.csv"
    for ((i = 1; i < 10; ++i)); do echo "$i,5.0"; done >>"$2/losses.csv"
    last=5.0
    if is_fake drift && [ "$place" = cuda ]; then last=5.1; fi
    echo "10,$last" >>"$2/losses.csv" ;;
  penstock-bench*kernels*)
    printf 'kernels that move memory  GB/s  of a device copy\ndevice copy  4100  1.00\n'
    printf 'attention, forward  300.0  30.3 %%\nattention, backward  200.0  20.2 %%\n' ;;
  python3*)
    if is_fake no-torch; then echo "absent: there is no PyTorch"; exit; fi
    printf "cuDNN's attention, forward  500.0  50 %%\ncuDNN's attention, backward  400.0  40 %%\n" ;;
  penstock-bench*)
    printf 'GPT-2  tokens/s  ms  of 989 TFLOP/s\none device  1234  10.0  41.5 %%  9.1\n' ;;
esac
