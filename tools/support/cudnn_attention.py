"""For tools/gpu_check: the rate of cuDNN's causal attention by way of PyTorch, in the shape in
which penstock-bench gpu times our own. Prints what penstock-bench would, or "absent: " and why
not."""

import sys
import time

BATCH, TOKENS, HEADS, HEAD = 16, 1024, 25, 64  # those of GpuKernelSizes in tools/bench/gpu.h
CALLS, REPEATS = 20, 3
PEAK = 989e12


def absent(reason):
    print(f"absent: {reason}")
    sys.exit(0)


try:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
except ImportError:
    absent("this machine's Python has no PyTorch that can choose cuDNN's attention")
if not torch.cuda.is_available():
    absent("PyTorch sees no CUDA device")


def seconds(run):
    """Of one call of many in a row: the median, after a turn that is not counted."""
    times = []
    for _ in range(REPEATS + 1):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(CALLS):
            run()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / CALLS)
    return sorted(times[1:])[REPEATS // 2]


def main():
    qkv = torch.rand(BATCH, TOKENS, 3, HEADS, HEAD, device="cuda", dtype=torch.bfloat16) * 2 - 1
    q, k, v = (part.transpose(1, 2).requires_grad_() for part in qkv.unbind(2))
    attention = torch.nn.functional.scaled_dot_product_attention
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        try:
            out = attention(q, k, v, is_causal=True)
        except RuntimeError as error:
            absent("cuDNN's attention: " + str(error).splitlines()[0])
        grad = torch.rand_like(out) * 2 - 1
        with torch.no_grad():
            forward = seconds(lambda: attention(q, k, v, is_causal=True))
        backward = seconds(lambda: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True))
    product = BATCH * HEADS * HEAD * TOKENS * TOKENS  # operations in the half of one product
    for name, products, passed in (("forward", 2, forward), ("backward", 5, backward)):
        rate = products * product / passed
        print(f"cuDNN's attention, {name}  {rate * 1e-12:.1f}  {100 * rate / PEAK:.1f} %")


if __name__ == "__main__":
    main()
