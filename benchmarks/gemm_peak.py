"""Measures the rate of large matmuls on this machine, on all cores at once, with one process and one thread each.

    python benchmarks/gemm_peak.py PROCESSES        # a Python with torch; prints one JSON object: name -> FLOP/s of all

Names: "float32 mm" and "bfloat16 mm" are torch.mm; "float32 oneDNN" is the same matmul through oneDNN, since the MKL in
torch's wheel takes a slow path for float32 on processors that are not Intel's.
"""
import json
import multiprocessing
import sys
import time

import torch

SIZE = 2048
FLOPS = 2 * SIZE**3
SECONDS = 0.6  # for each matmul; the best single one counts, so that a short disturbance does not


def products():
    square = torch.randn(SIZE, SIZE)
    low = square.to(torch.bfloat16)
    blocked = square.to_mkldnn()
    linear = torch.ops.aten.mkldnn_linear
    return {
        "float32 mm": lambda: torch.mm(square, square),
        "float32 oneDNN": lambda: linear(blocked, blocked, None),
        "bfloat16 mm": lambda: torch.mm(low, low),
    }


def seconds_of(product):
    start = time.perf_counter()
    product()
    return time.perf_counter() - start


def rate(product):
    best = seconds_of(product)
    if best > SECONDS:  # ATen's reference loops: costs of the first use do not matter
        return FLOPS / best
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        best = min(best, seconds_of(product))
    return FLOPS / best


def work(barrier, results):
    torch.set_num_threads(1)
    rates = {}
    for name, product in products().items():
        barrier.wait()
        rates[name] = rate(product)
    results.put(rates)


def main():
    count = int(sys.argv[1])
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(count), context.Queue()
    workers = [context.Process(target=work, args=(barrier, results)) for _ in range(count)]
    for worker in workers:
        worker.start()
    rates = [results.get(timeout=120) for _ in workers]
    for worker in workers:
        worker.join()
    print(json.dumps({name: sum(each[name] for each in rates) for name in rates[0]}))


if __name__ == "__main__":
    main()
