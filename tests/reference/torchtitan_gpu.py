"""Starts TorchTitan 0.2.2's trainer on a GPU, for scripts/gpu_check.sh.

    torchrun --nproc-per-node N tests/reference/torchtitan_gpu.py [--section.key VALUE ...]

Needs a Python that has torchtitan; its trainer runs unchanged. $TITAN_PEER_ARGS gives the sizes, as for
torchtitan_cpu.py.
"""
import torchtitan_cpu

if __name__ == "__main__":
    torchtitan_cpu.train()
