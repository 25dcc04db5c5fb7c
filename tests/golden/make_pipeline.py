"""make.py's part for pipeline schedules: asks PyTorch's classes for their orders (tests/reference/pipeline_orders.py)."""
import sys

from peer_tools import ROOT, write

# Name, ranks, stages per rank, microbatches: full and ragged rounds, odd numbers of ranks, more stages than are gathered
# at once, fewer microbatches than fill a V.
QUESTIONS = [
    ("GPipe", 2, 1, 4), ("GPipe", 3, 1, 2),
    ("1F1B", 2, 1, 4), ("1F1B", 4, 1, 4), ("1F1B", 3, 1, 7),
    ("Interleaved1F1B", 2, 2, 4), ("Interleaved1F1B", 4, 2, 8), ("Interleaved1F1B", 4, 2, 10), ("Interleaved1F1B", 3, 5, 2),
    ("LoopedBFS", 2, 2, 4), ("LoopedBFS", 3, 4, 3),
    ("InterleavedZeroBubble", 2, 2, 4), ("InterleavedZeroBubble", 4, 2, 8), ("InterleavedZeroBubble", 3, 4, 5),
    ("ZBVZeroBubble", 2, 2, 4), ("ZBVZeroBubble", 4, 2, 8), ("ZBVZeroBubble", 3, 2, 2),
    ("DualPipeV", 2, 2, 4), ("DualPipeV", 3, 2, 6), ("DualPipeV", 4, 2, 10),
]  # fmt: skip


def make_pipeline(_context, output):
    sys.path.append(str(ROOT / "tests/reference"))
    import pipeline_orders

    answers = {}
    for question in QUESTIONS:
        answer = pipeline_orders.answer(*question)
        answers[" ".join(map(str, question))] = {kind: [" ".join(order) for order in orders] for kind, orders in answer.items()}
    write(output / "pipeline.json", answers)


PARTS = {"pipeline": make_pipeline}
